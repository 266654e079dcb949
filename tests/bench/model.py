"""The demonstration model behind a gateway of its own, and streamed answers with their moments.

Floor 3, I/O.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench.lifecycle_text import quantile
from tests.bench.outputs import LoadFailed
from tests.live.gateways import ROOT, Gateway, config, running, scripted_model

MODEL: Final = "smollm2-135m-instruct"
SERVER_SENT: Final = b"data: "
DONE: Final = b"[DONE]"

Moment = Callable[[float], None]


@dataclass(slots=True)
class Answer:
    """A streamed answer: when it was asked for, when each piece came, and what was said of it."""

    asked_s: float
    came_s: list[float] = field(default_factory=list)
    text: str = ""
    instance: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first_ms(self) -> float:
        return (self.came_s[0] - self.asked_s) * 1000

    @property
    def cached(self) -> int:
        return int(self.usage["prompt_tokens_details"]["cached_tokens"])

    def read(self, event: Mapping[str, Any], now: float) -> bool:
        """True if it brought a piece; who speaks is none."""
        self.usage = event["usage"] or {}
        pieces = [choice.get("delta", choice) for choice in event["choices"]]
        pieces = [piece for piece in pieces if "role" not in piece]
        self.text += "".join(piece.get("content") or piece.get("text") or "" for piece in pieces)
        self.came_s += [now] * len(pieces)
        return bool(pieces)


def config_text(folder: Path, replicas: int, **keys: object) -> str:
    """A config.toml whose instances are of the snapshot and compile cache of this checkout."""
    # Without a warm-up: the shapes have all run, and six loads would take minutes more.
    keys = {"command": (), "warmup_rounds": 0, **keys}
    model = scripted_model(MODEL, {"1": 1}, replicas={"1": replicas}, **keys)
    text = config(folder, model)
    for name in ("models", "cache"):
        text = text.replace(f'"{folder}/{name}"', f'"{ROOT}/var/{name}"')
    return text


@asynccontextmanager
async def serving(folder: Path, replicas: int, **keys: object) -> AsyncIterator[Gateway]:
    """All of its instances are READY, and have answered once."""
    async with running(folder, config_text(folder, replicas, **keys)) as gateway:
        await gateway.ready(*(f"{MODEL}-1-{n}" for n in range(replicas)))
        await gateway.routes(MODEL, {"1": 1})
        yield gateway


async def streamed(
    gateway: Gateway,
    path: str,
    body: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
    on_piece: Moment = lambda now: None,
) -> Answer:
    """Greedy, and read to its end. Raises: LoadFailed if it has none."""
    asked = {**body, "model": MODEL, "temperature": 0, "stream": True}
    asked["stream_options"] = {"include_usage": True}
    answer = Answer(time.perf_counter())
    async with gateway.http.post(f"{gateway.url}{path}", json=asked, headers=headers) as response:
        if response.status != 200:
            raise LoadFailed(f"{path}: {response.status} {await response.text()}")
        answer.instance = response.headers["x-instance-id"]
        async for line in response.content:
            now = time.perf_counter()
            if not line.startswith(SERVER_SENT):
                continue
            said = line.removeprefix(SERVER_SENT).strip()
            if said == DONE:
                return answer
            if answer.read(json.loads(said), now):
                on_piece(now)
    raise LoadFailed(f"{path}: the stream was cut")


def spread(values: Sequence[float]) -> str:
    """Median, 99th percentile and largest."""
    return " / ".join(f"{quantile(values, share):.0f}" for share in (0.5, 0.99, 1.0))

"""Clients of a gateway: one request, or a crowd of them that never stops asking."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from tests.live.gateways import PATIENCE_S, Gateway

ENDLESS: Final = 12_000  # tokens: two minutes at least


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got; `whole` only when the stream came to its proper end."""

    status: int
    instance: str
    version: str
    code: str  # x-sluicegate-error
    whole: bool
    chunks: int
    broke: str  # how the connection ended, when it broke
    body: dict[str, Any] = field(default_factory=dict)


async def ask(
    gateway: Gateway,
    model: str,
    max_tokens: int = 4,
    *,
    stream: bool = True,
    seen: asyncio.Event | None = None,
    fields: Mapping[str, str] | None = None,
    **keys: object,
) -> Answer:
    """One chat request; `seen` is set at the first chunk of a stream, `fields` are of its head."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": stream,
        **keys,
    }
    status, told, chunks, last = 0, dict[str, str](), 0, b""
    url = f"{gateway.url}/v1/chat/completions"
    try:
        async with gateway.http.post(url, json=body, headers=fields) as response:
            status, told = response.status, dict(response.headers)
            if status != 200 or not stream:
                document = orjson.loads(await response.read())
                return _answer(status, told, status == 200, 1, "", document)
            async for line in response.content:
                if line.startswith(b"data: "):
                    chunks, last = chunks + 1, line.strip()
                    if seen is not None:
                        seen.set()
    except (aiohttp.ClientError, OSError) as exc:
        return _answer(status, told, False, chunks, type(exc).__name__, {})
    return _answer(status, told, last == b"data: [DONE]", chunks, "", {})


async def streams(
    gateway: Gateway,
    model: str,
    count: int,
    tokens: int = ENDLESS,
    *,
    until: Path | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[asyncio.Task[Answer]]:
    """So many streams, each of which has begun; they end when there is a file at `until`."""
    events = [asyncio.Event() for _ in range(count)]
    said: dict[str, Any] = {}
    if until is not None:
        said["messages"] = [{"role": "user", "content": f"until {until}"}]
    tasks = [
        asyncio.create_task(ask(gateway, model, tokens, seen=seen, fields=fields, **said))
        for seen in events
    ]
    for seen, task in zip(events, tasks, strict=True):
        await begun(seen, task)
    return tasks


async def begun(seen: asyncio.Event, client: asyncio.Task[Any]) -> None:
    """Returns when the client has seen something; what never begins is no endless wait."""
    seeing = asyncio.create_task(seen.wait())
    await asyncio.wait([seeing, client], return_when=asyncio.FIRST_COMPLETED)
    seeing.cancel()
    assert seen.is_set(), client.result()


def _answer(
    status: int,
    fields: dict[str, str],
    whole: bool,
    chunks: int,
    broke: str,
    body: dict[str, Any],
) -> Answer:
    named = {name.lower(): value for name, value in fields.items()}
    return Answer(
        status,
        named.get("x-instance-id", ""),
        named.get("x-model-version", ""),
        named.get("x-sluicegate-error", ""),
        whole,
        chunks,
        broke,
        body,
    )


@dataclass(slots=True)
class Crowd:
    answers: list[Answer] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._moved.set()

    async def has(self, count: int) -> None:
        """Returns when so many answers have come in all."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.answers) < count:
                self._moved.clear()
                await self._moved.wait()

    async def more(self, count: int) -> None:
        await self.has(len(self.answers) + count)

    @property
    def lost(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.whole]

    def by_instance(self) -> Counter[str]:
        return Counter(answer.instance for answer in self.answers)


@asynccontextmanager
async def crowd(
    gateway: Gateway, model: str, clients: int, max_tokens: int
) -> AsyncIterator[Crowd]:
    """So many clients, each asking again as soon as it has its answer; all are waited for."""
    made, leaving = Crowd(), asyncio.Event()

    async def client() -> None:
        while not leaving.is_set():
            made.note(await ask(gateway, model, max_tokens))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(clients):
            tasks.create_task(client())
        try:
            yield made
        finally:
            leaving.set()

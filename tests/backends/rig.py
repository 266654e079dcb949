"""An instance's parts put together around a scripted engine: no model, no processes.

Text is bytes: each byte is its own token id, so what an engine "says" can be read off its ids, and
a character of several bytes is a token border in the middle of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from backends.engines.base import Sampling
from backends.engines.families import Parts
from backends.errors import DependencyMissing, RequestInvalid
from backends.executor import Executor
from backends.facts import Facts, Loaded
from backends.gate import Gate, Pass
from backends.life import Life
from backends.lifecycle import Standing
from backends.settings import Settings
from backends.snapshots.manifest import FileEntry, LlmManifest, Manifest
from backends.snapshots.repository import Repository, Snapshot
from backends.status import Identity, Memory
from sluicegate.v1.states import Phase
from tests.backends.fakes import Gate as Steps
from tests.backends.fakes import Rule, ScriptedEngine, script, successor

END: Final = 256  # the id after all bytes
MEMORY: Final = Memory("cpu", "cpu0", total_bytes=1000, free_bytes=400)


class ByteDetokenizer:
    """Holds back the beginning of a character until the rest of it is there."""

    def __init__(self, on_token: Callable[[int], object] = lambda count: None) -> None:
        self._held = b""
        self._count = 0
        self._on_token = on_token

    def push(self, token_id: int, /) -> str:
        self._count += 1
        self._on_token(self._count)
        self._held += bytes([token_id % 256])
        try:
            text = self._held.decode()
        except UnicodeDecodeError as exc:
            if exc.end < len(self._held) or "unexpected end" not in exc.reason:
                return self.flush()
            return ""
        self._held = b""
        return text

    def flush(self) -> str:
        held, self._held = self._held, b""
        return held.decode(errors="replace")


class ByteText:
    """A tokenizer whose ids are bytes; its template refuses the role `tool`."""

    stop_ids = frozenset({END})

    def __init__(self, on_token: Callable[[int], object] = lambda count: None) -> None:
        self._on_token = on_token

    def encode(self, text: str, special: bool) -> list[int]:
        return list(text.encode())

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        if any(each["role"] == "tool" for each in messages):
            raise RequestInvalid("messages", "the template knows no tools")
        return list("".join(f"{each['role'][0]}:{each['content']};" for each in messages).encode())

    def detokenizer(self) -> ByteDetokenizer:
        return ByteDetokenizer(self._on_token)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id % 256]) if token_id != END else b"<end>"


class PlainScanner:
    """Finds stop strings in the slowest way there is: it holds back everything that may be one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str, /) -> tuple[str, bool]:
        self._held += text
        found = [self._held.index(stop) for stop in self._stops if stop in self._held]
        if found:
            return self._held[: min(found)], True
        keep = max((n for n in range(len(self._held) + 1) if self._may_begin(n)), default=0)
        cut = len(self._held) - keep
        sendable, self._held = self._held[:cut], self._held[cut:]
        return sendable, False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _may_begin(self, length: int) -> bool:
        tail = self._held[len(self._held) - length :]
        return any(length and stop.startswith(tail) for stop in self._stops)


def says(text: str, prompt: str) -> Rule:
    """The rule of an engine that answers `text` to a prompt, then ends."""
    return script(list(text.encode()), len(prompt.encode()), END)


class WatchedGate(Gate):
    """A gate that a test can wait at."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()

    async def holds(self, count: int) -> None:
        """Returns when exactly so many requests are in flight."""
        async with asyncio.timeout(300):
            while self.in_flight != count:
                self._moved.clear()
                await self._moved.wait()

    def admit(self, standing: Standing, request_id: str, places: int = 1) -> Pass:
        admitted = super().admit(standing, request_id, places)
        self._moved.set()
        return admitted

    def _returned(self, admitted: Pass) -> None:
        super()._returned(admitted)
        self._moved.set()


@dataclass
class Rig:
    facts: Facts
    gate: WatchedGate
    engine: ScriptedEngine
    executor: Executor
    queue_max: int = 2
    now: float = 0.0

    @property
    def life(self) -> Life:
        return self.facts.life

    async def ready(self) -> "Rig":
        await self.executor.start(lambda *_: None)
        loaded = Loaded(
            self.executor,
            ByteText(),
            PlainScanner,
            Sampling(temperature=1.0),
            self.engine.slots,
            self.engine.max_seq_len,
        )
        self.facts.load(loaded, self.queue_max)
        self.life.progress(Phase.WARMING_UP, 1.0, "", self.now)
        self.life.verified(self.now)
        return self


def rig(engine: ScriptedEngine | None = None, queue_max: int = 2) -> Rig:
    """Parts of an instance that is still INITIALIZING."""
    engine = engine or ScriptedEngine(rule=successor)
    gate = WatchedGate()
    facts = Facts(
        Identity("m-1-0", "life-1", "m", "1", "127.0.0.1:1", "127.0.0.1:2"),
        gate,
        Life("m-1-0", gate),
        lambda: MEMORY,
    )
    executor = Executor(engine, queue_max, rng=Random(7))
    return Rig(facts, gate, engine, executor, queue_max)


@asynccontextmanager
async def ready_rig(
    engine: ScriptedEngine | None = None, steps: Steps | None = None, queue_max: int = 2
) -> AsyncIterator[Rig]:
    """A READY instance; `steps` is opened at the end: a failed test must end too."""
    made = rig(engine, queue_max)
    try:
        yield await made.ready()
    finally:
        if steps is not None:
            steps.open()
        await made.executor.close()


async def changed(life: Life, *states: str) -> None:
    """Returns when the life has reached one of `states`."""
    reached = asyncio.Event()

    def look() -> None:
        if life.standing.state.name in states:
            reached.set()

    unwatch = life.watch(look)
    look()
    async with asyncio.timeout(300):
        await reached.wait()
    unwatch()


def joined(parts: Iterable[str | None]) -> str:
    return "".join(part or "" for part in parts)


# --- a snapshot, and a family that runs it with a scripted engine ---------------------------------

FILES: Final = {"config.json": b"{}", "model.safetensors": b"weights" * 1000}


def write_snapshot(root: Path, version: str = "1") -> Snapshot:
    """A snapshot of nothing in particular."""
    return Repository(root).write("m", version, *snapshot_of(version))


def snapshot_of(
    version: str,
) -> tuple[Callable[[Path], None], Callable[[tuple[FileEntry, ...]], Manifest]]:
    """What puts its files into a folder, and what describes them."""

    def fill(folder: Path) -> None:
        for name, content in FILES.items():
            (folder / name).write_bytes(content)

    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return LlmManifest(
            model="m",
            version=version,
            engine="llm",
            architecture="llama",
            dtype="float32",
            max_seq_len=64,
            slots=2,
            kv_policy="preallocated",
            memory_needed_bytes=1,
            source="a test",
            created="2024-01-01T00:00:00+00:00",
            files=files,
        )

    return fill, describe


class ScriptedFamily:
    """Runs every snapshot with the engine it was given."""

    def __init__(self, engine: ScriptedEngine, missing: str = "") -> None:
        self._engine = engine
        self._missing = missing
        self.on_token: Callable[[int], object] = lambda count: None  # of the verification, from 1

        self.on_build: Callable[[], object] = lambda: None

    def require(self) -> None:
        if self._missing:
            raise DependencyMissing(self._missing)

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts:
        self.on_build()
        text = ByteText(lambda count: self.on_token(count))
        return Parts(self._engine, text, PlainScanner, Sampling(temperature=0.0))

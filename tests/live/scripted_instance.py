"""`sluicegate instance` with a scripted engine: every line of the real process but the model.

Run by gateways of live tests through `[[model]] command`. A step takes STEP_S, a load LOAD_S, and a
stream lasts as long as a test wants: `until PATH` is answered until there is a file at that path.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import backends.engines.families as families
from backends.commands import instance
from backends.engines.base import Report, Sampling
from backends.engines.families import Parts
from backends.settings import Settings
from backends.snapshots.manifest import FileEntry, LlmManifest, Manifest
from backends.snapshots.repository import Repository, Snapshot
from sluicegate.v1.states import Phase
from tests.backends.fakes import VOCAB, Rule, ScriptedEngine
from tests.backends.rig import END, ByteText, PlainScanner

STEP_S: Final = 0.01
SLOTS: Final = 8
POSITIONS: Final = 1 << 14  # minutes of them
PROMPT_END: Final = ord(";")  # as the template of ByteText writes it
NEEDS_BYTES: Final = 600_000_000  # so its manifest says: placement believes it
COMMAND: Final = (
    *(sys.executable, "-m", "tests.live.scripted_instance"),
    *("--model", "{model}", "--version", "{version}", "--instance-id", "{instance_id}"),
    *("--registry", "{registry}", "--root", "{root}", "--device", "{device}"),
    *("--life-fd", "{instances_life}", "--error-linger-s", "1"),
)


def printable(ids: tuple[int, ...]) -> int:
    """A rule that never ends by itself and says something readable."""
    return 32 + (ids[-1] - 31) % 90


def awaiting(ids: tuple[int, ...]) -> int:
    """The same, but `until PATH` is answered with the end once that file is there."""
    prompt = bytes(ids[: ids.index(PROMPT_END)]) if PROMPT_END in ids else b""
    _, word, path = prompt.partition(b"u:until ")
    return END if word and os.path.exists(path) else printable(ids)


class PacedEngine(ScriptedEngine):
    """`time.sleep` is the device's speed here: it runs on the model thread."""

    def __init__(
        self, load_s: float, slots: int = SLOTS, rule: Rule = awaiting, step_s: float = STEP_S
    ) -> None:
        super().__init__(slots=slots, max_seq_len=POSITIONS, chunks=(512,), rule=rule)
        self._load_s = load_s
        self._step_s = step_s

    def load(self, report: Report) -> None:
        for tenth in range(10):
            report(Phase.LOADING_MODEL, tenth / 10, f"{tenth} of 10 parts")
            time.sleep(self._load_s / 10)
        super().load(report)

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        time.sleep(self._step_s)
        self.calls.clear()
        return super().decode(ids, positions)

    def _logits(self, slot: int, length: int) -> NDArray[np.float32]:
        """Without a look at every cell: whether batches are right is asked elsewhere, of answers
        that are short."""
        logits = np.zeros(VOCAB, np.float32)
        logits[self._rule(tuple(self._ids[slot, :length].tolist()))] = 10.0
        return logits


class PacedFamily:
    def require(self) -> None:
        pass

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts:
        load_s = float(os.environ.get("SCRIPTED_LOAD_S", "0.2"))
        return Parts(PacedEngine(load_s), ByteText(), PlainScanner, Sampling(temperature=0.0))


def write_snapshot(root: Path, model: str, version: str) -> Snapshot:
    """A snapshot that a scripted instance accepts, checksums and all."""

    def fill(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"weights of " + version.encode())

    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return LlmManifest(
            model=model,
            version=version,
            engine="llm",
            architecture="llama",
            dtype="float32",
            max_seq_len=POSITIONS,
            slots=SLOTS,
            kv_policy="preallocated",
            memory_needed_bytes=NEEDS_BYTES,
            source="a test",
            created="2024-01-01T00:00:00+00:00",
            files=files,
        )

    return Repository(root).write(model, version, fill, describe)


if __name__ == "__main__":
    families.FAMILIES = {"llm": PacedFamily()}  # type: ignore[misc]  # this process has no other
    instance()

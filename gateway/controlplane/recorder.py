"""Samples of requests on disk: one file per model, of bounded size, replaced whole.

Floor 3, I/O: files, in a thread.   Flow: worker -> [recorder] -> a file -> warm-up, validation
Owner: the control process, of the files in `recorder.dir`. A reader finds a whole file or none. A
control that begins takes over what the one before it kept, when the first sample of a model comes.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson

from gateway.config import Recorder as Rules
from gateway.config import Settings
from gateway.messages import Sampled
from gateway.samples import Reservoir
from gateway.telemetry.tally import Tally

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0  # between two writes: what comes meanwhile goes into the next
ARRIVING_MAX: Final = 64  # samples that wait to be written; more are lost


class Recorder:
    """`settings` are those in force: what a reload changes counts from the next sample on."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        tally: Tally,
        rng: Random,
    ) -> None:
        self._settings = settings
        self._tally = tally
        self._rng = rng
        self._kept: dict[tuple[str, str], Reservoir] = {}  # by folder and model
        self._told: set[tuple[str, str]] = set()  # whose file has been named in the log
        self._arriving: list[Sampled] = []
        self._came = asyncio.Event()
        self._failing = False

    def heard(self, sample: Sampled) -> None:
        """From a worker; it costs nothing here."""
        settings = self._settings()
        known = any(model.name == sample.model for model in settings.model)
        if settings.recorder.enabled and known and len(self._arriving) < ARRIVING_MAX:
            self._arriving.append(sample)
            self._came.set()

    async def run(self) -> None:
        """Keep and write until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            await self.write()
            await asyncio.sleep(PAUSE_S)

    async def write(self) -> None:
        """Keep what has arrived, and write the files that it belongs to."""
        arrived, self._arriving = self._arriving, []
        rules = self._settings().recorder
        folder, touched = Path(rules.dir), set[str]()
        try:
            for model in dict.fromkeys(sample.model for sample in arrived):
                if (rules.dir, model) not in self._kept:
                    lines = await asyncio.to_thread(_read, _path(folder, model), rules.max_bytes)
                    self._kept[rules.dir, model] = self._resumed(lines, rules)
            for sample in arrived:
                line = _line(sample)
                kept = self._kept[rules.dir, sample.model]
                if kept.add(sample.bucket, line, rules.per_bucket, rules.max_bytes):
                    touched.add(sample.model)
                    self._tally.samples[sample.model, sample.bucket] += 1
            for model in touched:
                content = self._kept[rules.dir, model].file()
                await asyncio.to_thread(_replace, _path(folder, model), content)
                if (rules.dir, model) not in self._told:
                    self._told.add((rules.dir, model))
                    fields = {"model": model, "file": str(_path(folder, model))}
                    log.info("samples of requests are kept", extra=fields)
        except OSError as exc:
            if not self._failing:  # once; what is kept goes into the next file that can be written
                log.warning("samples are not written", extra={"reason": str(exc)})
            self._failing = True
        else:
            self._failing = False

    def _resumed(self, lines: list[bytes], rules: Rules) -> Reservoir:
        """What a file holds; a line that is none of ours is left out."""
        kept = Reservoir(self._rng)
        for line in lines:
            try:
                bucket = orjson.loads(line)["bucket"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            if isinstance(bucket, str):
                kept.add(bucket, line + b"\n", rules.per_bucket, rules.max_bytes)
        return kept


def _line(sample: Sampled) -> bytes:
    document: dict[str, Any] = {
        "at": round(sample.at, 3),
        "model": sample.model,
        "path": sample.path,
        "bucket": sample.bucket,
        "body": sample.body,
    }
    return orjson.dumps(document) + b"\n"


def _path(folder: Path, model: str) -> Path:
    return folder / f"{model}.jsonl"


def _read(path: Path, max_bytes: int) -> list[bytes]:
    """The lines of a file that may not be there."""
    try:
        with path.open("rb") as file:
            return [line for line in file.read(max_bytes).split(b"\n") if line]
    except FileNotFoundError:
        return []


def _replace(path: Path, content: bytes) -> None:
    """Be the file with this content: nobody ever reads half of it, nor anybody but its owner."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise

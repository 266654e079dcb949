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
        self._unwritten: set[tuple[str, str]] = set()  # whose file is not what is kept
        self._failing = False
        self._seen: Settings | None = None

    def heard(self, sample: Sampled) -> None:
        """From a worker; it costs nothing here."""
        settings = self._settings()
        known = any(model.name == sample.model for model in settings.model)
        if settings.recorder.enabled and known and len(self._arriving) < ARRIVING_MAX:
            self._arriving.append(sample)
            self._came.set()

    def look(self) -> None:
        """After each decision of control: other rules count for what is kept already, too."""
        settings = self._settings()
        if settings is not self._seen:
            self._seen = settings
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
        settings = self._settings()
        rules = settings.recorder
        models = dict.fromkeys(sample.model for sample in arrived)
        if rules.enabled and rules.redact:  # what clients said before goes, whoever asks next
            models |= dict.fromkeys(model.name for model in settings.model)
        failure = ""
        for model in models:
            try:
                await self._keep(model, [one for one in arrived if one.model == model], rules)
            except OSError as exc:
                failure = str(exc)
        if failure and not self._failing:
            # Once; what is kept goes into the next file that can be written.
            log.warning("samples are not written", extra={"reason": failure})
        self._failing = bool(failure)
        if self._failing:
            self._came.set()

    async def _keep(self, model: str, samples: list[Sampled], rules: Rules) -> None:
        """Raises: OSError; what could not be written is written the next time."""
        where, path = (rules.dir, model), _path(Path(rules.dir), model)
        if where not in self._kept:
            lines = await asyncio.to_thread(_read, path, rules.max_bytes)
            self._kept[where], left_out = self._resumed(lines, rules)
            if rules.redact and left_out:  # it may be what a client said
                self._unwritten.add(where)
        kept = self._kept[where]
        if rules.redact and kept.drop_words():
            self._unwritten.add(where)
        for sample in samples:
            if rules.redact and not sample.redacted:
                continue  # its worker did not know yet
            limits = rules.per_bucket, rules.max_bytes
            if kept.add(sample.bucket, _line(sample), *limits, sample.redacted):
                self._unwritten.add(where)
                self._tally.samples[model, sample.bucket] += 1
        if where not in self._unwritten:
            return
        await asyncio.to_thread(_replace, path, kept.file())
        self._unwritten.discard(where)
        if where not in self._told:
            self._told.add(where)
            log.info("samples of requests are kept", extra={"model": model, "file": str(path)})

    def _resumed(self, lines: list[bytes], rules: Rules) -> tuple[Reservoir, bool]:
        """What a file holds, and whether a line is left out: none of ours, or too much."""
        kept = Reservoir(self._rng)
        for line in lines:
            try:
                document = orjson.loads(line)
                bucket, redacted = document["bucket"], document.get("redacted") is True
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            if isinstance(bucket, str):
                kept.add(bucket, line + b"\n", rules.per_bucket, rules.max_bytes, redacted)
        return kept, kept.size() < sum(len(line) + 1 for line in lines)


def _line(sample: Sampled) -> bytes:
    document: dict[str, Any] = {
        "at": round(sample.at, 3),
        "model": sample.model,
        "path": sample.path,
        "bucket": sample.bucket,
        "redacted": sample.redacted,
        "body": sample.body,
    }
    return orjson.dumps(document) + b"\n"


def _path(folder: Path, model: str) -> Path:
    return folder / f"{model}.jsonl"


def _read(path: Path, max_bytes: int) -> list[bytes]:
    """The lines of a file that may not be there; of one that is too long, a broken one is last."""
    try:
        with path.open("rb") as file:
            return [line for line in file.read(max_bytes + 1).split(b"\n") if line]
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

"""Recorded requests, read from the end of a file that somebody else may be writing.

Floor 3, I/O.
One JSON document a line: `{"at", "model", "path", "bucket", "redacted", "body"}`. Nothing in it is
trusted: its last megabytes are read, a line that is no such document is counted and left out, and a
file that is missing, or no file at all, is the same as no samples.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

TAIL_MAX_BYTES: Final = 8 << 20  # of the end of the file: the newest are the ones to expect again
LINE_MAX_BYTES: Final = 1 << 20
PER_BUCKET_MAX: Final = 16  # kept: some of them will turn out to fit badly
BUCKETS_MAX: Final = 16  # names of buckets; there are four
PATHS: Final = ("/v1/chat/completions", "/v1/completions")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was found, the newest first. `skipped`: lines that say nothing to this model."""

    requests: tuple[tuple[str, dict[str, Any]], ...] = ()  # path and body
    skipped: int = 0
    problem: str = ""  # why nothing was read


def read(file: Path, model: str) -> Recorded:
    try:
        tail, whole = _tail(file)
    except OSError as exc:
        return Recorded(problem=f"{file}: {exc.strerror or exc}")
    lines = tail.split(b"\n")
    if not whole:
        lines = lines[1:]  # the rest of a line
    found: list[tuple[str, dict[str, Any]]] = []
    by_bucket: dict[str, int] = {}
    skipped = 0
    for line in reversed(lines):
        if not line.strip():
            continue
        request = _request(line, model)
        if request is None:
            skipped += 1
            continue
        bucket, path, body = request
        if bucket not in by_bucket and len(by_bucket) == BUCKETS_MAX:
            skipped += 1
        elif by_bucket.setdefault(bucket, 0) < PER_BUCKET_MAX:
            by_bucket[bucket] += 1
            found.append((path, body))
    return Recorded(tuple(found), skipped)


def _tail(file: Path) -> tuple[bytes, bool]:
    """The end of the file, and whether that is all of it.

    Raises: OSError.
    """
    # Not blocking: opening a pipe would wait for whoever writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{file} is not a file")
        start = max(0, status.st_size - TAIL_MAX_BYTES)
        stream.seek(start)
        return stream.read(TAIL_MAX_BYTES), start == 0


def _request(line: bytes, model: str) -> tuple[str, str, dict[str, Any]] | None:
    """Bucket, path and body; None of what is no request to that model."""
    if len(line) > LINE_MAX_BYTES:
        return None
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("model") != model:
        return None
    bucket, path, body = (document.get(name) for name in ("bucket", "path", "body"))
    if not isinstance(bucket, str) or path not in PATHS or not isinstance(body, dict):
        return None
    return bucket, str(path), body

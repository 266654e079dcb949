"""Log lines as JSON, each saying which instance and which version wrote it.

Floor 3, I/O: standard error only, because standard output belongs to whoever started us.
One event, one line: a constant message, and its fields beside it as `extra`.
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Final, TextIO

import orjson

# What every LogRecord has of its own; anything else came in as `extra`.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON document a line; `always` is in each of them and wins over a field of its name."""

    def __init__(self, always: Mapping[str, str]) -> None:
        super().__init__()
        self._always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": round(record.created, 3),  # seconds since 1970, as in the gateway's lines
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # `default=str`: a field that JSON cannot hold must not cost us the line.
        options = orjson.OPT_NON_STR_KEYS
        try:
            return orjson.dumps(line | self._always, default=str, option=options).decode()
        except TypeError:  # half a surrogate pair: bytes of a client's header that are no UTF-8
            return json.dumps(line | self._always, default=str)


def configure(instance_id: str, model: str, version: str, to: TextIO | None = None) -> None:
    """Send everything from level info on to `to`, standard error if not given."""
    lines = logging.StreamHandler(to or sys.stderr)
    lines.setFormatter(
        JsonLines({"instance_id": instance_id, "model": model, "model_version": version})
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(lines)
    root.setLevel(logging.INFO)
    for noisy in ("asyncio", "grpc"):  # their info lines are about themselves
        logging.getLogger(noisy).setLevel(logging.WARNING)

"""Log lines: one event, one line, a constant message with fields beside it.

Floor 3, I/O.
`json` is for machines and the default away from a terminal; `text` is for the person who watches.
"""

import logging
import sys
import time
from typing import Any, Final, TextIO

import orjson

# What every LogRecord has; all else came in by `extra` and belongs on the line.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class JsonLines(logging.Formatter):
    """One JSON object a line; `fields` are on every one of them."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__()
        self._constant = fields

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **self._constant,
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextLines(logging.Formatter):
    """`12:03:44 message  field=value`, without what the message says already.

    The level is shown only where someone must look; `kind` is for machines that sort lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        message = record.getMessage()
        fields = {key: value for key, value in _fields(record).items() if key != "kind"}
        shown = "".join(f"  {k}={v}" for k, v in fields.items() if str(v) not in message)
        line = f"{clock} {level}{message}{shown}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def chosen_format(stream: TextIO) -> str:
    """`text` for a terminal, else `json`."""
    return "text" if stream.isatty() else "json"


def configure(style: str, level: str, **fields: Any) -> None:
    """Send every log line of this process to standard error, in `style` (json | text)."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonLines(fields) if style == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(level.upper())
    # Libraries whose info lines are about themselves.
    for noisy in ("asyncio", "aiohttp.access", "grpc", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

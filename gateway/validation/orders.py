"""What a validation is told, and what it tells: records that go between processes as JSON.

Floor 0, pure.
Told as one argument of a command line, so there is nothing secret in it; the report is a file.
"""

from dataclasses import dataclass, field

import orjson

from gateway.rollouts import CheckView
from gateway.validation.judging import Report, Rules, Side


@dataclass(frozen=True, slots=True)
class Way:
    """How samples are sent."""

    concurrency: int = 2  # pairs of requests under way
    request_s: float = 120.0
    total_s: float = 600.0
    samples_max: int = 200  # evenly from all that the file has


@dataclass(frozen=True, slots=True)
class Order:
    samples: str  # a file
    model: str  # the public name; "": as each sample says
    new: tuple[str, ...]  # base URLs of instances
    old: tuple[str, ...]  # (): nothing to compare with
    rules: Rules = field(default_factory=Rules)
    way: Way = field(default_factory=Way)


def encode_order(order: Order) -> str:
    return orjson.dumps(order).decode()


def decode_order(text: str) -> Order:
    """Raises: ValueError and its like for anything but what `encode_order` wrote."""
    given = orjson.loads(text)
    given |= {"new": tuple(given["new"]), "old": tuple(given["old"])}
    given |= {"rules": Rules(**given["rules"]), "way": Way(**given["way"])}
    return Order(**given)


def encode_report(report: Report) -> bytes:
    return orjson.dumps(report)


def decode_report(raw: bytes) -> Report:
    """Raises: ValueError and its like for anything but what `encode_report` wrote."""
    given = orjson.loads(raw)
    given["checks"] = tuple(CheckView(**one) for one in given["checks"])
    given["new"] = Side(**given["new"])
    given["old"] = Side(**given["old"]) if given["old"] is not None else None
    given["named"] = tuple(given["named"])
    return Report(**given)

"""A step of a rollout as it is typed: `25:600:200:gate`.

Floor 1, pure.
Weight in percent, how long it is held, how many requests the new version has to answer in it, and
whether it waits for `promote` at its end. All but the weight may be left out, or be empty.
"""

from typing import Any, Final

UNITS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}  # as `tables.span` writes them
GATE: Final = "gate"


def step(text: str, gate: bool = False) -> dict[str, Any]:
    """The step as the API takes it; with `gate` it waits in any case.

    Raises: ValueError with a sentence.
    """
    first, *rest = text.split(":")
    found: dict[str, Any] = {"weight": _number(first.removesuffix("%"), text, "a weight")}
    if rest and rest[-1] == GATE:
        gate = bool(rest.pop())
    if len(rest) > 2:
        raise ValueError(f"{text} is not WEIGHT:HOLD:REQUESTS:gate, as in 25:600:200:gate")
    hold, requests = (*rest, "", "")[:2]
    if hold:
        found["hold_s"] = duration(hold)
    if requests:
        if not (requests.isascii() and requests.isdigit()):
            raise ValueError(f"{text}: {requests} is not a count of requests")
        found["requests_min"] = int(requests)
    return {**found, "gate": True} if gate else found


def duration(text: str) -> float:
    """Seconds of `600`, `90s`, `10m` or `2h`.

    Raises: ValueError with a sentence.
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :]
    if unit not in UNITS:
        raise ValueError(f"{text} is not a duration, as in 600, 90s, 10m or 2h")
    return _number(number, text, "a duration") * UNITS[unit]


def _number(text: str, whole: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{whole}: {text or 'nothing'} is not {what}") from None
    if not 0 <= number < float("inf"):
        raise ValueError(f"{whole}: {text} is not {what}")
    return number

"""Single values of a JSON body: each as what it must be, or a mistake with its path.

Floor 1, pure.
A missing value and null are the same: nothing was said. What was written is shown in the mistake,
shortened, so that an answer to a large body is not a large answer.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

from backends.errors import RequestInvalid

SHOWN_MAX: Final = 40  # characters of a value that a mistake repeats


def as_object(body: object) -> Mapping[str, object]:
    if not isinstance(body, Mapping):
        raise RequestInvalid("", f"the body must be a JSON object, not {shown(body)}")
    return body


def flag(fields: Mapping[str, object], name: str, under: str = "") -> bool:
    """`under` is the path of `fields` itself, with a dot behind it."""
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        refuse(under + name, "must be true or false", value)
    return value


def whole(fields: Mapping[str, object], name: str, low: int, high: int, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not is_whole(value) or not isinstance(value, int) or not low <= value <= high:
        refuse(name, f"must be a whole number from {low} to {high}", value)
    return value


def number(
    fields: Mapping[str, object], name: str, low: float, high: float, default: float
) -> float:
    value = fields.get(name)
    return default if value is None else within(value, name, low, high)


def within(value: object, path: str, low: float, high: float) -> float:
    """The number that stands at `path`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        refuse(path, f"must be a number from {low:g} to {high:g}", value)
    return float(value)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # JSON's true is not a number


def refuse(path: str, rule: str, value: object) -> NoReturn:
    raise RequestInvalid(path, f"{rule}, not {shown(value)}")


def shown(value: object) -> str:
    """The value as the client wrote it, or its type where that would be long."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "an object"
        case list():
            return "a list" if value else "an empty list"
        case str():
            more = "..." if len(value) > SHOWN_MAX else ""
            return f"{value[:SHOWN_MAX]!r}{more}"
        case _:
            return repr(value)[:SHOWN_MAX]

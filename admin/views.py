"""Views of the fleet to JSON documents, and back: the one place where the two meet.

Floor 1, pure.
A document has the fields of its view, in their order. What a view marks by an impossible value
(a negative estimate, pid 0) is null in JSON. `read` is the other direction, for the client: a field
that this version does not know is passed over, so a newer gateway can be asked.
"""

from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gateway.control import (
    ChangeView,
    DrainView,
    Event,
    InstanceView,
    LeaseView,
    ModelView,
    Problem,
    Receipt,
    RolloutView,
    StatusView,
)

Document = dict[str, Any]
Kind = TypeVar("Kind")

# Fields that are null in JSON, and the value of the view that says so.
NULLS: dict[str, Any] = {"ready_in_s": -1.0, "pid": 0}


def status(view: StatusView) -> Document:
    return asdict(view)


def instance(view: InstanceView) -> Document:
    return {
        **asdict(view),
        "ready_in_s": view.ready_in_s if view.ready_in_s >= 0 else None,
        "pid": view.pid or None,
    }


def model(view: ModelView) -> Document:
    return asdict(view)


def drain(view: DrainView) -> Document:
    return asdict(view)


def lease(view: LeaseView) -> Document:
    return asdict(view)


def change(view: ChangeView) -> Document:
    return asdict(view)


def rollout(view: RolloutView) -> Document:
    return asdict(view)


def event(happened: Event) -> Document:
    return asdict(happened)


def problems(found: Sequence[Problem]) -> list[Document]:
    return [problem(one) for one in found]


def problem(one: Problem) -> Document:
    """`line` where there are lines: in what is wrong with a config.toml."""
    line = {"line": one.line} if one.line else {}
    return {"path": one.path, "message": one.message, **line}


def checked(found: Sequence[Problem]) -> Document:
    """What POST /config/check answers."""
    return {"ok": not found, "problems": problems(found)}


def receipt(made: Receipt, dry_run: bool) -> Document:
    return {**asdict(made), "dry_run": dry_run}


def numbered(name: str, contents: Any, current: StatusView) -> Document:
    """What was read, under its name, with the two numbers that it belongs to."""
    return {
        "generation": current.generation,
        "revision": current.revision,
        name: contents,
    }


# --- back ----------------------------------------------------------------------------------------


def read(kind: type[Kind], document: Document) -> Kind:
    """The view that the document was made of.

    Raises: KeyError, TypeError when it was made of something else.
    """
    hints = get_type_hints(kind)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]  # every kind is a dataclass
        if field.name not in document and field.default is not MISSING:
            continue
        value = document[field.name]
        if value is None and kind is InstanceView and field.name in NULLS:
            value = NULLS[field.name]
        values[field.name] = _value(hints[field.name], value)
    return kind(**values)


def _value(hint: Any, value: Any) -> Any:
    if is_dataclass(hint):
        return read(hint, value)  # type: ignore[arg-type]  # a class, since it is a hint
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], one) for one in value)
    if get_origin(hint) is UnionType and value is not None:
        (inner,) = (one for one in get_args(hint) if one is not NoneType)
        return _value(inner, value)
    return value

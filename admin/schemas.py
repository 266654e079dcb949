"""JSON schemas of everything that the admin API reads and answers, drawn from the views.

Floor 1, pure.
Objects have exactly the keys that are named: an answer with a key too many fails its schema, and a
request with one is refused.
"""

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from admin.requests import GRACE_MAX_S, WEIGHT_MAX
from admin.rollouts.requests import COUNT_MAX, PERCENT_MAX, REPLICAS_MAX, STEPS_MAX
from admin.views import NULLS, Document
from gateway.control import (
    ChangeView,
    DrainView,
    InstanceView,
    LeaseView,
    ModelView,
    RolloutView,
    StatusView,
)

TEXT: Final = {"type": "string", "minLength": 1}
FLAG: Final = {"type": "boolean"}
WEIGHT: Final = {"type": "number", "minimum": 0, "maximum": WEIGHT_MAX}
GRACE: Final = {"type": ["number", "null"], "minimum": 0, "maximum": GRACE_MAX_S}
NUMBERS: Final = {"generation": {"type": "integer"}, "revision": {"type": "integer"}}
SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
NAMES: Final[dict[type, str]] = {
    StatusView: "Status",
    InstanceView: "Instance",
    ModelView: "Model",
    DrainView: "Drain",
    LeaseView: "Lease",
    ChangeView: "Change",
    RolloutView: "Rollout",
}


def _object(properties: Document, optional: tuple[str, ...] = ()) -> Document:
    """Exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }


def reference(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def _listing(name: str, of: str) -> Document:
    return _object({**NUMBERS, name: {"type": "array", "items": reference(of)}})


def _drawn(hint: Any) -> Document:
    """The schema of values that a view holds under this type."""
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if hint in NAMES:
        return reference(NAMES[hint])
    if is_dataclass(hint):
        return _view(hint)
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _drawn(arguments[0])}
    if get_origin(hint) is UnionType:
        (inner,) = (one for one in arguments if one is not NoneType)
        return {"anyOf": [_drawn(inner), {"type": "null"}]}
    return {}  # Any


def _view(kind: Any) -> Document:
    hints = get_type_hints(kind)
    drawn = {field.name: _drawn(hints[field.name]) for field in fields(kind)}
    if kind is InstanceView:
        drawn |= {key: {"anyOf": [drawn[key], {"type": "null"}]} for key in NULLS}
    return _object(drawn)


def schemas() -> Document:
    problem = _object(
        {
            "path": {"type": "string"},
            "message": {"type": "string"},
            "line": {"type": "integer", "minimum": 1},
        },
        optional=("line",),
    )
    problems = {"type": "array", "items": reference("Problem")}
    receipt = {**NUMBERS, "changes": {"type": "array", "items": {"type": "string"}}}
    origin = {"enum": ["file", "default", "run-time"]}
    return {
        **{name: _view(kind) for kind, name in NAMES.items()},
        "Instances": _listing("instances", "Instance"),
        "Models": _listing("models", "Model"),
        "Drains": _listing("drains", "Drain"),
        "Leases": _listing("leases", "Lease"),
        "History": _listing("history", "Change"),
        "Rollouts": _listing("rollouts", "Rollout"),
        "Config": _object(
            {
                **NUMBERS,
                "config": {
                    "type": "object",
                    "additionalProperties": _object({"value": {}, "origin": origin}),
                },
            }
        ),
        "Probe": _object({"ok": FLAG, "reason": TEXT}),
        "Problem": problem,
        "Checked": _object(
            {"ok": FLAG, "problems": {"type": "array", "items": reference("Problem")}}
        ),
        "Receipt": _object({**receipt, "dry_run": FLAG}),
        "DrainReceipt": _object(
            {
                **receipt,
                "dry_run": FLAG,
                "drain": {"anyOf": [reference("Drain"), {"type": "null"}]},
            }
        ),
        "RolloutReceipt": _object(
            {
                **receipt,
                "dry_run": FLAG,
                "rollout": {"anyOf": [reference("Rollout"), {"type": "null"}]},
            }
        ),
        "Document": {"type": "object"},
        "Refusal": _object(
            {
                "error": _object(
                    {
                        "code": TEXT,
                        "message": TEXT,
                        "problems": problems,
                    },
                    optional=("problems",),
                )
            }
        ),
        **_bodies(),
    }


def _bodies() -> Document:
    """Of requests."""
    return {
        "InstanceToAdd": _object(dict.fromkeys(("id", "model", "version", "http", "grpc"), TEXT)),
        "InstanceWeight": _object({"weight": WEIGHT}),
        "InstanceToStop": _object({"force": FLAG, "grace_s": GRACE}, optional=("force", "grace_s")),
        "DrainToStart": _object(
            {"grace_s": GRACE, "stop": FLAG, "force": FLAG}, optional=("grace_s", "stop", "force")
        ),
        "Weights": {"type": "object", "additionalProperties": WEIGHT, "minProperties": 1},
        **_rollouts(),
        "ConfigText": _object({"text": {"type": "string"}}),
    }


def _rollouts() -> Document:
    """Of requests, too."""
    whole = {"type": "integer", "minimum": 0}
    step = {
        "weight": {"type": "number", "minimum": 0, "maximum": PERCENT_MAX},
        "hold_s": {"type": "number", "minimum": 0, "maximum": GRACE_MAX_S},
        "requests_min": {**whole, "maximum": COUNT_MAX},
        "gate": FLAG,
    }
    start = {
        "version": TEXT,
        "replicas": {"type": ["integer", "null"], "minimum": 0, "maximum": REPLICAS_MAX},
        "steps": {
            "anyOf": [
                {"type": "array", "items": _object(step, ("hold_s", "requests_min", "gate"))},
                {"type": "null"},
            ]
        },
        "samples": {"type": ["string", "null"]},
        "force": FLAG,
    }
    left = {"type": ["integer", "null"], "minimum": 0, "maximum": STEPS_MAX}
    return {
        "RolloutToStart": _object(start, ("replicas", "steps", "samples", "force")),
        "RolloutToPromote": _object({"full": FLAG, "step": left}, ("full", "step")),
        "RolloutToAbort": _object({"reason": {"type": "string"}}, ("reason",)),
        "RolloutToRetry": _object({"force": FLAG}, ("force",)),
    }

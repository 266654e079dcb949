"""JSON bodies to what is asked of a rollout, or everything wrong with them.

Floor 1, pure.
What is left out, or null, is what `[model.rollout]` in config.toml says.
"""

from typing import Any, Final

from admin.fields import TEXT_MAX, Fields, Problems, fields_of
from admin.requests import GRACE_MAX_S
from gateway.control import (
    NAME,
    NAME_RULE,
    AbortRollout,
    PromoteRollout,
    RetryRollout,
    StartRollout,
)

PERCENT_MAX: Final = 100
STEPS_MAX: Final = 100  # one per percent
COUNT_MAX: Final = 1_000_000_000  # requests that a step may ask for
REPLICAS_MAX: Final = 1000  # as in config.toml
REASON_MAX: Final = 500  # characters, in every line that tells of it


def start(model: str, body: Any) -> StartRollout | Problems:
    fields = fields_of(body)
    version = fields.text("version")
    if version and not NAME.fullmatch(version):
        fields.wrong("version", NAME_RULE, version)
    replicas = fields.count("replicas", REPLICAS_MAX) if fields.gives("replicas") else None
    steps = _steps(fields) if fields.gives("steps") else None
    samples = fields.text("samples", TEXT_MAX, 0) if fields.gives("samples") else None
    force = fields.switch("force")
    return fields.finish() or StartRollout(model, version, replicas, steps, samples, force)


def _steps(fields: Fields) -> tuple[dict[str, Any], ...]:
    found = []
    for inner in fields.inner("steps", STEPS_MAX):
        step: dict[str, Any] = {"weight": inner.number("weight", PERCENT_MAX)}
        if inner.gives("hold_s"):
            step["hold_s"] = inner.number("hold_s", GRACE_MAX_S)
        if inner.gives("requests_min"):
            step["requests_min"] = inner.count("requests_min", COUNT_MAX)
        if inner.gives("gate"):
            step["gate"] = inner.switch("gate")
        fields.problems += inner.finish()
        found.append(step)
    return tuple(found)


def promote(model: str, body: Any) -> PromoteRollout | Problems:
    fields = fields_of(body)
    full = fields.switch("full")
    step = fields.count("step", STEPS_MAX) if fields.gives("step") else None
    return fields.finish() or PromoteRollout(model, full, step)


def abort(model: str, body: Any) -> AbortRollout | Problems:
    fields = fields_of(body)
    reason = fields.text("reason", REASON_MAX, 0) if fields.gives("reason") else ""
    return fields.finish() or AbortRollout(model, reason)


def retry(model: str, body: Any) -> RetryRollout | Problems:
    fields = fields_of(body)
    force = fields.switch("force")
    return fields.finish() or RetryRollout(model, force)

"""JSON bodies and query strings to what is asked of the gateway, or everything wrong with them.

Floor 1, pure.
Each function returns its value or a non-empty tuple of problems, all of them at once, each with the
path of its key. Unknown keys are problems: a misspelt `forse` must not become a drain without it.
Whether the thing asked for is possible is for the control process to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from admin.fields import Fields, Problems, fields_of
from gateway.control import (
    NAME,
    NAME_RULE,
    AddInstance,
    DrainInstance,
    Problem,
    SetInstanceWeight,
    SetWeights,
    StopInstance,
    is_address,
)

WEIGHT_MAX: Final = 1_000_000  # as in config.toml
GRACE_MAX_S: Final = 604_800  # a week, as every duration in config.toml
NUMBER_MAX: Final = (1 << 63) - 1  # of a revision or an event, as the store keeps them
SWITCHES: Final = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True)
class Options:
    """How a change is to be made."""

    wait: bool  # until every worker serves it
    dry_run: bool
    revision: int | None  # only while this is the revision


@dataclass(frozen=True, slots=True)
class Following:
    """Which events a client wants."""

    after: int | None  # None: only what happens from now on
    follow: bool


@dataclass(frozen=True, slots=True)
class Filter:
    instance: str | None
    model: str | None


# --- bodies --------------------------------------------------------------------------------------


def nothing(body: Any) -> Problems:
    """What is wrong with the body of a request that takes none; `{}` is none."""
    return fields_of(body).finish()


def set_weights(model: str, body: Any, override: bool = False) -> SetWeights | Problems:
    fields = fields_of(body)
    weights = {version: fields.number(version, WEIGHT_MAX) for version in tuple(fields.rest)}
    if not weights and not fields.problems:
        fields.problems.append(Problem("", 'must name at least one version: {"1": 100}'))
    return fields.finish() or SetWeights(model, weights, override)


def set_instance_weight(instance: str, body: Any) -> SetInstanceWeight | Problems:
    fields = fields_of(body)
    weight = fields.number("weight", WEIGHT_MAX)
    return fields.finish() or SetInstanceWeight(instance, weight)


def drain_instance(instance: str, body: Any) -> DrainInstance | Problems:
    fields = fields_of(body)
    grace_s, stop, force = _grace(fields), fields.switch("stop"), fields.switch("force")
    return fields.finish() or DrainInstance(instance, grace_s, stop, force)


def _grace(fields: Fields) -> float | None:
    """Null, or nothing: the gateway's own."""
    if fields.rest.get("grace_s") is None:
        fields.rest.pop("grace_s", None)
        return None
    return fields.number("grace_s", GRACE_MAX_S)


def stop_instance(instance: str, body: Any) -> StopInstance | Problems:
    fields = fields_of(body)
    grace_s, force = _grace(fields), fields.switch("force")
    if force and grace_s is not None:
        fields.wrong("grace_s", "left out with force, which waits for nothing", grace_s)
    return fields.finish() or StopInstance(instance, force, grace_s)


def add_instance(body: Any) -> AddInstance | Problems:
    fields = fields_of(body)
    added = AddInstance(
        id=_name(fields, "id"),
        model=_name(fields, "model"),
        version=_name(fields, "version"),
        http=_address(fields, "http"),
        grpc=_address(fields, "grpc"),
    )
    return fields.finish() or added


def _name(fields: Fields, key: str) -> str:
    value = fields.text(key)
    if value and not NAME.fullmatch(value):
        fields.wrong(key, NAME_RULE, value)
    return value


def _address(fields: Fields, key: str) -> str:
    value = fields.text(key)
    if value and not is_address(value):
        fields.wrong(key, '"host:port"', value)
    return value


def config_text(body: Any, length_max: int) -> str | Problems:
    """The candidate config.toml in `{"text": ...}`; an empty file is one too."""
    fields = fields_of(body)
    text = fields.text("text", length_max, 0)
    return fields.finish() or text


# --- queries and fields --------------------------------------------------------------------------


def options(
    query: Mapping[str, str], if_match: str | None, also: tuple[str, ...] = ()
) -> Options | Problems:
    """`also`: parameters that this change knows besides."""
    problems = _unknown(query, ("wait", "dry_run", *also))
    wait = _switch(query, "wait", False, problems)
    dry_run = _switch(query, "dry_run", False, problems)
    revision = None
    if if_match is not None and if_match.strip() != "*":
        # A revision, bare or quoted as the field's grammar has it (RFC 9110 section 13.1.1).
        revision = _number(if_match.strip().strip('"'), "If-Match", "a revision", problems)
    return tuple(problems) or Options(wait, dry_run, revision)


def overriding(query: Mapping[str, str]) -> bool | tuple[Problem, ...]:
    """Whether weights are set although a rollout owns them."""
    problems: list[Problem] = []
    chosen = _switch(query, "override", False, problems)
    return tuple(problems) or chosen


def following(query: Mapping[str, str], last_event_id: str | None) -> Following | Problems:
    """Last-Event-ID, which a browser sends when it comes back, goes before `after`."""
    problems = _unknown(query, ("after", "follow"))
    follow = _switch(query, "follow", True, problems)
    after = None if follow else 0  # without following: all that is remembered
    if last_event_id is not None:
        after = _number(last_event_id, "Last-Event-ID", "the number of an event", problems)
    elif "after" in query:
        after = _number(query["after"], "after", "the number of an event", problems)
    return tuple(problems) or Following(after, follow)


def lease_filter(query: Mapping[str, str]) -> Filter | Problems:
    problems = _unknown(query, ("instance", "model"))
    return tuple(problems) or Filter(query.get("instance"), query.get("model"))


def plain(query: Mapping[str, str]) -> Problems:
    """What is wrong with a query that should be empty."""
    return tuple(_unknown(query, ()))


def _unknown(query: Mapping[str, str], known: tuple[str, ...]) -> list[Problem]:
    rule = "is not a parameter of this request"
    return [Problem(f"?{key}", rule) for key in query if key not in known]


def _switch(query: Mapping[str, str], key: str, default: bool, problems: list[Problem]) -> bool:
    if key in query and query[key] not in SWITCHES:
        problems.append(Problem(f"?{key}", f'must be 1 or 0, not "{query[key][:40]}"'))
    return SWITCHES.get(query.get(key, ""), default)


def _number(text: str, path: str, rule: str, problems: list[Problem]) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= NUMBER_MAX:
        return int(text)
    problems.append(Problem(path, f'must be {rule}, not "{text[:40]}"'))
    return None

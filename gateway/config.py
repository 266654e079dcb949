"""config.toml, read and checked: text in, frozen Settings out, or every problem at once.

Floor 1, pure.
No defaults live anywhere but in its tables, no environment is read, and Settings do nothing.
`config.toml` in the repository documents every key at its default; a test holds the two together.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gateway import places
from gateway.config_crossed import crossed, webhooks
from gateway.config_tables import INSTANCES_MAX as INSTANCES_MAX
from gateway.config_tables import (
    Admin,
    Drain,
    Gateway,
    Launch,
    Registry,
    Repository,
    Store,
    Table,
)
from gateway.config_tables import Device as Device
from gateway.config_tables import Instance as Instance
from gateway.config_tables import Model as Model
from gateway.config_tables import Poll as Poll
from gateway.config_tables import Recorder as Recorder
from gateway.config_tables import Rollout as Rollout
from gateway.config_tables import Step as Step
from gateway.config_tables import Timeouts as Timeouts
from gateway.config_tables import Webhook as Webhook
from gateway.config_values import NAME as NAME
from gateway.config_values import NAME_RULE as NAME_RULE
from gateway.config_values import is_address as is_address
from gateway.problems import Problem as Problem
from gateway.problems import named


class ConfigInvalid(Exception):
    """Everything that is wrong with one config, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Settings(Table):
    """A whole config.toml."""

    gateway: Gateway = Gateway()
    timeouts: Timeouts = Timeouts()
    admin: Admin = Admin()
    registry: Registry = Registry()
    poll: Poll = Poll()
    drain: Drain = Drain()
    store: Store = Store()
    repository: Repository = Repository()
    launch: Launch = Launch()
    recorder: Recorder = Recorder()
    device: tuple[Device, ...] = ()
    model: tuple[Model, ...] = Field((), max_length=255)  # sections of the segment
    instance: tuple[Instance, ...] = Field((), max_length=INSTANCES_MAX)
    webhook: tuple[Webhook, ...] = Field((), max_length=32)

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        default = self.gateway.default_model
        problems = (
            *crossed(self.device, self.model, self.instance, default),
            *webhooks(self.webhook),
        )
        if problems:
            raise PydanticCustomError("crossed", "", {"problems": problems})
        return self


# --- reading -------------------------------------------------------------------------------------


def parse(text: str) -> Settings:
    """The settings that `text` spells.

    Raises: ConfigInvalid with every problem.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigInvalid((Problem("", f"not TOML: {exc}"),)) from None
    try:
        # JSON mode would coerce; strict mode refuses lists for tuples, so they are made here.
        return Settings.model_validate(_tuples(document))
    except ValidationError as exc:
        found = [problem for error in exc.errors() for problem in named(error)]
        raise ConfigInvalid(placed(_own(found), text)) from None


def placed(problems: Sequence[Problem], text: str) -> tuple[Problem, ...]:
    """The problems, each with its line of the text."""
    found = places.lines(text) if problems else {}
    return tuple(replace(one, line=places.line_of(found, one.path)) for one in problems)


def _own(problems: list[Problem]) -> list[Problem]:
    """Without those that only follow from an entry: a list of bad entries is not also too short."""
    paths = {problem.path for problem in problems}
    return [p for p in problems if not any(other.startswith(f"{p.path}[") for other in paths)]


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(one) for key, one in value.items()}
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


# --- comparing -----------------------------------------------------------------------------------

# What a reload refuses by name, with the reason that a person is told.
FIXED: Final = {
    "gateway.listen": "sockets are opened at the start: restart, or start a second gateway",
    "gateway.workers": "processes are started with the gateway: restart it",
    "gateway.run_dir": "sockets of the running processes are there: restart",
    "admin.listen": "the socket is opened at the start: restart",
    "registry.listen": "the socket is opened at the start: restart",
    "store.url": "intent would be left behind in the old store: restart",
}


def changed(old: Settings, new: Settings) -> tuple[str, ...]:
    """Dotted paths of what differs; tables in lists by their name: `model.m.limit`."""
    before, after = _flat(old.model_dump()), _flat(new.model_dump())
    paths = dict.fromkeys([*before, *after])
    return tuple(path for path in paths if before.get(path) != after.get(path))


def unchangeable(old: Settings, new: Settings) -> tuple[Problem, ...]:
    """What `new` changes that a running gateway cannot change, with what to do instead."""
    moved = changed(old, new)
    return tuple(
        Problem(path, f"cannot change live: {FIXED[path]}") for path in moved if path in FIXED
    )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves by dotted path. Lists of tables are keyed by their name or id, never by position; a
    list whose rows have neither is one value.
    """
    if isinstance(value, dict):
        rows = value.items()
    elif isinstance(value, tuple) and value and {"name", "id"} & set(value[0]):
        rows = {one.get("name") or one["id"]: one for one in value}.items()
    else:
        return {path: value}
    return {
        leaf: found
        for key, one in rows
        for leaf, found in _flat(one, f"{path}.{key}".lstrip(".")).items()
    }

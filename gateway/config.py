"""config.toml, read and checked: text in, frozen Settings out, or every problem at once.

Floor 1, pure.
No defaults live anywhere else, no environment is read, and Settings do nothing. `config.toml` in
the repository documents every key at its default; a test holds the two together.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.functional_validators import AfterValidator
from pydantic_core import PydanticCustomError

from gateway import places
from gateway.problems import Problem as Problem
from gateway.problems import named

INSTANCES_MAX: Final = 1000  # slots of the segment, and some for those that have just ended
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# A host is a name, an IPv4 address, or an IPv6 address in brackets: no blank, no control character,
# and nothing that a resolver would take for a scheme. 253 characters is the most a name can have.
ADDRESS: Final = re.compile(
    # Labels of 1 to 63 (RFC 1035 2.3.4): others break the resolver, where no OSError tells of it.
    r"((?=[^:]{1,253}:)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*\.?"
    r"|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]):(?P<port>[0-9]{1,5})"
)
NAME_RULE: Final = "letters, digits, '.', '_' or '-', starting with a letter or digit"


class ConfigInvalid(Exception):
    """Everything that is wrong with one config, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


# --- what a value may be -------------------------------------------------------------------------


def _rule(rule: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{rule}", {"rule": rule})


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise _rule(NAME_RULE)
    return value


def is_address(value: str) -> bool:
    """Whether it is `host:port`, to which somebody can connect."""
    found = ADDRESS.fullmatch(value)
    return found is not None and 1 <= int(found["port"]) <= 65_535


def _address(value: str) -> str:
    if not is_address(value):
        raise _rule('"host:port"')
    return value


def _listen(value: str) -> str:
    if value.startswith("unix:/"):
        return value
    host, _, port = value.rpartition(":")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        raise _rule('"ip:port" or "unix:/path"') from None
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise _rule('"ip:port" or "unix:/path"')
    return value


def _loopback(value: str) -> str:
    _listen(value)
    if value.startswith("unix:"):
        return value
    if not ip_address(value.rpartition(":")[0].strip("[]")).is_loopback:
        raise _rule("a loopback address: this version has no access control for others")
    return value


def _store(value: str) -> str:
    if not re.fullmatch(r"sqlite:.+", value):
        raise _rule('"sqlite:PATH"')
    return value


Name = Annotated[str, AfterValidator(_name)]
Address = Annotated[str, AfterValidator(_address)]
Listen = Annotated[str, AfterValidator(_listen)]
Loopback = Annotated[str, AfterValidator(_loopback)]
StoreUrl = Annotated[str, AfterValidator(_store)]
Seconds = Annotated[float, Field(ge=0, le=86_400 * 7, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400 * 7, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Gateway(_Table):
    listen: tuple[Listen, ...] = Field(("127.0.0.1:8080",), min_length=1, max_length=16)
    workers: int = Field(1, ge=0, le=64)  # 0: one per core
    default_model: str = ""
    head_max_bytes: int = Field(65_536, ge=1024, le=1 << 24)
    body_max_bytes: Bytes = 1 << 30
    route_body_max_bytes: Bytes = 64 << 20
    route_body_total_bytes: Bytes = 512 << 20
    replay_max_bytes: Bytes = 1 << 20
    replays_max: int = Field(2, ge=0, le=16)
    half_close: Literal["serve", "abort"] = "abort"
    shutdown_delay_s: Seconds = 0
    worker_stuck_s: PositiveSeconds = 5
    run_dir: str = "var/run"
    log_dir: str = "var/log"


class Timeouts(_Table):
    connect_s: Seconds = 2
    first_byte_s: Seconds = 600
    idle_s: Seconds = 120
    total_s: Seconds = 0
    client_head_s: Seconds = 10
    client_body_idle_s: Seconds = 30
    client_idle_s: Seconds = 75
    pool_idle_s: Seconds = 4


class Admin(_Table):
    listen: Loopback = "127.0.0.1:9901"


class Registry(_Table):
    listen: Loopback = "127.0.0.1:9902"
    ttl_s: PositiveSeconds = 30
    beat_s: PositiveSeconds = 10


class Poll(_Table):
    interval_s: PositiveSeconds = 1.0
    timeout_s: PositiveSeconds = 1.0
    failures: int = Field(3, ge=1, le=100)
    successes: int = Field(2, ge=1, le=100)
    stuck_s: PositiveSeconds = 30
    failed_requests: int = Field(10, ge=0, le=10_000)


class Drain(_Table):
    grace_s: Seconds = 30
    kill_after_s: PositiveSeconds = 10


class Store(_Table):
    url: StoreUrl = "sqlite:var/sluicegate.db"


class Repository(_Table):
    root: str = "var/models"
    cache: str = "var/cache"


class Launch(_Table):
    restart_min_s: PositiveSeconds = 1
    restart_max_s: PositiveSeconds = 60
    load_timeout_s: PositiveSeconds = 1800
    error_linger_s: Seconds = 30
    log_max_bytes: int = Field(16 << 20, ge=1 << 16, le=1 << 40)


class Device(_Table):
    name: Name
    kind: Literal["cpu", "gpu", "ascend"] = "cpu"
    index: int = Field(0, ge=0, le=1023)  # which of its kind; of a cpu without meaning
    memory_gb: float = Field(gt=0, le=100_000, allow_inf_nan=False)


class Model(_Table):
    name: Name
    weights: dict[Name, Weight] = Field(min_length=1)
    policy: Literal["least_loaded", "round_robin", "random", "affinity"] = "least_loaded"
    limit: int = Field(4, ge=1, le=1_000_000)
    queue_max: int = Field(64, ge=0, le=1_000_000)
    queue_timeout_s: Seconds = 30
    replayable: bool = False
    canary_fallback: bool = False
    pinnable: bool = False
    slow_start_s: Seconds = 0
    replicas: dict[Name, Annotated[int, Field(ge=0, le=1000)]] = Field(default_factory=dict)
    device: str = ""  # name of a [[device]]; "": any of the first one's kind
    memory_gb: float = Field(0, ge=0, le=100_000, allow_inf_nan=False)  # 0: by the manifest
    threads: int = Field(0, ge=0, le=1024)  # of a launched instance; 0: all cores
    command: tuple[str, ...] = ()  # (): `sluicegate instance` on the snapshot


class Instance(_Table):
    id: Name
    model: str
    version: str
    http: Address
    grpc: Address
    weight: Weight = 1
    limit: int = Field(0, ge=0, le=1_000_000)  # 0: the model's


class Settings(_Table):
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
    device: tuple[Device, ...] = ()
    model: tuple[Model, ...] = Field((), max_length=255)  # sections of the segment
    instance: tuple[Instance, ...] = Field((), max_length=INSTANCES_MAX)

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        problems = tuple(_crossed(self))
        if problems:
            raise PydanticCustomError("crossed", "", {"problems": problems})
        return self


def _crossed(settings: Settings) -> list[Problem]:
    """What is wrong between tables that are each right alone."""
    problems: list[Problem] = []
    named = {"device": "name", "model": "name", "instance": "id"}
    for table, key in named.items():
        seen: dict[str, int] = {}
        for index, row in enumerate(getattr(settings, table)):
            first = seen.setdefault(name := getattr(row, key), index)
            if first != index:
                rule = f'must be unique, not "{name}", which {table}[{first}] has already'
                problems.append(Problem(f"{table}[{index}].{key}", rule))
    cards: dict[tuple[str, int], int] = {}
    for index, device in enumerate(settings.device):
        first = cards.setdefault((device.kind, device.index), index)
        if first != index and device.kind != "cpu":
            rule = f"must be unique, not {device.index}, which device[{first}] has already"
            problems.append(Problem(f"device[{index}].index", rule))
    devices = {device.name for device in settings.device}
    models = {model.name: model for model in settings.model}
    for index, model in enumerate(settings.model):
        at = f"model[{index}]"
        if model.device and model.device not in devices:
            rule = f'must name a [[device]], not "{model.device}"'
            problems.append(Problem(f"{at}.device", rule))
        if any(model.replicas.values()) and not devices:
            problems.append(Problem(f"{at}.replicas", "needs a [[device]] to start instances on"))
        for version in model.replicas:
            if version not in model.weights:
                rule = "must be a version with a weight: add it to weights, with 0 for none"
                problems.append(Problem(f"{at}.replicas.{version}", rule))
    for index, instance in enumerate(settings.instance):
        at = f"instance[{index}]"
        if instance.model not in models:
            rule = f'must name a [[model]], not "{instance.model}"'
            problems.append(Problem(f"{at}.model", rule))
        elif instance.version not in models[instance.model].weights:
            rule = f'must be a version that [[model]] weights name, not "{instance.version}"'
            problems.append(Problem(f"{at}.version", rule))
    default = settings.gateway.default_model
    if default and default not in models:
        problems.append(Problem("gateway.default_model", f'must name a [[model]], not "{default}"'))
    return [*problems, *_launched(settings)]


def _launched(settings: Settings) -> list[Problem]:
    """What is wrong with the ids of the instances that `replicas` ask for."""
    total = sum(sum(model.replicas.values()) for model in settings.model) + len(settings.instance)
    if total > INSTANCES_MAX:
        rule = f"must ask for at most {INSTANCES_MAX} instances, with those of [[instance]], "
        rule += f"not {total}"
        return [Problem("model", rule)]
    problems: list[Problem] = []
    owners: dict[str, str] = {}
    for index, model in enumerate(settings.model):
        for version, count in model.replicas.items():
            at = f"model[{index}].replicas.{version}"
            names = [f"{model.name}-{version}-{ordinal}" for ordinal in range(count)]
            taken = next((name for name in names if owners.setdefault(name, at) != at), "")
            if taken:
                rule = f'must not start "{taken}" again, which {owners[taken]} does already'
                problems.append(Problem(at, rule))
            if names and not NAME.fullmatch(names[-1]):
                rule = f'must make ids of at most 128 characters, not "{names[-1]}"'
                problems.append(Problem(at, rule))
    for index, row in enumerate(settings.instance):
        if row.id in owners:
            rule = f'must not be "{row.id}", which {owners[row.id]} starts'
            problems.append(Problem(f"instance[{index}].id", rule))
    return problems


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
    """Leaves by dotted path. Lists of tables are keyed by their name or id, never by position."""
    if isinstance(value, dict):
        rows = value.items()
    elif isinstance(value, tuple) and value and isinstance(value[0], dict):
        rows = {one.get("name") or one["id"]: one for one in value}.items()
    else:
        return {path: value}
    return {
        leaf: found
        for key, one in rows
        for leaf, found in _flat(one, f"{path}.{key}".lstrip(".")).items()
    }

"""The nouns of the gateway: targets, versions, routes, the table, and how an attempt can end.

Floor 0, pure.
Everything here is frozen: the control process builds a RouteTable, workers read it, nobody changes
it. A table crosses a Unix socket as one JSON document; `decode_table` reads it.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, NewType

ModelName = NewType("ModelName", str)
VersionName = NewType("VersionName", str)
InstanceName = NewType("InstanceName", str)


class Intent(Enum):
    """What the operator wants of an instance."""

    ACTIVE = "active"
    DRAIN = "drain"  # held out: alive, loaded, sent nothing
    STOP = "stop"  # drain, then stop


class Health(Enum):
    """What the gateway has found. Only GOOD is admissible."""

    GOOD = "good"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"
    LOST = "lost"
    UNKNOWN = "unknown"


class Policy(Enum):
    """How an instance is picked inside its version."""

    LEAST_LOADED = "least_loaded"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    AFFINITY = "affinity"


class Outcome(IntEnum):
    """How an attempt (a lease), and in the end a client's request, was over.

    The numbers are cells of the shared segment: append only, at most OUTCOMES_MAX.
    """

    SERVED = 0
    INSTANCE_ERROR = 1  # a 5xx, or an error event inside a stream
    CONNECT_FAILED = 2
    RESET = 3
    TIMED_OUT = 4
    TRUNCATED = 5
    EMPTY = 6  # a 2xx without an answer to a generation request
    CLIENT_GONE = 7
    CUT = 8  # by our own drain deadline or by an operator
    REFUSED = 9  # nothing was done: the instance says so, or we could not even dial it
    LOST = 10  # the worker that relayed it died


OUTCOMES_MAX: Final = 12

# The only definition of failure: health, canary analysis and the replay budget read it.
BLAMES_INSTANCE: Final = frozenset(
    {
        Outcome.INSTANCE_ERROR,
        Outcome.CONNECT_FAILED,
        Outcome.RESET,
        Outcome.TIMED_OUT,
        Outcome.TRUNCATED,
        Outcome.EMPTY,
    }
)


class Stage(IntEnum):
    """How far an attempt has come; a cell of its lease record. FREE marks an unused record.

    UNPLACED is a request without a lease: its body is still coming, or it waits for room.
    """

    FREE = 0
    CONNECTING = 1
    SENDING = 2
    WAITING = 3
    STREAMING = 4
    UNPLACED = 5


@dataclass(frozen=True, slots=True)
class Target:
    """An instance as the data plane sees it: admissible, with its place in the counters."""

    slot: int
    instance: InstanceName
    incarnation: str
    host: str  # an IP address, never a name: resolving belongs to the control process
    port: int
    weight: float  # in its group
    limit: int  # most requests in flight, over all workers
    ready_since_ns: int  # CLOCK_MONOTONIC, which all processes of a machine share


@dataclass(frozen=True, slots=True)
class Version:
    """All admissible instances of one version, and the version's share of its model."""

    name: VersionName
    weight: float  # 0: no request but a pin or a test header
    blocked: bool  # by a rollback: not even those, whatever its weight
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an instance stands, for the body of a 503 and its Retry-After."""

    instance: InstanceName
    version: VersionName
    state: str
    phase: str
    progress: float  # percent
    reason: str
    ready_in_s: float  # estimate from measured load times; negative: unknown


@dataclass(frozen=True, slots=True)
class Route:
    """What a model's name leads to."""

    model: ModelName
    section: int  # of this model's cells in the segment; 0 belongs to requests without a model
    created_s: int  # wall clock when the gateway first knew the model: for people
    versions: tuple[Version, ...]
    standings: tuple[Standing, ...]  # every known instance of the model, admissible or not
    policy: Policy
    queue_max: int
    queue_timeout_s: float
    replayable: bool
    pinnable: bool
    slow_start_s: float
    canary_fallback: bool  # what failed on a canary may go to the stable version
    # Of a rollout that runs; without one the test header says nothing, and the version of most
    # weight is the stable one.
    canary: VersionName | None
    stable: VersionName | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a worker accepts, in bytes; `[gateway]` of config.toml."""

    head_max_bytes: int
    body_max_bytes: int
    route_body_max_bytes: int
    route_body_total_bytes: int
    replay_max_bytes: int
    replays_max: int
    half_close: str  # serve | abort


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; 0 means none. `[timeouts]` of config.toml."""

    connect_s: float
    first_byte_s: float
    idle_s: float
    total_s: float
    client_head_s: float
    client_body_idle_s: float
    client_idle_s: float
    pool_idle_s: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a worker keeps of requests; `[recorder]` of config.toml."""

    ratio: float  # of those that could be sampled; 0: nothing is
    redact: bool


@dataclass(frozen=True, slots=True)
class RouteTable:
    """All routes, and its own serial number, which only grows."""

    generation: int
    routes: tuple[Route, ...]
    default_model: ModelName  # "" for none: for paths that name no model
    bounds: Bounds
    timeouts: Timeouts
    sampling: Sampling


def decode_table(document: dict[str, Any]) -> RouteTable:
    """The table whose fields stand in a document as orjson writes them."""
    return RouteTable(
        generation=document["generation"],
        routes=tuple(_route(route) for route in document["routes"]),
        default_model=document["default_model"],
        bounds=Bounds(**document["bounds"]),
        timeouts=Timeouts(**document["timeouts"]),
        sampling=Sampling(**document["sampling"]),
    )


def _route(document: dict[str, Any]) -> Route:
    return Route(
        **{
            **document,
            "versions": tuple(_version(version) for version in document["versions"]),
            "standings": tuple(Standing(**standing) for standing in document["standings"]),
            "policy": Policy(document["policy"]),
        }
    )


def _version(document: dict[str, Any]) -> Version:
    targets = tuple(Target(**target) for target in document["targets"])
    return Version(**{**document, "targets": targets})

"""What the processes of a gateway say to each other: one JSON document a line, over Unix sockets.

Floor 0, pure.
Control and workers know each other through these records only; so do supervisor and control.
A message that a process does not know is an error of deployment (an upgrade in place that mixed
versions) and raises.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.records import RouteTable, Standing, decode_table

# --- control to worker ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Serve this table from now on and acknowledge it; an older generation is ignored."""

    table: RouteTable


@dataclass(frozen=True, slots=True)
class Note:
    """Newer standings for 503 bodies, by model; never acknowledged, may be lost."""

    standings: dict[str, tuple[Standing, ...]]


@dataclass(frozen=True, slots=True)
class TellSent:
    """Answer with Sent once no lease on the slot is connecting or sending."""

    slot: int
    token: int


@dataclass(frozen=True, slots=True)
class TellEmpty:
    """Answer with Empty once the slot holds no lease."""

    slot: int
    token: int


@dataclass(frozen=True, slots=True)
class Cut:
    """End every lease on the slots, and those with the request ids, now; answer with WereCut."""

    slots: tuple[int, ...]
    requests: tuple[int, ...]
    token: int


@dataclass(frozen=True, slots=True)
class Heard:
    """What was said with WereCut under the token is on record: it need not be said again."""

    token: int


@dataclass(frozen=True, slots=True)
class Accept:
    """Take connections from the listening sockets of this index too: its worker does not, or it
    is the worker's own, and the predecessor has let go.
    """

    index: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop taking connections from the sockets of this index."""

    index: int


@dataclass(frozen=True, slots=True)
class Close:
    """Stop accepting, finish what is held for at most `grace_s`, then exit."""

    grace_s: float


# --- worker to control ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    index: int
    row: int
    pid: int
    generation: int  # of the table it serves; 0: none yet
    compiled: bool  # its data plane; interpreted otherwise
    waits: bool = False  # for Accept of its own index: a predecessor still takes connections


@dataclass(frozen=True, slots=True)
class Ack:
    generation: int


@dataclass(frozen=True, slots=True)
class Sent:
    slot: int
    token: int


@dataclass(frozen=True, slots=True)
class Empty:
    slot: int
    token: int


@dataclass(frozen=True, slots=True)
class LostRequest:
    """One request that we ended, or that died with a worker, as an operator needs to see it."""

    request_id: int
    client_request_id: str
    slot: int
    stage: str
    age_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class WereCut:
    token: int
    lost: tuple[LostRequest, ...]


@dataclass(frozen=True, slots=True)
class Suspected:
    """A dial to the slot's instance was refused or timed out: poll it now."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """A request that was served, for the recorder; it may be lost. Nothing of its head is in it."""

    at: float  # wall clock
    model: str
    path: str
    bucket: str
    body: dict[str, Any]
    redacted: bool = False


# --- control to supervisor -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start `command`.

    `descriptors`: name of the argument that receives the number: name the supervisor holds it by.
    `{name}` in the command is replaced by the number; of an instance, `{said}` by the number of its
    guard's pipe to the supervisor. `label` comes back with the child to every control that follows:
    what that has to know of it, should the last one have died before the store knew.
    """

    name: str
    command: tuple[str, ...]
    descriptors: dict[str, str]
    environment: dict[str, str]
    handed_over: bool  # an instance, behind its guard: goes along at a take-over
    label: str = ""


@dataclass(frozen=True, slots=True)
class Kill:
    name: str
    signal: int


@dataclass(frozen=True, slots=True)
class Serving:
    """Every worker serves a table: readiness, and the commit of a take-over."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """Answer to Freeze: every order so far has been given, every write has ended."""


@dataclass(frozen=True, slots=True)
class Exit:
    code: int


# --- supervisor to control -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Children:
    """First message of every control's life: what runs already, by name, with its pid."""

    pids: dict[str, int]
    workers: int
    labels: dict[str, str]  # of those that were started under one


@dataclass(frozen=True, slots=True)
class Exited:
    name: str
    pid: int
    status: int | None  # negative: the signal; None: adopted at a take-over, unknown
    oom: bool = False  # of an instance: the kernel killed for want of memory meanwhile


@dataclass(frozen=True, slots=True)
class Spawned:
    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Signalled:
    """SIGTERM or SIGINT (`count` of them so far), SIGHUP (`reload`)."""

    count: int
    reload: bool


@dataclass(frozen=True, slots=True)
class Freeze:
    """A successor asks to take over: decide nothing that it would not know, and say Frozen."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """The successor has failed: go on."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The successor has committed: finish what is held, and decide nothing any more."""


@dataclass(frozen=True, slots=True)
class Committed:
    """To the successor's control: the predecessor has let go, the gateway is ours."""


# --- from a predecessor's control to its successor's, over both supervisors, and back ------------


@dataclass(frozen=True, slots=True)
class Held:
    """Requests that the predecessor still holds, by instance; each time that it changes."""

    leases: dict[str, int]
    over: bool = False  # it is gone, and holds nothing


@dataclass(frozen=True, slots=True)
class CutHeld:
    """End what you hold on this instance: its grace is over."""

    instance: str


Message = (
    Publish
    | Note
    | TellSent
    | TellEmpty
    | Cut
    | Heard
    | Accept
    | Leave
    | Close
    | Hello
    | Ack
    | Sent
    | Empty
    | WereCut
    | Suspected
    | Sampled
    | Spawn
    | Kill
    | Serving
    | Frozen
    | Exit
    | Children
    | Exited
    | Spawned
    | SpawnFailed
    | Signalled
    | Freeze
    | Thaw
    | HandedOver
    | Committed
    | Held
    | CutHeld
)

BY_NAME: Final[dict[str, Any]] = {kind.__name__: kind for kind in Message.__args__}


def encode(message: Message) -> bytes:
    return orjson.dumps({type(message).__name__: message}) + b"\n"


def decode(line: bytes) -> Message:
    """The message that `encode` wrote.

    Raises: ValueError for anything else.
    """
    ((name, fields),) = orjson.loads(line).items()
    if name not in BY_NAME:
        raise ValueError(f"unknown message {name}: are two versions of the gateway mixed?")
    match name:
        case "Publish":
            return Publish(decode_table(fields["table"]))
        case "Note":
            items = fields["standings"].items()
            return Note({model: tuple(Standing(**one) for one in many) for model, many in items})
        case "WereCut":
            return WereCut(fields["token"], tuple(LostRequest(**lost) for lost in fields["lost"]))
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    message: Message = BY_NAME[name](**plain)
    return message


@dataclass(slots=True)
class LineBuffer:
    """Bytes as they come, whole lines as they go; one per connection."""

    rest: bytes = field(default=b"")

    def feed(self, received: bytes) -> list[Message]:
        *lines, self.rest = (self.rest + received).split(b"\n")
        return [decode(line) for line in lines]

"""Snapshots and events for tests, with only what matters spelled out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gateway.config import parse
from gateway.fleet.commands import Command, Confirm, LookUp, ReadNeeds, Record, Tell, Write
from gateway.fleet.decide import decide
from gateway.fleet.events import (
    ChildrenSeen,
    Event,
    NeedsRead,
    Observed,
    Source,
    WorkerAcked,
    WorkerLinked,
)
from gateway.fleet.restore import Life, restore
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.status import Status
from gateway.fleet.stock import Stock
from gateway.messages import Publish
from gateway.state.shared import Layout
from gateway.store.base import Documents
from sluicegate.v1.states import Phase, State
from tests.gateway.documents import apply

C = TypeVar("C")

LAYOUT = Layout(rows=4, slots=8, sections=4, leases=8)
STATICS = """
[[model]]
name = "m"
weights = { "1" = 100 }
[[instance]]
id = "a"
model = "m"
version = "1"
http = "127.0.0.1:1001"
grpc = "127.0.0.1:2001"
[[instance]]
id = "b"
model = "m"
version = "1"
http = "127.0.0.1:1002"
grpc = "127.0.0.1:2002"
"""
LAUNCHED = """
[[device]]
name = "d0"
memory_gb = 10
[[model]]
name = "m"
weights = { "1" = 100 }
replicas = { "1" = 2 }
"""
GRPC = {"a": "127.0.0.1:2001", "b": "127.0.0.1:2002", "c": "127.0.0.1:2003"}


def fresh(text: str = STATICS, documents: Documents | None = None) -> FleetSnapshot:
    return restore(parse(text), documents or {}, Life(LAYOUT, 1, 0, 0.0, 0.0))


def play(
    fleet: FleetSnapshot, *events: Event, keep: bool = True
) -> tuple[FleetSnapshot, list[Command]]:
    """The snapshot after the events, and all commands. `keep`: writes succeed, tables are acked."""
    commands: list[Command] = []
    for event in events:
        fleet, more = decide(fleet, event)
        commands += more
        if keep:
            fleet, more = follow_up(fleet, more, event.now)
            commands += more
    return fleet, commands


def follow_up(
    fleet: FleetSnapshot, commands: Sequence[Command], now: float
) -> tuple[FleetSnapshot, tuple[Command, ...]]:
    """What the world answers at once to a well-behaved control plane."""
    done: tuple[Command, ...] = ()
    for command in commands:
        event: Event | None = None
        match command:
            case Write(_, then):
                event = then
            case Confirm(claim):
                event = replace(claim, asked=True)
            case Tell(row, Publish(table)):
                event = WorkerAcked(row, table.generation, now)
            case LookUp(ask, _, version):
                event = replace(ask, stock=Stock(version, True))
            case ReadNeeds(pairs):
                event = NeedsRead(dict.fromkeys(pairs, 0), now)
        if event is not None:
            fleet, more = decide(fleet, event)
            done += more
            fleet, rest = follow_up(fleet, more, now)
            done += rest
    return fleet, done


def status(name: str = "a", state: State = State.READY, **fields: object) -> Status:
    port = name.encode()[-1]
    given: dict[str, object] = {
        "instance_id": name,
        "incarnation": f"{name}1",
        "sequence": 1,
        "model": "m",
        "version": "1",
        "http": f"127.0.0.1:{1000 + port}",
        "grpc": f"127.0.0.1:{2000 + port}",
        "state": state,
        "phase": Phase.SERVING if state is State.READY else Phase.LOADING_MODEL,
        "progress": 100.0 if state is State.READY else 20.0,
    }
    return Status(**(given | fields))  # type: ignore[arg-type]  # a test spells the right ones


def observed(
    name: str = "a",
    state: State = State.READY,
    now: float = 1.0,
    source: Source = Source.POLL,
    held: int = 0,
    received: int = 0,
    **fields: object,
) -> Observed:
    one = status(name, state, **fields)
    return Observed(name, source, GRPC.get(name, one.grpc), "", one, received, held, now)


def begun(text: str = STATICS, documents: Documents | None = None) -> FleetSnapshot:
    """A control plane with one worker that acknowledges everything."""
    fleet, _ = play(
        fresh(text, documents),
        ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 0.0),
        WorkerLinked(0, 0, 77, 0, 0.0),
    )
    return fleet


def both_ready() -> FleetSnapshot:
    fleet, _ = play(begun(), observed("a"), observed("b"))
    return fleet


def targets(fleet: FleetSnapshot) -> list[str]:
    """Names of the instances in the published table."""
    assert fleet.table is not None, "published"
    return [
        target.instance
        for route in fleet.table.routes
        for version in route.versions
        for target in version.targets
    ]


def only(kind: type[C], commands: Sequence[Command]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


def texts(commands: Sequence[Command]) -> list[str]:
    return [record.text for record in only(Record, commands)]


def kept(commands: list[Command], documents: Documents | None = None) -> Documents:
    """What the store holds after these commands, of what it held before."""
    documents = {} if documents is None else documents
    for write in only(Write, commands):
        apply(documents, write.changes)
    return documents

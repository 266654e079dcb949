"""One gateway after another: what the control plane of each does in a take-over.

Floor 1, pure.   Flow: Freeze -> Frozen -> (Thaw | HandedOver); or stand by -> claim -> Committed
Between the offer and its commit both are still: neither decides what the other would not know, and
requests go on as before. The one that stands by claims the store before it commits, in one
transaction with all it has to write. After the commit the predecessor finishes what it holds and
says how much that is; the successor's drains and limits count it in.
"""

from gateway.fleet.closing import close_workers
from gateway.fleet.commands import (
    CloseFront,
    OpenFront,
    ReadSettings,
    ReclaimStore,
    SettleWrites,
    Supervise,
    Tell,
)
from gateway.fleet.drains import token
from gateway.fleet.durable import counter_change, section_change, slot_change
from gateway.fleet.handing import (
    ClaimFailed,
    CutAsked,
    FreezeAsked,
    GivenAway,
    HeldElsewhere,
    StoreClaimed,
    Thawed,
    TookOver,
    WritesSettled,
)
from gateway.fleet.snapshot import Closing, FleetSnapshot
from gateway.fleet.turn import Turn
from gateway.messages import Accept, Cut, Exit, Frozen, Serving
from gateway.store.base import Put

# --- the predecessor -----------------------------------------------------------------------------


def take_as_predecessor(
    turn: Turn, event: FreezeAsked | WritesSettled | Thawed | GivenAway | CutAsked
) -> None:
    match event:
        case FreezeAsked():
            _freeze(turn)
        case WritesSettled() if turn.fleet.frozen:
            turn.order(Supervise(Frozen()))
        case WritesSettled():
            pass  # the successor has gone meanwhile
        case Thawed():
            _thaw(turn)
        case GivenAway():
            _give_away(turn)
        case CutAsked():
            _cut(turn, event)


def _freeze(turn: Turn) -> None:
    turn.change(frozen=True, quiet=False)
    turn.record(
        "gateway", "gateway", "a successor asks to take over: changes are refused meanwhile"
    )


def carry_on(turn: Turn) -> None:
    """Ask for the end of all writes, once nothing is under way that would write: an intent that is
    being stored, or a launch whose token is not.
    """
    fleet = turn.fleet
    launching = any(launched.pid < 0 for launched in fleet.launches.values())
    if fleet.frozen and not fleet.quiet and not fleet.asks and not launching:
        turn.change(quiet=True)
        turn.order(SettleWrites())


def _thaw(turn: Turn) -> None:
    """The successor has failed. It may have claimed the store in its last moment."""
    turn.change(frozen=False)
    turn.order(ReclaimStore(_own(turn.fleet)), ReadSettings(0, "the successor has failed"))
    turn.record("gateway", "gateway", "the successor has failed: going on", warn=True)


def _own(fleet: FleetSnapshot) -> tuple[Put, ...]:
    """What a gateway that claims the store writes about its own memory."""
    slots = (
        slot_change(fleet.book, seen.slot, fleet.segment, seen.ready_since)
        for seen in fleet.instances.values()
        if seen.slot in fleet.book.holders
    )
    sections = (
        section_change(model, section, fleet.segment)
        for model, section in fleet.book.sections.items()
    )
    return (*slots, *sections, counter_change("generation", fleet.ceiling))


def _give_away(turn: Turn) -> None:
    """Sockets, instances and the store are the successor's: what is held here is finished."""
    settings = turn.fleet.settings
    grace_s = settings.drain.grace_s
    close_workers(turn, grace_s)
    due = turn.now + grace_s + settings.gateway.worker_stuck_s
    turn.change(
        frozen=True,  # nothing is decided here any more
        serving=False,
        closing=Closing(1, "workers", due),
    )
    turn.order(CloseFront())
    text = f"taken over by a successor: what is held has {grace_s:g} s"
    turn.record("gateway", "gateway", text, grace_s=grace_s)


def _cut(turn: Turn, event: CutAsked) -> None:
    """A drain of the successor's is at its deadline."""
    slots = tuple(
        slot
        for slot, holder in turn.fleet.book.holders.items()
        if holder.instance == event.instance
    )
    cut = Cut(slots, (), token(turn))
    turn.order(*(Tell(row, cut) for row in turn.fleet.holding().values()))


# --- the successor -------------------------------------------------------------------------------


def take_as_successor(
    turn: Turn, event: StoreClaimed | ClaimFailed | TookOver | HeldElsewhere
) -> None:
    match event:
        case StoreClaimed():  # every worker serves a table, too: the supervisor commits
            turn.order(Supervise(Serving()))
        case ClaimFailed(reason):
            turn.record("gateway", "store", f"not taken over: {reason}", warn=True)
            turn.order(Supervise(Exit(1)))
        case TookOver():
            _take_over(turn)
        case HeldElsewhere():
            _held_elsewhere(turn, event)


def _take_over(turn: Turn) -> None:
    """The predecessor has let go: accept, be reachable, decide."""
    turn.change(stands_by=False, elsewhere=None)
    turn.order(
        *(
            Tell(worker.row, Accept(worker.index))
            for worker in turn.fleet.workers.values()
            if worker.linked
        ),
        OpenFront(),
        ReadSettings(0, "taken over"),
    )
    turn.record("gateway", "gateway", "taken over: the predecessor finishes what it holds")


def _held_elsewhere(turn: Turn, event: HeldElsewhere) -> None:
    turn.change(elsewhere=event.leases)
    turn.routes_grew = True  # limits are what it leaves of them
    if event.over:
        turn.record("gateway", "gateway", "the predecessor is gone")

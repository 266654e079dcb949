"""Worker processes: one for each listening queue, replaced when they die, killed when they hang.

Floor 1, pure.   Owner of rows: a row is settled before it is given to the next worker, so control
orders restarts and the supervisor only executes. An acknowledgement is owed by every worker that
can hold a lease, connected or not; a beat is owed by all of them, always. While a
queue has no worker of its own, or a paused one, a neighbour accepts from it: every worker holds
every listening socket.
"""

from dataclasses import replace
from typing import Final

from gateway.fleet.commands import (
    ClaimStore,
    Count,
    FreeRow,
    SettleRow,
    StartWorker,
    Supervise,
    Tell,
)
from gateway.fleet.drain import Lost, asked_again
from gateway.fleet.durable import drain_change
from gateway.fleet.events import (
    BeatsWentStale,
    ChildrenSeen,
    RowSettled,
    WorkerAcked,
    WorkerLinked,
    WorkerUnlinked,
)
from gateway.fleet.snapshot import FleetSnapshot, Worker
from gateway.fleet.table import standings
from gateway.fleet.turn import Turn
from gateway.messages import Accept, Close, Kill, Leave, LostRequest, Note, Publish, Serving

SIGKILL: Final = 9
START_MAX_S: Final = 30.0  # importing and mapping on a machine that compiles models meanwhile
SHORT_LIFE_S: Final = 2.0  # a worker that dies sooner would die again at once
RETRY_S: Final = 1.0
NOTE_S: Final = 1.0  # progress texts are for people: no more often


def name_of(name: str) -> tuple[int, int] | None:
    """Index and row in a child's name; None when it is not a worker."""
    index, dot, row = name.removeprefix("worker").partition(".")
    return (int(index), int(row)) if name.startswith("worker") and dot else None


def begin(turn: Turn, event: ChildrenSeen) -> None:
    """Those that run already are taken over; rows that nobody runs are settled first."""
    for name, pid in event.pids.items():
        place = name_of(name)
        if place is not None:
            index, row = place
            due = turn.now + START_MAX_S
            worker = Worker(index, row, pid, turn.now, fresh=False, due_at=due)
            turn.put_worker(worker)
    dead = event.unsettled - turn.fleet.workers.keys()
    turn.change(workers_wanted=event.workers, settling=frozenset(dead))
    turn.order(*(SettleRow(row) for row in sorted(dead)))
    start_missing(turn)


def start_missing(turn: Turn) -> None:
    """A worker for every index that has none, on a row that holds nothing."""
    fleet = turn.fleet
    if not fleet.begun or fleet.closing is not None:
        return
    manned = {worker.index for worker in fleet.workers.values()}
    for index in range(fleet.workers_wanted):
        if index in manned or turn.now < fleet.worker_retry.get(index, 0.0):
            continue
        taken = turn.fleet.workers.keys() | fleet.settling
        free = [row for row in range(fleet.rows) if row not in taken]
        if not free:  # dead rows are being settled: that brings us back here
            return
        row = index if index in free else free[0]  # the old row continues its counters
        worker = Worker(index, row, 0, turn.now, due_at=turn.now + START_MAX_S)
        turn.put_worker(worker)
        turn.order(StartWorker(index, row, fleet.workers_wanted, fleet.stands_by))


def spawned(turn: Turn, row: int, pid: int) -> None:
    worker = turn.fleet.workers.get(row)
    if worker is not None:
        turn.put_worker(replace(worker, pid=pid))


def linked(turn: Turn, event: WorkerLinked) -> None:
    """It has connected: it gets the table, and tells the same to a control that came after."""
    old = turn.fleet.workers.get(event.row)
    if old is None or old.pid not in {0, event.pid}:
        return  # said before it died, and read after its exit: nobody would ever end it again
    worker = Worker(
        event.index,
        event.row,
        event.pid,
        old.started_at,
        fresh=False,
        linked=True,
        sent=event.generation,
        acked=event.generation,
        compiled=event.compiled,
    )
    if event.row in turn.fleet.stale:  # it has only its beat to come back with
        worker = replace(worker, due_at=_stuck_at(turn))
    turn.put_worker(worker)
    if event.waits and not turn.fleet.stands_by:
        turn.order(Tell(event.row, Accept(event.index)))
    closing = turn.fleet.closing
    if closing is not None and closing.step != "delay":
        turn.order(Tell(event.row, Close(max(0.0, closing.due_at - turn.now))))
    for index, row in turn.fleet.stand_ins.items():
        if row == event.row:
            turn.order(Tell(row, Accept(index)))
    if not old.fresh:  # answers may have been lost with its old link
        for drain in turn.fleet.drains.values():
            turn.put_drain(asked_again(drain))


def unlinked(turn: Turn, event: WorkerUnlinked) -> None:
    """Not dead: it serves on with its table, and has worker_stuck_s to come back."""
    worker = turn.fleet.workers.get(event.row)
    if worker is not None and worker.pid == event.pid:
        turn.put_worker(replace(worker, linked=False, due_at=_stuck_at(turn)))


def _stuck_at(turn: Turn) -> float:
    """Until when a silence that begins now may last."""
    return turn.now + turn.fleet.settings.gateway.worker_stuck_s


def acked(turn: Turn, event: WorkerAcked) -> None:
    worker = turn.fleet.workers.get(event.row)
    if worker is None or event.generation <= worker.acked:
        return
    due = worker.due_at if worker.row in turn.fleet.stale else None  # its beat has to come too
    turn.put_worker(replace(worker, acked=event.generation, due_at=due))
    _relieve(turn, worker.index)
    manned = {one.index for one in turn.fleet.workers.values() if one.acked}
    if turn.fleet.serving and not worker.acked:
        text = f"worker {worker.index} (pid {worker.pid}) serves"
        turn.record("worker", f"worker{worker.index}", text, pid=worker.pid)
    if not turn.fleet.serving and len(manned) == turn.fleet.workers_wanted:
        turn.change(serving=True)
        # One that stands by for a predecessor has to own the store before it says so.
        turn.order(ClaimStore() if turn.fleet.stands_by else Supervise(Serving()))
        turn.record(
            "gateway", "gateway", "every worker serves a table", generation=event.generation
        )


def exited(turn: Turn, index: int, row: int, pid: int, status: str) -> None:
    """It is gone: its death counts as acknowledged and empty; what it held is settled by name."""
    worker = turn.fleet.workers.get(row)
    if worker is None:
        return
    lived_s = turn.now - worker.started_at
    workers = {key: one for key, one in turn.fleet.workers.items() if key != row}
    retry = dict(turn.fleet.worker_retry)
    if lived_s < SHORT_LIFE_S:
        retry[index] = turn.now + RETRY_S
    settling, stale = turn.fleet.settling | {row}, turn.fleet.stale - {row}
    turn.change(workers=workers, settling=settling, stale=stale, worker_retry=retry)
    turn.order(SettleRow(row))
    if turn.fleet.closing is None:
        text = f"worker {index} (pid {pid}) ended by {status}, another one takes its place"
        turn.record("worker", f"worker{index}", text, warn=True, pid=pid, status=status)
        _stand_in(turn, index)


def settled(turn: Turn, event: RowSettled) -> None:
    """Every request that died with the worker, by name; the row is free again."""
    turn.change(settling=turn.fleet.settling - {event.row})
    for lost in event.lost:
        named = lost_of(turn.fleet, lost, "worker died")
        drain = turn.fleet.drains.get(named.instance)
        if drain is not None and drain.slot == lost.slot and drain.ended is None:
            drain = replace(drain, lost=(*drain.lost, named))
            turn.put_drain(drain)
            turn.keep_drain(drain.name, drain_change(drain, turn.fleet.wall, turn.now))
        record_lost(turn, named)
    turn.order(FreeRow(event.row))  # behind the records: a control that dies here names them again
    start_missing(turn)


def lost_of(fleet: FleetSnapshot, request: LostRequest, cause: str) -> Lost:
    """The request with the names that its slot stands for now."""
    holder = fleet.book.holders.get(request.slot)
    if holder is None:
        return Lost(request, cause, "", "", "")
    return Lost(request, cause, holder.instance, holder.model, holder.version)


def record_lost(turn: Turn, lost: Lost) -> None:
    """One request that did not end by itself, for the event log and the tally."""
    one = lost.request
    place = f"on {lost.instance}" if lost.instance else "before it had an instance"
    text = f"request {one.request_id:016x} lost {place}: {lost.cause}"
    turn.order(Count("lost", lost.cause.replace(" ", "_")))
    turn.record(
        "request",
        f"{one.request_id:016x}",
        text,
        warn=True,
        client_request_id=one.client_request_id,
        instance=lost.instance,
        model=lost.model,
        version=lost.version,
        stage=one.stage,
        age_s=round(one.age_s, 3),
        bytes=one.bytes,
        cause=lost.cause,
    )


def ticked(turn: Turn) -> None:
    """Kill those whose silence has lasted too long."""
    for worker in turn.fleet.workers.values():
        if worker.due_at is None or turn.now < worker.due_at or worker.killed:
            continue
        turn.put_worker(replace(worker, killed=True, due_at=None))
        turn.order(Supervise(Kill(worker.name, SIGKILL)))
        text = f"worker {worker.index} (pid {worker.pid}) does not answer and is killed"
        turn.record("worker", f"worker{worker.index}", text, warn=True, pid=worker.pid)
    start_missing(turn)


def deadlines(fleet: FleetSnapshot) -> list[float]:
    """Of those that can still be killed: one that was is waited for, and its exit is news."""
    found = (one.due_at for one in fleet.workers.values() if not one.killed)
    return [when for when in found if when is not None]


# --- what workers are told -----------------------------------------------------------------------


def ready(fleet: FleetSnapshot) -> bool:
    """Whether some worker has acknowledged all that it was sent, and would take a table now."""
    return any(one.linked and one.sent <= one.acked for one in fleet.workers.values())


def publish(turn: Turn) -> None:
    """Send the table to every worker that has acknowledged the one before it.

    So at most one is under way to each, and a slow worker skips what was overtaken meanwhile.
    """
    table = turn.fleet.table
    if table is None:
        return
    for worker in turn.fleet.workers.values():
        if worker.fresh or worker.acked >= table.generation:
            continue
        due = worker.due_at if worker.due_at is not None else _stuck_at(turn)
        if worker.linked and worker.sent <= worker.acked:
            turn.put_worker(replace(worker, sent=table.generation, due_at=due))
            turn.order(Tell(worker.row, Publish(table)))
        elif worker.due_at is None:
            turn.put_worker(replace(worker, due_at=due))


def note(turn: Turn, *, at_once: bool = False) -> None:
    """Newer standings, throttled: a reading brings others soon. `at_once`: none will."""
    throttled = turn.now < turn.fleet.noted_at + NOTE_S and not at_once
    if turn.fleet.table is None or throttled:
        return
    turn.change(noted_at=turn.now)
    message = Note(standings(turn.fleet, turn.now))
    turn.order(*(Tell(one.row, message) for one in turn.fleet.workers.values() if one.acked))


# --- stand-ins -----------------------------------------------------------------------------------


def beats(turn: Turn, event: BeatsWentStale) -> None:
    """One that does not beat is stood in for, and has worker_stuck_s to come back."""
    turn.change(stale=event.rows)
    for worker in turn.fleet.workers.values():
        if worker.row in event.rows and not worker.fresh:
            if worker.due_at is None and not worker.killed:
                turn.put_worker(replace(worker, due_at=_stuck_at(turn)))
            _stand_in(turn, worker.index)
        elif worker.linked:
            if worker.sent <= worker.acked:  # else it owes an acknowledgement as well
                turn.put_worker(replace(worker, due_at=None))
            _relieve(turn, worker.index)


def _stand_in(turn: Turn, index: int) -> None:
    """Have a neighbour accept from this index's queue."""
    fleet = turn.fleet
    if fleet.stands_by:  # the predecessor's workers accept
        return
    able = [
        one.row
        for one in fleet.workers.values()
        if one.linked and one.index != index and one.row not in fleet.stale
    ]
    current = fleet.stand_ins.get(index)
    if able and current not in able:
        turn.change(stand_ins={**fleet.stand_ins, index: able[0]})
        turn.order(Tell(able[0], Accept(index)))


def _relieve(turn: Turn, index: int) -> None:
    """The index has a worker that answers again."""
    row = turn.fleet.stand_ins.get(index)
    if row is None:
        return
    left = {key: one for key, one in turn.fleet.stand_ins.items() if key != index}
    turn.change(stand_ins=left)
    if row in turn.fleet.workers:
        turn.order(Tell(row, Leave(index)))

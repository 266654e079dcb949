"""A drain: let an instance finish what it holds, for at most a grace, then hold it out or stop it.

Floor 1, pure: a reducer over facts.   Flow: intent stored -> [drain] -> Drain, Stop, exit
The order is fixed, and each step waits for evidence, never for a clock: a table without the
instance is acknowledged by all; no worker is still sending to it; only then does the instance hear
of it; it is over when nobody holds anything. Only the deadline is a clock.
`advance` may be called as often as one likes: with the same facts it has nothing to add.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gateway.fleet.commands import CallDrain, CallStop, Command, PollNow, Supervise, Tell
from gateway.fleet.slots import NO_SLOT
from gateway.messages import Cut, CutHeld, Kill, LostRequest, TellEmpty, TellSent
from gateway.records import Intent

RETIRED: Final = "taken out of config.toml"
REMOVED: Final = "removed by an operator"
REPLACED: Final = "replaced by a rollout"
ROLLED_BACK: Final = "its version was rolled back"
BY_ROLLOUT: Final = frozenset({REPLACED, ROLLED_BACK})
FAREWELLS: Final = frozenset({RETIRED, REMOVED}) | BY_ROLLOUT  # nobody wants it any more
SIGTERM: Final = 15  # as in the module signal, which floor 1 does not import
SIGKILL: Final = 9


class Phase(Enum):
    """How far it has come; values of the admin API."""

    PUBLISHING = "publishing"  # a table without it, until every worker serves that
    SETTLING = "settling"  # until no worker is connecting or sending to it
    WAITING = "waiting"  # until nobody holds anything
    CUTTING = "cutting"  # the grace is over: until every worker named what it ended
    STOPPING = "stopping"  # until the process is gone
    DONE = "done"
    CUT = "cut"  # over as well, but requests were lost
    UNDRAINED = "undrained"


# Which phase may follow which. UNDRAINED has a way in from everything before STOPPING: a process
# that has been told to go cannot be given back.
MOVES: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.PUBLISHING: frozenset({Phase.SETTLING, Phase.UNDRAINED}),
    Phase.SETTLING: frozenset({Phase.WAITING, Phase.CUTTING, Phase.UNDRAINED}),
    Phase.WAITING: frozenset(
        {Phase.STOPPING, Phase.DONE, Phase.CUT, Phase.CUTTING, Phase.UNDRAINED}
    ),
    Phase.CUTTING: frozenset({Phase.STOPPING, Phase.DONE, Phase.CUT, Phase.UNDRAINED}),
    Phase.STOPPING: frozenset({Phase.DONE, Phase.CUT}),
    Phase.DONE: frozenset({Phase.UNDRAINED}),  # from held out; a stopped one is started anew
    Phase.CUT: frozenset({Phase.UNDRAINED}),
    Phase.UNDRAINED: frozenset(),
}
ENDED: Final = frozenset({Phase.DONE, Phase.CUT, Phase.UNDRAINED})


class IllegalMove(Exception):
    """A move that MOVES has no row for: a bug, never load."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A request that the drain, or a worker's death during it, has ended.

    It keeps the names: the slot that the request speaks of may be somebody else's later.
    """

    request: LostRequest
    cause: str
    instance: str
    model: str
    version: str


@dataclass(frozen=True, slots=True)
class Drain:
    """One drain of one incarnation (with stop) or of one id (without)."""

    name: str
    slot: int
    token: int  # under which workers answer
    began: float
    deadline: float
    stop: bool = False
    reclaim: bool = False  # forced: no farewell, the process is killed
    reason: str = ""
    phase: Phase = Phase.PUBLISHING
    generation: int = 0  # the first table without it
    owed: frozenset[int] = frozenset()  # pids of the workers that may hold something
    sent: frozenset[int] = frozenset()
    emptied: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    was_cut: bool = False  # the grace was not enough; whether it cost something, `lost` says
    stop_began: float = 0.0
    killed: bool = False
    ended: float | None = None
    lost: tuple[Lost, ...] = ()

    @property
    def intent(self) -> Intent:
        """What it wants of its instance."""
        if self.phase is Phase.UNDRAINED:
            return Intent.ACTIVE
        return Intent.STOP if self.stop else Intent.DRAIN

    @property
    def lasts(self) -> bool:
        """Whether it stands though its instance is gone: an operator holds the id out.

        What took the instance out of the fleet ends with it, as a drain with stop does.
        """
        return self.intent is Intent.DRAIN and self.reason not in FAREWELLS


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of the world around a drain at this moment."""

    now: float
    served: int  # the generation that every live worker serves at least
    live: Mapping[int, int]  # pid: row, of workers that can hold leases
    grpc: str
    draining: bool  # the instance has said that it drains
    active: int  # requests that it holds, as it says itself
    gone: bool  # its process has ended, or it said farewell
    silent: bool  # it answers no poll: whether it drains will not be heard of it
    child: bool  # we started it: we can kill it, and see it end
    kill_after_s: float
    elsewhere: int = 0  # requests that a predecessor still holds on it


Step = tuple[Drain, tuple[Command, ...]]


def move(drain: Drain, phase: Phase, now: float) -> Drain:
    """The drain in its next phase.

    Raises: IllegalMove; nothing has changed.
    """
    if phase not in MOVES[drain.phase]:
        raise IllegalMove(f"drain of {drain.name}: {drain.phase.value} to {phase.value}")
    return replace(drain, phase=phase, ended=now if phase in ENDED else None)


def advance(drain: Drain, facts: Facts) -> Step:
    """The drain as far as the facts carry it, and what that calls for, in order."""
    commands: tuple[Command, ...] = ()
    while True:
        after, more = _STEPS[drain.phase](drain, facts)
        commands += more
        if after.phase is drain.phase:
            return after, commands
        drain = after


def due_at(drain: Drain, facts: Facts) -> float | None:
    """When the clock has something to say about it."""
    match drain.phase:
        case Phase.SETTLING | Phase.WAITING:
            return drain.deadline
        case Phase.CUTTING if facts.elsewhere:
            return drain.deadline + facts.kill_after_s
        case Phase.STOPPING if not drain.killed:
            return drain.stop_began + facts.kill_after_s
    return None


# --- one function a phase ------------------------------------------------------------------------


def _publishing(drain: Drain, facts: Facts) -> Step:
    # The deadline waits here: before every worker serves the table, new leases can still open, and
    # a worker that does not acknowledge is killed by another rule.
    if facts.served < drain.generation:
        return drain, ()
    # An instance that never had a slot was never in a table: nobody can hold anything.
    owed = frozenset(facts.live) if drain.slot != NO_SLOT else frozenset[int]()
    moved = replace(move(drain, Phase.SETTLING, facts.now), owed=owed)
    return moved, _tell(moved, facts, TellSent(drain.slot, drain.token))


def _settling(drain: Drain, facts: Facts) -> Step:
    call = _call(drain, facts)
    if not (drain.owed & facts.live.keys()) - drain.sent:
        tell = _tell(drain, facts, TellEmpty(drain.slot, drain.token))
        return move(drain, Phase.WAITING, facts.now), (*call, *tell)
    if facts.now < drain.deadline:
        return drain, ()
    cut, commands = _cutting_begins(drain, facts)
    return cut, (*call, *commands)


def _waiting(drain: Drain, facts: Facts) -> Step:
    if not (drain.owed & facts.live.keys()) - drain.emptied and not facts.elsewhere:
        if facts.gone or facts.silent or (facts.draining and facts.active == 0):
            return _finish(drain, facts)
        if facts.now >= drain.deadline:  # only clients of its own road are cut short, by itself
            return _finish(replace(drain, was_cut=True), facts)
        return drain, ()
    if facts.now >= drain.deadline:
        return _cutting_begins(drain, facts)
    return drain, ()


def _cutting(drain: Drain, facts: Facts) -> Step:
    if (drain.owed & facts.live.keys()) - drain.cut:  # one that does not answer is killed
        return drain, ()
    if facts.elsewhere and facts.now < drain.deadline + facts.kill_after_s:
        return drain, ()
    return _finish(drain, facts)  # a predecessor that does not answer is nobody's to kill


def _stopping(drain: Drain, facts: Facts) -> Step:
    if facts.gone or (facts.silent and not facts.child):
        return _end(drain, facts), ()
    late = facts.now >= drain.stop_began + facts.kill_after_s
    if not late and not drain.reclaim:
        return drain, ()
    if not facts.child:  # nothing of ours to kill: it has been told, and is sent nothing
        return _end(drain, facts), ()
    if drain.killed:
        return drain, ()
    return replace(drain, killed=True), (Supervise(Kill(f"instance.{drain.name}", SIGKILL)),)


def _over(drain: Drain, facts: Facts) -> Step:
    return drain, ()


_STEPS: Final = {
    Phase.PUBLISHING: _publishing,
    Phase.SETTLING: _settling,
    Phase.WAITING: _waiting,
    Phase.CUTTING: _cutting,
    Phase.STOPPING: _stopping,
    Phase.DONE: _over,
    Phase.CUT: _over,
    Phase.UNDRAINED: _over,
}


def _cutting_begins(drain: Drain, facts: Facts) -> Step:
    cutting = replace(move(drain, Phase.CUTTING, facts.now), was_cut=True)
    tell = _tell(cutting, facts, Cut((drain.slot,), (), drain.token))
    other = (Supervise(CutHeld(drain.name)),) if facts.elsewhere else ()
    return cutting, (*tell, *other)


def _finish(drain: Drain, facts: Facts) -> Step:
    if not drain.stop:
        return _end(drain, facts), ()
    stopping = replace(move(drain, Phase.STOPPING, facts.now), stop_began=facts.now)
    if drain.reclaim or facts.gone:
        return stopping, ()
    asked: tuple[Command, ...] = ()
    if facts.grpc:
        asked = (CallStop(drain.name, facts.grpc, facts.kill_after_s, drain.was_cut),)
    if facts.child and (facts.silent or not facts.grpc):  # a call will not be heard
        asked += (Supervise(Kill(f"instance.{drain.name}", SIGTERM)),)
    return stopping, asked


def _end(drain: Drain, facts: Facts) -> Drain:
    return move(drain, Phase.CUT if drain.lost else Phase.DONE, facts.now)


def _call(drain: Drain, facts: Facts) -> tuple[Command, ...]:
    if drain.reclaim or facts.gone or not facts.grpc:
        return ()
    grace_s = max(0.0, drain.deadline - facts.now)
    return (CallDrain(drain.name, facts.grpc, grace_s, drain.reason),)


def _tell(drain: Drain, facts: Facts, message: TellSent | TellEmpty | Cut) -> tuple[Command, ...]:
    return tuple(Tell(row, message) for pid, row in facts.live.items() if pid in drain.owed)


def asked_again(drain: Drain) -> Drain:
    """The drain with its questions to workers still to be put: a link that carried them broke.

    The one way back in MOVES' order; every step behind it is idempotent.
    """
    if drain.phase not in {Phase.SETTLING, Phase.WAITING, Phase.CUTTING}:
        return drain
    nobody: frozenset[int] = frozenset()
    return replace(drain, phase=Phase.PUBLISHING, owed=nobody, sent=nobody, emptied=nobody)


# --- what workers answer -------------------------------------------------------------------------


def said_sent(drain: Drain, pid: int) -> Drain:
    return replace(drain, sent=drain.sent | {pid})


def said_empty(drain: Drain, pid: int) -> Step:
    """The last one asks the instance at once, rather than at the next poll."""
    after = replace(drain, emptied=drain.emptied | {pid})
    if drain.owed <= after.emptied and drain.phase is Phase.WAITING:
        return after, (PollNow(drain.name),)
    return after, ()


def said_cut(drain: Drain, pid: int, lost: tuple[Lost, ...]) -> Drain:
    return replace(drain, cut=drain.cut | {pid}, lost=drain.lost + lost)

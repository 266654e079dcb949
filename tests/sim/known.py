"""What control could know at a moment: the newest facts that reached it, in a book of our own.

An instance is known bad when the last word of its incarnation was not READY, its end was told, as
many polls in a row as config.toml allows have failed (a slow one may be excused, so it does not
count here), or a dial failed and no poll has been answered since. A control that starts knows
nothing.
"""

from collections.abc import Callable

from gateway.fleet import events as e
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.status import Status
from gateway.records import Target
from sluicegate.v1.states import State


class Known:
    def __init__(self, failures: int, successes: int) -> None:
        self._failures_max, self._successes_min = failures, successes
        self._said: dict[str, tuple[int, State]] = {}  # incarnation: sequence, state
        self._address: dict[str, str] = {}  # incarnation: where it answers
        self._bad_since: dict[str, float] = {}
        self._gone: set[str] = set()
        self._failed: dict[str, int] = {}  # address: polls in a row
        self._answered: dict[str, int] = {}  # address that was down: polls in a row
        self._suspect: set[str] = set()  # incarnations

    def hear(
        self, fleet: FleetSnapshot, event: e.Event, incarnation_of: Callable[[int], str]
    ) -> None:
        match event:
            case e.Observed(name, source, grpc, _, status):
                self._reading(status, event.now)
                if source is e.Source.POLL and status.instance_id == name:
                    self._poll_answered(grpc, status.incarnation)
                elif source is e.Source.WATCH and grpc not in self._answered:
                    self._failed[grpc] = 0
            case e.Registered(_, status) | e.Beaten(_, status):
                self._reading(status, event.now)
            case e.Deregistered(name, incarnation):
                seen = fleet.instances.get(name)
                if seen is not None and seen.incarnation == incarnation:
                    self._ended(incarnation, event.now)
            case e.ChildExited(name, pid) if name.startswith("instance."):
                self._ended(incarnation_of(pid), event.now)
            case e.PollFailed(name, grpc, _, slow) if name in fleet.instances and not slow:
                self._poll_failed(grpc)
            case e.DialFailed(slot):
                seen = fleet.slot_owner(slot)
                if seen is not None:
                    self._suspect.add(seen.incarnation)

    def forget_polls(self) -> None:
        """A new file was taken over: what it names anew is judged anew."""
        self._failed.clear()
        self._answered.clear()

    def _reading(self, status: Status, now: float) -> None:
        known = status.incarnation
        if status.grpc and status.grpc != self._address.get(known):
            self._address[known] = status.grpc
            self._failed.pop(status.grpc, None)
            self._answered.pop(status.grpc, None)
        if status.sequence < self._said.get(known, (0, State.READY))[0] or known in self._gone:
            return
        self._said[known] = (status.sequence, status.state)
        if status.state is State.READY:
            self._bad_since.pop(known, None)
        else:
            self._bad_since.setdefault(known, now)

    def _ended(self, incarnation: str, now: float) -> None:
        self._gone.add(incarnation)
        self._bad_since.setdefault(incarnation, now)

    def _poll_answered(self, grpc: str, incarnation: str) -> None:
        self._failed[grpc] = 0
        self._suspect.discard(incarnation)
        if grpc in self._answered:
            self._answered[grpc] += 1
            if self._answered[grpc] >= self._successes_min:
                del self._answered[grpc]

    def _poll_failed(self, grpc: str) -> None:
        self._failed[grpc] = self._failed.get(grpc, 0) + 1
        if self._failed[grpc] >= self._failures_max:
            self._answered[grpc] = 0

    def against(self, target: Target) -> str:
        """Why requests may not go there; "" when nothing says so."""
        life = target.incarnation
        if life in self._gone:
            return "its end is known"
        said = self._said.get(life)
        if said is None:
            return "it was never heard of"
        if said[1] is not State.READY:
            return f"it said {said[1].name}"
        if self._address.get(life) in self._answered:
            return "its polls failed"
        if life in self._suspect:
            return "a dial failed, and no poll was answered since"
        return ""

    def bad_since(self, incarnation: str) -> float | None:
        return self._bad_since.get(incarnation)

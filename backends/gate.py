"""How many requests this instance holds, from whatever road they came.

Floor 2, no I/O.   Owner: the instance's event loop; nothing else writes.
The gateway's ledger knows when the gateway holds nothing here; this count knows when nobody does.
A request is counted from its admission to its last byte. A refusal means that nothing was done.
"""

from collections.abc import Callable

from backends.errors import Draining, NotReady, QueueFull
from backends.lifecycle import Standing
from sluicegate.v1.states import State


class Pass:
    """One admitted request. Given back exactly once, whoever gets there first."""

    __slots__ = ("_gate", "places", "request_id")

    def __init__(self, gate: "Gate", request_id: str, places: int) -> None:
        self._gate: Gate | None = gate
        self.request_id = request_id
        self.places = places  # slots or places in the queue that it may take at once

    def give_back(self) -> None:
        """The client, the engine and a cut race to end a request: later calls do nothing."""
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate._returned(self)


class Gate:
    """Admits only while READY, and only as much as the slots and the queue can hold."""

    def __init__(self) -> None:
        self.room = 0  # slots + places in the queue; 0 until the engine is known
        self.admitted_total = 0
        self.rejected_total = 0
        self._held: dict[int, Pass] = {}
        self._taken = 0  # places of all that are held
        self._when_empty: list[Callable[[], None]] = []

    @property
    def in_flight(self) -> int:
        return len(self._held)

    def held(self) -> tuple[str, ...]:
        """The request ids in flight, oldest first."""
        return tuple(each.request_id for each in self._held.values())

    def widen(self, slots: int, queue_max: int) -> None:
        """Room for what runs and what waits."""
        self.room = slots + queue_max

    def admit(self, standing: Standing, request_id: str, places: int = 1) -> Pass:
        """A claim on this instance, to be given back after the last byte: all places or none.

        Raises: NotReady, Draining, QueueFull; nothing is held, the refusal is counted.
        """
        try:
            self._check(standing, places)
        except (NotReady, Draining, QueueFull):
            self.rejected_total += 1
            raise
        admitted = Pass(self, request_id, places)
        self._held[id(admitted)] = admitted
        self._taken += places
        self.admitted_total += 1
        return admitted

    def hold(self, request_id: str) -> Pass:
        """A claim for what came in by another door, and is here: it takes no place."""
        held = Pass(self, request_id, 0)
        self._held[id(held)] = held
        return held

    def when_empty(self, then: Callable[[], None]) -> None:
        """Call `then` once, the next time nothing is held; now, if nothing is."""
        if not self._held:
            then()
        else:
            self._when_empty.append(then)

    def _check(self, standing: Standing, places: int) -> None:
        if standing.state is State.DRAINING or standing.state is State.STOPPED:
            raise Draining(f"{standing.instance_id} is draining: {standing.reason}")
        if standing.state is not State.READY:
            raise NotReady(
                f"{standing.instance_id} is {standing.state.name}, {standing.phase.name.lower()} "
                f"at {standing.progress:.0f} %: {standing.reason}"
            )
        if self._taken + places > self.room:
            raise QueueFull(
                f"no room in {standing.instance_id}: {self._taken} of {self.room} in flight"
            )

    def _returned(self, admitted: Pass) -> None:
        del self._held[id(admitted)]
        self._taken -= admitted.places
        if not self._held:
            waiting, self._when_empty = self._when_empty, []
            for then in waiting:
                then()

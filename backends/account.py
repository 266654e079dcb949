"""What any instance can say of itself, whatever it runs: to gRPC, beats, probes and metrics.

Floor 2, no I/O but the memory reading it is given.   Owner: the instance's event loop.
An instance with an engine of ours is `Facts`; one that stands for another server is
`backends/external/standin.py`. What they add is how they know what they measure.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from backends.gate import Gate
from backends.life import Life
from backends.readings import Readings
from backends.status import Held, Identity, Loads, Memory, build
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1.states import Phase

if TYPE_CHECKING:  # an agent has no numpy, and its warm-up is another
    from backends.warmup import Warmed


class Account(ABC):
    def __init__(
        self, identity: Identity, gate: Gate, life: Life, measure: Callable[[], Memory]
    ) -> None:
        self.identity = identity
        self.gate = gate
        self.life = life
        self.warmed: Warmed | None = None  # None: no samples were run
        self.graphs: Callable[[], int] = lambda: 0  # compiled so far
        self._measure = measure

    @abstractmethod
    def readings(self) -> Readings:
        """What was measured, up to now."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Requests it can run at once; 0 while that is not known."""

    def loads(self) -> Loads:
        spent = self.life.spent_ms
        return Loads(
            load_ms=spent(Phase.LOADING_MODEL, Phase.ALLOCATING_CACHE),
            compile_ms=spent(Phase.COMPILING),
            warmup_ms=spent(Phase.WARMING_UP),
            check_ms=spent(Phase.FETCHING_MODEL, Phase.CHECKING_DEPENDENCIES),
        )

    def held(self) -> Held:
        return Held(self.gate.in_flight, self.gate.rejected_total, self.slots)

    def memory(self) -> Memory:
        return self._measure()

    def status(self) -> wire.InstanceStatus:
        return build(
            self.identity,
            self.life.standing,
            self.held(),
            self.readings(),
            self.memory(),
            self.loads(),
        )

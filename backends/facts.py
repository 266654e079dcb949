"""What HTTP and engine of an instance of ours may know of each other, beside its account.

Floor 2, no I/O.   Owner: the instance's event loop.
Before the model is loaded `loaded` is None, and the gate lets nobody in.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from backends.account import Account
from backends.batcher import Batcher
from backends.distribution import NOTHING_SEEN
from backends.engines.base import Sampling
from backends.errors import NotReady, RequestInvalid
from backends.executor import Executor
from backends.gate import Gate
from backends.life import Life
from backends.readings import Readings
from backends.signature import Signature
from backends.status import NOTHING_YET, Identity, Memory
from backends.text import HoldsBack, Text
from sluicegate.v1.states import State

T = TypeVar("T")

# Totals that count requests; `progress_total` says that the engine moves, whatever for.
_COUNTED: Final = tuple(
    field.name
    for field in fields(Readings)
    if field.name.endswith("_total") and field.name != "progress_total"
)
_TIMED: Final = ("waits", "first_tokens", "token_gaps", "durations")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A text model that can be asked."""

    executor: Executor
    text: Text
    scan: Callable[[tuple[str, ...]], HoldsBack]  # stop strings -> what looks for them
    defaults: Sampling
    slots: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class LoadedGraph:
    """A graph that can be run."""

    executor: Batcher
    signature: Signature

    @property
    def slots(self) -> int:
        return self.executor.slots


class Facts(Account):
    def __init__(
        self, identity: Identity, gate: Gate, life: Life, measure: Callable[[], Memory]
    ) -> None:
        super().__init__(identity, gate, life, measure)
        self.loaded: Loaded | LoadedGraph | None = None
        self._before: Readings | None = None  # at the end of the warm-up

    def load(self, loaded: Loaded | LoadedGraph, queue_max: int) -> None:
        """From here on requests can be run; they are let in once the instance is READY."""
        self.loaded = loaded
        self.gate.widen(loaded.slots, queue_max)

    def count_from_now(self) -> None:
        """What was answered so far was nobody's request."""
        assert self.loaded is not None
        self._before = self.loaded.executor.readings()
        self.loaded.executor.time_from_now()

    def text_model(self) -> Loaded:
        """Raises: NotReady, RequestInvalid for a graph."""
        if isinstance(self.loaded, LoadedGraph):
            model = self.identity.model
            raise RequestInvalid(
                "", f"{model} takes tensors, not text: POST /v2/models/{model}/infer"
            )
        return self._known(self.loaded)

    def graph(self) -> LoadedGraph:
        """Raises: NotReady, RequestInvalid for a text model."""
        if isinstance(self.loaded, Loaded):
            model = self.identity.model
            raise RequestInvalid("", f"{model} takes text, not tensors: POST /v1/chat/completions")
        return self._known(self.loaded)

    def _known(self, loaded: T | None) -> T:
        if loaded is None:
            raise NotReady("the model is still loading")
        return loaded

    def readings(self) -> Readings:
        if self.loaded is None:
            return NOTHING_YET
        found = self.loaded.executor.readings()
        if self.life.standing.state is State.INITIALIZING:
            nothing: dict[str, Any] = dict.fromkeys(_COUNTED, 0)
            nothing |= dict.fromkeys(_TIMED, NOTHING_SEEN)
            return replace(found, **nothing)
        if self._before is None:
            return found
        before = self._before
        since: dict[str, Any] = {
            name: getattr(found, name) - getattr(before, name) for name in _COUNTED
        }
        return replace(found, **since)

    @property
    def slots(self) -> int:
        return 0 if self.loaded is None else self.loaded.slots

    def blame_engine(self, now: float) -> None:
        """If the engine is beyond repair, so is the instance."""
        failure = self.readings().failure
        if failure:
            self.life.fail(failure, now)

"""What operators were told is so, and whether the fleet still shows it."""

from collections.abc import Iterator

from gateway.control import (
    AddInstance,
    Ask,
    DrainInstance,
    RemoveInstance,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet.registry import Origin
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Intent
from tests.sim.laws import Promise

Key = tuple[str, str]


def touched(ask: Ask) -> tuple[Key, ...]:
    """What an ask may change, whether it is answered or not."""
    match ask:
        case DrainInstance(name) | StopInstance(name) | UndrainInstance(name):
            return (("drain", name),)
        case SetWeights(model) | ResetWeights(model):
            return (("weights", model),)
        case SetInstanceWeight(name):
            return (("weight", name),)
        case AddInstance(name) | RemoveInstance(name):
            return (("instance", name), ("drain", name), ("weight", name))
    return ()


class Promises:
    """Owner of what was promised. A key that is being asked about promises nothing."""

    def __init__(self) -> None:
        self._made: dict[Key, object] = {}
        self._open: dict[Key, int] = {}

    def asked(self, ask: Ask) -> None:
        for key in touched(ask):
            self._open[key] = self._open.get(key, 0) + 1

    def given(self, ask: Ask, fleet: FleetSnapshot) -> None:
        """A receipt came."""
        self._closed(ask)
        match ask:
            case DrainInstance(name, _, stop):
                seen = fleet.instances.get(name)
                ours = seen is not None and seen.origin is Origin.LAUNCHED
                self._set(("drain", name), "out" if ours or not stop else None)
            case StopInstance(name):
                seen = fleet.instances.get(name)
                ours = seen is not None and seen.origin is Origin.LAUNCHED
                self._set(("drain", name), "out" if ours else None)
            case UndrainInstance(name):
                self._set(("drain", name), "in")
            case SetWeights(model, weights):
                self._set(("weights", model), dict(weights))
            case ResetWeights(model):
                self._set(("weights", model), None)
            case SetInstanceWeight(name, weight):
                self._set(("weight", name), weight)
            case AddInstance(name):
                self._set(("instance", name), True)
            case RemoveInstance(name):
                for key in touched(ask):
                    self._set(key, None)

    def denied(self, ask: Ask, sure: bool) -> None:
        """`sure`: nothing can have been stored."""
        self._closed(ask)
        if not sure:
            for key in touched(ask):
                self._set(key, None)

    def control_died(self) -> None:
        """Whoever waits for an answer does not know what has become of it."""
        for key, count in self._open.items():
            if count:
                self._made.pop(key, None)
        self._open.clear()

    def forget(self, name: str) -> None:
        """The instance has left the fleet."""
        for kind in ("drain", "weight", "instance"):
            self._made.pop((kind, name), None)

    def file_changed(self, model: str) -> None:
        self._made.pop(("weights", model), None)

    def _closed(self, ask: Ask) -> None:
        for key in touched(ask):
            self._open[key] = max(0, self._open.get(key, 0) - 1)

    def _set(self, key: Key, value: object) -> None:
        if value is None:
            self._made.pop(key, None)
        else:
            self._made[key] = value

    def look(self, fleet: FleetSnapshot) -> Iterator[Promise]:
        for key, value in self._made.items():
            if not self._open.get(key):
                kind, name = key
                yield Promise(
                    f"{kind} of {name} was promised to be {value}", _so(fleet, key, value)
                )


def _so(fleet: FleetSnapshot, key: Key, value: object) -> bool:
    kind, name = key
    if kind == "weights":
        assert isinstance(value, dict)
        if fleet.model(name) is None:
            return True
        shown = {version: one.weight for version, one in fleet.weights(name).items()}
        return all(shown.get(version, 0.0) == weight for version, weight in value.items())
    seen = fleet.instances.get(name)
    if kind == "instance":
        return seen is not None
    if seen is None or seen.retired:
        return True  # it is leaving, or has left
    if kind == "weight":
        return fleet.weight_of(seen) == value
    return (seen.intent is Intent.ACTIVE) == (value == "in")

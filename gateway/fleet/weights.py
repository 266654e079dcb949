"""Which weight is in force: the file's, or the one an operator set at run time.

Floor 1, pure.
An override keeps the file value it overrode, per version. It wins until exactly
that value changes in the file, or until a reset: a reload that changes something else, and a
restart, leave it alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Override:
    weight: float
    over: float | None  # what the file said then; None: it did not name it


@dataclass(frozen=True, slots=True)
class InForce:
    weight: float
    file: float | None
    overridden: bool


Overrides = Mapping[str, Override]
NO_OVERRIDES: Overrides = {}


def in_force(file: Mapping[str, float], overrides: Overrides) -> dict[str, InForce]:
    """Each version's weight. A version that neither names is not here; its weight is 0."""
    found = {}
    for version in dict.fromkeys([*file, *overrides]):
        override = overrides.get(version)
        said = file.get(version)
        if override is not None and override.over == said:
            found[version] = InForce(override.weight, said, True)
        elif said is not None:
            found[version] = InForce(said, said, False)
    return found


def override(
    file: Mapping[str, float], overrides: Overrides, asked: Mapping[str, float]
) -> dict[str, Override]:
    """The overrides after all weights of a model were set at once: those left out get 0."""
    versions = dict.fromkeys([*file, *overrides, *asked])
    return {version: Override(asked.get(version, 0.0), file.get(version)) for version in versions}


def rebased(file: Mapping[str, float], overrides: Overrides) -> dict[str, Override]:
    """The same weights above another file: all of them, and 0 for what only the file names."""
    kept = {version: one.weight for version, one in overrides.items()}
    return {
        version: Override(kept.get(version, 0.0), file.get(version))
        for version in dict.fromkeys([*file, *overrides])
    }


def surviving(file: Mapping[str, float], overrides: Overrides) -> dict[str, Override]:
    """The overrides that a new file leaves standing."""
    return {
        version: override
        for version, override in overrides.items()
        if override.over == file.get(version)
    }


def idle(overrides: Overrides) -> frozenset[str]:
    """Versions whose override says what is so without it: 0, of what the file does not name."""
    return frozenset(
        version
        for version, override in overrides.items()
        if override.weight == 0 and override.over is None
    )


@dataclass(frozen=True, slots=True)
class Forget:
    """Versions that are gone: asked of the store, by the gateway itself, before it is true."""

    model: str
    versions: frozenset[str]

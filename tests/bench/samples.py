"""Samples for the tests of what is made of them.

Floor 1, pure.
"""

from collections.abc import Mapping, Sequence

from tests.bench.report import Sample


def samples(figure: str, found: Mapping[str, Sequence[float]]) -> list[Sample]:
    """Shape: found[contender][turn]."""
    return [
        Sample(number, who, figure, value)
        for who, row in found.items()
        for number, value in enumerate(row)
    ]

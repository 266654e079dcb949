"""What an ask would change, before anything has changed.

Floor 0, pure.
"""

from typing import Final, NamedTuple

from gateway.fleet.rollout import Rollout
from gateway.store.base import Change

NOTHING: Final = ()


class Plan(NamedTuple):
    """What an ask would change."""

    changes: tuple[Change, ...]
    sentences: tuple[str, ...]
    unstored: bool = False  # nothing for the store, and still something to do
    rollout: Rollout | None = None  # as it is going to be

"""What the model repository says of one version: whether it has it, and which others.

Floor 0, pure.   Flow: launch -> [stock] -> events
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stock:
    """Whether it has one version of a model; asked for one rollout, just before it is planned."""

    version: str
    has: bool | None  # None: it cannot be looked at just now
    others: tuple[str, ...] = ()  # versions of the model that it has; (): none, or not to be listed
    doubt: str = ""  # why it cannot be looked at

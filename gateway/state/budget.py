"""Recent requests and the replays among them.

Floor 2, no I/O.
Owner: one worker. Both counts fade together, so that what they are compared by is recent.
"""

from typing import Final

from gateway.routing.replay import affordable

FADE: Final = 0.9  # a second: half of it is forgotten after 6.6 s, nearly all after half a minute


class Budget:
    __slots__ = ("replays", "requests")

    def __init__(self) -> None:
        self.requests = 0.0
        self.replays = 0.0

    def spend(self) -> bool:
        """Take one replay out of the budget; False when it is used up."""
        if not affordable(self.replays, self.requests):
            return False
        self.replays += 1.0
        return True

    def fade(self) -> None:
        """Once a second."""
        self.requests *= FADE
        self.replays *= FADE

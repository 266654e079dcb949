"""How an instance is started, wherever it runs.

Floor 3, the seam.
A launcher is told what to start and under which token it may register; that it runs, and where, it
says itself by registering. Its end is told by whoever sees it (here: the supervisor).
"""

from typing import Protocol

from gateway.config import Settings
from gateway.fleet.commands import Launch


class Launcher(Protocol):
    def launch(self, order: Launch, settings: Settings, token: str) -> None:
        """Start it; a failure comes back as StartFailed."""

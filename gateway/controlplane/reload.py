"""config.toml, read when it changes.

Floor 3, I/O.   Flow: SIGHUP, file, API -> [reload] -> SettingsRead -> decide
A file that is half written, gone, or a symbolic link being swapped is no reason to change anything:
a missing one is not looked at, a broken one is refused whole, and the next change is seen again.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watchfiles import awatch

from gateway.config import ConfigInvalid, Problem, Settings, parse
from gateway.fleet.events import Event, ReloadAsked

DEBOUNCE_MS: Final = 300  # editors and `cp` write in several steps, closer together than this


class SettingsFile:
    """Owner of nothing but the text that was looked at last."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._last = text

    def read(self) -> tuple[Settings | None, tuple[Problem, ...]]:
        """What the file says now, or everything that is wrong with it."""
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as exc:
            return None, (Problem("", f"{self.path} cannot be read: {exc}"),)
        self._last = text
        try:
            return parse(text), ()
        except ConfigInvalid as exc:
            return None, exc.problems

    def moved(self) -> bool:
        """Whether it is there and says something else than when it was read last."""
        try:
            return self.path.read_text() != self._last
        except (OSError, UnicodeDecodeError):
            return False

    async def watch(self, post: Callable[[Event], None]) -> None:
        """Ask for a reload each time that the file has changed. Runs until cancelled.

        The folder is watched, not the file: a rename over it, and the swap of a link that leads to
        it, are changes of the folder.
        """
        folder = self.path.parent
        async for _ in awatch(folder, recursive=False, debounce=DEBOUNCE_MS):
            if self.moved():
                now = asyncio.get_running_loop().time()
                post(ReloadAsked("the file changed", now))

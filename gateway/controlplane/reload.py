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

from gateway.config import ConfigInvalid, Problem, Settings, parse, unchangeable
from gateway.fleet.events import Event, ReloadAsked

DEBOUNCE_MS: Final = 300  # editors and `cp` write in several steps, closer together than this


class SettingsFile:
    """The file, and a copy of what was taken over from it last.

    kept: where that copy is. A control that is started while the file is broken, or says what a
    running gateway cannot change, goes on with it: a crash must not make a typing error into an
    outage, nor open another store under the feet of the processes that run.
    """

    def __init__(self, path: Path, kept: Path) -> None:
        self.path = path
        self._kept = kept
        self._last = ""
        self._declined = False  # at the start, so that nobody has been told why

    def read(self) -> tuple[str, Settings | None, tuple[Problem, ...]]:
        """Its text, and what it says, or everything that is wrong with it."""
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as exc:
            return "", None, (Problem("", f"{self.path} cannot be read: {exc}"),)
        self._last = text
        try:
            return text, parse(text), ()
        except ConfigInvalid as exc:
            return text, None, exc.problems

    def keep(self, text: str) -> None:
        """Keep what is in force; whole, or the copy before it."""
        fresh = self._kept.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._kept)

    def begin(self, again: bool, stands_by: bool = False) -> Settings:
        """The settings to start with; `again`: this gateway ran before, so a copy is believed.
        The copy is the predecessor's while we stand by for it.

        Raises: ConfigInvalid.
        """
        text, settings, problems = self.read()
        kept = self._copy() if again else None
        if kept is not None and (settings is None or unchangeable(kept, settings)):
            self._declined = True
            return kept
        if settings is None:
            raise ConfigInvalid(problems)
        if not stands_by:
            self.keep(text)
        return settings

    def keep_last(self) -> None:
        """What was read at the start is in force from now on."""
        self.keep(self._last)

    def _copy(self) -> Settings | None:
        """What was in force; None when there is no copy that can be read."""
        try:
            return parse(self._kept.read_text())
        except (OSError, UnicodeDecodeError, ConfigInvalid):
            return None

    def moved(self) -> bool:
        """Whether it is there and says something else than when it was read last."""
        try:
            return self.path.read_text() != self._last
        except (OSError, UnicodeDecodeError):
            return False

    async def watch(self, post: Callable[[Event], None]) -> None:
        """Ask for a reload each time that the file has changed. Runs until cancelled.

        The folder is watched, not the file: a rename over it, and the swap of a link that leads to
        it, are changes of the folder. A file that was declined at the start is asked for at once:
        the refusal of that reload tells an operator why.
        """
        if self._declined:
            now = asyncio.get_running_loop().time()
            post(ReloadAsked("this control began without it", now))
        folder = self.path.parent
        async for _ in awatch(folder, recursive=False, debounce=DEBOUNCE_MS):
            if self.moved():
                now = asyncio.get_running_loop().time()
                post(ReloadAsked("the file changed", now))

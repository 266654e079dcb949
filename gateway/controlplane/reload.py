"""config.toml, read when it changes.

Floor 3, I/O.   Flow: SIGHUP, file, API -> [reload] -> SettingsRead -> decide
A file that is half written, gone, or a symbolic link being swapped is no reason to change anything:
a missing or empty one is not looked at, one that is being written is left to be finished, a broken
one is refused whole, and the next change is seen again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from watchfiles import awatch

from gateway.config import ConfigInvalid, Problem, Settings, parse
from gateway.fleet.events import Event, ReloadAsked

DEBOUNCE_MS: Final = 300
QUIET_S: Final = 0.5  # editors and `cp` write in several steps, closer together than this
LOOK_MS: Final = 5000  # whatever the kernel says
LINKS_MAX: Final = 40  # as many as the kernel follows


class SettingsFile:
    """The file, and a copy of what was taken over from it last.

    kept: where that copy is. A control that is started in a running gateway goes on with it,
    whatever the file says by then: a crash must not make a typing error into an outage, nor open
    another store under the feet of the processes that run, nor drop instances that the file does
    not name any more, where a reload drains them.
    """

    def __init__(self, path: Path, kept: Path) -> None:
        self.path = path
        self._kept = kept
        self._last = ""
        self._behind = False  # at the start: the file says something else

    def read(self) -> tuple[str, Settings | None, tuple[Problem, ...]]:
        """Its text, and what it says, or everything that is wrong with it."""
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as exc:
            return "", None, (Problem("", f"{self.path} cannot be read: {exc}"),)
        self._last = text
        if not text.strip():  # a whole config without a word in it is nobody's wish
            return text, None, (Problem("", f"{self.path} is empty"),)
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
        if kept is not None:
            self._behind = settings != kept
            return kept
        if settings is None:
            raise ConfigInvalid(problems)
        if not stands_by:
            try:
                self.keep(text)
            except OSError as exc:
                text = f"a copy of the settings cannot be kept in it: {exc}"
                raise ConfigInvalid((Problem("gateway.run_dir", text),)) from exc
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
        """Whether it is there and says something else than when it was read last.

        An empty one is as good as not there: somebody is about to write it.
        """
        text = self._text()
        return text is not None and text != self._last and bool(text.strip())

    def _text(self) -> str | None:
        try:
            return self.path.read_text()
        except (OSError, UnicodeDecodeError):
            return None

    async def watch(self, post: Callable[[Event], None]) -> None:
        """Ask for a reload each time that the file has changed. Runs until cancelled.

        A file that says something else than what this control began with is asked for at once:
        what it changes is carried out, or refused, as at any other time.
        """

        def ask(why: str) -> None:
            post(ReloadAsked(why, asyncio.get_running_loop().time()))

        if self._behind:
            ask("this control began without it")
        while True:
            async for _ in self._looks():
                if self.moved() and await self._settled():
                    ask("the file changed")

    async def _looks(self) -> AsyncIterator[None]:
        """Moments at which it may have changed; ends when other folders are to be watched.

        Folders are watched, not the file: a rename over it, and the swap of a link that leads to
        it, are changes of a folder. Where the kernel says nothing (the folder is gone, there are no
        more watches to be had, a file system of another machine), the clock does.
        """
        folders = self._folders()
        try:
            async for _ in awatch(
                *folders,
                watch_filter=None,
                debounce=DEBOUNCE_MS,
                rust_timeout=LOOK_MS,
                yield_on_timeout=True,
                recursive=False,
            ):
                yield
                if self._folders() != folders:
                    return
        except (OSError, RuntimeError):  # the second one is the watcher's own
            await asyncio.sleep(LOOK_MS / 1000)
            yield

    def _folders(self) -> dict[Path, int]:
        """That of the file and those of all links on the way to it, with which folder each is."""
        found: dict[Path, int] = {}
        place = self.path.absolute()
        for _ in range(LINKS_MAX):
            try:
                found[place.parent] = place.parent.stat().st_ino
                place = place.parent / place.readlink()
            except OSError:  # not a link, or not there
                break
        return found

    async def _settled(self) -> bool:
        """Whether it still says something else, once nobody writes it any more."""
        before = None
        while (text := self._text()) != before:
            before = text
            await asyncio.sleep(QUIET_S)
        return self.moved()

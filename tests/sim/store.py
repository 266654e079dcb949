"""A store on paper: writes in order, each durable after a while or not at all."""

from collections.abc import Sequence
from random import Random

from gateway.store.base import Change, Documents, StoreFailed
from tests.gateway.documents import apply
from tests.sim.agenda import Agenda, Pause, hop_s


class _Write:
    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.state = "open"


class PaperStore:
    def __init__(self, agenda: Agenda, rng: Random) -> None:
        self._agenda, self._rng = agenda, rng
        self.documents: Documents = {}
        self.broken_until = 0.0
        self._busy_until = 0.0
        self._open: list[_Write] = []

    async def read(self) -> Documents:
        return self.documents

    async def claim(self) -> None:
        """There is one gateway here."""

    async def reclaim(self, changes: Sequence[Change]) -> None:
        await self.write(changes)

    async def settled(self) -> None:
        while self._open:
            await Pause(0.001)

    async def close(self) -> None:
        pass

    async def write(self, changes: Sequence[Change]) -> None:
        one = _Write(changes)
        self._open.append(one)
        now = self._agenda.now
        self._busy_until = max(self._busy_until, now) + hop_s(self._rng)
        self._agenda.at(self._busy_until, lambda: self._finish(one))
        await Pause(self._busy_until - now)
        while one.state == "open":  # the sum was rounded down
            await Pause(1e-6)
        if one.state != "kept":
            raise StoreFailed("the disk is full")

    def _finish(self, one: _Write) -> None:
        if one.state == "open":
            self._open.remove(one)
            if self._agenda.now < self.broken_until:
                one.state = "failed"
            else:
                self.keep(one.changes)
                one.state = "kept"

    def keep(self, changes: Sequence[Change]) -> None:
        apply(self.documents, changes)

    def writer_died(self) -> None:
        """Of the writes under way, the first ones were finished, and nobody knows how many."""
        finished = self._rng.randrange(len(self._open) + 1)
        for index, one in enumerate(self._open):
            if index < finished and self._agenda.now >= self.broken_until:
                self.keep(one.changes)
            one.state = "failed"
        self._open.clear()

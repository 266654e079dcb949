"""The successor's side of a take-over: everything is received and nothing is touched, then ours.

Floor 3, I/O.   Owner: the supervisor of `serve --take-over`.
It stands by until its own control and workers serve a table. Until the commit is answered it
accepts no connection, kills nobody and writes nothing that the predecessor reads: it may die at any
moment, and nobody would notice.
"""

import logging
import socket
from collections.abc import Callable
from typing import Any

from gateway.messages import Committed, Held
from gateway.takeover.house import House
from gateway.takeover.offer import Lines, Offer

log = logging.getLogger(__name__)


class Taking:
    """finish: called with the commit, for what outlives it in the run folder."""

    def __init__(
        self, house: House, sock: socket.socket, offer: Offer, finish: Callable[[], None]
    ) -> None:
        self._house = house
        self._offer = offer
        self._finish = finish
        sock.setblocking(False)
        self._predecessor: Lines | None = Lines(sock)
        self.asked = False  # for the commit: whose the gateway is, only the answer says
        self._last: Held | None = None
        self.committed = False

    def begin(self) -> None:
        assert self._predecessor is not None, "it made the offer"
        self._house.watch(self._predecessor.sock, lambda _: self._on_predecessor())

    @property
    def predecessor(self) -> int:
        """Pid of the one that still finishes requests; 0 when it is gone."""
        return self._offer.facts.pid if self._predecessor is not None else 0

    def serving(self) -> None:
        """Control says that every worker serves, and that the store is ours: commit."""
        if not self.asked and self._predecessor is not None:
            self.asked = True
            self._predecessor.say({"commit": True})

    def cut(self, instance: str) -> None:
        """Have the predecessor end what it holds there."""
        if self._predecessor is not None:
            self._predecessor.say({"cut": instance})

    def control_began(self) -> None:
        """A control that was started after the commit has not heard what its predecessor heard."""
        if self.committed and self._last is not None and self._predecessor is not None:
            self._house.tell(self._last)

    def _on_predecessor(self) -> None:
        predecessor = self._predecessor
        assert predecessor is not None, "watched"
        documents, ended = predecessor.read()
        for document in documents:
            if self._predecessor is predecessor:
                self._heard(document)
        if ended and self._predecessor is predecessor:
            self._gone()

    def _heard(self, document: dict[str, Any]) -> None:
        match document:
            case {"committed": int(pid)} if not self.committed:
                self.committed = True
                self._house.tell(Committed())
                self._house.adopt()
                log.info("taken over", extra={"predecessor": pid})
                try:
                    self._finish()
                except OSError as exc:  # a full disk: the gateway is ours all the same
                    log.error("the run folder cannot be written", extra={"reason": str(exc)})
            case {"held": dict(leases)} if self.committed:
                self._last = Held(leases)
                self._house.tell(self._last)
            case {"refused": str(why)} if not self.committed:
                self._house.fail(why)
            case _:
                log.warning("not understood, left alone", extra={"document": repr(document)})

    def give_up(self) -> None:
        """Hang up, before anything else can be said: an answer would come too late."""
        if self._predecessor is not None:
            self._house.unwatch(self._predecessor.sock)
            self._predecessor.sock.close()
            self._predecessor = None

    def _gone(self) -> None:
        self.give_up()
        if self.committed:
            self._house.tell(Held({}, over=True))
            log.info("the predecessor is gone", extra={"predecessor": self._offer.facts.pid})
        else:
            self._house.fail("the running gateway has withdrawn its offer and goes on")

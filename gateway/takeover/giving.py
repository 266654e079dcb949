"""The running gateway's side of a take-over: asked, frozen, offered, given.

Floor 3, I/O.   Owner: the supervisor.
One visitor at a time. Up to its commit nothing has changed: a visitor that hangs up, dies or takes
too long is forgotten, and control goes on. With the commit the sockets, the instances and the lock
are the visitor's; what is left here is to finish what is held, and to say how much that is.
"""

import logging
import os
import socket
import time
from enum import Enum
from typing import Any, Final

from gateway.messages import CutHeld, Freeze, HandedOver, Held, Thaw
from gateway.takeover.house import House
from gateway.takeover.offer import (
    FORMAT,
    FREEZE_MAX_S,
    PATIENCE_S,
    Facts,
    Lines,
    Offer,
    Ward,
    encode,
    send,
    shared,
)

log = logging.getLogger(__name__)


class Step(Enum):
    """How far the visitor has come."""

    NOBODY = "nobody"
    ASKED = "asked"  # it is there, and has to say what it wants
    FREEZING = "freezing"  # control finishes what it is about to decide
    OFFERED = "offered"
    GIVEN = "given"


FROZEN: Final = frozenset({Step.FREEZING, Step.OFFERED})


class Giving:
    """Owner of the door, and of the one conversation behind it."""

    def __init__(self, house: House, door: socket.socket, facts: Facts) -> None:
        self._house = house
        self._door = door
        self._facts = facts
        self._visitor: Lines | None = None
        self._step = Step.NOBODY
        self.due: float | None = None  # until when the visitor has to be further

    @property
    def given(self) -> bool:
        return self._step is Step.GIVEN

    def begin(self) -> None:
        self._house.watch(self._door, lambda _: self._on_door())

    def _on_door(self) -> None:
        try:
            sock, _ = self._door.accept()
        except OSError:
            return
        if self._visitor is not None:
            _refuse(sock, "another take-over is under way: wait for its end")
            return
        sock.setblocking(False)
        self._visitor = Lines(sock)
        self._step, self.due = Step.ASKED, time.monotonic() + PATIENCE_S
        self._house.watch(sock, lambda _: self._on_visitor())

    def _on_visitor(self) -> None:
        visitor = self._visitor
        assert visitor is not None, "watched"
        documents, ended = visitor.read()
        for document in documents:
            if self._visitor is visitor:
                self._heard(document)
        if ended and self._visitor is visitor:
            self._part("it has hung up")

    def _heard(self, document: dict[str, Any]) -> None:
        match document:
            case {"take_over": asked} if self._step is Step.ASKED:
                self._asked(asked)
            case {"commit": True} if self._step is Step.OFFERED:
                self._give()
            case {"cut": str(instance)} if self._step is Step.GIVEN:
                self._house.tell(CutHeld(instance))
            case _:
                self._part("it says what cannot be understood", refusal="that is not the format")

    def _asked(self, asked: object) -> None:
        why = self._house.hindrance()
        if asked != FORMAT:
            why = (
                f"the running gateway (pid {self._facts.pid}, version {self._facts.version}) gives "
                f"take-over format {FORMAT}, not {asked}: stop it and start again"
            )
        if why:
            self._part(why, refusal=why)
            return
        log.info("a successor asks to take over")
        self._step, self.due = Step.FREEZING, time.monotonic() + FREEZE_MAX_S
        self._house.tell(Freeze())

    # -- what control says

    def frozen(self) -> None:
        """Control decides nothing any more, and all it has ordered is done: this is the offer."""
        if self._step is not Step.FREEZING or self._visitor is None:
            return
        house = self._house
        names = shared(house.descriptors)
        descriptors = [house.descriptors[name] for name in names]
        wards = []
        for name, child in house.children.items():
            if child.handed_over:
                speaks = child.said_fd >= 0
                wards.append(Ward(name, child.pid, child.instance_pid, speaks, child.label))
                descriptors += [fd for fd in (child.pidfd, child.said_fd) if fd >= 0]
        offer = Offer(self._facts, names, tuple(wards))
        sock = self._visitor.sock
        try:
            sock.settimeout(PATIENCE_S)
            send(sock, offer, descriptors)
            sock.setblocking(False)
        except OSError as exc:
            self._part(f"the offer could not be sent: {exc}")
            return
        self._step = Step.OFFERED

    def held(self, report: Held) -> None:
        """Control's report of what is left; for the successor's drains and limits."""
        if self._visitor is not None and self._step is Step.GIVEN:
            self._visitor.say({"held": report.leases})

    def control_died(self) -> None:
        """The next one begins with a claim of the store, and has no reason to wait."""
        if self._step in FROZEN:
            self._part("control died", thaw=False)

    # -- ends

    def _give(self) -> None:
        """To one that is there to take it: a visitor may die behind its commit."""
        assert self._visitor is not None, "heard"
        if not self._visitor.say({"committed": os.getpid()}):
            self._part("it has hung up")
            return
        self._step, self.due = Step.GIVEN, None
        self._house.unwatch(self._door)
        self._door.close()
        self._house.release()
        self._house.tell(HandedOver())
        log.info("taken over: what is held is finished here, everything new is the successor's")

    def cancel(self, why: str) -> None:
        """Whoever has come for a take-over goes without; after the commit nothing changes."""
        if self._step in {Step.ASKED, *FROZEN}:
            self._part(why, refusal=why)

    def ticked(self, now: float) -> None:
        if self.due is not None and now >= self.due:
            why = "it took too long"
            self._part(why, refusal=f"{why}: the running gateway goes on")

    def _part(self, why: str, *, refusal: str = "", thaw: bool = True) -> None:
        """The conversation is over; before the commit that is as if it had never begun."""
        assert self._visitor is not None, "there is somebody"
        sock, step = self._visitor.sock, self._step
        self._house.unwatch(sock)
        self._visitor, self.due = None, None
        if refusal:
            _refuse(sock, refusal)
        sock.close()
        if step is Step.GIVEN:
            return
        self._step = Step.NOBODY
        log.warning("not taken over, going on", extra={"reason": why})
        if thaw and step in FROZEN:
            self._house.tell(Thaw())


def _refuse(sock: socket.socket, why: str) -> None:
    try:
        sock.setblocking(False)
        sock.send(encode({"refused": why}))
    except OSError:
        pass  # it is gone, and cannot be told
    sock.close()

"""The link to the supervisor: orders out, what became of children in.

Floor 3, I/O.   Flow: decide -> Supervise -> [orders] -> supervisor -> [orders] -> events
When this socket ends, the supervisor is gone, and with it everything that control could decide on:
`ended` is called and must not return.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from gateway.fleet.events import (
    ChildExited,
    ChildrenSeen,
    ChildStarted,
    Event,
    ReloadAsked,
    StartFailed,
    StopAsked,
)
from gateway.fleet.handing import (
    CutAsked,
    FreezeAsked,
    GivenAway,
    HeldElsewhere,
    Thawed,
    TookOver,
)
from gateway.messages import (
    Children,
    Committed,
    CutHeld,
    Exited,
    Freeze,
    HandedOver,
    Held,
    LineBuffer,
    Message,
    Signalled,
    Spawned,
    SpawnFailed,
    Thaw,
    encode,
)
from gateway.state.settle import unsettled
from gateway.state.shared import Segment


class SupervisorLink(asyncio.Protocol):
    def __init__(
        self, segment: Segment, post: Callable[[Event], None], ended: Callable[[], None]
    ) -> None:
        self._segment = segment
        self._post = post
        self._ended = ended
        self._buffer = LineBuffer()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def order(self, message: Message) -> None:
        assert self._transport is not None, "connected before the loop runs"
        self._transport.write(encode(message))

    def data_received(self, data: bytes) -> None:
        for message in self._buffer.feed(data):
            self._heard(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()

    def _heard(self, message: Message) -> None:
        now = asyncio.get_running_loop().time()
        match message:
            case Children(pids, workers, labels):
                self._post(ChildrenSeen(pids, workers, unsettled(self._segment), now, labels))
            case Exited(name, pid, status, oom):
                self._post(ChildExited(name, pid, status, now, oom))
            case Spawned(name, pid):
                self._post(ChildStarted(name, pid, now))
            case SpawnFailed(name, reason):
                self._post(StartFailed(name, reason, now))
            case Signalled(_, True):
                self._post(ReloadAsked("SIGHUP", now))
            case Signalled(count, False):
                self._post(StopAsked(count, now))
            case Freeze() | Thaw() | HandedOver() | Committed() | Held() | CutHeld():
                self._post(_of_take_over(message, now))
            case _:
                raise ValueError(f"{type(message).__name__} is not for control")


def _of_take_over(
    message: Freeze | Thaw | HandedOver | Committed | Held | CutHeld, now: float
) -> Event:
    match message:
        case Freeze():
            return FreezeAsked(now)
        case Thaw():
            return Thawed(now)
        case HandedOver():
            return GivenAway(now)
        case Committed():
            return TookOver(now)
        case Held(leases, over):
            return HeldElsewhere(leases, over, now)
        case CutHeld(instance):
            return CutAsked(instance, now)

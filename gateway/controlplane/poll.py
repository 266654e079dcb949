"""Ask every instance how it is, again and again; and listen to what it says by itself.

Floor 3, I/O.   Flow: [poll] -> Observed, PollFailed -> decide
Polls are spread over the interval, jittered, and at most CALLS_MAX run at once, so a thousand
instances are a trickle and not a wave. A watch stream beside them brings a change within
milliseconds; an instance that has none is polled only. Nothing is decided here, not even what a
failure means.
"""

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Final

from gateway.config import Poll
from gateway.controlplane.channels import Channels, Garbled, Unreachable, calling, reading
from gateway.fleet.events import Event, Observed, PollFailed, Source
from gateway.fleet.registry import literal_host
from gateway.fleet.status import Status
from sluicegate.v1.lifecycle_pb2 import GetStatusRequest, WatchStatusRequest
from sluicegate.v1.states import State

# Polls under way at once. A frozen instance holds its own for `timeout_s`: so many of them may be
# there before the others have to wait.
CALLS_MAX: Final = 256
JITTER: Final = 0.1  # of the interval, either way
WATCH_INTERVALS: Final = 10  # a stream without a change says as much as a poll: seldom will do
RESOLVED_S: Final = 30.0  # as long as records that move are kept by others
LOADING_TIMEOUT_S: Final = 3.0  # compiles stall an instance's loop for up to a second


@dataclass(slots=True)
class Followed:
    """One instance that is polled and watched."""

    name: str
    grpc: str
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # poll now
    state: State | None = None  # as it said last, for the timeout
    http: str = ""  # the HTTP address that was resolved last
    host: str = ""  # and to what
    resolved_until: float = -inf  # loop time; a name is looked up again then


class Poller:
    """Owner of the tasks that follow instances.

    rules: `[poll]` in force. sample: bytes from an instance and leases on it, by the segment.
    """

    def __init__(
        self,
        channels: Channels,
        post: Callable[[Event], None],
        rules: Callable[[], Poll],
        sample: Callable[[str], tuple[int, int]],
        http_of: Callable[[str], str],
        rng: random.Random,
    ) -> None:
        self._channels = channels
        self._post = post
        self._rules = rules
        self._sample = sample
        self._http_of = http_of
        self._rng = rng
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._followed: dict[str, Followed] = {}
        self._dropping: set[asyncio.Task[None]] = set()

    def follow(self, name: str, grpc: str) -> None:
        """Poll and watch it at this address from now on."""
        current = self._followed.get(name)
        if current is not None and current.grpc == grpc:
            current.asked.set()
            return
        self.unfollow(name)
        self._followed[name] = one = Followed(name, grpc)
        loop = asyncio.get_running_loop()
        one.tasks = [loop.create_task(self._poll(one)), loop.create_task(self._watch(one))]

    def unfollow(self, name: str) -> None:
        one = self._followed.pop(name, None)
        if one is None:
            return
        for task in one.tasks:
            task.cancel()
        if not any(other.grpc == one.grpc for other in self._followed.values()):
            task = asyncio.get_running_loop().create_task(self._channels.drop(one.grpc))
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    def poll_now(self, name: str) -> None:
        one = self._followed.get(name)
        if one is not None:
            one.resolved_until = -inf  # a dial may have failed because it moved
            one.asked.set()

    async def close(self) -> None:
        tasks = [task for one in self._followed.values() for task in one.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- polling

    async def _poll(self, one: Followed) -> None:
        spread = self._rng.random()  # those that came together are not asked together for ever
        while True:
            one.asked.clear()
            began = asyncio.get_running_loop().time()
            async with self._room:
                await self._poll_once(one)
            interval_s = self._rules().interval_s * spread
            spread = self._rng.uniform(1 - JITTER, 1 + JITTER)
            # From begin to begin: three failures take three intervals, slow or refused.
            wait_s = max(0.0, began + interval_s - asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await one.asked.wait()

    async def _poll_once(self, one: Followed) -> None:
        loop = asyncio.get_running_loop()
        limit_s = self._rules().timeout_s
        if one.state in {None, State.INITIALIZING}:
            limit_s = max(limit_s, LOADING_TIMEOUT_S)
        stub = self._channels.stub(one.grpc)
        try:
            with calling("poll"):
                message = await stub.GetStatus(GetStatusRequest(), timeout=limit_s)
            await self._say(one, Source.POLL, reading(message))
        except Unreachable as exc:
            self._failed(one, exc.reason, exc.slow, loop.time())
        except (Garbled, OSError) as exc:  # OSError: its host's name cannot be resolved
            self._failed(one, str(exc), False, loop.time())

    def _failed(self, one: Followed, reason: str, slow: bool, now: float) -> None:
        received, held = self._sample(one.name)
        self._post(PollFailed(one.name, one.grpc, reason, slow, received, held, now))

    async def _say(self, one: Followed, source: Source, status: Status) -> None:
        one.state = status.state
        # A static instance is reached where the file says, whatever it calls itself.
        http = self._http_of(one.name) or status.http
        host = await self._host(one, http) if http else ""
        received, held = self._sample(one.name)
        now = asyncio.get_running_loop().time()
        self._post(Observed(one.name, source, one.grpc, host, status, received, held, now))

    async def _host(self, one: Followed, http: str) -> str:
        """The IP address behind it. A name may move, so it is looked up again, now and then and
        whenever a poll is asked for; while nobody answers for names, the last answer holds.

        Raises: OSError.
        """
        now = asyncio.get_running_loop().time()
        if http == one.http and now < one.resolved_until:
            return one.host
        host, until = literal_host(http), inf
        if not host:
            until = now + RESOLVED_S
            try:
                host = await _resolve(http)
            except OSError as exc:
                if http != one.http or exc.errno == socket.EAI_NONAME:
                    raise
                host = one.host
        one.http, one.host, one.resolved_until = http, host, until
        return host

    # -- watching

    async def _watch(self, one: Followed) -> None:
        while True:
            interval_s = self._rules().interval_s
            request = WatchStatusRequest(interval_ms=int(interval_s * WATCH_INTERVALS * 1000))
            stub = self._channels.stub(one.grpc)
            try:
                with calling("watch"):
                    async for message in stub.WatchStatus(request):
                        await self._say(one, Source.WATCH, reading(message))
            except Unreachable as exc:  # polls tell of trouble; the stream is for speed
                if exc.missing:
                    return
            except (Garbled, OSError):
                pass
            await asyncio.sleep(interval_s * self._rng.uniform(0.5, 1.0))


async def _resolve(address: str) -> str:
    """The first IP address of the host in `host:port`. Raises: OSError."""
    host, _, port = address.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port))
    return str(found[0][4][0])

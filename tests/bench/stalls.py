"""Clients that read nothing and instances that read nothing: what they cost in memory.

Floor 3, I/O.
A gigabyte is on offer in each direction. What nobody takes has to stay where it is: in the kernel's
buffers, which are no part of a process, and in the sender.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.bench import loads
from tests.bench.alone import Ground, in_flight, serving
from tests.bench.contenders import Contender
from tests.bench.outputs import LoadFailed
from tests.bench.processes import rss_kib
from tests.live.gateways import Gateway

STALLED: Final = 8  # at once: the growth of one is lost in that of the allocator
OFFERED: Final = 1 << 30
STALL_S: Final = 2.0  # loopback fills every buffer in milliseconds
PIECE: Final = b"a" * (64 << 10)


async def stalls(ground: Ground) -> None:
    """Growth per stalled client, each direction in a gateway of its own."""
    for name, stall in (("reader", _never_reads), ("writer", _is_never_read)):
        async with serving(ground, 1) as (made, who):
            await loads.down(who, ground.sizes)  # big buffers have been met before
            grown, moved = await _stalled(made, who, stall)
        found = {f"stalled_{name}_kib": grown / STALLED, f"stalled_{name}_sent_mib": moved}
        ground.note(0, ground.name, found)


Stall = Callable[[asyncio.AbstractEventLoop, socket.socket], Coroutine[Any, Any, int]]


async def _stalled(made: Gateway, who: Contender, stall: Stall) -> tuple[int, float]:
    """Growth in KiB, and MiB that a client has sent before it came to a halt."""
    loop = asyncio.get_running_loop()
    before = rss_kib(who.workers)
    clients = [socket.create_connection(("127.0.0.1", who.port)) for _ in range(STALLED)]
    try:
        for client in clients:
            client.setblocking(False)
        moved = await asyncio.gather(*(stall(loop, client) for client in clients))
        grown = rss_kib(who.workers) - before
        if await in_flight(made) != STALLED:
            raise LoadFailed("a stalled request was given up while it was looked at")
        return grown, sum(moved) / STALLED / (1 << 20)
    finally:
        for client in clients:
            client.close()


async def _never_reads(loop: asyncio.AbstractEventLoop, client: socket.socket) -> int:
    """Nothing is sent after a request for everything."""
    body = b'{"model":"m","stream":false,"answer_bytes":%d}' % OFFERED
    await loop.sock_sendall(client, _head(len(body)) + body)
    await asyncio.sleep(STALL_S)
    with_head = client.recv(1 << 10, socket.MSG_PEEK)
    if not with_head.startswith(b"HTTP/1.1 200 "):
        raise LoadFailed(f"a stalled reader was sent {with_head[:80]!r}")
    return 0


async def _is_never_read(loop: asyncio.AbstractEventLoop, client: socket.socket) -> int:
    """Bytes that went out until nobody took more. `x-model` names the model: nothing is held to
    find it in."""
    begin = b'{"model":"m","unread":true,"prompt":"'
    await loop.sock_sendall(client, _head(OFFERED, b"x-model: m\r\n") + begin)
    sent = 0
    try:
        async with asyncio.timeout(STALL_S):
            while sent < OFFERED - len(PIECE):
                await loop.sock_sendall(client, PIECE)
                sent += len(PIECE)
    except TimeoutError:
        return sent
    raise LoadFailed("everything was taken, though the instance reads nothing")


def _head(length: int, fields: bytes = b"") -> bytes:
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
        b"%sContent-Length: %d\r\n\r\n" % (fields, length)
    )

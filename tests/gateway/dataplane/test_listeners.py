"""Sockets that are shared: who leaves one loses nothing that belongs to others."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from gateway.dataplane.listeners import Listeners

PATIENCE_S: Final = 300.0  # for what takes a millisecond on a machine with nothing else to do
MADE: Final = b"made"
LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


class Guest(asyncio.Protocol):
    """Greets, and says back what it hears."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def connection_made(self, transport: Any) -> None:
        self._host.guests.append(transport)
        self._transport = transport
        transport.write(MADE)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Caller:
    """A client; its connecting ends in the kernel, whether somebody accepts or not."""

    def __init__(self, door: socket.socket) -> None:
        self.sock = socket.socket(door.family)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(door.getsockname())
        self.sock.setblocking(False)

    async def hears(self, words: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.get_running_loop().sock_recv(self.sock, 99) == words


class Host:
    """Two workers' sockets, index 0 with a Unix one beside; all accept as one listener does."""

    def __init__(self, folder: Path) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "door"))
        self.unix.listen()
        self.neighbour = socket.create_server(("127.0.0.1", 0))
        self.doors = {0: [self.tcp, self.unix], 1: [self.neighbour]}
        self.descriptors = {n: [os.dup(d.fileno()) for d in ds] for n, ds in self.doors.items()}
        self.guests: list[Any] = []
        self.listeners = Listeners(self.descriptors, lambda: Guest(self))
        self.callers: list[Caller] = []

    def call(self, door: socket.socket) -> Caller:
        self.callers.append(caller := Caller(door))
        return caller

    async def looked(self) -> None:
        """Returns when the loop has seen everything that was there before: whoever calls last is
        seen no earlier."""
        self.listeners.accept(1)
        await self.call(self.neighbour).hears(MADE)

    async def end(self) -> None:
        self.listeners.close()
        for guest in self.guests:
            guest.abort()
        for caller in self.callers:
            caller.sock.close()
        for doors in self.doors.values():
            for door in doors:
                door.close()
        await asyncio.sleep(0)


Test = Callable[[Host], Any]


@pytest.fixture(params=LOOPS)
def hosted(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Test], None]:
    """Runs a test on either loop: sockets of others are what they treat differently."""

    async def with_host(test: Test) -> None:
        host = Host(tmp_path)
        try:
            await test(host)
        finally:
            await host.end()

    def run(test: Test) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(with_host(test))

    return run


Hosted = Callable[[Test], None]


def test_all_sockets_of_an_index_are_accepted_from_and_no_other(hosted: Hosted) -> None:
    async def test(host: Host) -> None:
        early = host.call(host.tcp)
        neighbour = host.call(host.neighbour)
        host.listeners.accept(0)
        for caller in (early, host.call(host.tcp), host.call(host.unix)):
            await caller.hears(MADE)
        assert len(host.guests) == 3
        host.listeners.accept(1)
        await neighbour.hears(MADE)

    hosted(test)


def test_asking_twice_and_leaving_once_is_to_have_left(hosted: Hosted) -> None:
    async def test(host: Host) -> None:
        host.listeners.accept(0)
        host.listeners.accept(0)
        await host.call(host.tcp).hears(MADE)
        host.listeners.accept(0)
        host.listeners.leave(0)
        host.listeners.leave(0)
        host.call(host.tcp)
        host.call(host.unix)
        await host.looked()
        assert len(host.guests) == 2  # the first one, and who looked

    hosted(test)


def test_who_was_accepted_stays_and_who_waits_keeps_its_place(hosted: Hosted) -> None:
    async def test(host: Host) -> None:
        host.listeners.accept(0)
        accepted = [host.call(host.tcp), host.call(host.unix)]
        for caller in accepted:
            await caller.hears(MADE)
        host.listeners.leave(0)
        waiting = [host.call(host.tcp), host.call(host.unix)]
        await host.looked()
        assert len(host.guests) == 3
        for caller in accepted:
            caller.sock.send(b"still here")
            await caller.hears(b"still here")
        host.listeners.accept(0)
        for caller in waiting:
            await caller.hears(MADE)

    hosted(test)


def test_another_who_holds_the_socket_serves_the_queue_that_was_left(hosted: Hosted) -> None:
    async def test(host: Host) -> None:
        host.listeners.accept(0)
        await host.call(host.tcp).hears(MADE)
        host.listeners.close()
        waiting = host.call(host.tcp)
        other, _ = host.tcp.accept()  # as the supervisor's next worker
        other.send(b"mine")
        await waiting.hears(b"mine")
        other.close()
        assert len(host.guests) == 1

    hosted(test)


def test_an_index_that_is_not_ours_changes_nothing(hosted: Hosted) -> None:
    async def test(host: Host) -> None:
        host.listeners.accept(7)
        host.listeners.leave(7)
        await host.looked()
        assert len(host.guests) == 1

    hosted(test)


@pytest.mark.parametrize("hosted", ["uvloop"], indirect=True)  # as in a worker
@pytest.mark.parametrize("rounds", range(4))
def test_leaving_before_the_sockets_are_open_is_to_have_left(hosted: Hosted, rounds: int) -> None:
    """Control may change its mind at any moment of it."""

    async def test(host: Host) -> None:
        host.listeners.accept(0)
        for _ in range(rounds):
            await asyncio.sleep(0)
        host.listeners.leave(0)
        host.call(host.tcp)
        host.call(host.unix)
        await host.looked()
        assert len(host.guests) == 1

    hosted(test)


def test_a_queue_ends_with_the_last_who_holds_its_socket(hosted: Hosted) -> None:
    async def test(host: Host) -> None:
        host.listeners.accept(0)
        await host.call(host.tcp).hears(MADE)
        address = host.tcp.getsockname()
        given = [fd for descriptors in host.descriptors.values() for fd in descriptors]
        host.listeners.leave(0)
        for fd in given:
            os.fstat(fd)  # leaving keeps them, to come back
        host.listeners.close()
        host.listeners.close()
        for fd in given:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(fd)
        await asyncio.sleep(0)  # uvloop closes what it held when it comes round
        host.tcp.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    hosted(test)

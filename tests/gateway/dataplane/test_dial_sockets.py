"""Dials on real sockets, on uvloop and on asyncio's own loop: each descriptor is closed once."""

import asyncio
import errno
import gc
import resource
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest
import uvloop

from gateway.dataplane.stages import DIALLING
from tests.descriptors import descriptors
from tests.gateway.dataplane.rig import code_of, ok, post, status_of
from tests.gateway.dataplane.sockets import PATIENCE_S, Peer, Street
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Counted(Street):
    """One instance, and all sockets that dials have made. `began`: the first of them."""

    def __init__(self) -> None:
        super().__init__(1, 1000, BOUNDS, TIMEOUTS)
        self.made: list[socket.socket] = []
        self.began = asyncio.Event()
        self.dials_with(socket.socket)

    def dials_with(self, kind: type[socket.socket]) -> None:
        def new_socket(family: int, type_: int, protocol: int) -> socket.socket:
            self.made.append(sock := kind(family, type_, protocol))
            self.began.set()
            return sock

        self.plane.new_socket = new_socket

    def moves(self, host: str, port: int) -> None:
        """The instance lives there now."""
        self.rig.publish(table(2, route(version(replace(target(1, port), host=host)))))

    async def told(self) -> bytes:
        """What a client is answered that no instance serves."""
        client = await self.client()
        client.send(post())
        return await client.answer()

    async def serves(self, door: socket.socket | None = None) -> Peer:
        """A request is answered by the instance, which is behind this door."""
        client = await self.client()
        client.send(post())
        if door is None:
            instance = await self.dialled()
        else:
            door.setblocking(False)
            async with asyncio.timeout(PATIENCE_S):
                sock, _ = await asyncio.get_running_loop().sock_accept(door)
            instance = self.peer(sock)
        await instance.until(b'{"model":"m"}')
        instance.send(ok())
        assert status_of(await client.answer()) == 200
        return instance


def on_each_loop(test: Callable[[Counted], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test on both loops. At its end no descriptor of the gateway's is left over, and none of
    its sockets believes that it still has one."""

    async def run() -> list[socket.socket]:
        street = Counted()
        await street.open()
        await test(street)
        await street.close()
        for _ in range(3):  # what was closed is gone a round later
            await asyncio.sleep(0)
        return street.made

    @pytest.mark.parametrize("loop", LOOPS)
    def runs(loop: str) -> None:
        before = descriptors("socket:")
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            made = runner.run(run())
        assert [sock for sock in made if sock.fileno() != -1] == []
        gc.collect()
        assert descriptors("socket:") - before == set()  # its loops leave pipes behind

    runs.__name__ = test.__name__
    runs.__doc__ = test.__doc__
    return runs


class Late(socket.socket):
    """Finds its handshake under way when it asks again, as if the other end were far away."""

    asked = False

    def connect_ex(self, address: Any) -> int:
        if self.asked:
            return errno.EALREADY
        self.asked = True
        return super().connect_ex(address)


class Ended(socket.socket):
    """The other end has closed it as soon as it was made."""

    def recv(self, *_: int) -> bytes:
        return b""


class Narrow(socket.socket):
    """Is given the very port that it dials, as the kernel may do when nobody listens there."""

    def connect_ex(self, address: Any) -> int:
        if self.getsockname()[1] == 0:
            self.bind(address)
        return super().connect_ex(address)


@on_each_loop
async def test_small_writes_leave_at_once_both_ways(street: Counted) -> None:
    """The loops set this by themselves."""
    instance = await street.serves()
    (client,) = street.plane.clients
    (connection,) = idle = street.plane.pool.retain(())
    assert connection.port == instance.sock.getpeername()[1]
    for transport in (client.transport, connection.transport):
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    idle[0].abandon()


@on_each_loop
async def test_a_port_without_a_listener_refuses(street: Counted) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # ours, so that nobody else listens there
        street.moves("127.0.0.1", bound.getsockname()[1])
        answer = await street.told()
    assert code_of(answer) == "connect_failed"
    assert b"cannot connect to i1: Connection refused" in answer


@on_each_loop
async def test_an_address_of_the_newer_kind_is_dialled(street: Counted) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as door:
        street.moves("::1", door.getsockname()[1])
        await street.serves(door)


@on_each_loop
async def test_a_name_is_resolved_and_dialled(street: Counted) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        street.moves("localhost", door.getsockname()[1])
        await street.serves(door)


@on_each_loop
async def test_a_handshake_that_takes_its_time_is_waited_for(street: Counted) -> None:
    street.dials_with(Late)
    await street.serves()
    assert len(street.made) == street.plane.pool.size == 1


@on_each_loop
async def test_a_handshake_that_takes_its_time_may_fail(street: Counted) -> None:
    street.dials_with(Late)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        street.moves("127.0.0.1", bound.getsockname()[1])
        answer = await street.told()
    assert b"cannot connect to i1: Connection refused" in answer


@on_each_loop
async def test_who_leaves_during_the_handshake_takes_its_socket_along(street: Counted) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(0)
        crowd = [socket.socket() for _ in range(8)]  # they fill its queue: the next has to wait
        for sock in crowd:
            sock.setblocking(False)
            sock.connect_ex(door.getsockname())
        street.moves(*door.getsockname())
        client = await street.client()
        client.send(post())
        async with asyncio.timeout(PATIENCE_S):
            await street.began.wait()
        (served,) = street.plane.clients
        assert served.exchange.stage == DIALLING
        client.leave()
        await street.left()
        assert street.in_flight() == 0
        for sock in crowd:
            sock.close()


@on_each_loop
async def test_without_a_descriptor_left_the_client_is_told_to_come_back(street: Counted) -> None:
    client = await street.client()
    client.send(b"GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n")
    await client.answer()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        client.send(post())
        answer = await client.answer()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (status_of(answer), code_of(answer)) == (503, "leases_full")
    assert b"Too many open files" in answer
    await street.serves()


@on_each_loop
async def test_a_connection_that_was_ended_at_once_is_closed_once(street: Counted) -> None:
    street.dials_with(Ended)
    answer = await street.told()
    assert (status_of(answer), code_of(answer)) == (502, "connect_failed")
    assert b"it closed the connection at once" in answer


@on_each_loop
async def test_a_connection_to_ourselves_is_none_to_an_instance(street: Counted) -> None:
    """The request came back as its own answer, and the instance was blamed for its bytes."""
    street.dials_with(Narrow)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    street.moves("127.0.0.1", port)
    answer = await street.told()
    assert (status_of(answer), code_of(answer)) == (502, "connect_failed")
    assert b"cannot connect to i1: nobody listens there" in answer


@on_each_loop
async def test_an_instance_that_hangs_up_on_all_leaves_nothing_behind(
    street: Counted,
) -> None:
    """Whenever the gateway gets to see it: in the dial, as it writes, or after that."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    door.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        street.moves(*door.getsockname())
        for _ in range(50):
            assert status_of(await street.told()) == 502
        door.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert street.in_flight() == 0

"""Idle instance connections: what costs one its place in the pool."""

from collections.abc import AsyncIterator

import pytest

from tests.gateway.dataplane.exchanges import CHUNKED_HEAD, chunk, two
from tests.gateway.dataplane.rig import Rig, get, ok, post
from tests.gateway.plain import route, table, target, version


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, two()))
    yield made
    made.check()
    made.close()


@pytest.mark.parametrize("event", ["bytes", "eof", "lost"])
async def test_an_idle_connection_that_does_anything_is_not_used_again(
    rig: Rig, event: str
) -> None:
    rig.publish(table(2, route(version(target(1, 1)))))
    _, instance = await rig.asked(get())
    instance.feed(ok())
    assert rig.plane.pool.size == 1
    if event == "bytes":
        instance.feed(ok(b"stray"))
    elif event == "eof":
        instance.feed_eof()
    else:
        instance.end()
    assert rig.plane.pool.size == 0
    _, other = await rig.asked(post())
    assert other is not instance
    other.feed(ok())


@pytest.mark.parametrize("response", [ok(), CHUNKED_HEAD + chunk(b"fine") + b"0\r\n\r\n"])
async def test_surplus_bytes_cost_the_connection_and_reach_nobody(
    rig: Rig, response: bytes
) -> None:
    client, instance = await rig.asked(get())
    instance.feed(response + ok(b"poison"))
    assert b"fine" in client.out
    assert b"poison" not in client.out
    assert instance.closed
    assert rig.plane.pool.size == 0


@pytest.mark.parametrize("says", [b"HTTP/1.1 200 OK\r\nconnection: close", b"HTTP/1.0 200 OK"])
async def test_a_connection_that_the_instance_will_close_is_not_kept(rig: Rig, says: bytes) -> None:
    client, instance = await rig.asked(get())
    instance.feed(says + b"\r\ncontent-length: 2\r\n\r\nhi")
    assert client.out.startswith(b"HTTP/1.1 200 OK\r\n")
    assert instance.closed
    assert rig.plane.pool.size == 0


async def test_a_connection_to_an_instance_that_has_left_is_not_kept(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    rig.publish(table(2, route(version())))
    instance.feed(ok())
    assert client.out.endswith(b"fine")
    assert instance.closed
    assert rig.plane.pool.size == 0


async def test_idle_connections_are_closed_before_the_instance_does_it(rig: Rig) -> None:
    rig.plane.pool.idle_ns = 4_000_000_000
    _, instance = await rig.asked(get())
    instance.feed(ok())
    rig.later(5)
    assert instance.closed
    assert rig.plane.pool.size == 0

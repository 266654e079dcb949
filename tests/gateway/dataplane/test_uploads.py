"""Request bodies on their way, and back-pressure both ways."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.gateway.dataplane.exchanges import chunk, two
from tests.gateway.dataplane.rig import Rig, ok, status_of
from tests.gateway.plain import BOUNDS, table


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, two()))
    yield made
    made.check()
    made.close()


async def test_a_streamed_body_passes_as_it_comes(rig: Rig) -> None:
    head = b"POST /x HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    client, instance = await rig.asked(head + b"2\r\nhe")
    assert instance.take().endswith(b"\r\n\r\n2\r\nhe")
    client.feed(b"\r\n3\r\nllo\r\n0\r\nx: 1\r\n\r\n")
    assert instance.take() == b"\r\n3\r\nllo\r\n0\r\n\r\n"
    instance.feed(ok())
    assert client.out.endswith(b"fine")


async def test_each_side_s_reader_is_held_while_the_other_does_not_read(rig: Rig) -> None:
    head = b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\n"
    client, instance = await rig.asked(head + b"12")
    instance.protocol.pause_writing()
    assert not client.reading
    instance.protocol.resume_writing()
    assert client.reading
    client.feed(b"3456789")
    client.protocol.pause_writing()
    assert not instance.reading
    client.protocol.resume_writing()
    assert instance.reading
    instance.feed(ok())


async def test_a_body_waits_for_its_instance_in_bounded_memory() -> None:
    small = replace(BOUNDS, replay_max_bytes=10)
    rig = Rig(table(1, two(), bounds=small))
    rig.loop.stuck = {1, 2}
    client = rig.client()
    client.feed(b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 99\r\n\r\n" + b"x" * 5)
    assert client.reading
    client.feed(b"x" * 20)
    assert not client.reading
    client.end()
    await rig.dialled()
    assert rig.plane.held_bytes == 0
    rig.close()


async def test_an_early_answer_is_delivered_and_neither_connection_is_used_again(
    rig: Rig,
) -> None:
    client, instance = await rig.asked(
        b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 99\r\n\r\npart"
    )
    instance.feed(ok(b"too big", status=b"413 Content Too Large"))
    assert client.out.endswith(b"too big")
    assert b"connection: close" in client.out
    assert instance.closed == "aborted"
    assert client.eof_written
    assert rig.outcomes() == {"served": 1}


async def test_the_go_ahead_comes_with_the_instance_and_not_before(rig: Rig) -> None:
    rig.loop.stuck = {1, 2}
    expecting = b"POST /x HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    client = rig.client()
    client.feed(expecting)
    await rig.dialled()
    assert client.out == b""
    client.end()
    rig.loop.stuck = set()
    client, instance = await rig.asked(expecting)
    assert client.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert b"expect" not in instance.out
    client.feed(b"hi")
    instance.feed(ok())
    assert status_of(client.out) == 200


async def test_a_held_body_is_asked_for_at_once(rig: Rig) -> None:
    client = rig.client()
    body = b'{"model":"m"}'
    client.feed(
        b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )
    assert client.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.feed(body)
    await rig.dialled()
    rig.busy(client).feed(ok())
    assert client.out.endswith(b"fine")


async def test_a_held_chunked_body_goes_on_with_its_length(rig: Rig) -> None:
    body = b'{"model":"m"}'
    client, instance = await rig.asked(
        b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunk(body)
        + b"0\r\n\r\n"
    )
    out = instance.take()
    assert b"\r\ncontent-length: 13\r\n" in out
    assert b"transfer-encoding" not in out
    assert out.endswith(body)
    instance.feed(ok())
    assert client.out.endswith(b"fine")

"""Every row of the refusal table that the data plane can produce, provoked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.errors import REFUSALS, GatewayError
from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

Provoke = Callable[[Rig, FakeTransport], Awaitable[None]]

BAD: dict[str, bytes] = {
    "bad_request": b"GET /\r\nhost: g\r\n\r\n",
    "bad_framing": b"POST / HTTP/1.1\r\nhost: g\r\ncontent-length: x\r\n\r\n",
    "unknown_model": post(b'{"model":"no"}'),
    "unknown_version": get(b"/x", b"x-model-version: 9"),
    "method_refused": b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n",
    "body_too_large": b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 5000\r\n\r\n",
    "encoded_body": post(b"x", b"content-encoding: gzip"),
    "expectation_failed": post(b"{}", b"expect: teapot"),
    "head_too_large": b"GET / HTTP/1.1\r\nx: " + b"x" * 3000,
    "target_too_long": b"GET /" + b"x" * 3000,
    "coding_unknown": b"POST / HTTP/1.1\r\nhost: g\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
    "version_refused": b"GET / HTTP/2.0\r\nhost: g\r\n\r\n",
    "bodies_full": post(b'{"model":"m", "x":"' + b"x" * 600 + b'"}'),
}


async def sent(rig: Rig, client: FakeTransport, request: bytes = get()) -> FakeTransport:
    client.feed(request)
    await rig.dialled()
    return rig.busy(client)


async def saturated(rig: Rig, client: FakeTransport) -> None:
    await rig.asked(get())
    client.feed(get())
    rig.later(6)


async def request_timed_out(rig: Rig, client: FakeTransport) -> None:
    client.feed(b"GET / HT")
    rig.later(11)


async def connect_failed(rig: Rig, client: FakeTransport) -> None:
    rig.loop.refused = {1}
    client.feed(get())
    await rig.dialled()


async def instance_reset(rig: Rig, client: FakeTransport) -> None:
    (await sent(rig, client)).end(ConnectionResetError())


async def instance_bad_framing(rig: Rig, client: FakeTransport) -> None:
    (await sent(rig, client)).feed(b"hello\r\n\r\n")


async def instance_timed_out(rig: Rig, client: FakeTransport) -> None:
    await sent(rig, client)
    rig.later(601)


async def no_ready_instance(rig: Rig, client: FakeTransport) -> None:
    rig.publish(table(2, route(version(weight=100)), bounds=SMALL))
    client.feed(get())


async def version_blocked(rig: Rig, client: FakeTransport) -> None:
    both = (version(target(1, 1)), version(target(2, 2), name="2", blocked=True))
    rig.publish(table(2, route(*both, pinnable=True), bounds=SMALL))
    client.feed(get(b"/x", b"x-model-version: 2"))


async def leases_full(rig: Rig, client: FakeTransport) -> None:
    rig.ledger.free.clear()
    client.feed(get())


async def cut(rig: Rig, client: FakeTransport) -> None:
    await sent(rig, client)
    client.protocol.exchange.cut(GatewayError("cut", "by the operator"))


async def gateway_closing(rig: Rig, client: FakeTransport) -> None:
    await sent(rig, client)
    client.protocol.exchange.cut(GatewayError("gateway_closing", "shutting down"))


DONE: dict[str, Provoke] = {
    "saturated": saturated,
    "request_timed_out": request_timed_out,
    "connect_failed": connect_failed,
    "instance_reset": instance_reset,
    "instance_bad_framing": instance_bad_framing,
    "instance_timed_out": instance_timed_out,
    "no_ready_instance": no_ready_instance,
    "version_blocked": version_blocked,
    "leases_full": leases_full,
    "cut": cut,
    "gateway_closing": gateway_closing,
}
# Those are not counted as refusals but as ends of a request that an instance had.
ENDS = {
    "connect_failed": "connect_failed",
    "instance_reset": "reset",
    "instance_bad_framing": "instance_error",
    "instance_timed_out": "timed_out",
    "cut": "cut",
    "gateway_closing": "cut",
}
SMALL = replace(BOUNDS, head_max_bytes=2048, body_max_bytes=4096, route_body_total_bytes=500)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    plain = route(version(target(1, 1, limit=1)), pinnable=True, queue_timeout_s=5)
    made = Rig(table(1, plain, bounds=SMALL, timeouts=TIMEOUTS))
    yield made
    made.close()


def test_every_row_is_provoked_but_those_of_others() -> None:
    assert set(BAD) | set(DONE) == set(REFUSALS) - {"client_gone"}  # which is never sent


@pytest.mark.parametrize("code", sorted({*BAD, *DONE}))
async def test_a_row_is_told_to_the_client_and_counted_once(rig: Rig, code: str) -> None:
    client = rig.client()
    if code in BAD:
        client.feed(BAD[code])
    else:
        await DONE[code](rig, client)
    assert code_of(client.out) == code
    assert status_of(client.out) == REFUSALS[code].status
    assert rig.outcomes() == {ENDS.get(code, code): 1}
    rig.check()


@pytest.mark.parametrize("code", ["unknown_model", "unknown_version"])
async def test_a_request_that_was_whole_leaves_its_connection_usable(rig: Rig, code: str) -> None:
    client = rig.client()
    client.feed(BAD[code])
    client.take()
    instance = await sent(rig, client)
    instance.feed(ok())
    assert client.out.endswith(b"\r\n\r\nfine")


async def test_an_answer_in_the_middle_of_an_upload_is_left_time_to_arrive(rig: Rig) -> None:
    client = rig.client()
    client.feed(BAD["body_too_large"])
    assert client.eof_written
    assert not client.is_closing()
    client.feed(b"the rest of the upload is dropped")
    rig.later(3)
    assert client.closed == "aborted"

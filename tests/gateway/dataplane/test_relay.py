"""One exchange, the straight way and cut short: both ends played by the test."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.gateway.dataplane.exchanges import CHUNKED_HEAD, EVENTS_HEAD, chunk, two
from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import BOUNDS, route, table, target, version


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, two()))
    yield made
    made.check()
    made.close()


# --- the straight way ---


async def test_head_and_body_reach_the_instance_in_one_write_and_the_answer_the_client(
    rig: Rig,
) -> None:
    client, instance = await rig.asked(post(b'{"model":"m"}', b"x-request-id: mine"))
    out = instance.take()
    assert out.startswith(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n")
    assert out.endswith(b'\r\n\r\n{"model":"m"}')
    assert b"\r\nx-request-id: mine\r\n" in out
    assert b"\r\nvia: 1.1 sluicegate\r\n" in out
    instance.feed(ok(b"fine", b"x-own: 1"))
    head, _, body = client.take().partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert {b"x-own: 1", b"x-request-id: mine", b"x-model-version: 1"} <= set(lines)
    assert any(line.startswith(b"x-instance-id: i") for line in lines)
    assert body == b"fine"
    assert rig.outcomes() == {"served": 1}


async def test_a_pooled_connection_needs_no_task_and_no_wait(rig: Rig) -> None:
    rig.publish(table(2, route(version(target(1, 1)))))
    client, instance = await rig.asked(post())
    instance.feed(ok())
    instance.take()
    client.feed(post())
    assert not rig.plane.dials
    assert instance.out.startswith(b"POST")  # in the same call
    instance.feed(ok())
    assert len(rig.loop.instances) == 1
    assert rig.outcomes() == {"served": 2}


async def test_nothing_goes_to_the_client_before_the_instance_has_answered(rig: Rig) -> None:
    client, _ = await rig.asked(post())
    assert client.out == b""


async def test_each_read_of_a_stream_is_one_write(rig: Rig) -> None:
    client, instance = await rig.asked(post())
    instance.feed(EVENTS_HEAD)
    assert client.take().endswith(b"\r\n\r\n")  # the head does not wait for an event
    for event in (b"data: 1\n\n", b": ping\n\n"):
        instance.feed(chunk(event))
        assert client.take() == chunk(event)
    instance.feed(b"0\r\n\r\n")
    assert client.take() == b"0\r\n\r\n"
    assert rig.outcomes() == {"served": 1}


async def test_the_lease_lasts_until_the_last_byte(rig: Rig) -> None:
    _, instance = await rig.asked(post())
    instance.feed(CHUNKED_HEAD + chunk(b"a"))
    assert len(list(rig.segment.leases(0))) == 1
    instance.feed(b"0\r\n\r\n")
    assert list(rig.segment.leases(0)) == []


async def test_interim_responses_pass_but_never_to_http_1_0(rig: Rig) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\ncontent-length: 9\r\n\r\n"
    client, instance = await rig.asked(get())
    instance.feed(hint)
    assert client.take() == b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    instance.feed(ok())
    old, instance = await rig.asked(b"GET / HTTP/1.0\r\n\r\n")
    instance.feed(hint + ok())
    assert b"103" not in old.out
    assert old.closed == "closed"


async def test_an_http_1_0_client_gets_content_without_chunks(rig: Rig) -> None:
    client, instance = await rig.asked(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
    instance.feed(CHUNKED_HEAD + chunk(b"he") + chunk(b"llo") + b"0\r\nx: 1\r\n\r\n")
    head, _, body = client.out.partition(b"\r\n\r\n")
    assert body == b"hello"
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert client.closed == "closed"


async def test_trailers_are_cut_away_and_the_end_stays(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.feed(CHUNKED_HEAD + chunk(b"a") + b"0\r\n")
    instance.feed(b"host: evil\r\n\r\n")
    assert client.out.endswith(b"\r\n\r\n" + chunk(b"a") + b"0\r\n\r\n")
    assert b"evil" not in client.out


async def test_a_body_without_length_ends_with_the_connection(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.feed(b"HTTP/1.1 200 OK\r\n\r\nhello")
    instance.feed_eof()
    assert client.out.endswith(b"hello")
    assert client.closed == "closed"
    assert rig.outcomes() == {"served": 1}


async def test_a_reset_is_no_end_of_a_body_without_length(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    instance.end(ConnectionResetError())
    assert client.closed == "aborted"
    assert client.socket.options[-1][2] == b"\x01\0\0\0\0\0\0\0"
    assert rig.outcomes() == {"truncated": 1}


async def test_a_switch_of_protocols_is_refused(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.feed(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n")
    assert code_of(client.out) == "instance_bad_framing"
    assert instance.closed == "aborted"


# --- how it counts ---

COUNTED = [
    (ok(status=b"500 Oops"), "instance_error"),
    (ok(status=b"404 Not Found"), "served"),
    (ok(b""), "empty"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", "empty"),
    (EVENTS_HEAD + b"0\r\n\r\n", "empty"),
    (EVENTS_HEAD + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", "empty"),
    (EVENTS_HEAD + chunk(b"data: 1\n\ndata: [DONE]\n\n") + b"0\r\n\r\n", "served"),
    (EVENTS_HEAD + chunk(b'data: {"er') + chunk(b'ror": {}}\n\n') + b"0\r\n\r\n", "instance_error"),
    (CHUNKED_HEAD + b"0\r\n\r\n", "empty"),
]


@pytest.mark.parametrize(("response", "outcome"), COUNTED, ids=[str(n) for n in range(9)])
async def test_a_whole_response_counts_by_what_it_said(
    rig: Rig, response: bytes, outcome: str
) -> None:
    _, instance = await rig.asked(post())
    instance.feed(response)
    assert rig.outcomes() == {outcome: 1}


async def test_a_compressed_event_stream_is_not_searched(rig: Rig) -> None:
    _, instance = await rig.asked(post())
    compressed = EVENTS_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    instance.feed(compressed + chunk(b"\x1f\x8b") + b"0\r\n\r\n")
    assert rig.outcomes() == {"served": 1}


async def test_an_empty_answer_to_something_else_is_an_answer(rig: Rig) -> None:
    _, instance = await rig.asked(get())
    instance.feed(ok(b""))
    assert rig.outcomes() == {"served": 1}


# --- after the first byte: a visible cut ---


@pytest.mark.parametrize("end", ["close", "reset", "garbage"])
async def test_a_cut_answer_is_never_ended_cleanly(rig: Rig, end: str) -> None:
    client, instance = await rig.asked(post())
    instance.feed(CHUNKED_HEAD + chunk(b"data: 1\n\n"))
    if end == "garbage":
        instance.feed(b"zz\r\n")
    elif end == "close":
        instance.feed_eof()
    else:
        instance.end(ConnectionResetError())
    assert client.out.endswith(chunk(b"data: 1\n\n"))
    assert client.closed
    assert rig.outcomes() == {"instance_error" if end == "garbage" else "truncated": 1}


async def test_where_a_close_would_look_whole_the_cut_is_a_reset(rig: Rig) -> None:
    client, instance = await rig.asked(b"GET / HTTP/1.0\r\n\r\n")
    instance.feed(CHUNKED_HEAD + chunk(b"half"))
    instance.feed_eof()
    assert client.closed == "aborted"
    assert client.socket.options[-1][2] == b"\x01\0\0\0\0\0\0\0"  # linger 0: RST


# --- who was lost ---


@pytest.mark.parametrize(("begun", "cause"), [(True, "truncated"), (False, "reset")])
async def test_a_request_lost_with_its_instance_is_named_with_the_client_s_id(
    rig: Rig, caplog: pytest.LogCaptureFixture, begun: bool, cause: str
) -> None:
    """Our own number alone does not help the client, who sees a cut and knows only its own id."""
    client, instance = await rig.asked(post(b'{"model":"m"}', b"x-request-id: mine"))
    if begun:
        instance.feed(CHUNKED_HEAD + chunk(b"data: 1\n\n"))
    instance.end(ConnectionResetError())
    assert client.closed if begun else status_of(client.out) == 502
    (line,) = caplog.records
    assert line.message == "request lost"
    told = vars(line)
    assert (told["client_request_id"], told["cause"]) == ("mine", cause)
    assert told["instance"].startswith("i")


async def test_an_attempt_that_was_made_good_elsewhere_is_not_named_as_a_loss(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.loop.refused = {1}
    for _ in range(6):
        _, instance = await rig.asked(post())
        instance.feed(ok())
    assert {line.message for line in caplog.records} == {"attempt failed"}


async def test_a_refusal_is_no_loss_even_behind_one_on_the_same_connection(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client, instance = await rig.asked(post(b'{"model":"m"}', b"x-request-id: mine"))
    instance.end()
    assert status_of(client.take()) == 502
    client.feed(post(b'{"model":"nobody"}', b"x-request-id: other"))
    assert code_of(client.out) == "unknown_model"
    assert [vars(line)["client_request_id"] for line in caplog.records] == ["mine"]


async def test_who_waits_in_vain_after_a_failed_attempt_is_named_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1), target(2, 2, limit=1)))))
    rig.loop.refused = {1}
    _, held = await rig.asked(post())
    second = rig.client()
    second.feed(post(b'{"model":"m"}', b"x-request-id: mine"))
    await rig.dialled()
    rig.publish(table(2, route(version())))  # nothing is left to wait for
    assert status_of(second.out) == 503
    lost = [line for line in caplog.records if line.message == "request lost"]
    assert [vars(line)["client_request_id"] for line in lost] == ["mine"]
    held.feed(ok())
    rig.close()


# --- the client leaves ---


@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_leaves_ends_the_instance_s_work_at_once(rig: Rig, begun: bool) -> None:
    client, instance = await rig.asked(post())
    if begun:
        instance.feed(CHUNKED_HEAD + chunk(b"a"))
    client.feed_eof()
    assert instance.closed == "aborted"
    assert rig.outcomes() == {"client_gone": 1}


async def test_a_client_that_leaves_during_a_dial_costs_nothing(rig: Rig) -> None:
    rig.loop.stuck = {1, 2}
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    client.end()
    await rig.dialled()
    assert not rig.plane.dials
    assert rig.outcomes() == {"client_gone": 1}


async def test_a_client_that_closes_its_side_may_still_be_served() -> None:
    rig = Rig(table(1, two(), bounds=replace(BOUNDS, half_close="serve")))
    client, instance = await rig.asked(post())
    client.feed_eof()
    instance.feed(ok())
    assert client.out.endswith(b"fine")
    assert client.closed == "closed"
    rig.close()

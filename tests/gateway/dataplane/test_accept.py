"""The client's side: order, bounds and deadlines."""

from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.records import Policy
from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.check()
    made.close()


async def test_pipelined_requests_are_answered_one_after_the_other(rig: Rig) -> None:
    client, instance = await rig.asked(get(b"/1") + get(b"/2") + get(b"/3"))
    for path in (b"/1", b"/2", b"/3"):
        assert instance.take().startswith(b"GET " + path)
        assert client.take() == b""
        instance.feed(ok(path))
        assert client.take().endswith(path)


async def test_many_pipelined_answers_of_our_own_do_not_nest(rig: Rig) -> None:
    client = rig.client()
    client.feed(get(b"/v1/models") * 1200)
    assert client.out.count(b"HTTP/1.1 200 OK") == 1200
    assert rig.outcomes() == {"answered": 1200}


async def test_what_follows_a_request_is_kept_up_to_the_size_of_a_head(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    client.feed(b"x" * 60_000)
    assert client.reading
    client.feed(b"x" * 10_000)
    assert not client.reading
    instance.feed(ok())
    assert client.reading


async def test_nothing_is_served_after_connection_close(rig: Rig) -> None:
    client, instance = await rig.asked(get(b"/1", b"connection: close") + get(b"/2"))
    instance.take()
    instance.feed(ok())
    assert b"\r\nconnection: close\r\n" in client.out
    assert client.eof_written  # a close now would reset what is still on its way to the client
    assert instance.out == b""
    client.feed(get(b"/3"))
    client.feed_eof()
    assert (client.closed, instance.out) == ("closed", b"")


async def test_empty_lines_before_and_after_requests_are_ignored(rig: Rig) -> None:
    client, instance = await rig.asked(b"\r\n\r\n" + post() + b"\r\n")
    instance.feed(ok())
    assert client.take().endswith(b"fine")
    client.feed(b"\r\n" + get())
    instance.feed(ok())
    assert client.take().endswith(b"fine")


async def test_empty_lines_do_not_renew_the_deadline_of_a_head(rig: Rig) -> None:
    client = rig.client()
    client.feed(b"\r")
    deadline = client.protocol.deadline_ns
    for _ in range(5):
        rig.later(1.0)
        client.feed(b"\n\r")
        assert client.protocol.deadline_ns == deadline


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=12))
async def test_requests_are_read_wherever_the_input_is_cut(cuts: list[int]) -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    chunked = (
        b"POST /c HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    whole = get(b"/a") + post(path=b"/b") + chunked + get(b"/d")
    client = rig.client()
    answered = 0
    at = sorted({min(cut, len(whole)) for cut in cuts})
    for start, end in zip([0, *at], [*at, len(whole)], strict=True):
        client.feed(whole[start:end])
        await rig.dialled()
        while client.protocol.exchange.complete and client.protocol.exchange.claim.held:
            rig.busy(client).feed(ok(b"%d" % answered))
            answered += 1
    assert answered == 4
    assert client.out.count(b"HTTP/1.1 200 OK") == 4
    rig.check()
    rig.close()


async def test_models_are_answered_from_the_table(rig: Rig) -> None:
    client = rig.client()
    client.feed(get(b"/v1/models/m"))
    head, _, body = client.take().partition(b"\r\n\r\n")
    assert orjson.loads(body)["id"] == "m"
    assert b"date: " in head
    client.feed(get(b"/v1/models/no"))
    assert code_of(client.take()) == "unknown_model"
    client.feed(b"HEAD /v1/models HTTP/1.1\r\nhost: g\r\n\r\n")
    assert client.take().endswith(b"\r\n\r\n")


async def test_a_head_and_an_idle_connection_have_their_time(rig: Rig) -> None:
    slow, idle = rig.client(), rig.client()
    for byte in b"GET / HTTP":
        slow.feed(bytes((byte,)))
        rig.later(1)
    rig.later(2)
    assert status_of(slow.out) == 408
    assert not idle.closed
    rig.later(70)
    assert idle.closed
    assert idle.out == b""


async def test_a_body_that_stops_coming_is_given_up(rig: Rig) -> None:
    client, instance = await rig.asked(
        b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\n12"
    )
    rig.later(20)
    client.feed(b"3")
    rig.later(20)
    assert client.out == b""
    rig.later(20)
    assert status_of(client.out) == 408
    assert instance.closed == "aborted"
    assert rig.outcomes() == {"request_timed_out": 1}


async def test_a_body_that_we_did_not_ask_for_yet_is_not_late() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)), queue_timeout_s=200)))
    await rig.asked(get())
    client = rig.client()
    client.feed(b"POST /x HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
    rig.later(100)
    assert client.out == b""
    rig.close()


async def test_wrong_bytes_in_the_middle_of_a_body_end_both_sides(rig: Rig) -> None:
    client, instance = await rig.asked(
        b"POST /x HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
    )
    client.feed(b"zz\r\n")
    assert code_of(client.out) == "bad_framing"
    assert instance.closed == "aborted"
    assert not instance.out.endswith(b"0\r\n\r\n")
    assert rig.outcomes() == {"bad_framing": 1}


async def test_a_chunked_body_has_the_same_bound() -> None:
    rig = Rig(table(1, route(version(target(1, 1))), bounds=replace(BOUNDS, body_max_bytes=8)))
    client, instance = await rig.asked(
        b"POST /x HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n"
    )
    client.feed(b"5\r\nabcde\r\n")
    assert code_of(client.out) == "body_too_large"
    assert instance.closed == "aborted"
    rig.close()


async def test_a_closing_worker_says_so_on_its_answers(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    rig.plane.closing = True
    instance.feed(ok())
    assert b"\r\nconnection: close\r\n" in client.out
    assert client.closed == "closed"


async def test_the_bodies_of_all_requests_share_one_bound() -> None:
    tight = replace(BOUNDS, route_body_total_bytes=100)
    rig = Rig(table(1, route(version(target(1, 1))), bounds=tight))
    head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 900\r\n\r\n"
    one, two = rig.client(), rig.client()
    one.feed(head + b"x" * 60)
    two.feed(head + b"x" * 60)
    assert one.out == b""
    assert code_of(two.out) == "bodies_full"
    one.end()
    assert rig.plane.held_bytes == 0
    rig.close()


async def test_a_slow_reader_is_not_given_the_next_answer(rig: Rig) -> None:
    client, instance = await rig.asked(get(b"/1") + get(b"/2"))
    instance.take()
    client.full = True
    instance.feed(ok())
    assert client.protocol.blocked
    assert instance.out == b""
    client.protocol.resume_writing()
    assert instance.out.startswith(b"GET /2")
    instance.feed(ok())


async def test_zero_means_no_deadline() -> None:
    none = replace(TIMEOUTS, client_idle_s=0, client_head_s=0, first_byte_s=0, client_body_idle_s=0)
    rig = Rig(table(1, route(version(target(1, 1))), timeouts=none))
    idle = rig.client()
    client, _ = await rig.asked(get())
    rig.later(2000)
    assert not idle.closed
    assert client.out == b""
    rig.close()


async def test_a_client_that_ends_its_side_and_never_reads_is_not_kept(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
    client.protocol.pause_writing()
    assert not client.protocol.eof_received()
    client.close()  # as the loop does; it waits for what is written
    rig.later(3)
    assert client.closed == "aborted"


async def test_our_own_answer_keeps_to_connection_close_too(rig: Rig) -> None:
    client = rig.client()
    client.feed(get(b"/v1/models", b"connection: close"))
    assert b"\r\nconnection: close\r\n" in client.out
    assert client.closed == "closed"


async def test_a_trace_that_is_named_as_the_hop_s_is_begun_anew(rig: Rig) -> None:
    """It does not go on, so without a new one the request would have none."""
    theirs = b"traceparent: 00-%s-%s-01" % (b"a" * 32, b"b" * 16)
    _, instance = await rig.asked(get(b"/x", theirs, b"connection: traceparent"))
    traces = [line for line in instance.out.split(b"\r\n") if line.startswith(b"traceparent:")]
    assert len(traces) == 1
    assert traces != [theirs]


@pytest.mark.parametrize("depth", [200, 300, 900])
async def test_a_prompt_nested_too_deep_for_a_key_is_served_without_one(depth: int) -> None:
    """What reads JSON goes deeper than what writes it: the client was cut, as if by a bug."""
    policy = Policy.AFFINITY
    rig = Rig(table(1, route(version(target(1, 1), target(2, 2)), policy=policy)))
    body = b'{"model":"m","prompt":%s}' % (b"[" * depth + b"]" * depth)
    client, instance = await rig.asked(post(body))
    assert instance.out.endswith(body)
    instance.feed(ok())
    assert status_of(client.out) == 200
    rig.close()

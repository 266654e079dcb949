"""One exchange: both ends played by the test."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.records import Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import ATTEMPTS, REPLAYS_FAILED, REPLAYS_SERVED
from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def two(**changes: Any) -> Any:
    return route(version(target(1, 1, limit=2), target(2, 2, limit=2)), **changes)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, two()))
    yield made
    made.check()
    made.close()


def attempts(rig: Rig) -> dict[str, int]:
    totals = [rig.segment.slot_totals(slot) for slot in (1, 2)]
    sums = {o.name.lower(): sum(t[ATTEMPTS + o] for t in totals) for o in Outcome}
    return {name: count for name, count in sums.items() if count}


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


# --- elsewhere ---


async def test_a_dial_that_fails_goes_to_another_instance_and_is_reported(rig: Rig) -> None:
    rig.loop.refused = {1}
    for _ in range(6):
        client, instance = await rig.asked(post())
        instance.feed(ok())
        assert status_of(client.take()) == 200
    failed = attempts(rig)["connect_failed"]
    assert failed == len(rig.suspected) > 0
    assert {message.slot for message in rig.suspected} == {1}
    assert rig.outcomes() == {"served": 6}
    assert rig.segment.section_totals(1)[REPLAYS_SERVED] == failed


async def test_a_limit_of_our_own_machine_blames_no_instance(rig: Rig) -> None:
    rig.loop.no_descriptor = {1, 2}
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    assert status_of(client.out) == 503
    assert code_of(client.out) == "leases_full"
    assert rig.suspected == []
    assert "connect_failed" not in attempts(rig)


async def test_a_client_beyond_the_descriptors_is_reset_and_the_others_stay(rig: Rig) -> None:
    rig.plane.clients_max = 1
    first, second = rig.client(), rig.client()
    assert (first.closed, second.closed) == ("", "aborted")
    second.end()
    assert list(rig.plane.clients) == [first.protocol]


async def test_a_refusal_by_the_instance_is_no_failure_and_not_shown(rig: Rig) -> None:
    client, first = await rig.asked(post())
    first.feed(ok(b"no", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    second = rig.busy(client)
    assert second is not first
    assert second.out.endswith(b'{"model":"m"}')
    second.feed(ok(b"fine", b"x-sluicegate-refused: full"))
    assert client.out.endswith(b"fine")
    assert b"refused" not in client.out
    assert attempts(rig) == {"refused": 1, "served": 1}


@pytest.mark.parametrize(
    ("reason", "code"), [(b"full", "saturated"), (b"draining", "no_ready_instance")]
)
async def test_when_all_refuse_the_client_is_told_to_come_back(
    rig: Rig, reason: bytes, code: str
) -> None:
    client, _ = await rig.asked(post())
    for _ in range(2):
        rig.busy(client).feed(ok(b"", b"x-sluicegate-refused: " + reason, status=b"503 Busy"))
        await rig.dialled()
    assert code_of(client.out) == code
    assert b"retry-after: " in client.out
    assert rig.outcomes() == {code: 1}
    assert rig.segment.section_totals(1)[REPLAYS_FAILED] == 1


@pytest.mark.parametrize(
    ("request_", "replayable", "again"),
    [(post(), False, False), (post(), True, True), (get(), False, True)],
)
async def test_a_reset_on_a_reused_connection_is_sent_again_only_if_harmless(
    request_: bytes, replayable: bool, again: bool
) -> None:
    rig = Rig(table(1, two(replayable=replayable)))
    for _ in range(4):  # both instances have a used connection now
        _, instance = await rig.asked(get())
        instance.feed(ok())
    client, instance = await rig.asked(request_)
    assert instance.protocol.used
    instance.end()
    await rig.dialled()
    if again:
        assert rig.busy(client) is not instance
        rig.busy(client).feed(ok())
        assert client.out.endswith(b"fine")
    else:
        assert code_of(client.out) == "instance_reset"
    rig.check()
    rig.close()


async def test_a_reset_on_a_fresh_connection_is_final(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.end()
    assert code_of(client.out) == "instance_reset"
    assert rig.outcomes() == {"reset": 1}


async def test_replays_are_limited_per_request() -> None:
    many = [target(n, n) for n in range(1, 7)]
    rig = Rig(table(1, route(version(*many)), bounds=replace(BOUNDS, replays_max=2)))
    rig.loop.refused = set(range(1, 7))
    client = rig.client()
    client.feed(post())
    for _ in range(8):
        await rig.dialled()
    assert code_of(client.out) == "connect_failed"
    assert len({message.slot for message in rig.suspected}) == 3
    rig.check()
    rig.close()


async def test_a_spent_budget_ends_replays(rig: Rig) -> None:
    while rig.plane.budget.spend():
        pass
    rig.plane.budget.replays += 100  # more than the coming requests earn
    client, instance = await rig.asked(post())
    instance.feed(ok(b"", b"x-sluicegate-refused: full", status=b"503 Busy"))
    assert code_of(client.out) == "saturated"


async def test_a_replay_keeps_its_version_unless_that_was_blocked() -> None:
    canary = version(target(2, 2), target(3, 3), name="2", weight=100)
    stable = version(target(1, 1), name="1", weight=0.0001)
    rig = Rig(table(1, route(stable, canary)))
    rig.plane.cell.read().routes["m"].place.position = 0.1
    client, instance = await rig.asked(post())
    instance.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    second = rig.busy(client)
    rig.publish(table(2, route(version(target(1, 1), name="1"), replace(canary, blocked=True))))
    second.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    rig.busy(client).feed(ok())
    assert b"x-model-version: 1\r\n" in client.out
    rig.close()


async def test_a_body_that_was_let_go_is_not_sent_again() -> None:
    small = replace(BOUNDS, replay_max_bytes=10)
    rig = Rig(table(1, two(replayable=True), bounds=small))
    client, instance = await rig.asked(post(b'{"model":"m","x":"' + b"x" * 100 + b'"}'))
    instance.feed(ok(b"", b"x-sluicegate-refused: full", status=b"503 Busy"))
    assert code_of(client.out) == "saturated"
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


# --- waiting ---


async def test_those_who_wait_go_in_order_as_room_comes() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    first, instance = await rig.asked(post())
    waiting = [rig.client() for _ in range(3)]
    for client in waiting:
        client.feed(post())
        rig.check()
    assert rig.segment.waiting(1) == 3
    for client in [first, *waiting]:
        assert client.out == b""
        instance.feed(ok())
        assert client.out.endswith(b"fine")
        rig.check()
    assert len(rig.loop.instances) == 1  # each took the connection that was just given back
    rig.close()


async def test_nobody_overtakes_those_who_wait() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    elsewhere = Ledger(rig.segment, 1)  # another worker, which tells nobody here
    lease = elsewhere.open(1, 1, 1, b"", rig.now)
    first, second = rig.client(), rig.client()
    first.feed(get(b"/first"))
    elsewhere.settle(lease, Outcome.SERVED, rig.now, 0)
    second.feed(get(b"/second"))
    rig.plane.waitroom.wake_all()
    await rig.dialled()
    assert rig.busy(first).out.startswith(b"GET /first")
    assert rig.plane.waitroom.size == 1
    rig.busy(first).feed(ok())
    assert rig.busy(second).out.endswith(b"\r\n\r\n")
    rig.busy(second).feed(ok())
    rig.close()


async def test_who_waits_for_a_version_that_lost_its_weight_draws_again() -> None:
    full = version(target(1, 1, limit=1), name="1")
    rig = Rig(table(1, route(full)))
    await rig.asked(get())
    waiting = rig.client()
    waiting.feed(get())
    free = version(target(2, 2), name="2")
    rig.publish(table(2, route(replace(full, weight=0), free)))
    await rig.dialled()
    rig.busy(waiting).feed(ok())
    assert b"x-model-version: 2" in waiting.out
    rig.check()
    rig.close()


async def test_a_queue_that_is_full_refuses_and_one_that_is_slow_too() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)), queue_max=1, queue_timeout_s=5)))
    await rig.asked(post())
    waiting, refused = rig.client(), rig.client()
    waiting.feed(post())
    refused.feed(post())
    assert code_of(refused.out) == "saturated"
    rig.later(6)
    assert code_of(waiting.out) == "saturated"
    rig.check()
    rig.close()


async def test_a_new_table_refuses_at_once_who_waits_for_nothing() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    await rig.asked(post())
    waiting = rig.client()
    waiting.feed(post())
    rig.publish(table(2, route(version())))
    assert code_of(waiting.out) == "no_ready_instance"
    assert rig.segment.waiting(1) == 0
    rig.check()
    rig.close()


async def test_a_new_table_with_room_serves_who_waits() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    await rig.asked(post())
    waiting = rig.client()
    waiting.feed(post())
    rig.publish(table(2, route(version(target(1, 1, limit=1), target(2, 2)))))
    await rig.dialled()
    rig.busy(waiting).feed(ok())
    assert waiting.out.endswith(b"fine")
    rig.check()
    rig.close()


async def test_a_saturated_version_is_not_relieved_by_another() -> None:
    full = version(target(1, 1, limit=1), name="1", weight=50)
    free = version(target(2, 2, limit=50), name="2", weight=50)
    rig = Rig(table(1, route(full, free)))
    clients = [rig.client() for _ in range(20)]
    for client in clients:
        client.feed(post())
    await rig.dialled()
    assert 8 <= rig.segment.in_flight(2) <= 12
    assert rig.segment.in_flight(1) == 1
    assert rig.plane.waitroom.size == 19 - rig.segment.in_flight(2)
    rig.close()


# --- uploads and back-pressure ---


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


# --- idle instance connections ---


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


# --- deadlines ---


@pytest.mark.parametrize(
    ("seconds", "response", "outcome"),
    [
        (601, b"", "timed_out"),
        (121, CHUNKED_HEAD + chunk(b"a"), "timed_out"),
        (119, CHUNKED_HEAD + chunk(b"a"), ""),
        (599, b"", ""),
    ],
)
async def test_an_instance_has_its_limits(
    rig: Rig, seconds: float, response: bytes, outcome: str
) -> None:
    client, instance = await rig.asked(post())
    if response:
        instance.feed(response)
    rig.later(seconds)
    assert rig.outcomes() == ({outcome: 1} if outcome else {})
    assert bool(instance.closed) == bool(outcome)
    client.end()


async def test_a_dial_that_takes_too_long_is_tried_elsewhere(rig: Rig) -> None:
    rig.loop.stuck = {1}
    clients = [rig.client() for _ in range(4)]
    for client in clients:
        client.feed(get())
    await rig.dialled()
    rig.later(3)
    await rig.dialled()
    assert {message.slot for message in rig.suspected} == {1}
    for client in clients:
        if client.protocol.exchange.claim.held:
            rig.busy(client).feed(ok())
    rig.check()


async def test_the_whole_exchange_can_be_limited() -> None:
    rig = Rig(table(1, two(), timeouts=replace(TIMEOUTS, total_s=30)))
    client, instance = await rig.asked(post())
    instance.feed(CHUNKED_HEAD)
    for _ in range(30):
        instance.feed(chunk(b"a"))
        rig.later(1)
    assert client.closed
    assert rig.outcomes() == {"timed_out": 1}
    rig.close()


async def test_a_client_that_never_reads_is_cut_and_the_instance_not_blamed(rig: Rig) -> None:
    client, instance = await rig.asked(post())
    instance.feed(CHUNKED_HEAD + chunk(b"a"))
    client.protocol.pause_writing()
    rig.later(122)
    assert instance.closed == "aborted"
    assert rig.outcomes() == {"client_gone": 1}


async def test_a_503_lists_the_instances() -> None:
    rig = Rig(table(1, route(version())))
    client = rig.client()
    client.feed(post())
    body = orjson.loads(client.out.partition(b"\r\n\r\n")[2])
    assert body["error"]["instances"] == []
    assert body["error"]["model"] == "m"
    rig.close()

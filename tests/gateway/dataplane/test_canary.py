"""Requests while a rollout runs: test headers, blocked versions, and what the analysis counts."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.records import BLAMES_INSTANCE, Outcome, RouteTable, VersionName
from gateway.state.shared import ACCEPTED, APART, ATTEMPTS, FIRST_BYTE, HISTOGRAM_CELLS, LATENCY
from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import route, table, target, version

BODY: Final = b'{"model":"m"}'
ALWAYS: Final = b"x-sluicegate-canary: always"
NEVER: Final = b"x-sluicegate-canary: never"
PIN: Final = b"x-model-version: 2"


def rolling(
    generation: int,
    weights: tuple[float, float],
    blocked: bool = False,
    over: bool = False,
    limit: int = 1000,
    **changes: Any,
) -> RouteTable:
    """Version 1 has slot 1, the new version 2 has slot 2. `over`: no rollout runs any more."""
    plan = route(
        version(target(1, 1, limit=limit), weight=weights[0]),
        version(target(2, 2, limit=limit), name="2", weight=weights[1], blocked=blocked),
        canary=None if over else VersionName("2"),
        stable=None if over else VersionName("1"),
        pinnable=True,
        **changes,
    )
    return table(generation, plan)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(rolling(1, (100, 0)))
    yield made
    made.check()
    made.close()


async def went_to(rig: Rig, *fields: bytes) -> int:
    """The port of the instance that answers a request with these fields."""
    client, instance = await rig.asked(post(BODY, *fields))
    port = slot_of(client)
    instance.feed(ok())
    assert status_of(client.out) == 200
    return port


def slot_of(client: FakeTransport) -> int:
    slot: int = client.protocol.exchange.claim.target.slot
    return slot


def drawn(rig: Rig, slot: int) -> dict[str, int]:
    """What the analysis is told of the slot: its totals without what is apart."""
    totals = rig.segment.slot_totals(slot)
    counts = {
        outcome.name.lower(): totals[ATTEMPTS + outcome] - totals[APART + ATTEMPTS + outcome]
        for outcome in Outcome
    }
    for name, at in (("latency", LATENCY), ("first_byte", FIRST_BYTE)):
        cells = range(at, at + HISTOGRAM_CELLS)
        counts[name] = sum(totals[cell] - totals[APART + cell] for cell in cells)
    return {name: count for name, count in counts.items() if count}


def attempts(rig: Rig, slot: int) -> dict[str, int]:
    totals = rig.segment.slot_totals(slot)
    counts = {outcome.name.lower(): totals[ATTEMPTS + outcome] for outcome in Outcome}
    return {name: count for name, count in counts.items() if count}


# --- the test header ---


async def test_testers_reach_the_canary_before_any_weight_does_and_the_stable_one_after(
    rig: Rig,
) -> None:
    assert await went_to(rig, ALWAYS) == 2
    assert await went_to(rig) == await went_to(rig, NEVER) == 1
    rig.publish(rolling(2, (0, 100)))
    assert await went_to(rig, NEVER) == 1
    assert await went_to(rig) == await went_to(rig, ALWAYS) == 2


async def test_the_header_works_for_requests_without_a_body_that_names_the_model(rig: Rig) -> None:
    client, instance = await rig.asked(get(b"/x", b"X-Sluicegate-Canary:  Always "))
    assert slot_of(client) == 2
    assert b"X-Sluicegate-Canary:  Always \r\n" in instance.out  # its instance may want to know
    instance.feed(ok())


async def test_the_header_of_one_request_says_nothing_of_the_next_on_the_connection(
    rig: Rig,
) -> None:
    client, instance = await rig.asked(post(BODY, ALWAYS))
    instance.feed(ok())
    for fields, slot in (((), 1), ((ALWAYS,), 2), ((ALWAYS,), 2), ((NEVER,), 1), ((), 1)):
        client.out = b""
        client.feed(post(BODY, *fields))
        await rig.dialled()
        assert slot_of(client) == slot
        rig.busy(client).feed(ok())


async def test_without_a_rollout_the_header_is_ignored_and_a_wrong_word_is_refused(
    rig: Rig,
) -> None:
    rig.publish(rolling(2, (100, 0), over=True))
    assert await went_to(rig, ALWAYS) == await went_to(rig, NEVER) == 1
    client = rig.client()
    client.feed(post(BODY, b"x-sluicegate-canary: perhaps"))
    assert code_of(client.out) == "bad_request"


async def test_a_pin_goes_before_the_header(rig: Rig) -> None:
    assert await went_to(rig, NEVER, PIN) == 2


async def test_a_tester_who_waits_for_the_canary_waits_for_no_other_version(rig: Rig) -> None:
    rig.publish(rolling(2, (100, 0), limit=1))
    _, instance = await rig.asked(post(BODY, ALWAYS))
    second = rig.client()
    second.feed(post(BODY, ALWAYS))
    rig.publish(rolling(3, (100, 0), limit=1))
    assert second.protocol.exchange.claim.waits
    instance.feed(ok())
    await rig.dialled()
    assert slot_of(second) == 2
    rig.busy(second).feed(ok())


async def test_a_tester_who_waits_stays_with_the_version_when_the_rollout_ends(rig: Rig) -> None:
    rig.publish(rolling(2, (100, 0), limit=1))
    _, instance = await rig.asked(post(BODY, ALWAYS))
    waiter = rig.client()
    waiter.feed(post(BODY, ALWAYS))
    rig.publish(rolling(3, (100, 0), limit=1, over=True))
    assert waiter.protocol.exchange.claim.waits
    instance.feed(ok())
    await rig.dialled()
    assert slot_of(waiter) == 2
    rig.busy(waiter).feed(ok())


async def test_a_tester_whose_request_fails_on_the_canary_sees_it_fail() -> None:
    rig = Rig(rolling(1, (95, 5), canary_fallback=True))
    rig.loop.refused = {2}
    client = rig.client()
    client.feed(post(BODY, ALWAYS))
    for _ in range(4):
        await rig.dialled()
    assert code_of(client.out) == "connect_failed"
    rig.close()


# --- a version that is blocked ---


@pytest.mark.parametrize("fields", [(PIN,), (ALWAYS,), (PIN, NEVER)])
async def test_who_insists_on_a_blocked_version_is_told_so(
    rig: Rig, fields: tuple[bytes, ...]
) -> None:
    rig.publish(rolling(2, (100, 5), blocked=True))
    client = rig.client()
    client.feed(post(BODY, *fields))
    assert status_of(client.out) == 503
    assert code_of(client.out) == "version_blocked"
    assert b"retry-after" not in client.out.lower()
    assert await went_to(rig, NEVER) == 1


async def test_a_blocked_version_gets_no_new_lease_from_its_generation_on(rig: Rig) -> None:
    rig.publish(rolling(2, (0, 100)))
    assert await went_to(rig) == 2
    rig.publish(rolling(3, (5, 95), blocked=True))
    sessions = [b"x-session-id: %d" % number for number in range(50)]
    assert {await went_to(rig, session) for session in sessions} == {1}
    assert attempts(rig, 2) == {"served": 1}


async def test_who_waits_for_a_version_that_is_blocked_draws_again_or_is_told(rig: Rig) -> None:
    rig.publish(rolling(2, (1, 99), limit=1))
    held, instance = await rig.asked(post(BODY, PIN))
    drew, insists, tests = (rig.client() for _ in range(3))
    drew.feed(post(BODY))
    insists.feed(post(BODY, PIN))
    tests.feed(post(BODY, ALWAYS))
    assert all(client.protocol.exchange.claim.waits for client in (drew, insists, tests))
    rig.publish(rolling(3, (1, 0), blocked=True, limit=1))
    await rig.dialled()
    assert slot_of(drew) == 1
    assert [code_of(client.out) for client in (insists, tests)] == ["version_blocked"] * 2
    rig.busy(drew).feed(ok())
    instance.feed(ok())  # what it holds goes on
    assert status_of(held.out) == 200


async def test_a_replay_leaves_a_version_that_was_blocked_meanwhile_and_no_other() -> None:
    """Its dial is under way when the table comes, and fails."""
    for blocked, ends in ((True, 1), (False, 2)):
        rig = Rig(rolling(1, (1, 99)))
        rig.loop.stuck = {2}
        client = rig.client()
        client.feed(post(BODY))
        rig.publish(rolling(2, (1, 99), blocked=blocked))
        rig.loop.shake_hands(111)  # ECONNREFUSED
        await rig.dialled()
        assert slot_of(client) == ends
        if blocked:
            rig.busy(client).feed(ok())
            assert status_of(client.out) == 200
            assert attempts(rig, 2) == {"connect_failed": 1}
        else:
            assert code_of(client.out) == "connect_failed"
        rig.close()


async def test_streams_cut_at_a_rollback_blame_nobody(rig: Rig) -> None:
    rig.publish(rolling(2, (1, 99)))
    client, instance = await rig.asked(post())
    instance.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
    rig.publish(rolling(3, (1, 0), blocked=True))
    client.protocol.exchange.cut(GatewayError("cut", "by the operator"))
    assert attempts(rig, 2) == {"cut": 1}
    assert Outcome.CUT not in BLAMES_INSTANCE
    assert drawn(rig, 2) == {"cut": 1, "first_byte": 1}


KINDS: Final = ((), (PIN,), (ALWAYS,), (NEVER,), (b"x-session-id: a",))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans(), st.booleans()), max_size=12))
async def test_no_request_of_any_kind_reaches_a_version_while_it_is_blocked(
    steps: list[tuple[tuple[bytes, ...], bool, bool]],
) -> None:
    """Each step blocks the version or gives it back, sends a request, and may end an older one,
    so that whoever waits finds room."""
    rig = Rig(rolling(1, (50, 50), limit=1))
    clients: list[FakeTransport] = []
    for generation, (fields, blocked, ends) in enumerate(steps, 2):
        before = accepted(rig, 2)
        rig.publish(rolling(generation, (50, 50), blocked=blocked, limit=1))
        await rig.dialled()
        clients.append(rig.client())
        clients[-1].feed(post(BODY, *fields))
        await rig.dialled()
        held = [one for one in clients if one.protocol.exchange.claim.held]
        if ends and held:
            rig.busy(held[0]).feed(ok())
            await rig.dialled()
        if blocked:
            assert accepted(rig, 2) == before
        rig.check()
    rig.close()


def accepted(rig: Rig, slot: int) -> int:
    return rig.segment.slot_totals(slot)[ACCEPTED]


# --- what the analysis is told ---


async def test_what_weight_has_drawn_counts_for_its_version(rig: Rig) -> None:
    rig.publish(rolling(2, (1, 99)))
    assert await went_to(rig) == 2
    assert drawn(rig, 2) == {"served": 1, "latency": 1, "first_byte": 1}
    _, instance = await rig.asked(post())
    instance.feed(ok(status=b"500 No"))
    assert drawn(rig, 2) == {"served": 1, "latency": 1, "first_byte": 2, "instance_error": 1}
    _, instance = await rig.asked(post())
    instance.feed(ok(status=b"422 No"))  # the client's mistake
    assert drawn(rig, 2) == {"served": 1, "latency": 1, "first_byte": 2, "instance_error": 1}
    assert attempts(rig, 2) == {"served": 2, "instance_error": 1}
    client, _ = await rig.asked(post())
    client.end()
    assert drawn(rig, 2)["client_gone"] == 1
    assert drawn(rig, 1) == {}


@pytest.mark.parametrize("field", [PIN, ALWAYS])
async def test_pinned_and_test_traffic_counts_in_totals_only(rig: Rig, field: bytes) -> None:
    rig.publish(rolling(2, (1, 99)))
    assert await went_to(rig, field) == 2
    _, instance = await rig.asked(post(BODY, field))
    instance.feed(ok(status=b"500 No"))
    _, instance = await rig.asked(post(BODY, field))
    instance.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
    assert drawn(rig, 2) == {}
    instance.feed(b"0\r\n\r\n")
    assert drawn(rig, 2) == {}
    assert attempts(rig, 2) == {"served": 2, "instance_error": 1}
    totals = rig.segment.slot_totals(2)
    for at in (LATENCY, FIRST_BYTE):
        assert sum(totals[at : at + HISTOGRAM_CELLS]) == 3


async def test_a_header_that_is_ignored_leaves_a_request_drawn(rig: Rig) -> None:
    rig.publish(rolling(2, (100, 0), over=True))
    await went_to(rig, ALWAYS)
    assert drawn(rig, 1)["served"] == 1


async def test_a_request_that_breaks_whoever_it_meets_counts_once() -> None:
    """Against the version that weight has drawn; what takes over, or comes again, is no sample."""
    rig = Rig(rolling(1, (1, 99), canary_fallback=True))
    rig.loop.refused = {1, 2}
    client = rig.client()
    client.feed(post())
    for _ in range(6):
        await rig.dialled()
    assert code_of(client.out) == "connect_failed"
    assert drawn(rig, 2) == {"connect_failed": 1}
    assert attempts(rig, 1) == {"connect_failed": 1}
    assert drawn(rig, 1) == {}
    rig.close()


async def test_an_attempt_after_a_refusal_is_still_a_sample() -> None:
    """Nothing was done before: the instance was about to drain."""
    both = version(target(1, 1), target(3, 3), weight=100)
    rig = Rig(table(1, route(both)))
    client, instance = await rig.asked(post())
    refusing = slot_of(client)
    instance.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 No"))
    await rig.dialled()
    rig.busy(client).feed(ok())
    assert drawn(rig, refusing) == {"refused": 1}
    assert drawn(rig, 4 - refusing)["served"] == 1
    rig.close()

"""Who comes back where: a session to its version and instance, a prompt only to its instance."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.records import Policy, RouteTable
from tests.gateway.dataplane.rig import Rig, ok, post, status_of
from tests.gateway.plain import route, table, target, version


def fleet(generation: int, percent: float) -> RouteTable:
    """The old version has slots 1 to 3, the new one 4 to 6."""
    old = version(*(target(slot, slot, limit=100) for slot in (1, 2, 3)), weight=100 - percent)
    new = version(*(target(slot, slot, limit=100) for slot in (4, 5, 6)), name="2", weight=percent)
    return table(generation, route(old, new, policy=Policy.AFFINITY))


@contextmanager
def begun(percent: float) -> Iterator[Rig]:
    rig = Rig(fleet(1, percent))
    yield rig
    rig.check()
    rig.close()


async def slot_for(rig: Rig, body: bytes, *fields: bytes) -> int:
    client, instance = await rig.asked(post(body, *fields))
    slot: int = client.protocol.exchange.claim.target.slot
    instance.feed(ok())
    assert status_of(client.out) == 200
    client.end()
    return slot


def chat(system: str, user: str) -> bytes:
    said = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return orjson.dumps({"model": "m", "messages": said})


async def test_a_prompt_that_all_share_leaves_a_five_percent_version_its_share() -> None:
    """The prompt's beginning chose the version too: one system prompt for all users made of a
    step of 5 % none of the traffic, or all of it."""
    for system in ("You are helpful.", "You are terse.", "You are a pirate."):
        with begun(5) as rig:
            met = [await slot_for(rig, chat(system, f"question {n}")) for n in range(100)]
        assert 4 <= sum(slot > 3 for slot in met) <= 6
        for group in ({1, 2, 3}, {4, 5, 6}):
            assert len(group & set(met)) == 1  # where its cache is


async def test_prompts_go_on_choosing_their_instances() -> None:
    with begun(50) as rig:
        homes: dict[int, set[tuple[int, ...]]] = {}
        for n in range(12):
            met = {await slot_for(rig, chat(f"system prompt {n}", "hello")) for _ in range(6)}
            homes.setdefault(len(met), set()).add(tuple(sorted(met)))
    assert list(homes) == [2]  # one of each version
    assert len(homes[2]) > 2  # and not the same for all


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=6).map(bytes.hex), min_size=1, max_size=6, unique=True),
    st.text(max_size=20),
    st.lists(st.sampled_from([5.0, 25.0, 50.0, 100.0]), min_size=2, max_size=4).map(sorted),
)
async def test_sessions_move_one_way_whatever_prompts_are_sent_between(
    sessions: list[str], system: str, ramp: list[float]
) -> None:
    with begun(ramp[0]) as rig:
        before: dict[str, int] = {}
        for generation, percent in enumerate(ramp, 2):
            rig.publish(fleet(generation, percent))
            for session in sessions:
                field = b"x-session-id: %s" % session.encode()
                now = await slot_for(rig, chat(system, session), field)
                await slot_for(rig, chat(system, session))
                again = await slot_for(rig, chat(f"another than {system}", ""), field)
                was = before.get(session, now)
                assert again == now
                assert was == now or (was <= 3 < now)
                before[session] = now


async def test_a_session_is_worth_more_than_what_its_prompt_begins_with() -> None:
    with begun(50) as rig:
        met = Counter(
            [
                await slot_for(rig, chat("shared by all", ""), b"x-session-id: s%d" % n)
                for n in range(60)
            ]
        )
    assert len(met) == 6

"""Instances by turn and by key: strict turns over any change of table, and keys that stay."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gateway.records import Policy
from gateway.routing.compiled import CompiledTable, CompiledVersion, key_hash, prefix_key
from gateway.routing.pick import (
    BOUNDED_LOAD,
    NO_KEY,
    pick,
)
from gateway.state.ledger import Ledger
from tests.gateway.plain import route, table, target, version
from tests.gateway.routing.loads import hold, idle, segment_for
from tests.gateway.routing.picking import one_version, picks


def test_round_robin_takes_turns_strictly() -> None:
    plan = one_version(Policy.ROUND_ROBIN, 1.0, 1.0, 1.0)
    assert picks(plan, idle(), 9, Random(1)) == [0, 1, 2] * 3


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=8), st.integers(1, 300))
def test_turns_are_never_far_from_the_shares(weights: list[float], count: int) -> None:
    picked = Counter(picks(one_version(Policy.ROUND_ROBIN, *weights), idle(), count, Random(1)))
    for slot, weight in enumerate(weights):
        assert abs(picked[slot] - count * weight / sum(weights)) < len(weights)


def turning(count: int, old: CompiledTable | None = None, first: int = 0) -> CompiledTable:
    targets = [target(slot, 1) for slot in range(first, first + count)]
    return CompiledTable(table(1, route(version(*targets), policy=Policy.ROUND_ROBIN)), old, 1)


@given(st.lists(st.integers(0, 7), min_size=5, max_size=40))
def test_turns_go_on_over_new_tables(steps: list[int]) -> None:
    """An update that began again at the first would give it everything."""
    held, picked = idle(), []
    built = turning(5)
    for step in steps:
        built = turning(5, built)
        picked += picks(built.routes["m"].shares[0], held, step, Random(1))
    assert picked == [at % 5 for at in range(len(picked))]


def test_a_newcomer_gets_its_share_and_no_arrears() -> None:
    held = idle()
    old = turning(3)
    picks(old.routes["m"].shares[0], held, 3000, Random(1))
    plan = turning(4, old).routes["m"].shares[0]
    assert Counter(picks(plan, held, 40, Random(1))) == dict.fromkeys(range(4), 10)


def test_who_was_full_is_next_when_there_is_room_and_makes_up_for_nothing() -> None:
    plan = one_version(Policy.ROUND_ROBIN, *[1.0] * 4, limit=2)
    held = idle()
    first, second = hold(held, 1, 2)
    assert 1 not in picks(plan, held, 300, Random(1))
    held.settle(first, 0, 0, 0)
    picked = picks(plan, held, 40, Random(1))
    assert picked[0] == 1
    assert max(Counter(picked).values()) <= 11
    held.settle(second, 0, 0, 0)


def test_who_failed_one_request_has_not_had_its_turn() -> None:
    plan = one_version(Policy.ROUND_ROBIN, 1.0, 1.0, 1.0)
    held = idle()
    found = pick(plan, held, Random(1), NO_KEY, frozenset({0}))
    assert found is not None
    assert [found.slot, *picks(plan, held, 5, Random(1))] == [1, 0, 2, 0, 1, 2]


# --- keys ---


def homes(plan: CompiledVersion, held: Ledger, keys: list[int]) -> list[int]:
    return [slot for key in keys for slot in picks(plan, held, 1, Random(1), key)]


def test_a_key_returns_to_its_instance_and_moves_little_when_one_leaves() -> None:
    five = one_version(Policy.AFFINITY, *[1.0] * 5, limit=10_000)
    four = one_version(Policy.AFFINITY, *[1.0] * 4, limit=10_000)
    keys = [key_hash(b"%d" % n) for n in range(400)]
    before, after = homes(five, idle(), keys), homes(four, idle(), keys)
    assert before == homes(five, idle(), keys)
    moved = [old for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {4}  # only those whose instance left
    assert min(Counter(before).values()) > 40  # of 80 on average


def test_a_prefix_has_its_instance_as_a_session_has() -> None:
    plan = one_version(Policy.AFFINITY, *[1.0] * 5, limit=10_000)
    texts = [b"%d" % n for n in range(400)]
    met = homes(plan, idle(), [prefix_key(text) for text in texts])
    assert met == homes(plan, idle(), [key_hash(text) for text in texts])
    assert all(prefix_key(text) < NO_KEY for text in texts)


def test_a_key_behind_the_last_point_belongs_to_the_first() -> None:
    plan = one_version(Policy.AFFINITY, *[1.0] * 5)
    (first,) = homes(plan, idle(), [plan.ring.hashes[0]])
    assert homes(plan, idle(), [(1 << 64) - 1]) == [first]


def test_a_popular_key_spills_over_before_its_instance_is_full() -> None:
    plan = one_version(Policy.AFFINITY, 1.0, 1.0, 1.0, 1.0, limit=1000)
    held = idle()
    for _ in range(200):
        (slot,) = picks(plan, held, 1, Random(1), key_hash(b"k"))
        hold(held, slot)
        plan.tally.held += 1
    assert max(held.held(slot) for slot in range(4)) <= 200 / 4 * BOUNDED_LOAD + 1


def test_what_other_workers_hold_does_not_drive_a_key_from_its_instance() -> None:
    plan = one_version(Policy.AFFINITY, 1.0, 1.0, 1.0, 1.0, limit=1000)
    key = key_hash(b"k")
    home = homes(plan, idle(), [key])
    segment = segment_for(8)
    neighbour, own = Ledger(segment, 1), Ledger(segment, 0)
    for slot in range(4):
        hold(neighbour, slot, 50)
    assert own.in_flight(home[0]) == 50
    assert homes(plan, own, [key]) == home

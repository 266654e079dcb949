"""Versions by share, instances by load: the shares hold, and 0 is exactly none."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.records import Policy, Version
from gateway.routing.compiled import CompiledRoute, CompiledTable, CompiledVersion, Place, key_hash
from gateway.routing.pick import (
    BOUNDED_LOAD,
    NO_KEY,
    NONE_TRIED,
    POLICIES,
    draw_version,
)
from tests.gateway.plain import route, table, target, version

WEIGHTS = st.floats(0.01, 100)


def compiled(*versions: Version, policy: Policy = Policy.LEAST_LOADED) -> CompiledRoute:
    return CompiledTable(table(1, route(*versions, policy=policy)), None, 1).routes["m"]


def shares(*weights: float) -> CompiledRoute:
    names = [str(number) for number in range(len(weights))]
    return compiled(
        *(
            version(target(n, 1), name=name, weight=w)
            for n, (name, w) in enumerate(zip(names, weights, strict=True))
        )
    )


def draws(plan: CompiledRoute, count: int) -> list[str]:
    drawn = [draw_version(plan, NO_KEY) for _ in range(count)]
    return [one.name for one in drawn if one is not None]


@given(st.floats(0, 1, exclude_max=True))
def test_a_five_percent_canary_gets_4_to_6_of_any_100_consecutive_requests(start: float) -> None:
    plan = shares(95, 5)
    plan.place.position = start
    hits = [name == "1" for name in draws(plan, 500)]
    counts = [sum(hits[at : at + 100]) for at in range(400)]
    assert 4 <= min(counts) <= max(counts) <= 6


@settings(max_examples=60, deadline=None)
@given(st.lists(WEIGHTS, min_size=2, max_size=5), st.floats(0, 1, exclude_max=True))
def test_any_share_of_any_100_is_within_3(weights: list[float], start: float) -> None:
    plan = shares(*weights)
    plan.place.position = start
    drawn = draws(plan, 300)
    for number, weight in enumerate(weights):
        hits = [name == str(number) for name in drawn]
        for at in range(0, 200, 7):
            share = 100 * weight / sum(weights)
            assert abs(sum(hits[at : at + 100]) - share) <= 3


@given(st.lists(WEIGHTS, min_size=1, max_size=4), st.integers(0, 4))
def test_weight_0_gives_exactly_none(weights: list[float], at: int) -> None:
    plan = shares(*weights[:at], 0.0, *weights[at:])
    assert str(min(at, len(weights))) not in draws(plan, 300)


def test_all_weights_0_is_nothing_and_not_equal_shares() -> None:
    assert draw_version(shares(0, 0), NO_KEY) is None


def test_a_version_without_instances_gives_its_share_to_the_others() -> None:
    plan = compiled(version(name="a", weight=90), version(target(1, 1), name="b", weight=10))
    assert set(draws(plan, 100)) == {"b"}


def test_a_blocked_version_gets_nothing() -> None:
    blocked = Version(version(name="b").name, 50, True, (target(2, 1),))
    plan = compiled(version(target(1, 1), name="a", weight=50), blocked)
    assert set(draws(plan, 100)) == {"a"}
    assert "b" not in plan.by_name


def test_a_new_table_does_not_start_the_sequence_again() -> None:
    old = CompiledTable(table(1, route(version(target(1, 1)))), None, 1)
    draws(old.routes["m"], 7)
    position = old.routes["m"].place.position
    new = CompiledTable(
        table(2, route(version(target(1, 1)), version(target(2, 1), name="2"))), old, 1
    )
    assert new.routes["m"].place.position == position


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=60, unique=True))
def test_a_session_stays_and_a_ramp_moves_sessions_one_way_only(keys: list[bytes]) -> None:
    before, after = shares(95, 5), shares(75, 25)
    for key in map(key_hash, keys):
        first, second = draw_version(before, key), draw_version(after, key)
        assert first is not None
        assert second is not None
        assert draw_version(before, key) is first
        assert first.name == second.name or (first.name, second.name) == ("0", "1")


# --- instances ---


def one_version(policy: Policy, *weights: float, limit: int = 10) -> CompiledVersion:
    targets = [target(n, 1, limit=limit, weight=w) for n, w in enumerate(weights)]
    return compiled(version(*targets), policy=policy).shares[0]


ALL = list(Policy)
LOADS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


@pytest.mark.parametrize("policy", ALL)
@settings(max_examples=60, deadline=None)
@given(LOADS, st.sets(st.integers(0, 5)), st.integers(0, 1 << 30), st.booleans())
def test_every_policy_finds_room_where_there_is_some_and_only_there(
    policy: Policy, loads: list[int], tried: set[int], seed: int, keyed: bool
) -> None:
    plan = one_version(policy, *[1.0] * len(loads))
    key = key_hash(b"%d" % seed) if keyed else NO_KEY
    found = POLICIES[policy.value](plan, Place(0.0), loads.__getitem__, Random(seed), key, tried)
    usable = {n for n, load in enumerate(loads) if load < 10 and n not in tried}
    assert (found is None) == (not usable)
    assert found is None or found.slot in usable


@pytest.mark.parametrize("policy", [Policy.LEAST_LOADED, Policy.RANDOM, Policy.ROUND_ROBIN])
def test_weights_inside_a_version_are_shares_of_its_requests(policy: Policy) -> None:
    plan = one_version(policy, 1.0, 3.0)
    rng, place = Random(5), Place(0.0)
    picked = Counter(
        found.slot
        for _ in range(4000)
        if (found := POLICIES[policy.value](plan, place, lambda _: 0, rng, NO_KEY, NONE_TRIED))
    )
    # Two draws favour nobody while all are idle: the first one drawn stays.
    assert 0.22 < picked[0] / 4000 < 0.28


def test_the_less_loaded_of_two_is_taken_for_its_weight_and_limit() -> None:
    plan = one_version(Policy.LEAST_LOADED, 1.0, 1.0)
    loads = [5, 1]
    rng = Random(1)
    picked = Counter(
        found.slot
        for _ in range(1000)
        if (
            found := POLICIES[Policy.LEAST_LOADED.value](
                plan, Place(0.0), loads.__getitem__, rng, NO_KEY, NONE_TRIED
            )
        )
    )
    assert 0.70 < picked[1] / 1000 < 0.80  # three of the four pairs hold slot 1


def test_round_robin_takes_turns_strictly() -> None:
    plan = one_version(Policy.ROUND_ROBIN, 1.0, 1.0, 1.0)
    place, rng = Place(0.0), Random(1)
    turns = [
        found.slot
        for _ in range(9)
        if (
            found := POLICIES[Policy.ROUND_ROBIN.value](
                plan, place, lambda _: 0, rng, NO_KEY, NONE_TRIED
            )
        )
    ]
    assert turns == [0, 1, 2] * 3


def test_a_key_returns_to_its_instance_and_moves_little_when_one_leaves() -> None:
    five = one_version(Policy.AFFINITY, *[1.0] * 5, limit=10_000)
    four = one_version(Policy.AFFINITY, *[1.0] * 4, limit=10_000)
    keys = [key_hash(b"%d" % n) for n in range(400)]

    def homes(plan: CompiledVersion) -> list[int]:
        picks = [
            POLICIES[Policy.AFFINITY.value](
                plan, Place(0.0), lambda _: 0, Random(1), key, NONE_TRIED
            )
            for key in keys
        ]
        return [found.slot for found in picks if found is not None]

    assert homes(five) == homes(five)
    moved = [
        before for before, after in zip(homes(five), homes(four), strict=True) if before != after
    ]
    assert set(moved) == {4}  # only those whose instance left
    assert min(Counter(homes(five)).values()) > 40  # of 80 on average


def test_a_popular_key_spills_over_before_its_instance_is_full() -> None:
    plan = one_version(Policy.AFFINITY, 1.0, 1.0, 1.0, 1.0, limit=1000)
    held = [0, 0, 0, 0]
    for _ in range(200):
        found = POLICIES[Policy.AFFINITY.value](
            plan, Place(0.0), held.__getitem__, Random(1), key_hash(b"k"), NONE_TRIED
        )
        assert found is not None
        held[found.slot] += 1
        plan.tally.held += 1
    assert max(held) <= 200 / 4 * BOUNDED_LOAD + 1


def test_a_new_instance_gets_its_share_little_by_little() -> None:
    second = 1_000_000_000
    old = target(0, 1)
    fresh = target(1, 1).__class__(
        1, target(1, 1).instance, "x", "127.0.0.1", 1, 1.0, 10, 100 * second
    )
    plan = route(version(old, fresh), slow_start_s=10)
    ramp = []
    for age in (0, 2, 5, 9, 10, 20):
        built = CompiledTable(table(1, plan), None, (100 + age) * second).routes["m"].shares[0]
        ramp.append((built.bounds[1] - built.bounds[0]) / built.total)
    assert all(before <= after for before, after in pairwise(ramp))
    assert ramp[0] < 0.06
    assert ramp[-2:] == [0.5, 0.5]

"""Instances by load: room is found where there is some, and only there."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.records import Policy
from gateway.routing.compiled import CompiledTable, CompiledVersion, key_hash
from gateway.routing.pick import (
    NO_KEY,
    pick,
)
from gateway.state.ledger import Ledger
from tests.gateway.plain import route, table, target, version
from tests.gateway.routing.loads import hold, idle, loads, segment_for
from tests.gateway.routing.picking import one_version, picks

ALL = list(Policy)
LOADS = st.lists(st.integers(0, 12), min_size=1, max_size=6)
TRIED = st.frozensets(st.integers(0, 5))


@pytest.mark.parametrize("policy", ALL)
@given(LOADS, TRIED, st.integers(0, 1 << 30), st.booleans(), st.integers(0, 20))
def test_every_policy_finds_room_where_there_is_some_and_only_there(
    policy: Policy, held: list[int], tried: frozenset[int], seed: int, keyed: bool, before: int
) -> None:
    plan = one_version(policy, *[1.0] * len(held))
    plan.freed = plan.targets[seed % len(held)]
    key = key_hash(b"%d" % seed) if keyed else NO_KEY
    rng, ledger = Random(seed), loads(held)
    picks(plan, ledger, before, rng)
    found = pick(plan, ledger, rng, key, tried)
    usable = {n for n, load in enumerate(held) if load < 10 and n not in tried}
    assert (found is None) == (not usable)
    assert found is None or found.slot in usable


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.frozensets(st.integers(0, 4), max_size=2)),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("policy", ALL)
@given(STEPS)
def test_room_that_comes_and_goes_is_found_and_no_limit_is_passed(
    policy: Policy, steps: list[tuple[int, bool, frozenset[int]]]
) -> None:
    """A lease or two per instance, given back and taken in any order, by this worker or another."""
    plan = one_version(policy, *[1.0] * 5, limit=2)
    segment = segment_for(5)
    own, neighbour = Ledger(segment, 0), Ledger(segment, 1)
    own.look_around()
    leases: dict[int, list[tuple[Ledger, int]]] = {slot: [] for slot in range(5)}
    for slot, ours, tried in steps:
        found = pick(plan, own, Random(1), NO_KEY, tried)
        usable = {one for one in leases if len(leases[one]) < 2 and one not in tried}
        assert (found is None) == (not usable)
        if found is not None:
            assert found.slot in usable
            leases[found.slot] += [(own, lease) for lease in hold(own, found.slot)]
        ledger = own if ours else neighbour
        if leases[slot]:
            who, lease = leases[slot].pop()
            who.settle(lease, 0, 0, 0)
            plan.freed = plan.targets[slot] if who is own else plan.freed
        elif not ours:
            leases[slot] += [(ledger, lease) for lease in hold(ledger, slot, 2)]


@pytest.mark.parametrize("policy", [Policy.LEAST_LOADED, Policy.RANDOM, Policy.ROUND_ROBIN])
def test_weights_inside_a_version_are_shares_of_its_requests(policy: Policy) -> None:
    plan = one_version(policy, 1.0, 3.0)
    picked = Counter(picks(plan, idle(), 4000, Random(5)))
    # Two draws favour nobody while all are idle: the first one drawn stays.
    assert 0.22 < picked[0] / 4000 < 0.28


def test_of_two_that_weigh_the_same_the_less_loaded_is_taken() -> None:
    plan = one_version(Policy.LEAST_LOADED, 1.0, 1.0)
    assert set(picks(plan, loads([5, 1]), 100, Random(1))) == {1}


def test_load_is_compared_for_weight_and_limit() -> None:
    plan = one_version(Policy.LEAST_LOADED, 1.0, 3.0)
    # 5 of 3 * 10 are fewer than 2 of 10; one pair in sixteen is twice slot 0.
    picked = Counter(picks(plan, loads([2, 5]), 1000, Random(1)))
    assert 0.03 < picked[0] / 1000 < 0.10


def test_a_request_with_one_instance_draws_no_random_number() -> None:
    for policy in ALL:
        rng = Random(3)
        plan = one_version(policy, 1.0, limit=2)
        assert picks(plan, loads([1]), 5, rng) == [0] * 5
        assert picks(plan, loads([2]), 5, rng) == []
        assert rng.random() == Random(3).random()


# --- many and nearly all full ---


@pytest.mark.parametrize("policy", [Policy.LEAST_LOADED, Policy.RANDOM, Policy.ROUND_ROBIN])
def test_among_many_that_are_full_the_one_given_back_last_is_taken(policy: Policy) -> None:
    count = 40
    plan = one_version(policy, *[1.0] * count, limit=2)
    held = idle(count)
    leases = [hold(held, slot, 2) for slot in range(count)]
    assert picks(plan, held, 3, Random(1)) == []
    plan.freed = plan.targets[7]  # no more than a hint: it is full
    assert picks(plan, held, 3, Random(1)) == []
    for slot in (7, 33):
        held.settle(leases[slot][0], 0, 0, 0)
        plan.freed = plan.targets[slot]
    (slot, often), *_ = Counter(picks(plan, held, 20, Random(1))).most_common()
    assert (slot, often > 10) == (33, True)


SECOND = 1_000_000_000


def aged(age: int, policy: Policy) -> CompiledVersion:
    """An old instance and one that has been READY for so many of 10 seconds of slow start."""
    fresh = replace(target(1, 1), ready_since_ns=100 * SECOND)
    plan = route(version(target(0, 1), fresh), slow_start_s=10, policy=policy)
    return CompiledTable(table(1, plan), None, (100 + age) * SECOND).routes["m"].shares[0]


def test_turns_of_a_new_instance_come_more_often_as_it_ages() -> None:
    took = [
        picks(aged(age, Policy.ROUND_ROBIN), idle(), 100, Random(1)).count(1) for age in (0, 5, 10)
    ]
    assert [4 <= took[0] <= 6, took[1], took[2]] == [True, 33, 50]


def test_a_new_instance_gets_its_share_little_by_little() -> None:
    ramp = []
    for age in (0, 2, 5, 9, 10, 20):
        built = aged(age, Policy.LEAST_LOADED)
        ramp.append((built.bounds[1] - built.bounds[0]) / built.total)
    assert all(before <= after for before, after in pairwise(ramp))
    assert ramp[0] < 0.06
    assert ramp[-2:] == [0.5, 0.5]

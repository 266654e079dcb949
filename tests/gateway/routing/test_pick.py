"""Versions by share, instances by load: the shares hold, and 0 is exactly none."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.records import Policy, Version, VersionName
from gateway.routing.compiled import CompiledRoute, CompiledTable, CompiledVersion, key_hash
from gateway.routing.pick import (
    BOUNDED_LOAD,
    NO_KEY,
    NONE_TRIED,
    draw_version,
    pick,
)
from gateway.state.ledger import Ledger
from tests.gateway.plain import route, table, target, version
from tests.gateway.routing.loads import hold, idle, loads, segment_for

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
    blocked = version(target(2, 1), name="b", weight=50, blocked=True)
    plan = compiled(version(target(1, 1), name="a", weight=50), blocked)
    assert set(draws(plan, 100)) == {"a"}
    assert "b" not in plan.by_name


@given(
    st.lists(st.tuples(WEIGHTS, st.booleans()), min_size=1, max_size=5),
    st.lists(st.binary(min_size=1), max_size=20),
)
def test_whoever_draws_by_turn_or_by_session_never_meets_a_blocked_version(
    versions: list[tuple[float, bool]], sessions: list[bytes]
) -> None:
    blocked = {str(n) for n, (_, is_blocked) in enumerate(versions) if is_blocked}
    plan = compiled(
        *(
            version(target(n, 1), name=str(n), weight=weight, blocked=is_blocked)
            for n, (weight, is_blocked) in enumerate(versions)
        )
    )
    keyed = [draw_version(plan, key_hash(session)) for session in sessions]
    met = {*draws(plan, 100), *(one.name for one in keyed if one is not None)}
    assert not met & blocked
    assert bool(met) == (len(blocked) < len(versions))


def test_a_single_version_needs_no_sequence() -> None:
    plan = shares(100)
    assert draws(plan, 3) == ["0"] * 3
    assert plan.place.position == 0.0


def test_a_new_table_every_few_requests_leaves_a_canary_its_share() -> None:
    """One that began its sequence again with every update would send nothing there, or all."""
    versions = (version(target(1, 1), weight=95), version(target(2, 1), name="2", weight=5))
    built, drawn = None, []
    for generation in range(400):
        built = CompiledTable(table(generation, route(*versions)), built, 1)
        drawn += draws(built.routes["m"], 5)
    assert 0.04 <= drawn.count("2") / len(drawn) <= 0.06


def test_a_new_table_does_not_start_the_sequence_again() -> None:
    both = (version(target(1, 1)), version(target(2, 1), name="2"))
    old = CompiledTable(table(1, route(*both)), None, 1)
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


# --- rollouts ---


@st.composite
def ramps(draw: st.DrawFn) -> list[dict[str, float]]:
    """Weights of up to five versions, table after table, each in an order of its own; the canary
    `c` only grows, and the others share the rest as they like."""
    others = draw(st.lists(st.sampled_from("abde"), min_size=1, unique=True))
    percents = sorted(draw(st.lists(st.integers(1, 100), min_size=2, max_size=5)))
    tables = []
    for percent in percents:
        parts = [draw(st.integers(1, 50)) for _ in others]
        rest = (100 - percent) / sum(parts)
        weights = {"c": float(percent)}
        weights |= {name: part * rest for name, part in zip(others, parts, strict=True)}
        tables.append({name: weights[name] for name in draw(st.permutations([*weights]))})
    return tables


def rolled_out(weights: dict[str, float], stable: str, policy: Policy) -> CompiledRoute:
    versions = [
        version(target(ord(name), 1), name=name, weight=weight) for name, weight in weights.items()
    ]
    plan = route(*versions, policy=policy, canary=VersionName("c"), stable=VersionName(stable))
    return CompiledTable(table(1, plan), None, 1).routes["m"]


@settings(deadline=None)
@given(
    ramps(),
    st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=60, unique=True),
    st.sampled_from([Policy.LEAST_LOADED, Policy.ROUND_ROBIN, Policy.RANDOM, Policy.AFFINITY]),
)
def test_a_session_that_came_to_the_canary_stays_while_its_share_grows(
    tables: list[dict[str, float]], sessions: list[bytes], policy: Policy
) -> None:
    """Whatever the order of versions in each table, and however instances are picked."""
    routes = [rolled_out(weights, "a", policy) for weights in tables]
    for key in map(key_hash, sessions):
        drawn = [draw_version(plan, key) for plan in routes]
        met = [str(one.name) for one in drawn if one is not None]
        assert len(met) == len(routes)
        came = met.index("c") if "c" in met else len(met)
        assert set(met[came:]) <= {"c"}


@given(st.integers(1, 98), st.integers(1, 98), st.permutations(["a", "b", "c"]))
def test_sessions_of_a_third_version_do_not_move_with_the_ramp(
    before: int, after: int, order: list[str]
) -> None:
    def plan(percent: int) -> CompiledRoute:
        weights = {"c": percent, "a": 1, "b": 99 - percent}
        return rolled_out({name: weights[name] for name in order}, "b", Policy.LEAST_LOADED)

    first, second = plan(before), plan(after)
    for key in range(0, 1 << 64, (1 << 64) // 500):
        met = [one.name for p in (first, second) if (one := draw_version(p, key)) is not None]
        assert ("a" in met) == (met == ["a", "a"])


@given(st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_canary_gets_its_4_to_6_wherever_it_stands_in_the_table(
    start: float, first: bool
) -> None:
    plan = rolled_out({"c": 5, "a": 95} if first else {"a": 95, "c": 5}, "a", Policy.RANDOM)
    plan.place.position = start
    hits = [name == "c" for name in draws(plan, 300)]
    counts = [sum(hits[at : at + 100]) for at in range(200)]
    assert 4 <= min(counts) <= max(counts) <= 6


def test_sessions_of_a_small_share_belong_to_all_of_its_instances() -> None:
    """Drawn by the key itself, they would all be keys of one arc of the ring."""
    canary = version(*(target(n, 1) for n in range(4)), name="c", weight=2)
    plan = compiled(version(target(9, 1), name="a", weight=98), canary, policy=Policy.AFFINITY)
    met: Counter[str] = Counter()
    ledger = idle(10)
    for key in map(key_hash, (b"%d" % n for n in range(20_000))):
        drawn = draw_version(plan, key)
        if drawn is not None and drawn.name == "c":
            found = pick(drawn, ledger, Random(1), key, NONE_TRIED)
            assert found is not None
            met[found.instance] += 1
    assert min(met[f"i{n}"] for n in range(4)) > 0.12 * met.total() > 36


# --- instances ---


def one_version(policy: Policy, *weights: float, limit: int = 10) -> CompiledVersion:
    targets = [target(n, 1, limit=limit, weight=w) for n, w in enumerate(weights)]
    return compiled(version(*targets), policy=policy).shares[0]


ALL = list(Policy)
LOADS = st.lists(st.integers(0, 12), min_size=1, max_size=6)
TRIED = st.frozensets(st.integers(0, 5))


def picks(
    plan: CompiledVersion, held: Ledger, count: int, rng: Random, key: int = NO_KEY
) -> list[int]:
    """Slots, one pick after the other; nobody keeps a lease."""
    found = [pick(plan, held, rng, key, NONE_TRIED) for _ in range(count)]
    return [one.slot for one in found if one is not None]


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


# --- turns ---


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

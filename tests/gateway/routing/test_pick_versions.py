"""Versions by share: the shares hold, 0 is exactly none, and sessions stay."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.records import Policy, VersionName
from gateway.routing.compiled import CompiledRoute, CompiledTable, key_hash, prefix_key
from gateway.routing.pick import (
    NO_KEY,
    NONE_TRIED,
    draw_version,
    pick,
)
from tests.gateway.plain import route, table, target, version
from tests.gateway.routing.loads import idle
from tests.gateway.routing.picking import compiled

WEIGHTS = st.floats(0.01, 100)


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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(WEIGHTS, min_size=2, max_size=4),
    st.binary(min_size=1),
    st.lists(st.binary(min_size=1, max_size=8), max_size=5),
    st.floats(0, 1, exclude_max=True),
)
def test_shares_hold_under_one_prefix_that_all_requests_have(
    weights: list[float], prefix: bytes, sessions: list[bytes], start: float
) -> None:
    """Sessions in between draw by themselves: they take no turn from the others."""
    plan = shares(*weights)
    plan.place.position = start
    drawn = []
    for number in range(300):
        one = draw_version(plan, prefix_key(prefix))
        assert one is not None
        drawn.append(one.name)
        for session in sessions[number % 7 :]:
            draw_version(plan, key_hash(session))
    for number, weight in enumerate(weights):
        hits = [name == str(number) for name in drawn]
        for at in range(0, 200, 7):
            share = 100 * weight / sum(weights)
            assert abs(sum(hits[at : at + 100]) - share) <= 3


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

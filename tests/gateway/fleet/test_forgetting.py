"""A version that is gone leaves nothing behind; one that is there, or is named, loses nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control import AddInstance, RemoveInstance, SetWeights
from gateway.fleet.commands import Command, WakeAt, Write
from gateway.fleet.decide import decide
from gateway.fleet.events import ChildrenSeen, Event, Registered, Ticked, WriteFailed
from gateway.fleet.handing import FreezeAsked, Thawed
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.weights import Override
from gateway.rollout.machine import Phase
from gateway.rollouts import AbortRollout, StartRollout
from gateway.store.base import Put, Remove
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import STATICS, begun, fresh, only, play, status
from tests.gateway.fleet.rolling import CONFIG, asked, at, rollout
from tests.gateway.fleet.rolling import counts as of
from tests.gateway.fleet.rolling_world import World
from tests.gateway.fleet.test_adoption import read

SHORT = CONFIG.replace("keep_old_s = 20", "keep_old_s = 3")
STEPS = tuple({"weight": weight, "hold_s": 2, "requests_min": 20} for weight in (50, 100))


def versions(fleet: FleetSnapshot) -> set[str]:
    """Of the published table."""
    assert fleet.table is not None
    return {str(one.name) for route in fleet.table.routes for one in route.versions}


# --- after rollouts ------------------------------------------------------------------------------


def rolled_out(world: World, version: str, fails: bool = False) -> None:
    """The whole rollout, and the time in which whoever is not wanted any more leaves."""
    ask = StartRollout("m", version, steps=STEPS)
    while world.fleet.rollout("m") is None or rollout(world.fleet).version != version:
        world.happen(asked(ask, world.now))  # again, if it died before it was written down
    while rollout(world.fleet).active:
        share = int(world.share(version))
        bad = share // 2 if fails else 0
        world.second(of(share - bad, bad), of(100 - share))
        assert world.now < 400, rollout(world.fleet)
    for _ in range(5):
        world.second(of(100), of())


def three_versions(world: World) -> None:
    while not any(world.fleet.routable(seen) for seen in world.fleet.instances.values()):
        world.second(of(), of())
    rolled_out(world, "2")
    rolled_out(world, "3")


def left(world: World) -> tuple[object, ...]:
    """What is known of versions: in the fleet, in the store, in the table that workers serve."""
    assert world.table is not None
    fleet, (route,) = world.fleet, world.table.routes
    return (
        {**fleet.overrides.get("m", {})},
        {**fleet.replica_overrides.get("m", {})},
        world.documents["weights"]["m"],
        world.documents["replicas"]["m"],
        {str(one.name): one.weight for one in route.versions},
    )


EXPECTED = (
    {"1": Override(0.0, 100.0), "3": Override(100.0, None)},
    {"1": Override(0, 1), "3": Override(1, None)},
    {"1": {"weight": 0.0, "over": 100.0}, "3": {"weight": 100.0, "over": None}},
    {"1": {"weight": 0, "over": 1}, "3": {"weight": 1, "over": None}},
    {"1": 0.0, "3": 100.0},
)


def test_a_version_that_was_replaced_leaves_with_its_group() -> None:
    world = World(config=SHORT)
    three_versions(world)
    assert left(world) == EXPECTED


@pytest.mark.parametrize("kept", [True, False])
def test_killed_at_every_write_from_the_end_of_the_rollout_on(kept: bool) -> None:
    whole = World(config=SHORT)
    three_versions(whole)
    for dies_at in range(whole.writes - 25, whole.writes + 1):
        world = World(dies_at, kept, SHORT)
        three_versions(world)
        assert world.deaths == 1
        assert left(world) == EXPECTED, f"killed at write {dies_at}"


def test_nothing_is_forgotten_while_the_old_group_is_there() -> None:
    world = World(config=SHORT)
    while "m" not in world.fleet.rollouts:
        world.second(of(), of())
        if any(world.fleet.routable(seen) for seen in world.fleet.instances.values()):
            rolled_out(world, "2")
    world.happen(asked(StartRollout("m", "3", steps=STEPS), world.now))
    while rollout(world.fleet).phase is not Phase.DONE:
        share = int(world.share("3"))
        world.second(of(share), of(100 - share))
    while "m-2-0" in world.fleet.instances:
        assert world.fleet.overrides["m"]["2"] == Override(0.0, None)
        assert world.fleet.replica_overrides["m"]["2"] == Override(0, None)
        world.second(of(100), of())
    assert left(world) == EXPECTED


def test_a_version_that_was_rolled_back_leaves_with_its_group_and_stays_blocked() -> None:
    """The way back brings the weights of before again, among them a 0 that was set by hand."""
    world = World(config=SHORT)
    while not any(world.fleet.routable(seen) for seen in world.fleet.instances.values()):
        world.second(of(), of())
    world.happen(asked(StartRollout("m", "2", 1, STEPS), world.now))
    while at(world.fleet) != (Phase.STEP, 1):
        world.second(of(), of())
    before = {"1": Override(7.0, 100.0), "2": Override(0.0, None)}
    begun_so = replace(rollout(world.fleet), before=before)
    world.fleet = replace(world.fleet, rollouts={"m": (begun_so,)})
    world.happen(asked(AbortRollout("m"), world.now))
    assert world.fleet.overrides["m"] == before
    for _ in range(5):
        world.second(of(), of(100))
    assert rollout(world.fleet).phase is Phase.ROLLED_BACK
    assert world.fleet.overrides["m"] == {"1": Override(7.0, 100.0)}
    assert world.documents["weights"]["m"] == {"1": {"weight": 7.0, "over": 100.0}}
    assert list(world.fleet.blocked("m")) == ["2"]


# --- whatever else happens -----------------------------------------------------------------------

V = ("1", "2", "3")
WEIGHT = st.sampled_from([0.0, 0.0, 5.0, 100.0])
FILE = st.dictionaries(st.sampled_from(V), WEIGHT, min_size=1, max_size=3)
DEED = st.one_of(
    st.tuples(st.just("weigh"), FILE),
    st.tuples(st.just("reload"), FILE),
    st.tuples(st.just("come"), st.sampled_from(V)),
    st.tuples(st.just("leave"), st.sampled_from(V)),
)


def file(weights: Mapping[str, float]) -> str:
    rows = ", ".join(f'"{version}" = {weight}' for version, weight in weights.items())
    return f'[[model]]\nname = "m"\nweights = {{ {rows} }}\n'


@given(first=FILE, deeds=st.lists(DEED, max_size=12))
def test_the_table_names_who_is_named_or_there_and_no_weight_moves(
    first: dict[str, float], deeds: list[tuple[str, object]]
) -> None:
    """Against a ledger of its own of what was said last of each version."""
    fleet = begun(file(first))
    says, said = dict(first), {version: first.get(version, 0.0) for version in V}
    there: set[str] = set()
    for number, (deed, what) in enumerate(deeds):
        now = 100.0 * number  # time for a drain of an instance that nobody has heard of
        event: Event
        match deed, what:
            case "weigh", dict(asked_for):
                known = {*says, *there, *(v for v in V if said[v])}
                event = asked(SetWeights("m", asked_for), now)
                if asked_for.keys() <= known:
                    said = {version: asked_for.get(version, 0.0) for version in V}
            case "reload", dict(file_says):
                event = read(file(file_says), now)
                for version in V:
                    if file_says.get(version) != says.get(version):
                        said[version] = file_says.get(version, 0.0)
                says = dict(file_says)
            case "come", str(version):
                event = asked(AddInstance(version, "m", version, "h:1", "h:2"), now)
                there.add(version)
            case _, version:
                event = asked(RemoveInstance(str(version)), now)
                there.discard(str(version))
        fleet, _ = play(fleet, event, Ticked(now + 31.0))
        in_force = fleet.weights("m")
        assert {v: in_force[v].weight if v in in_force else 0.0 for v in V} == said
        assert versions(fleet) == {*says, *there, *(v for v in V if said[v])}


# --- the store -----------------------------------------------------------------------------------

LEFT = {"1": {"weight": 7.0, "over": 100.0}, "2": {"weight": 0.0, "over": None}}
KEPT = {"1": {"weight": 7.0, "over": 100.0}}


def began() -> tuple[FleetSnapshot, Sequence[Command]]:
    """A control that finds in the store what a version left that went while nobody looked."""
    fleet = fresh(STATICS, {"weights": {"m": LEFT}})
    return decide(fleet, ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 5.0))


def forgetting(commands: Sequence[Command]) -> list[Write]:
    return [
        one
        for one in only(Write, commands)
        if any((change.kind, change.key) == ("weights", "m") for change in one.changes)
    ]


def test_what_a_version_left_that_went_while_nobody_looked_is_stored_first_then_true() -> None:
    fleet, commands = began()
    (write,) = forgetting(commands)
    assert Put("weights", "m", KEPT) in write.changes
    assert set(fleet.overrides["m"]) == {"1", "2"}
    fleet, _ = decide(fleet, write.then)
    assert fleet.overrides == {"m": {"1": Override(7.0, 100.0)}}
    assert fleet.history[-1].text == "version 2 of m is gone: so is what was set for it at run time"


def test_what_is_the_last_override_of_its_model_leaves_no_document() -> None:
    fleet = fresh(STATICS, {"replicas": {"m": {"2": LEFT["2"]}}})
    fleet, commands = play(fleet, ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 5.0))
    assert fleet.replica_overrides == {}
    assert any(Remove("replicas", "m") in one.changes for one in only(Write, commands))


def test_of_a_model_that_the_file_does_not_name_any_more_nothing_stays_either() -> None:
    fleet = fresh(STATICS, {"weights": {"old": {"2": LEFT["2"], "3": {"weight": 5, "over": None}}}})
    fleet, _ = play(fleet, ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 5.0))
    assert fleet.overrides == {"old": {"3": Override(5.0, None)}}


def test_a_store_that_fails_is_tried_again_after_a_second_and_not_before() -> None:
    fleet, commands = began()
    (write,) = forgetting(commands)
    fleet, commands = decide(fleet, WriteFailed(write.then, "disk full", 6.0))
    assert set(fleet.overrides["m"]) == {"1", "2"}
    assert forgetting(commands) == []
    assert [one.when for one in only(WakeAt, commands)] == [7.0]
    fleet, commands = decide(fleet, Ticked(6.5))
    assert forgetting(commands) == []
    fleet, commands = decide(fleet, Ticked(7.0))
    (write,) = forgetting(commands)
    fleet, _ = decide(fleet, write.then)
    assert fleet.overrides == {"m": {"1": Override(7.0, 100.0)}}


def test_an_instance_that_comes_before_the_store_has_it_takes_it_back() -> None:
    fleet, commands = began()
    (write,) = forgetting(commands)
    came = status("x", State.INITIALIZING, version="2")
    fleet, _ = play(fleet, Registered(1, came, "", 0.0, 0, 5.5))
    fleet, commands = decide(fleet, write.then)
    assert fleet.overrides["m"]["2"] == Override(0.0, None)
    (back,) = forgetting(commands)
    assert Put("weights", "m", LEFT) in back.changes


def test_what_an_operator_asks_meanwhile_is_not_lost() -> None:
    fleet, commands = began()
    (write,) = forgetting(commands)
    fleet, _ = decide(fleet, asked(SetWeights("m", {"1": 9.0, "2": 4.0}), 5.5))
    fleet, _ = play(fleet, write.then)
    assert fleet.overrides["m"] == {"1": Override(7.0, 100.0)}  # and of 2 there is no instance

    fleet, commands = began()
    (write,) = forgetting(commands)
    fleet, _ = decide(fleet, asked(SetWeights("m", {"1": 9.0}), 5.5))
    fleet, _ = play(fleet, write.then)
    assert fleet.overrides["m"] == {"1": Override(9.0, 100.0)}


def test_another_gateway_that_takes_over_is_not_surprised() -> None:
    fleet, _ = play(begun(STATICS), FreezeAsked(5.0))
    fleet = replace(fleet, overrides={"m": {"2": Override(0.0, None)}})
    fleet, commands = decide(fleet, Ticked(6.0))
    assert forgetting(commands) == []
    _, commands = decide(fleet, Thawed(7.0))
    assert len(forgetting(commands)) == 1

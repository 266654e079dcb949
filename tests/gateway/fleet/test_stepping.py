"""Which rollouts of a model are kept: the newest, and those that block a version."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.control import AddInstance, SetWeights
from gateway.fleet.commands import Write
from gateway.fleet.decide import decide
from gateway.fleet.events import Event
from gateway.fleet.reading import Reading
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.rollout import Rollout
from gateway.fleet.rollout_documents import rollout_change, rollouts
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.stepping import BLOCKED_MAX, KEPT_MAX
from gateway.rollout.machine import Phase
from gateway.rollouts import StartRollout
from gateway.store.base import Documents, Put
from tests.gateway.fleet.builders import only, play
from tests.gateway.fleet.rolling import CONFIG, asked, rollout, serving

ENDED_AS = st.sampled_from(
    [(Phase.DONE, False), *[(Phase.ROLLED_BACK, False)] * 6, (Phase.ROLLED_BACK, True)]
)
# Each of a hundred versions once, in any order, and some of them again.
PAST = st.tuples(
    st.permutations(range(100)),
    st.lists(st.integers(0, 99), max_size=30),
    st.lists(ENDED_AS, min_size=130, max_size=130),
).map(lambda one: list(zip((*one[0], *one[1]), one[2], strict=False)))
SOME = st.sets(st.integers(0, 99), max_size=3)


def named(versions: set[int]) -> str:
    """A config.toml that names these versions, too."""
    more = "".join(f', "v{one}" = 0' for one in sorted(versions))
    return CONFIG.replace('"1" = 100', f'"1" = 100{more}')


def past(fleet: FleetSnapshot, ends: list[tuple[int, tuple[Phase, bool]]]) -> FleetSnapshot:
    """With a past of rollouts that ended so."""
    started, _ = play(fleet, asked(StartRollout("m", "2"), 5.0))
    one = rollout(started)
    many = tuple(
        replace(one, number=n, version=f"v{version}", phase=phase, forgiven=forgiven, ended=1.0)
        for n, (version, (phase, forgiven)) in enumerate(ends, 1)
    )
    return replace(fleet, rollouts={"m": many})


def blocked(many: tuple[Rollout, ...]) -> list[str]:
    """By the last rollout of each version, oldest first."""
    last = {one.version: one for one in many}
    return [one.version for one in many if last[one.version] is one and one.blocks]


def played(
    fleet: FleetSnapshot, documents: Documents, *events: Event
) -> tuple[FleetSnapshot, tuple[Rollout, ...]]:
    """The fleet after the events, and the rollouts that a control would read which begins then."""
    fleet, commands = play(fleet, *events)
    for write in only(Write, commands):
        _keep(documents, write)
    return fleet, rollouts(Reading(documents), 9.0)["m"]


def _keep(documents: Documents, write: Write) -> None:
    for change in write.changes:
        if isinstance(change, Put):
            documents.setdefault(change.kind, {})[change.key] = change.document
        else:
            documents.get(change.kind, {}).pop(change.key, None)


def stored(fleet: FleetSnapshot) -> Documents:
    puts = [rollout_change(one) for one in fleet.rollouts["m"]]
    return {"rollouts": {put.key: put.document for put in puts}}


@given(ends=PAST, file=SOME, there=SOME)
def test_as_many_blocked_versions_are_kept_as_can_be_and_each_that_is_used(
    ends: list[tuple[int, tuple[Phase, bool]]], file: set[int], there: set[int]
) -> None:
    fleet = past(serving(named(file)), ends)
    for one in there:
        ask = AddInstance(f"x{one}", "m", f"v{one}", "h:1", "h:2")
        fleet, _ = play(fleet, asked(ask, 6.0))
    before = blocked(fleet.rollouts["m"])
    documents = stored(fleet)
    fleet, read = played(fleet, documents, asked(StartRollout("m", "new", 1), 7.0))
    after, used = list(fleet.blocked("m")), {f"v{one}" for one in file | there}
    assert set(after) == {*before[-BLOCKED_MAX:], *(used & set(before))}
    assert blocked(read) == blocked(fleet.rollouts["m"])
    latest = [one.id for one in fleet.rollouts["m"]][-KEPT_MAX:]
    numbers = range(1, len(ends) + 2)
    assert latest == [f"m/{number}" for number in numbers][-KEPT_MAX:]
    assert len(fleet.rollouts["m"]) <= BLOCKED_MAX + len(used) + KEPT_MAX


def many_blocked() -> FleetSnapshot:
    ends = [(n, (Phase.ROLLED_BACK, False)) for n in range(BLOCKED_MAX + KEPT_MAX)]
    return past(serving(), ends)


def test_the_table_names_no_more_blocked_versions_than_that() -> None:
    fleet, _ = play(many_blocked(), asked(StartRollout("m", "new", 1), 7.0))
    assert fleet.table is not None
    (route,) = fleet.table.routes
    assert sum(one.blocked for one in route.versions) == BLOCKED_MAX


def test_what_the_store_has_let_go_of_is_what_the_fleet_lets_go_of() -> None:
    """An instance of the oldest one comes while the start is being stored."""
    fleet = many_blocked()
    documents = stored(fleet)
    fleet, commands = decide(fleet, asked(StartRollout("m", "new", 1), 7.0))
    (write,) = only(Write, commands)
    _keep(documents, write)
    came = Seen("x", "m", "v0", Origin.API)
    fleet = replace(fleet, instances={**fleet.instances, "x": came})
    fleet, commands = decide(fleet, write.then)
    for one in only(Write, commands):
        _keep(documents, one)
    read = rollouts(Reading(documents), 9.0)["m"]
    assert [one.id for one in read] == [one.id for one in fleet.rollouts["m"]]


def test_weights_by_override_let_go_of_nothing_that_the_store_still_has() -> None:
    fleet = many_blocked()
    documents = stored(fleet)
    came = AddInstance("x", "m", "v70", "h:1", "h:2")
    override = SetWeights("m", {"1": 9.0, "v70": 1.0}, override=True)
    fleet, read = played(fleet, documents, asked(came, 6.0), asked(override, 7.0))
    assert "v70" not in fleet.blocked("m")
    assert [one.id for one in read] == [one.id for one in fleet.rollouts["m"]]

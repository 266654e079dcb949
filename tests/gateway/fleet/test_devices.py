"""On which device a launched instance is started, and what holds it back there."""

from gateway.config import parse
from gateway.control import StopInstance
from gateway.fleet.commands import Launch, ReadNeeds
from gateway.fleet.events import (
    Asked,
    ChildExited,
    ChildrenSeen,
    NeedsRead,
    SettingsRead,
    Ticked,
)
from gateway.fleet.snapshot import FleetSnapshot
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import LAUNCHED, begun, fresh, kept, only, play
from tests.gateway.fleet.launching import (
    A_CHILD,
    A,
    B,
    first_events,
    reading,
    running,
    started,
)

TWO = LAUNCHED.replace("[[model]]", '[[device]]\nname = "d1"\nmemory_gb = 10\n[[model]]')


def launched_on(fleet: FleetSnapshot) -> dict[str, str]:
    return {one.name: one.device for one in fleet.launches.values()}


def test_instances_spread_over_devices_and_load_side_by_side() -> None:
    _, commands = play(fresh(TWO), *first_events())
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0"), Launch(B, "m", "1", "d1")]


def test_only_devices_of_the_first_one_s_kind_are_taken_unless_one_is_named() -> None:
    text = TWO.replace('name = "d1"', 'name = "d1"\nkind = "ascend"')
    _, commands = play(fresh(text), *first_events())
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    named = text.replace("replicas =", 'device = "d1"\nreplicas =')
    _, commands = play(fresh(named), *first_events())
    assert only(Launch, commands) == [Launch(A, "m", "1", "d1")]


def test_nothing_is_started_before_its_manifest_has_been_read() -> None:
    fleet, commands = play(fresh(LAUNCHED), *first_events(), keep=False)
    assert only(ReadNeeds, commands) == [ReadNeeds(frozenset({("m", "1")}))]
    assert only(Launch, commands) == []
    fleet, commands = play(fleet, NeedsRead({("m", "1"): 11 << 30}, 0.1), keep=False)
    assert only(Launch, commands) == []
    assert fleet.launches[A].reason == (
        "waits for memory on d0: needs 11.0 GB, 10.0 GB of 10.0 GB are free"
    )


def test_the_config_s_word_on_memory_goes_before_the_manifest_s() -> None:
    text = LAUNCHED.replace("replicas =", "memory_gb = 9\nreplicas =")
    fleet, _ = play(begun(text), *started(A, 1.0), reading(A, 1.0, 11.0))
    assert "needs 9.0 GB, 1.0 GB of 10.0 GB are free" in fleet.launches[B].reason


def test_what_a_snapshot_needs_is_looked_up_again_after_a_death() -> None:
    """It may have been missing, or an instance may have measured what its manifest computes."""
    again = [ReadNeeds(frozenset({("m", "1")}))]
    fleet, commands = play(running(), ChildExited(A_CHILD, 9, 78, 30.0))
    assert only(ReadNeeds, commands) == again
    fleet, _ = play(running(), NeedsRead({("m", "1"): 1 << 30}, 25.0))
    fleet, commands = play(fleet, ChildExited(A_CHILD, 9, 78, 30.0), keep=False)
    assert only(ReadNeeds, commands) == again
    assert fleet.needs == {("m", "1"): 1 << 30}  # what is known holds until then


def test_a_device_counts_its_process_though_the_file_names_another_by_now() -> None:
    text = TWO.replace("replicas =", 'device = "d0"\nreplicas =').replace('"1" = 2 }', '"1" = 1 }')
    fleet, _ = play(begun(text), *started(A, 1.0), reading(A, 1.0, 11.0))
    moved = text.replace('device = "d0"', 'device = "d1"')
    event = SettingsRead(0, "test", False, None, moved, parse(moved), (), 20.0)
    fleet, _ = play(fleet, event)
    assert (fleet.launches[A].wish, launched_on(fleet)) == ("d1", {A: "d0"})
    fleet, commands = play(fleet, ChildExited(A_CHILD, 9, 1, 30.0), Ticked(31.0))
    assert only(Launch, commands) == [Launch(A, "m", "1", "d1")]


def test_a_device_is_free_only_when_the_process_is_gone() -> None:
    """Its state, and what it says, are no evidence of that."""
    one = LAUNCHED.replace("memory_gb = 10", "memory_gb = 1")
    fleet, _ = play(begun(one), NeedsRead({("m", "1"): 1 << 30}, 0.5))
    fleet, _ = play(fleet, *started(A, 1.0), reading(A, 1.0, 11.0))
    stop = Asked(1, StopInstance(A, force=True), False, None, 20.0)
    fleet, commands = play(fleet, stop, reading(A, 1.0, 21.0, State.STOPPED), Ticked(500.0))
    assert only(Launch, commands) == []
    fleet, commands = play(fleet, ChildExited(A_CHILD, 9, -9, 501.0))
    assert only(Launch, commands) == [Launch(B, "m", "1", "d0")]


def test_what_was_adopted_is_counted_where_it_was_started() -> None:
    first, commands = play(fresh(TWO), *first_events())
    first, more = play(first, *started(A, 1.0), *started(B, 1.0), reading(B, 1.0, 11.0))
    assert launched_on(first) == {A: "d0", B: "d1"}
    children = ChildrenSeen({"worker0.0": 7, f"instance.{B}": 99}, 1, frozenset(), 50.0)
    again, commands = play(fresh(TWO, kept(commands + more)), children)
    assert launched_on(again)[B] == "d1"
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]  # d1 may be loading

from dataclasses import replace

import pytest

from gateway.control import DrainInstance, RemoveInstance
from gateway.fleet.commands import Record, Write
from gateway.fleet.drain import Phase
from gateway.fleet.drains import REMOVED, RETIRED, facts, farewell
from gateway.fleet.events import Asked, LeasesCut, PollFailed, SlotEmptied, SlotSent, Ticked
from gateway.fleet.registry import Origin
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import LostRequest
from gateway.records import Health
from gateway.store.base import Put
from tests.gateway.fleet.builders import GRPC, both_ready, only, play


def unheard(fleet: FleetSnapshot, name: str, now: float = 2.0) -> FleetSnapshot:
    """The fleet after as many polls of it have failed as it takes."""
    for second in range(3):
        failed = PollFailed(name, GRPC[name], "connection refused", False, 0, 0, now + second)
        fleet, _ = play(fleet, failed)
    assert fleet.instances[name].opinion.health is Health.UNHEALTHY
    return fleet


def test_a_drain_of_an_instance_that_nobody_reaches_is_done_when_no_worker_holds_it() -> None:
    fleet = unheard(both_ready(), "a")
    fleet, _ = play(fleet, Asked(1, DrainInstance("a", 600.0, False, False), False, None, 10.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 10.1))
    assert fleet.drains["a"].phase is Phase.WAITING
    fleet, _ = play(fleet, SlotEmptied(0, token, 10.2))
    assert (fleet.drains["a"].phase, fleet.drains["a"].ended) == (Phase.DONE, 10.2)


@pytest.mark.parametrize("lost", [(), (LostRequest(1, "", 0, "streaming", 3.0, 7),)])
def test_a_drain_is_kept_as_cut_only_when_something_was_lost(lost: tuple[LostRequest, ...]) -> None:
    ask = DrainInstance("a", 5.0, False, False)
    fleet, _ = play(both_ready(), Asked(1, ask, False, None, 10.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 10.1), Ticked(15.0))
    assert fleet.drains["a"].phase is Phase.CUTTING
    fleet, commands = play(fleet, LeasesCut(0, token, lost, 15.1))
    assert fleet.drains["a"].phase is (Phase.CUT if lost else Phase.DONE)
    (put,) = [
        change
        for one in only(Write, commands)
        for change in one.changes
        if isinstance(change, Put) and change.kind == "drains"
    ]
    assert (put.document["ended"], put.document["was_cut"]) == (True, bool(lost))


def test_an_instance_that_answers_is_not_silent() -> None:
    fleet, _ = play(
        both_ready(), Asked(1, DrainInstance("a", 600.0, False, False), False, None, 10.0)
    )
    assert not facts(fleet, fleet.drains["a"], 11.0).silent


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        (Origin.CONFIG, RETIRED),
        (Origin.LAUNCHED, RETIRED),
        (Origin.API, REMOVED),
        (Origin.REGISTERED, REMOVED),
    ],
)
def test_who_took_an_instance_out_is_told_by_its_origin(origin: Origin, why: str) -> None:
    assert farewell(replace(both_ready().instances["a"], origin=origin)) == why


def test_an_instance_deleted_through_the_api_is_not_said_to_be_out_of_the_file() -> None:
    fleet = both_ready()
    added = replace(fleet.instances["a"], origin=Origin.API)
    fleet = replace(fleet, instances={**fleet.instances, "a": added})
    fleet, commands = play(fleet, Asked(1, RemoveInstance("a"), False, None, 10.0))
    token = fleet.drains["a"].token
    assert fleet.drains["a"].reason == REMOVED
    fleet = unheard(fleet, "a", 11.0)
    fleet, more = play(fleet, SlotSent(0, token, 15.0), SlotEmptied(0, token, 15.1))
    assert "a" not in fleet.instances
    said = [str((one.text, one.fields)) for one in only(Record, [*commands, *more])]
    assert f"a forgotten: {REMOVED}" in "".join(said)
    assert RETIRED not in "".join(said)

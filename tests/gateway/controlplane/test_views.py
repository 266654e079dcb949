from dataclasses import replace

import pytest

from gateway.controlplane import views
from gateway.fleet.events import PollFailed
from gateway.fleet.snapshot import FleetSnapshot, Worker
from gateway.records import Intent
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import GRPC, both_ready, observed, play


def unheard(fleet: FleetSnapshot, name: str) -> FleetSnapshot:
    """The fleet after as many polls of it have failed as it takes."""
    for second in range(3):
        failed = PollFailed(name, GRPC[name], "connection refused", False, 0, 0, 2.0 + second)
        fleet, _ = play(fleet, failed)
    return fleet


def test_nothing_is_wrong_with_a_fleet_that_is_as_it_should_be() -> None:
    assert views.problems(both_ready()) == ()


def test_a_refused_file_is_a_problem_with_each_of_its_own() -> None:
    fleet = replace(both_ready(), refused=("gateway.workers: cannot change live", "x: what"))
    assert views.problems(fleet) == (
        "config.toml was not taken: gateway.workers: cannot change live",
        "config.toml was not taken: x: what",
    )


def test_an_instance_that_does_not_answer_is_a_problem_with_its_reason() -> None:
    (sentence,) = views.problems(unheard(both_ready(), "a"))
    assert sentence.startswith("a: ")
    assert "connection refused" in sentence


def test_an_instance_in_error_is_a_problem_with_its_own_words() -> None:
    broken = observed("a", State.ERROR, now=2.0, sequence=2, reason="out of memory")
    fleet, _ = play(both_ready(), broken)
    assert views.problems(fleet) == ("a: out of memory",)


def test_one_that_was_told_to_stop_is_no_problem() -> None:
    fleet = unheard(both_ready(), "a")
    stopped = replace(fleet.instances["a"], intent=Intent.STOP)
    fleet = replace(fleet, instances={**fleet.instances, "a": stopped})
    assert views.problems(fleet) == ()


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ((), "unknown"),
        ((None,), "unknown"),
        ((True, None), "compiled"),
        ((False, False), "interpreted"),
        ((True, False), "mixed"),
    ],
)
def test_the_data_plane_is_what_the_workers_say(said: tuple[bool | None, ...], word: str) -> None:
    workers = {row: Worker(row, row, 7, 0.0, compiled=one) for row, one in enumerate(said)}
    assert views.data_plane(replace(both_ready(), workers=workers)) == word

"""The whole table of what may be sent again."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.records import Version
from gateway.routing.compiled import CompiledTable
from gateway.routing.replay import BUDGET_RESERVE, Decision, Failure, affordable, decide, relief
from tests.gateway.plain import route, table, target, version

FLAGS = list(product([False, True], repeat=3))


def expected(failure: Failure, begun: bool, held: bool, harmless: bool) -> Decision:
    """The table as prose has it, row by row."""
    if begun:
        return Decision.CUT
    rows = {
        Failure.CONNECT_FAILED: held,  # nothing was sent; a body that is gone cannot be sent now
        Failure.REFUSED: held,
        Failure.FULL: held,
        Failure.RESET_REUSED: held and harmless,
        Failure.RESET_FRESH: False,
        Failure.DEADLINE: False,
        Failure.BROKEN: False,
    }
    return Decision.REPLAY if rows[failure] else Decision.FAIL


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize(("begun", "held", "harmless"), FLAGS)
def test_every_row_of_the_table(failure: Failure, begun: bool, held: bool, harmless: bool) -> None:
    assert decide(failure, begun, held, harmless) is expected(failure, begun, held, harmless)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_replays_stay_within_a_tenth_and_the_reserve(replays: float, requests: float) -> None:
    if affordable(replays, requests):
        assert replays < 0.1 * requests + BUDGET_RESERVE


# --- canaries ---


def relieved(
    weights: dict[str, float], failed: str, allowed: bool = True, gone: str = "", **rollout: Any
) -> str:
    """The version that takes over from the failed one, "" for none; `gone` has no instance."""

    def one(slot: int, name: str) -> Version:
        targets = [] if name == gone else [target(slot, slot)]
        return version(*targets, name=name, weight=weights[name])

    versions = [one(slot, name) for slot, name in enumerate(weights, 1)]
    plan = route(*versions, canary_fallback=allowed, **rollout)
    made = CompiledTable(table(1, plan), None, 1).routes["m"]
    found = relief(made, made.by_name[failed])
    return found.name if found is not None else ""


@pytest.mark.parametrize("failed", ["small", "none"])
def test_whatever_has_less_weight_is_relieved_by_the_version_of_most(failed: str) -> None:
    assert relieved({"small": 5, "most": 80, "none": 0, "half": 15}, failed) == "most"


def test_the_version_of_most_weight_is_relieved_by_nobody() -> None:
    assert relieved({"a": 5, "b": 95}, "b") == ""
    assert relieved({"a": 50, "b": 50}, "a") == relieved({"a": 50, "b": 50}, "b") == ""


def test_only_a_version_that_has_instances_takes_over() -> None:
    assert relieved({"a": 5, "b": 80, "c": 15}, "a", gone="b") == "c"
    assert relieved({"a": 5, "b": 95}, "a", gone="b") == ""


def test_while_a_rollout_runs_its_versions_are_canary_and_stable_whatever_they_weigh() -> None:
    weights: dict[str, float] = {"a": 25, "b": 70, "c": 5}
    named: dict[str, Any] = {"canary": "b", "stable": "a"}
    assert relieved(weights, "b", **named) == "a"
    assert relieved(weights, "a", **named) == relieved(weights, "c", **named) == ""
    assert relieved({"a": 0, "b": 100}, "b", **named) == ""  # weight 0 is none, exactly
    assert relieved(weights, "b", gone="a", **named) == ""


def test_nobody_takes_over_unless_the_model_says_so() -> None:
    assert relieved({"a": 5, "b": 95}, "a", allowed=False) == ""

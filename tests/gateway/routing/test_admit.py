"""Waiting, refusing, and the words for it."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gateway.errors import GatewayError, error_body
from gateway.records import InstanceName, Standing, VersionName
from gateway.routing.admit import (
    RETRY_MAX_S,
    UNKNOWN_RETRY_S,
    by_test_header,
    may_wait,
    not_ready,
    pinned,
    retry_after_s,
    saturated,
)
from gateway.routing.compiled import CompiledRoute, CompiledTable
from tests.gateway.plain import route, table, target, version


def standing(ready_in_s: float, name: str = "1") -> Standing:
    return Standing(
        InstanceName("i9"), VersionName(name), "INITIALIZING", "loading_model", 40, "", ready_in_s
    )


def compiled(*standings: Standing, pinnable: bool = True) -> CompiledRoute:
    versions = (version(target(1, 1)), version(target(2, 1), name="2", weight=0), version(name="3"))
    plan = route(*versions, standings=standings, pinnable=pinnable, queue_max=2)
    return CompiledTable(table(1, plan), None, 1).routes["m"]


def test_the_queue_holds_as_many_as_it_says() -> None:
    assert [may_wait(compiled(), waiting) for waiting in (0, 1, 2)] == [True, True, False]


@pytest.mark.parametrize(
    ("estimates", "expected"),
    [
        ([], UNKNOWN_RETRY_S),
        ([-1], UNKNOWN_RETRY_S),
        ([40.2, 7.1, -1], 8),
        ([0], 1),
        ([1000000.0], RETRY_MAX_S),
    ],
)
def test_retry_after_is_the_best_instance_in_whole_seconds(
    estimates: list[float], expected: int
) -> None:
    assert retry_after_s(compiled(*map(standing, estimates))) == expected


def test_a_503_lists_where_every_instance_stands() -> None:
    error = not_ready(compiled(standing(12)), "")
    assert error.refusal.code == "no_ready_instance"
    (listed,) = orjson.loads(error_body(error, "r"))["error"]["instances"]
    assert (listed["instance"], listed["state"]) == ("i9", "INITIALIZING")
    assert (listed["phase"], listed["progress"]) == ("loading_model", 40)


def test_saturation_names_the_numbers() -> None:
    plan = compiled()
    error = saturated(plan, plan.by_name["1"], 1000, "and the queue is full")
    assert error.message == "no room for m: 1000 of 1000 in flight, and the queue is full"


def test_a_pin_reaches_a_version_of_weight_0() -> None:
    assert pinned(compiled(), "2").name == "2"


@pytest.mark.parametrize(
    ("name", "pinnable", "code"),
    [("3", True, "no_ready_instance"), ("4", True, "unknown_version"), ("1", False, "bad_request")],
)
def test_a_pin_that_cannot_be_served_is_refused(name: str, pinnable: bool, code: str) -> None:
    with pytest.raises(GatewayError) as caught:
        pinned(compiled(pinnable=pinnable), name)
    assert caught.value.refusal.code == code


ROLLED_OUT: dict[str, Any] = {"canary": VersionName("2"), "stable": VersionName("1")}


def with_canary(blocked: bool = False, **changes: Any) -> CompiledRoute:
    two = version(target(2, 1), name="2", weight=0, blocked=blocked)
    plan = route(version(target(1, 1)), two, **{**ROLLED_OUT, **changes})
    return CompiledTable(table(1, plan), None, 1).routes["m"]


@pytest.mark.parametrize(("said", "expected"), [(b"always", "2"), (b"never", "1")])
def test_a_test_header_reaches_its_version_whatever_the_weight_and_without_pins(
    said: bytes, expected: str
) -> None:
    found = by_test_header(with_canary(), said)
    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize("said", [b"always", b"never"])
def test_a_test_header_says_nothing_without_a_rollout(said: bytes) -> None:
    assert by_test_header(compiled(), said) is None


@pytest.mark.parametrize("said", [b"alwyas", b"yes", b"2"])
def test_any_other_word_is_refused_with_and_without_a_rollout(said: bytes) -> None:
    for plan in (compiled(), with_canary()):
        with pytest.raises(GatewayError) as caught:
            by_test_header(plan, said)
        assert caught.value.refusal.code == "bad_request"


def test_neither_a_pin_nor_a_test_header_reaches_a_blocked_version() -> None:
    plan = with_canary(blocked=True, pinnable=True)
    insisting: tuple[Callable[[], object], ...] = (
        lambda: pinned(plan, "2"),
        lambda: by_test_header(plan, b"always"),
    )
    for insist in insisting:
        with pytest.raises(GatewayError) as caught:
            insist()
        assert caught.value.refusal.code == "version_blocked"
        assert "rolled back" in caught.value.message
    found = by_test_header(plan, b"never")
    assert found is not None


def test_a_canary_without_an_instance_is_a_503_for_who_tests_it() -> None:
    plan = route(version(target(1, 1)), version(name="2", weight=5), **ROLLED_OUT)
    with pytest.raises(GatewayError) as caught:
        by_test_header(CompiledTable(table(1, plan), None, 1).routes["m"], b"always")
    assert caught.value.refusal.code == "no_ready_instance"


def test_a_pin_to_a_version_that_is_only_loading_is_not_ready() -> None:
    with pytest.raises(GatewayError) as caught:
        pinned(compiled(standing(5, "7")), "7")
    assert caught.value.refusal.code == "no_ready_instance"


def test_retry_after_counts_only_instances_that_the_request_could_go_to() -> None:
    """A READY one of a version without weight, or of another one than is pinned, serves nobody."""
    standings = (standing(40, "1"), standing(0, "2"), standing(90, "3"))
    assert retry_after_s(compiled(*standings)) == 40
    assert retry_after_s(compiled(*standings), "3") == 90
    with pytest.raises(GatewayError) as caught:
        pinned(compiled(*standings), "3")
    assert caught.value.retry_after_s == 90
    assert retry_after_s(compiled(standing(0, "2"))) == UNKNOWN_RETRY_S

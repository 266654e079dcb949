from typing import Any

import pytest

from admin.rollouts import requests
from gateway.control import AbortRollout, PromoteRollout, RetryRollout, StartRollout

STEP = {"weight": 5, "hold_s": 600, "requests_min": 100, "gate": True}


def _problems(found: Any) -> list[str]:
    assert isinstance(found, tuple), found
    return [str(one) for one in found]


def test_what_is_left_out_or_null_is_left_to_the_config() -> None:
    nulls = dict.fromkeys(("replicas", "steps", "samples"))
    for body in ({"version": "2"}, {"version": "2", **nulls}):
        assert requests.start("m", body) == StartRollout("m", "2", None, None, None, False)


def test_all_that_can_be_said_arrives() -> None:
    body = {
        "version": "2",
        "replicas": 3,
        "steps": [STEP, {"weight": 100}],
        "samples": "",
        "force": True,
    }
    steps: tuple[dict[str, Any], ...] = (STEP, {"weight": 100.0})
    assert requests.start("m", body) == StartRollout("m", "2", 3, steps, "", True)
    assert requests.promote("m", {"full": True}) == PromoteRollout("m", True)
    assert requests.promote("m", {"step": 2}) == PromoteRollout("m", step=2)
    assert requests.promote("m", {"step": None}) == PromoteRollout("m")
    assert requests.promote("m", {"step": "2"}) != PromoteRollout("m", step=2)
    assert requests.abort("m", {"reason": "odd"}) == AbortRollout("m", "odd")
    assert requests.retry("m", {"force": True}) == RetryRollout("m", True)


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        (None, ["must be a JSON object, not null", "version: is missing"]),
        ({"version": 2}, ["version: must be a string of 1 to 4096 characters, not 2"]),
        ({"version": "2", "replicas": 1.5}, ["replicas: must be a whole number from 0 to 1000"]),
        ({"version": "2", "replicas": True}, ["replicas: must be a whole number from 0 to 1000"]),
        ({"version": "2", "steps": []}, ["steps: must be a list of 1 to 100 objects, not a list"]),
        (
            {"version": "2", "steps": [5]},
            ["steps[0]: must be a JSON object", "steps[0].weight: is"],
        ),
        (
            {"version": "2", "steps": [{**STEP, "wait": 1}, {**STEP, "weight": 101, "gate": 1}]},
            [
                "steps[0].wait: is not a key that this request knows",
                "steps[1].weight: must be a number from 0 to 100, not 101",
                "steps[1].gate: must be true or false, not 1",
            ],
        ),
        (
            {"version": "2", "steps": [{**STEP, "hold_s": -1}]},
            ["steps[0].hold_s: must be a number"],
        ),
        (
            {"version": "2", "steps": [{**STEP, "requests_min": -1}]},
            ["steps[0].requests_min: must"],
        ),
        ({"version": "2", "samples": 1}, ["samples: must be a string of 0 to 4096 characters"]),
        ({"version": "2", "forse": True}, ["forse: is not a key that this request knows"]),
    ],
    ids=str,
)
def test_everything_wrong_is_said_at_once_each_with_its_path(
    body: Any, problems: list[str]
) -> None:
    found = _problems(requests.start("m", body))
    assert len(found) == len(problems), found
    for said, expected in zip(found, problems, strict=True):
        assert said.startswith(expected)


def test_a_version_that_cannot_be_one_is_refused_with_the_rule() -> None:
    (said,) = _problems(requests.start("m", {"version": "two words"}))
    assert "letters, digits" in said

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin import requests
from admin.requests import Filter, Following, Options
from gateway import config
from gateway.control import (
    AddInstance,
    DrainInstance,
    SetInstanceWeight,
    SetWeights,
    StopInstance,
)

ADDED = {"id": "i", "model": "m", "version": "1", "http": "10.0.0.1:80", "grpc": "[::1]:81"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
PARSERS: dict[str, Callable[[Any], Any]] = {
    "weights": lambda body: requests.set_weights("m", body),
    "weight": lambda body: requests.set_instance_weight("i", body),
    "drain": lambda body: requests.drain_instance("i", body),
    "stop": lambda body: requests.stop_instance("i", body),
    "add": requests.add_instance,
    "nothing": requests.nothing,
    "text": lambda body: requests.config_text(body, 100),
}


@pytest.mark.parametrize(
    ("parsed", "wanted"),
    [
        (requests.set_weights("m", {"1": 95, "2": 0}), SetWeights("m", {"1": 95.0, "2": 0.0})),
        (requests.set_instance_weight("i", {"weight": 0.5}), SetInstanceWeight("i", 0.5)),
        (requests.drain_instance("i", {}), DrainInstance("i", None, False, False)),
        (requests.drain_instance("i", {"grace_s": None}), DrainInstance("i", None, False, False)),
        (
            requests.drain_instance("i", {"grace_s": 0, "stop": True, "force": True}),
            DrainInstance("i", 0.0, True, True),
        ),
        (requests.stop_instance("i", {"force": True}), StopInstance("i", True)),
        (requests.stop_instance("i", {"grace_s": 0}), StopInstance("i", False, 0.0)),
        (requests.add_instance(ADDED), AddInstance(**ADDED)),
        (requests.config_text({"text": ""}, 10), ""),
        (requests.nothing({}), ()),
    ],
    ids=[
        "weights",
        "weight",
        "drain",
        "null grace",
        "whole drain",
        "stop",
        "stop soon",
        "add",
        "text",
        "none",
    ],
)
def test_a_right_body_becomes_its_ask(parsed: Any, wanted: Any) -> None:
    assert parsed == wanted


@pytest.mark.parametrize(
    ("problems", "wanted"),
    [
        (requests.set_weights("m", {}), ['must name at least one version: {"1": 100}']),
        (requests.set_weights("m", []), ["must be a JSON object, not a list"]),
        (requests.set_weights("m", {"1": -1}), ["1: must be a number from 0 to 1000000, not -1"]),
        (
            requests.set_weights("m", {"1": True, "2": "5"}),
            [
                "1: must be a number from 0 to 1000000, not true",
                '2: must be a number from 0 to 1000000, not "5"',
            ],
        ),
        (requests.set_instance_weight("i", {}), ["weight: is missing"]),
        (
            requests.drain_instance("i", {"grace_s": 604_801, "stop": 1, "forse": True}),
            [
                "grace_s: must be a number from 0 to 604800, not 604801",
                "stop: must be true or false, not 1",
                "forse: is not a key that this request knows",
            ],
        ),
        (
            requests.add_instance({**ADDED, "http": "nowhere", "id": "", "grpc": "h:0"}),
            [
                'id: must be a string of 1 to 4096 characters, not ""',
                'http: must be "host:port", not "nowhere"',
                'grpc: must be "host:port", not "h:0"',
            ],
        ),
        (
            requests.add_instance({**ADDED, "id": "a\r\nb", "version": "1:2", "http": "a b:1"}),
            [
                f"id: must be {config.NAME_RULE}, not ",
                f"version: must be {config.NAME_RULE}, not ",
                'http: must be "host:port", not "a b:1"',
            ],
        ),
        (requests.config_text({"text": None}, 10), ["text: must be a string of 0 to 10 "]),
        (requests.nothing({"a": {}}), ["a: is not a key that this request knows"]),
    ],
    ids=[
        "no weights",
        "list",
        "minus",
        "kinds",
        "no weight",
        "drain",
        "add",
        "unsafe",
        "text",
        "nothing",
    ],
)
def test_every_problem_of_a_body_is_named_with_its_path(problems: Any, wanted: list[str]) -> None:
    said = [str(problem) for problem in problems]
    assert len(said) == len(wanted)
    assert all(one.startswith(start) for one, start in zip(said, wanted, strict=True))


@given(body=JSON, name=st.sampled_from(sorted(PARSERS)))
def test_any_json_is_an_ask_or_problems_and_never_an_exception(body: Any, name: str) -> None:
    parsed = PARSERS[name](body)
    if isinstance(parsed, tuple):
        assert parsed == () if name == "nothing" and body == {} else parsed != ()
        assert all(problem.message for problem in parsed)
    else:
        assert isinstance(body, dict)


@given(
    body=st.fixed_dictionaries(
        {}, optional={"grace_s": st.floats(0, 604_800), "stop": st.booleans()}
    ),
    unknown=st.text(min_size=1).filter(lambda key: key not in {"grace_s", "stop", "force"}),
)
def test_an_unknown_key_spoils_any_right_body(body: dict[str, Any], unknown: str) -> None:
    assert isinstance(requests.drain_instance("i", body), DrainInstance)
    spoilt = requests.drain_instance("i", {**body, unknown: 1})
    assert isinstance(spoilt, tuple)
    assert [one.path for one in spoilt] == [unknown]


@pytest.mark.parametrize(
    ("query", "if_match", "wanted"),
    [
        ({}, None, Options(False, False, None)),
        ({"wait": "1", "dry_run": "true"}, "12", Options(True, True, 12)),
        ({"wait": "0"}, '"12"', Options(False, False, 12)),
        ({}, "*", Options(False, False, None)),
        ({"wait": "yes"}, None, '?wait: must be 1 or 0, not "yes"'),
        ({"dryrun": "1"}, None, "?dryrun: is not a parameter of this request"),
        ({}, "abc", 'If-Match: must be a revision, not "abc"'),
        ({}, "-1", 'If-Match: must be a revision, not "-1"'),
        ({}, "9" * 19, f'If-Match: must be a revision, not "{"9" * 19}"'),
    ],
)
def test_options_are_read_strictly(
    query: dict[str, str], if_match: str | None, wanted: Any
) -> None:
    parsed = requests.options(query, if_match)
    assert parsed == wanted if not isinstance(parsed, tuple) else str(parsed[0]) == wanted


@pytest.mark.parametrize(
    ("query", "last", "wanted"),
    [
        ({}, None, Following(None, True)),
        ({"follow": "0"}, None, Following(0, False)),
        ({"after": "5"}, None, Following(5, True)),
        ({"after": "5"}, "9", Following(9, True)),
        ({"after": "x"}, None, 'after: must be the number of an event, not "x"'),
        ({}, "x", 'Last-Event-ID: must be the number of an event, not "x"'),
        ({"since": "1"}, None, "?since: is not a parameter of this request"),
    ],
)
def test_events_resume_behind_the_last_id(
    query: dict[str, str], last: str | None, wanted: Any
) -> None:
    parsed = requests.following(query, last)
    assert parsed == wanted if not isinstance(parsed, tuple) else str(parsed[0]) == wanted


def test_a_misspelt_filter_is_a_problem() -> None:
    assert requests.lease_filter({"model": "m"}) == Filter(None, "m")
    assert [str(one) for one in requests.lease_filter({"modell": "m"})] == [  # type: ignore[union-attr]
        "?modell: is not a parameter of this request"
    ]
    assert requests.plain({}) == ()
    assert requests.plain({"a": "b"}) != ()


def test_the_bounds_are_those_of_the_config() -> None:
    text = '[drain]\ngrace_s = {}\n[[model]]\nname = "m"\nweights = {{ "1" = {} }}'
    config.parse(text.format(requests.GRACE_MAX_S, requests.WEIGHT_MAX))
    with pytest.raises(config.ConfigInvalid) as found:
        config.parse(text.format(requests.GRACE_MAX_S + 1, requests.WEIGHT_MAX + 1))
    assert len(found.value.problems) == 2


def test_force_and_a_grace_contradict_each_other() -> None:
    found = requests.stop_instance("i", {"force": True, "grace_s": 5})
    assert isinstance(found, tuple)
    assert [str(one) for one in found] == [
        "grace_s: must be left out with force, which waits for nothing, not 5.0"
    ]
    assert requests.stop_instance("i", {"force": True, "grace_s": None}) == StopInstance("i", True)

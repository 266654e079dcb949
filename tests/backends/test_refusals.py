"""How refusals are spelled; that each of them is told over HTTP is in test_http_api.py."""

import pytest

from backends.lifecycle import Event, Standing, follow, progressed
from backends.refusals import described, is_kserve, openai_error
from sluicegate.v1.states import Phase


def test_an_error_has_openais_four_fields_and_what_we_add() -> None:
    assert openai_error(
        "too long", "invalid_request_error", "prompt", None, {"state": "READY"}
    ) == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": None,
            "state": "READY",
        }
    }


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/v2", True), ("/v2/models", True), ("/v1/models", False), ("/v20", False)],
)
def test_the_path_says_which_protocol_is_spoken(path: str, is_one: bool) -> None:
    assert is_kserve(path) is is_one


def test_a_hundred_percent_is_said_only_when_it_is_done() -> None:
    nearly = progressed(Standing("m-1-0"), Phase.SERVING, 0.999, "nearly")
    assert described(nearly)["progress"] == 99
    assert described(follow(nearly, Event.VERIFIED))["progress"] == 100

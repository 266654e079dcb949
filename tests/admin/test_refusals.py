import re

from admin import refusals
from admin.refusals import Refused
from gateway.control import Denied, Problem


def test_every_code_that_control_names_has_a_status() -> None:
    named = re.findall(r"[a-z]+_[a-z]+|invalid|conflict|closing", Denied.__doc__ or "")
    assert len(named) == 14
    assert set(named) <= set(refusals.STATUS)


def test_a_denial_keeps_its_words_and_its_problems() -> None:
    problems = (Problem("a", "is wrong"),)
    refused = refusals.of_denied(Denied("revision_moved", "the revision is 13, not 12", problems))
    assert (refused.status, refused.message) == (412, "the revision is 13, not 12")
    assert refused.problems == problems


def test_problems_are_shown_only_where_there_are_some() -> None:
    assert refusals.document(Refused("conflict", "no")) == {
        "error": {"code": "conflict", "message": "no"}
    }
    assert refusals.document(refusals.invalid([Problem("a", "is wrong")])) == {
        "error": {
            "code": "invalid",
            "message": "a: is wrong",
            "problems": [{"path": "a", "message": "is wrong"}],
        }
    }

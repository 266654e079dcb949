from dataclasses import replace

import orjson
import pytest

from admin import views
from gateway.control import (
    DrainView,
    Event,
    InstanceView,
    LeaseView,
    ModelView,
    Problem,
    Receipt,
    StatusView,
)
from tests.admin.fakes import DRAIN, EVENTS, INSTANCE, LEASE, LOADING, LOST, MODEL, STATUS


@pytest.mark.parametrize(
    ("kind", "view", "document"),
    [
        (StatusView, STATUS, views.status(STATUS)),
        (InstanceView, INSTANCE, views.instance(INSTANCE)),
        (InstanceView, LOADING, views.instance(LOADING)),
        (ModelView, MODEL, views.model(MODEL)),
        (DrainView, replace(DRAIN, lost=(LOST,)), views.drain(replace(DRAIN, lost=(LOST,)))),
        (LeaseView, LEASE, views.lease(LEASE)),
        (Event, EVENTS[0], views.event(EVENTS[0])),
    ],
    ids=["status", "instance", "loading", "model", "drain", "lease", "event"],
)
def test_a_view_comes_back_from_its_document(
    kind: type, view: object, document: views.Document
) -> None:
    assert views.read(kind, orjson.loads(orjson.dumps(document))) == view


def test_what_is_not_known_is_null() -> None:
    assert views.instance(INSTANCE)["ready_in_s"] is None
    assert views.instance(LOADING)["ready_in_s"] == 12.0
    assert views.instance(LOADING)["pid"] is None
    assert views.instance(LOADING)["device"] is None


def test_a_field_of_a_newer_gateway_is_passed_over() -> None:
    newer = {**views.model(MODEL), "colour": "blue"}
    assert views.read(ModelView, orjson.loads(orjson.dumps(newer))) == MODEL


def test_a_document_without_a_field_is_no_view() -> None:
    document = views.lease(LEASE)
    del document["stage"]
    with pytest.raises(KeyError):
        views.read(LeaseView, document)


def test_a_receipt_says_whether_it_was_for_real() -> None:
    made = Receipt(8, 13, ("a",))
    assert views.receipt(made, True) == {
        "generation": 8,
        "revision": 13,
        "changes": ("a",),
        "dry_run": True,
    }


def test_a_checked_config_is_ok_only_without_problems() -> None:
    assert views.checked([]) == {"ok": True, "problems": []}
    assert views.checked([Problem("a.b", "is wrong"), Problem("c", "is wrong", 7)]) == {
        "ok": False,
        "problems": [
            {"path": "a.b", "message": "is wrong"},
            {"path": "c", "message": "is wrong", "line": 7},
        ],
    }


def test_a_problem_comes_back_with_its_line_or_without() -> None:
    for one in (Problem("a", "is wrong"), Problem("c", "is wrong", 7)):
        back = views.read(Problem, views.problem(one))
        assert (back.path, back.message, back.line) == (one.path, one.message, one.line)

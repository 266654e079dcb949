from typing import Any

import pytest

from admin.fields import fields_of


@pytest.mark.parametrize("given", [{}, {"a": None}])
def test_null_and_nothing_are_the_same(given: dict[str, Any]) -> None:
    fields = fields_of(given)
    assert not fields.gives("a")
    assert fields.finish() == ()


def test_false_and_zero_and_an_empty_text_are_values() -> None:
    for value in (False, 0, ""):
        assert fields_of({"a": value}).gives("a")


def test_a_problem_inside_a_list_has_its_whole_path() -> None:
    fields = fields_of({"rows": [{"a": 1}, {"b": [{"a": True}]}]})
    first, second = fields.inner("rows", 2)
    assert (first.count("a", 1), first.finish()) == (1, ())
    (inner,) = second.inner("b", 1)
    inner.count("a", 9)
    assert [str(one) for one in inner.finish()] == [
        "rows[1].b[0].a: must be a whole number from 0 to 9, not true"
    ]


def test_what_nobody_took_is_said_once() -> None:
    fields = fields_of({"a": 1}, "at")
    said = [str(one) for one in fields.finish()]
    assert said == ["at.a: is not a key that this request knows"]
    assert [str(one) for one in fields.finish()] == said

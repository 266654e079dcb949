"""Single JSON values, right and wrong, and how a mistake shows them."""

import pytest

from backends.errors import RequestInvalid
from backends.openai.values import as_object, flag, number, refuse, shown, whole


def test_a_value_that_is_missing_or_null_is_its_default() -> None:
    for fields in ({}, {"x": None}):
        assert flag(fields, "x") is False
        assert whole(fields, "x", 1, 3, 2) == 2
        assert number(fields, "x", 0.0, 1.0, 0.5) == 0.5


def test_numbers_are_taken_up_to_their_limits() -> None:
    assert [whole({"x": n}, "x", 1, 3, 2) for n in (1, 3)] == [1, 3]
    assert [number({"x": n}, "x", 0.0, 1.0, 0.5) for n in (0, 1)] == [0.0, 1.0]


@pytest.mark.parametrize("value", [0, 4, True, 2.0, "2", [], {}, 10**400])
def test_a_whole_number_is_nothing_else(value: object) -> None:
    with pytest.raises(RequestInvalid, match=r"^x: must be a whole number from 1 to 3, not "):
        whole({"x": value}, "x", 1, 3, 2)


@pytest.mark.parametrize("value", [-1, 1.5, True, "1", [], {}, float("inf"), float("nan"), 10**400])
def test_a_number_is_within_its_limits(value: object) -> None:
    with pytest.raises(RequestInvalid, match=r"^x: must be a number from 0 to 1, not "):
        number({"x": value}, "x", 0.0, 1.0, 0.5)


@pytest.mark.parametrize("value", [0, 1, "true", [], {}])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(RequestInvalid, match=r"^y\.x: must be true or false, not "):
        flag({"x": value}, "x", "y.")


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_is_an_object(body: object) -> None:
    with pytest.raises(RequestInvalid, match=r"^the body must be a JSON object, not ") as caught:
        as_object(body)
    assert caught.value.path == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ({"a": 1}, "an object"),
        ([1], "a list"),
        ([], "an empty list"),
        ("a" * 40, f"{'a' * 40!r}"),
        ("a" * 41, f"{'a' * 40!r}..."),
        (1.5, "1.5"),
        (10**100, "1" + "0" * 39),
    ],
)
def test_a_value_is_shown_as_it_was_written_but_never_at_length(value: object, text: str) -> None:
    assert shown(value) == text
    with pytest.raises(RequestInvalid) as caught:
        refuse("a.b", "must be else", value)
    assert str(caught.value) == f"a.b: must be else, not {text}"

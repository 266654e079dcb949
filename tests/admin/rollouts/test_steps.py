import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.rollouts.steps import duration, step


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5", {"weight": 5.0}),
        ("2.5%", {"weight": 2.5}),
        ("5:600", {"weight": 5.0, "hold_s": 600.0}),
        ("5:10m", {"weight": 5.0, "hold_s": 600.0}),
        ("25:600:200", {"weight": 25.0, "hold_s": 600.0, "requests_min": 200}),
        ("25::200", {"weight": 25.0, "requests_min": 200}),
        ("25:gate", {"weight": 25.0, "gate": True}),
        ("25:1h:200:gate", {"weight": 25.0, "hold_s": 3600.0, "requests_min": 200, "gate": True}),
    ],
)
def test_a_step_is_what_was_typed_and_nothing_more(text: str, found: dict[str, Any]) -> None:
    assert step(text) == found
    assert step(text, gate=True) == {**found, "gate": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": nothing is not a weight"),
        ("x", "x: x is not a weight"),
        ("nan", "nan: nan is not a weight"),
        ("-1", "-1: -1 is not a weight"),
        ("5:x", "x is not a duration, as in 600, 90s, 10m or 2h"),
        ("5:-1", "-1: -1 is not a duration"),
        ("5:1d", "1d is not a duration, as in 600, 90s, 10m or 2h"),
        ("5:1:x", "5:1:x: x is not a count of requests"),
        ("5:1:2:3", "5:1:2:3 is not WEIGHT:HOLD:REQUESTS:gate, as in 25:600:200:gate"),
        ("5:gate:1", "gate is not a duration, as in 600, 90s, 10m or 2h"),
    ],
)
def test_what_is_no_step_is_said_with_its_part(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        step(text)


@given(st.integers(0, 10_000), st.sampled_from([("", 1), ("s", 1), ("m", 60), ("h", 3600)]))
def test_a_duration_is_its_number_times_its_unit(number: int, unit: tuple[str, int]) -> None:
    assert duration(f"{number}{unit[0]}") == number * unit[1]

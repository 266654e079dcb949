import pytest

from gateway.rollout.memory import GB, Held, check


@pytest.mark.parametrize(
    ("peaks", "needs", "ratio_max", "passed"),
    [
        ([2.0], 2.0, 1.2, True),
        ([2.4], 2.0, 1.2, True),
        ([2.5], 2.0, 1.2, False),
        ([1.0, 2.5], 2.0, 1.2, False),
        ([2.5], 2.0, 0.0, None),
        ([2.5], 0.0, 1.2, None),
        ([0.0], 2.0, 1.2, None),
        ([], 2.0, 1.2, None),
    ],
)
def test_the_largest_peak_is_held_against_what_was_expected(
    peaks: list[float], needs: float, ratio_max: float, passed: bool | None
) -> None:
    held = [Held(f"m-2-{at}", 0, int(peak * GB)) for at, peak in enumerate(peaks)]
    found = check(held, int(needs * GB), ratio_max)
    assert (None if found is None else found.passed) == passed


def test_an_instance_that_says_no_peak_is_known_by_what_it_uses() -> None:
    found = check([Held("m-2-0", 3 * GB, 0)], 2 * GB, 1.2)
    assert found is not None
    assert found.text == (
        "m-2-0 has held 3.00 GB, 2.00 GB were expected (allowed are 1.2 times as much)"
    )

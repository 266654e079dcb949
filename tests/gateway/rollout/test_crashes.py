from gateway.rollout.counts import NOTHING, Counts
from gateway.rollout.crashes import NO_RESTARTS, PER_HOUR, Restarts, counted


def after(crashes: int, hours: float, stable: Counts = NOTHING) -> Restarts:
    """So many crashes, evenly over so many hours of an instance."""
    restarts = NO_RESTARTS
    for _ in range(crashes):
        restarts = counted(restarts, Counts(restarts=1, lived_s=hours * 3600 / crashes), stable)
    return restarts


def test_crashes_as_often_as_is_let_pass_prove_nothing() -> None:
    assert after(crashes=10, hours=10 / PER_HOUR).wager.wealth_log < 1


def test_a_crash_a_minute_is_proof() -> None:
    assert after(crashes=4, hours=4 / 60).wager.wealth_log > 8


def test_stable_that_crashes_as_often_excuses_the_canary() -> None:
    stable = Counts(restarts=1, lived_s=60)
    assert after(crashes=10, hours=10 / 60, stable=stable).wager.wealth_log < 1


def test_without_a_clock_crashes_are_counted_all_the_same() -> None:
    assert after(crashes=3, hours=0).wager.wealth_log > 8
    assert after(crashes=3, hours=0).canary == 3


def test_restarts_survive_json() -> None:
    restarts = after(crashes=3, hours=1, stable=Counts(restarts=2, lived_s=7.5))
    assert Restarts.from_json(restarts.to_json()) == restarts

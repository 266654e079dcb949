from gateway.rollout.analysis import Evidence, Ground, Kind, Rules, Verdict, Window, verdict, weigh
from gateway.rollout.counts import Counts

RULES = Rules()


def judged(*batches: tuple[Counts, Counts | None], hold_s: float = 1e9) -> Verdict:
    """The verdict after the batches, or the first that rolls back."""
    evidence, canary, stable = Evidence(), Counts(), Counts()
    said = None
    for mine, theirs in batches:
        evidence = weigh(RULES, evidence, mine, theirs)
        evidence = Evidence.from_json(evidence.to_json())
        canary, stable = canary + mine, stable + (theirs or Counts())
        said = verdict(RULES, evidence, Window(canary, stable, len(batches), hold_s, 100))
        if said.kind is Kind.ROLL_BACK:
            return said
    assert said is not None
    return said


def test_a_canary_that_answers_nothing_is_rolled_back_at_its_third_failure() -> None:
    bad = (Counts(failed=1), Counts(served=19))
    assert judged(bad, bad).kind is Kind.CONTINUE
    said = judged(bad, bad, bad)
    assert (said.kind, said.ground) == (Kind.ROLL_BACK, Ground.FAILURES)
    assert said.reason.startswith("3 of 3 requests failed")


def test_an_outage_of_both_rolls_nothing_back() -> None:
    both = (Counts(failed=5), Counts(failed=95))
    assert judged(*[both] * 20).kind is Kind.CONTINUE


def test_without_stable_the_limit_alone_decides() -> None:
    assert judged(*[(Counts(served=1, failed=1), None)] * 6).kind is Kind.ROLL_BACK


def test_silence_is_inconclusive() -> None:
    said = judged((Counts(), Counts(served=500)), hold_s=0)
    assert (said.kind, said.reason) == (Kind.INCONCLUSIVE, "0 of 100 requests seen")


def test_enough_requests_and_the_whole_hold_are_a_pass() -> None:
    good = (Counts(served=50), Counts(served=950))
    assert judged(good, hold_s=0).kind is Kind.INCONCLUSIVE
    assert judged(good, good, hold_s=2).kind is Kind.PASS
    assert judged(good, good, hold_s=3).kind is Kind.CONTINUE


def test_a_canary_three_times_as_slow_is_rolled_back() -> None:
    fast, slow = [0] * 100, [0] * 100
    fast[60], slow[73] = 19, 1
    said = judged(
        *[(Counts(served=1, latency=tuple(slow)), Counts(served=19, latency=tuple(fast)))] * 30
    )
    assert (said.kind, said.ground) == (Kind.ROLL_BACK, Ground.LATENCY)


def test_a_crash_loop_is_rolled_back() -> None:
    died = (Counts(restarts=1, lived_s=10), Counts(lived_s=10))
    assert judged(died, died).kind is Kind.CONTINUE
    assert judged(died, died, died).ground is Ground.RESTARTS

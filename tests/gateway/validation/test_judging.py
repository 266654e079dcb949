"""What a validation may conclude: laws over any results, and each rule at its edge."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.validation.answers import Answer
from gateway.validation.judging import (
    NAMED_MAX,
    PAIRS_MIN,
    Outcome,
    Pair,
    Report,
    Rules,
    Tried,
    judge,
    quantile,
    unusable,
)

SAID = Answer(("a", "b", "c", "d"))
SERVED = Tried(Outcome.SERVED, "", 0.1, 0.05, SAID)
FAILED = Tried(Outcome.FAILED, "500: broken")
DENIED = Tried(Outcome.DENIED, "400: too long")
REFUSED = Tried(Outcome.REFUSED, "503, no room")
STRICT = Rules(answers="exact")

tries = st.builds(
    Tried,
    st.sampled_from(Outcome),
    st.just("why"),
    st.floats(0.001, 100),
    st.floats(0.001, 100),
    st.sampled_from([SAID, Answer(("a",)), Answer(), Answer(numbers=(1.0,))]),
)
pairs = st.lists(st.builds(Pair, st.just(1), st.just("/"), tries, st.none() | tries), max_size=20)
rules = st.builds(
    Rules,
    st.floats(0, 1),
    st.floats(0, 10),
    st.sampled_from(["off", "exact", "similar"]),
    st.floats(0, 1),
)


def _pairs(*both: tuple[Tried, Tried | None]) -> list[Pair]:
    return [Pair(at, "/v1/completions", new, old) for at, (new, old) in enumerate(both, 1)]


def _check(report: Report, name: str) -> tuple[bool, str]:
    ((passed, text),) = [(one.passed, one.text) for one in report.checks if one.name == name]
    return passed, text


# --- laws ----------------------------------------------------------------------------------------


@given(pairs, rules, st.integers(0, 5))
def test_a_verdict_is_that_of_its_checks_and_its_reason_names_the_failed_ones(
    given_pairs: list[Pair], given_rules: Rules, untried: int
) -> None:
    report = judge(given_pairs, given_rules, untried)
    failed = [one for one in report.checks if not one.passed]
    assert report.passed == (not failed)
    assert all(one.text in report.reason for one in failed)
    assert report.reason


@given(pairs, rules)
def test_silence_is_never_a_pass(given_pairs: list[Pair], given_rules: Rules) -> None:
    served = [pair for pair in given_pairs if pair.new.outcome is Outcome.SERVED]
    report = judge(given_pairs, given_rules)
    if not served and given_rules.error_ratio_max < 1:
        failed_there = any(pair.old_outcome is Outcome.FAILED for pair in given_pairs)
        assert not report.passed or failed_there
    if report.passed:
        assert any(
            pair.new.outcome in {Outcome.SERVED, Outcome.FAILED, Outcome.DENIED}
            for pair in given_pairs
        )


@given(pairs, rules.filter(lambda given_rules: given_rules.error_ratio_max < 1))
def test_one_more_failure_never_makes_it_pass(given_pairs: list[Pair], given_rules: Rules) -> None:
    if not _check(judge(given_pairs, given_rules), "errors")[0]:
        more = [*given_pairs, *_pairs((FAILED, SERVED))]
        assert not _check(judge(more, given_rules), "errors")[0]


@given(pairs, rules)
def test_figures_add_up(given_pairs: list[Pair], given_rules: Rules) -> None:
    report = judge(given_pairs, given_rules)
    for side in (report.new, report.old):
        if side is not None:
            assert side.tried == side.served + side.failed + side.denied + side.refused
            assert (side.p50_s is None) == (side.served == 0)
    assert report.new.tried == len(given_pairs)
    assert (report.old is None) == all(pair.old is None for pair in given_pairs)
    assert len(report.named) <= NAMED_MAX + 1


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_a_value_that_the_share_does_not_exceed(
    values: list[float], share: float
) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert sum(one <= found for one in ordered) >= share * len(ordered)
    assert sum(one < found for one in ordered) < share * len(ordered)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("both", "error_ratio_max", "passed"),
    [
        ([(SERVED, SERVED)] * 9, 0.0, True),
        ([(SERVED, SERVED)] * 9 + [(FAILED, SERVED)], 0.0, False),
        ([(SERVED, SERVED)] * 9 + [(FAILED, SERVED)], 0.1, True),
        ([(SERVED, SERVED)] * 8 + [(FAILED, SERVED)] * 2, 0.1, False),
        # As many as the old version is no worse, whatever the limit says.
        ([(SERVED, SERVED)] * 8 + [(FAILED, FAILED)] * 2, 0.0, True),
        # What the old one serves and the new one denies is a failure; what both deny says nothing.
        ([(SERVED, SERVED)] * 9 + [(DENIED, SERVED)], 0.0, False),
        ([(SERVED, SERVED)] * 9 + [(DENIED, DENIED)], 0.0, True),
        ([(DENIED, DENIED)] * 9, 0.5, False),
        ([(REFUSED, SERVED)] * 9, 0.5, False),
        ([(SERVED, None)] * 9, 0.0, True),
        ([(FAILED, None)] + [(SERVED, None)] * 9, 0.0, False),
        ([], 0.5, False),
    ],
)
def test_failures_are_held_against_the_limit_and_the_old_version(
    both: list[tuple[Tried, Tried | None]], error_ratio_max: float, passed: bool
) -> None:
    report = judge(_pairs(*both), Rules(error_ratio_max))
    assert _check(report, "errors")[0] == passed


def test_an_error_check_says_its_figures() -> None:
    both = [(SERVED, SERVED)] * 7 + [(FAILED, SERVED)] * 3
    assert _check(judge(_pairs(*both), Rules(0.1), 2), "errors")[1] == (
        "3 of 10 requests failed, of the old version 0 of 10; for 2 there was no time "
        "(30.0%, allowed is 10.0%)"
    )
    assert _check(judge((), Rules(), 7), "errors")[1] == (
        "no request was answered in time, 7 were to be tried"
    )
    both = [(DENIED, DENIED)] * 2 + [(REFUSED, SERVED)]
    assert _check(judge(_pairs(*both), Rules()), "errors")[1] == (
        "none of 3 requests says anything: 2 were denied and 1 found no room"
    )


# --- latency -------------------------------------------------------------------------------------


def _slower(by: float) -> tuple[Tried, Tried]:
    return replace(SERVED, latency_s=SERVED.latency_s * by), SERVED


@pytest.mark.parametrize(("by", "passed"), [(1.0, True), (2.0, True), (2.1, False)])
def test_the_median_is_held_against_that_of_the_old_version(by: float, passed: bool) -> None:
    both = [_slower(by)] * PAIRS_MIN
    report = judge(_pairs(*both), Rules(latency_ratio_max=2.0))
    assert _check(report, "latency")[0] == passed
    assert f"is {by:.2f} times that of the old version" in _check(report, "latency")[1]


def test_a_few_slow_ones_are_not_the_median() -> None:
    both = [_slower(50.0)] * 4 + [_slower(1.0)] * 5
    assert judge(_pairs(*both), Rules()).passed


def test_fewer_pairs_than_can_be_compared_prove_nothing_and_say_so() -> None:
    report = judge(_pairs(*[_slower(50.0)] * (PAIRS_MIN - 1)), Rules())
    assert _check(report, "latency") == (
        True,
        f"not compared: 4 requests were served by both versions, {PAIRS_MIN} can be compared",
    )


def test_times_of_what_only_one_version_served_are_not_compared() -> None:
    slow_alone = (replace(SERVED, latency_s=99.0), FAILED)
    both = [_slower(1.0)] * PAIRS_MIN + [slow_alone] * 20
    assert _check(judge(_pairs(*both), Rules(1.0)), "latency")[0]


def test_latency_is_not_looked_at_when_the_rules_say_so() -> None:
    report = judge(_pairs(*[_slower(50.0)] * PAIRS_MIN), Rules(latency_ratio_max=0))
    assert [one.name for one in report.checks] == ["errors"]


# --- answers -------------------------------------------------------------------------------------


def _says(*words: str) -> Tried:
    return replace(SERVED, answer=Answer(words))


@pytest.mark.parametrize(
    ("new", "given_rules", "passed"),
    [
        (SERVED, STRICT, True),
        (_says("a", "b", "c", "x"), STRICT, False),
        (_says("a", "b", "c", "x"), Rules(answers="similar", similarity=0.75), True),
        (_says("a", "b", "c", "x"), Rules(answers="similar", similarity=0.76), False),
        (_says("a", "b", "c", "x"), Rules(answers="off"), True),
        (_says(), STRICT, False),
        (_says(), Rules(answers="similar", similarity=0.1), False),
    ],
)
def test_answers_are_held_against_those_of_the_old_version(
    new: Tried, given_rules: Rules, passed: bool
) -> None:
    report = judge(_pairs((SERVED, SERVED), (new, SERVED)), given_rules)
    assert report.passed == passed
    assert ("line 2, /v1/completions: the answers are" in " ".join(report.named)) != passed


def test_answers_that_say_nothing_on_both_sides_are_not_compared() -> None:
    report = judge(_pairs((_says(), _says())), STRICT)
    assert _check(report, "answers") == (True, "not compared: no two answers could be compared")


def test_what_was_not_compared_is_not_said_to_have_passed() -> None:
    """The reason said "latency and answers passed" of versions that nobody had compared."""
    served = _says("a")
    alone = judge(_pairs(*[(served, None)] * 9), STRICT)
    assert alone.passed
    for name in ("latency", "answers"):
        why = "not compared: there is no instance of the old version to compare with"
        assert _check(alone, name) == (True, why)
    said = "9 requests were tried: errors passed; not compared: latency and answers"
    assert alone.reason == said
    few = judge(_pairs(*[(served, served)] * 2), STRICT)
    assert few.reason == "2 requests were tried: errors and answers passed; not compared: latency"


def test_samples_to_look_at_are_named_and_counted() -> None:
    report = judge(_pairs(*[(FAILED, SERVED)] * (NAMED_MAX + 3)), Rules())
    assert report.named[0] == "line 1, /v1/completions: 500: broken"
    assert report.named[-1] == "and 3 more"


def test_a_validation_that_could_not_be_made_has_failed() -> None:
    report = unusable("samples.jsonl cannot be read")
    assert (report.passed, report.reason) == (False, "samples.jsonl cannot be read")
    assert _check(report, "samples")[0] is False

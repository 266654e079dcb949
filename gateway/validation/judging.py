"""Samples that were tried on two versions -> a report with a verdict.

Floor 1, pure.   Flow: replay -> [judge] -> CheckView -> the rollout
A check has to be earned: when nothing was answered, nothing has passed. What cannot be said of the
new version alone (latency, answers) is judged where both versions have answered; fewer than
PAIRS_MIN of those prove no difference in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import Final, Literal

from gateway.rollouts import CheckView
from gateway.validation.answers import Answer, alike, comparable

PAIRS_MIN: Final = 5  # the median of fewer is chance
NOT_COMPARED: Final = "not compared"  # what a check that could not be made begins with
NAMED_MAX: Final = 10  # samples that a report names
NO_ANSWER: Final = Answer()
Comparison = Literal["off", "exact", "similar"]


class Outcome(Enum):
    SERVED = "served"
    FAILED = "failed"
    DENIED = "denied"  # a 4xx: the sample is wrong, or the version knows less
    REFUSED = "refused"  # it had no room, again and again: says nothing


@dataclass(frozen=True, slots=True)
class Tried:
    """One sample at one instance."""

    outcome: Outcome
    cause: str = ""  # of what is not served
    latency_s: float = 0.0
    first_byte_s: float = 0.0
    answer: Answer = NO_ANSWER


@dataclass(frozen=True, slots=True)
class Pair:
    """One sample at both versions; `old` is None when there was none to ask."""

    line: int
    path: str
    new: Tried
    old: Tried | None = None

    @property
    def both_served(self) -> bool:
        return self.new.outcome is Outcome.SERVED and self.old_outcome is Outcome.SERVED

    @property
    def old_outcome(self) -> Outcome | None:
        return self.old.outcome if self.old is not None else None


@dataclass(frozen=True, slots=True)
class Rules:
    """As `[model.rollout.validation]` in config.toml says them."""

    error_ratio_max: float = 0.0
    latency_ratio_max: float = 2.0  # of the medians; 0: not looked at
    answers: Comparison = "off"
    similarity: float = 0.9


@dataclass(frozen=True, slots=True)
class Side:
    """What one version did with all samples."""

    tried: int
    served: int
    failed: int
    denied: int
    refused: int
    p50_s: float | None
    p95_s: float | None
    first_byte_p95_s: float | None


@dataclass(frozen=True, slots=True)
class Report:
    passed: bool
    reason: str  # a sentence
    checks: tuple[CheckView, ...]
    new: Side
    old: Side | None
    named: tuple[str, ...]  # samples to look at, a line each


def unusable(text: str) -> Report:
    """Of a validation that could not be made: nothing was seen, so nothing has passed."""
    nobody = _side(())
    return Report(False, text, (CheckView("samples", False, text),), nobody, None, ())


def judge(pairs: Sequence[Pair], rules: Rules, untried: int = 0) -> Report:
    """`untried`: samples that there was no time for."""
    checks = [_errors(pairs, rules, untried)]
    if rules.latency_ratio_max:
        checks += _latency(pairs, rules)
    if rules.answers != "off":
        checks += _answers(pairs, rules)
    failed = [one for one in checks if not one.passed]
    old = [pair.old for pair in pairs if pair.old is not None]
    return Report(
        passed=not failed,
        reason="; ".join(one.text for one in failed) or _passed(pairs, checks),
        checks=tuple(checks),
        new=_side([pair.new for pair in pairs]),
        old=_side(old) if old else None,
        named=_named(pairs, rules),
    )


def _passed(pairs: Sequence[Pair], checks: Sequence[CheckView]) -> str:
    apart = [one.name for one in checks if one.text.startswith(NOT_COMPARED)]
    names = [one.name for one in checks if one.name not in apart]
    listed = " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]
    silent = f"; {NOT_COMPARED}: {' and '.join(apart)}" if apart else ""
    return f"{len(pairs)} requests were tried: {listed} passed{silent}"


# --- checks --------------------------------------------------------------------------------------


def blames(pair: Pair) -> bool:
    """Whether the new version failed: also when it denies what the old one serves."""
    if pair.new.outcome is Outcome.DENIED:
        return pair.old_outcome is Outcome.SERVED
    return pair.new.outcome is Outcome.FAILED


def counts(pair: Pair) -> bool:
    """Whether it says anything of the new version."""
    return pair.new.outcome is Outcome.SERVED or blames(pair)


def _errors(pairs: Sequence[Pair], rules: Rules, untried: int) -> CheckView:
    counted = [pair for pair in pairs if counts(pair)]
    if not counted:
        return CheckView("errors", False, _nothing(pairs, untried))
    failed = sum(blames(pair) for pair in counted)
    asked = [pair for pair in counted if pair.old_outcome in {Outcome.SERVED, Outcome.FAILED}]
    old_failed = sum(pair.old_outcome is Outcome.FAILED for pair in asked)
    allowed = max(rules.error_ratio_max, old_failed / len(asked) if asked else 0.0)
    text = f"{failed} of {len(counted)} requests failed"
    if asked:
        text += f", of the old version {old_failed} of {len(asked)}"
    if untried:
        text += f"; for {untried} there was no time"
    ratio = failed / len(counted)
    if ratio > allowed:
        text += f" ({ratio:.1%}, allowed is {allowed:.1%})"
    return CheckView("errors", ratio <= allowed, text)


def _nothing(pairs: Sequence[Pair], untried: int) -> str:
    """Why there is nothing to judge by."""
    if not pairs:
        return f"no request was answered in time, {untried} were to be tried"
    refused = sum(pair.new.outcome is Outcome.REFUSED for pair in pairs)
    denied = len(pairs) - refused
    parts = [f"{denied} were denied"] if denied else []
    parts += [f"{refused} found no room"] if refused else []
    return f"none of {len(pairs)} requests says anything: {' and '.join(parts)}"


def _latency(pairs: Sequence[Pair], rules: Rules) -> list[CheckView]:
    both = [pair for pair in pairs if pair.both_served]
    if len(both) < PAIRS_MIN:
        text = f"{len(both)} requests were served by both versions, {PAIRS_MIN} can be compared"
        return [_not_compared("latency", pairs, text)]
    new = sorted(pair.new.latency_s for pair in both)
    old = sorted(pair.old.latency_s for pair in both if pair.old is not None)
    ratio = _ratio(quantile(new, 0.5), quantile(old, 0.5))
    high = _ratio(quantile(new, 0.95), quantile(old, 0.95))
    text = f"p50 {_time(quantile(new, 0.5))} is {ratio:.2f} times that of the old version"
    text += f", p95 {_time(quantile(new, 0.95))} {high:.2f} times"
    passed = ratio <= rules.latency_ratio_max
    if not passed:
        text += f" (allowed are {rules.latency_ratio_max:g} times of p50)"
    return [CheckView("latency", passed, text)]


def _not_compared(name: str, pairs: Sequence[Pair], why: str) -> CheckView:
    """It stands against nobody, and is not said to have passed."""
    if pairs and all(pair.old is None for pair in pairs):
        why = "there is no instance of the old version to compare with"
    return CheckView(name, True, f"{NOT_COMPARED}: {why}")


def _ratio(new: float, old: float) -> float:
    return new / old if old > 0 else 1.0


def _answers(pairs: Sequence[Pair], rules: Rules) -> list[CheckView]:
    measured = [(pair, one) for pair in pairs if (one := similarity(pair)) is not None]
    if not measured:
        return [_not_compared("answers", pairs, "no two answers could be compared")]
    wanted = 1.0 if rules.answers == "exact" else rules.similarity
    short = [one for _, one in measured if one < wanted]
    least = min(one for _, one in measured)
    if rules.answers == "exact":
        text = f"{len(short)} of {len(measured)} answers differ from those of the old version"
    else:
        text = (
            f"{len(short)} of {len(measured)} answers are less than {wanted:.2f} like those of the "
            f"old version, the least alike {least:.2f}"
        )
    return [CheckView("answers", not short, text)]


def similarity(pair: Pair) -> float | None:
    """How alike the two answers are; None when they cannot be compared."""
    if not pair.both_served or pair.old is None:
        return None
    if not comparable(pair.new.answer, pair.old.answer):
        both_empty = pair.new.answer == pair.old.answer
        return None if both_empty else 0.0  # one of them says nothing
    return alike(pair.new.answer, pair.old.answer)


# --- figures -------------------------------------------------------------------------------------


def _side(tried: Sequence[Tried]) -> Side:
    by = {kind: sum(one.outcome is kind for one in tried) for kind in Outcome}
    served = [one for one in tried if one.outcome is Outcome.SERVED]
    latency = sorted(one.latency_s for one in served)
    first = sorted(one.first_byte_s for one in served)
    return Side(
        len(tried),
        by[Outcome.SERVED],
        by[Outcome.FAILED],
        by[Outcome.DENIED],
        by[Outcome.REFUSED],
        quantile(latency, 0.5) if latency else None,
        quantile(latency, 0.95) if latency else None,
        quantile(first, 0.95) if first else None,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def _named(pairs: Sequence[Pair], rules: Rules) -> tuple[str, ...]:
    found = []
    wanted = 1.0 if rules.answers == "exact" else rules.similarity
    for pair in pairs:
        alike_by = similarity(pair) if rules.answers != "off" else None
        if blames(pair):
            found.append(f"line {pair.line}, {pair.path}: {pair.new.cause}")
        elif alike_by is not None and alike_by < wanted:
            found.append(f"line {pair.line}, {pair.path}: the answers are {alike_by:.2f} alike")
    more = len(found) - NAMED_MAX
    return (*found[:NAMED_MAX], *((f"and {more} more",) if more > 0 else ()))


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"

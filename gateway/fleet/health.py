"""What the gateway has found about an instance: an opinion, moved by evidence.

Floor 1, pure.   Flow: poll -> registry [health] -> table
Three failures down, two successes up, so that one lost packet moves nothing.
A refused dial makes an instance suspect and the next poll decides. Stuck is another kind of
suspect: it answers every poll and computes nothing, so polls cannot clear it, only movement can.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from gateway.records import Health

HELD_S: Final = 10.0  # long enough to spare most requests, short enough to be back without an order


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers of `[poll]` and `[timeouts]` that health is judged by."""

    failures: int
    successes: int
    stuck_s: float
    first_byte_s: float  # 0: none
    recent_s: float  # movement younger than this excuses a slow answer


@dataclass(frozen=True, slots=True)
class Opinion:
    """One instance's health, why, and the evidence so far."""

    health: Health = Health.UNKNOWN
    reason: str = "not seen yet"
    failures: int = 0  # polls in a row
    successes: int = 0  # polls in a row, counted on the way up only
    stuck: bool = False
    progress_total: int = 0
    received_bytes: int = 0
    held_until: float = -inf  # suspect for its requests: no poll clears that before
    moved_at: float = 0.0  # last movement, or last time it had nothing to do
    progressed_at: float = -inf  # last movement


UNSEEN: Final = Opinion()


def answered(opinion: Opinion, rules: Rules, now: float = inf) -> Opinion:
    """After a poll was answered. An instance that was never seen is good on its first reading."""
    if opinion.stuck or (opinion.health is Health.SUSPECT and now < opinion.held_until):
        return replace(opinion, failures=0)
    if opinion.health in {Health.UNHEALTHY, Health.LOST}:
        successes = opinion.successes + 1
        if successes < rules.successes:
            reason = f"answered {successes} of {rules.successes} polls in a row"
            return replace(
                opinion, health=Health.UNHEALTHY, reason=reason, successes=successes, failures=0
            )
    return _good(opinion)


def _good(opinion: Opinion) -> Opinion:
    if opinion.health is Health.GOOD and not opinion.failures:
        return opinion  # by far the most frequent case, and it costs nothing
    return replace(opinion, health=Health.GOOD, reason="", failures=0, successes=0)


def heard(opinion: Opinion) -> Opinion:
    """After a reading that nobody asked for: a watch message. Evidence of life, no more.

    Two messages may come in one millisecond, so they do not count as two answers: only polls bring
    an unhealthy instance back.
    """
    if opinion.health in {Health.UNKNOWN, Health.GOOD}:
        return _good(opinion)
    return replace(opinion, failures=0)


def unanswered(opinion: Opinion, reason: str, slow: bool, now: float, rules: Rules) -> Opinion:
    """After a poll failed. `slow`: the deadline passed, as opposed to a refusal."""
    if slow and now - opinion.progressed_at < rules.recent_s:
        return opinion  # busy and moving: slow to answer is not dead
    failures = opinion.failures + 1
    if opinion.health is Health.LOST:  # the stronger word of the two
        return replace(opinion, failures=failures, successes=0)
    decides = opinion.health is Health.SUSPECT and not opinion.stuck
    if failures >= rules.failures or decides:
        return replace(
            opinion, health=Health.UNHEALTHY, reason=reason, failures=failures, successes=0
        )
    return replace(opinion, failures=failures, successes=0)


def dial_failed(opinion: Opinion, reason: str) -> Opinion:
    """After a worker could not connect: suspect until the next poll decides."""
    if opinion.health is not Health.GOOD:
        return opinion
    return replace(opinion, health=Health.SUSPECT, reason=reason)


def blamed(opinion: Opinion, reason: str, now: float) -> Opinion:
    """After nothing but failures of late. Polls know nothing of requests, so it rests for a while
    and is then tried again.
    """
    if opinion.health is not Health.GOOD:
        return opinion
    return replace(opinion, health=Health.SUSPECT, reason=reason, held_until=now + HELD_S)


@dataclass(frozen=True, slots=True)
class Streak:
    """Totals of one incarnation when it served a request last."""

    served: int
    failed: int


def since(streak: Streak | None, served: int, failed: int) -> tuple[Streak, int]:
    """The streak now, and how many requests have failed in it. None: not looked at before."""
    if streak is None or served != streak.served:
        return Streak(served, failed), 0
    return streak, failed - streak.failed


def lease_ended(opinion: Opinion, reason: str) -> Opinion:
    """After a registered instance has missed its TTL. It may come back, by answering polls."""
    return replace(opinion, health=Health.LOST, reason=reason, successes=0, stuck=False)


def weigh(
    opinion: Opinion,
    progress_total: int,
    received_bytes: int,
    busy: bool,
    now: float,
    rules: Rules,
) -> Opinion:
    """After a reading of what it has computed: stuck, or moving again."""
    moved = (progress_total, received_bytes) != (opinion.progress_total, opinion.received_bytes)
    if moved or not busy:
        freed = opinion.stuck and opinion.health is Health.SUSPECT
        return replace(
            opinion,
            health=Health.GOOD if freed else opinion.health,
            reason="" if freed else opinion.reason,
            stuck=False,
            progress_total=progress_total,
            received_bytes=received_bytes,
            moved_at=now,
            progressed_at=now if moved else opinion.progressed_at,
        )
    # An engine that counts no steps is silent until its first byte, with each request anew: give it
    # that long.
    unseen = max(rules.stuck_s, rules.first_byte_s or inf)
    limit_s = rules.stuck_s if progress_total else unseen
    if now - opinion.moved_at < limit_s or opinion.health is not Health.GOOD:
        return opinion
    reason = f"stuck: in flight, and nothing computed for {now - opinion.moved_at:.0f} s"
    return replace(opinion, health=Health.SUSPECT, reason=reason, stuck=True)

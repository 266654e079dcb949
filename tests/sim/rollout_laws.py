"""The laws of rollouts, as those of `laws.py`: functions of plain facts that raise Broken."""

from collections.abc import Collection, Mapping

from tests.sim.laws import Broken

# What may follow what: DESIGN's picture, written down a second time.
BACK = "rolling_back"
MAY_FOLLOW: Mapping[str, Collection[str]] = {
    "pending": ("checking_capacity", BACK),
    "checking_capacity": ("starting", BACK),
    "starting": ("validating", BACK),
    "validating": ("step", BACK),
    "step": ("step", "paused", "promoting", BACK),
    "paused": ("paused", "step", "promoting", BACK),
    "promoting": ("promoting", "done", BACK),
    BACK: ("rolled_back",),
    "done": (),
    "rolled_back": (),
}
FLOOR = 3


def phases_follow(rollout: str, before: str, after: str) -> None:
    if after not in MAY_FOLLOW[before]:
        raise Broken("phases_follow", f"{rollout} went from {before} to {after}")


def the_store_has_it_first(
    rollout: str, shown: tuple[str, int], kept: Mapping[str, object]
) -> None:
    """`kept`: the store's document of the rollout."""
    if (kept.get("phase"), kept.get("step")) != shown:
        raise Broken("the_store_has_it_first", f"{rollout} is {shown}, the store says {dict(kept)}")


def shares_are_as_promised(
    rollout: str, phase: str, step_weight: float, shares: Mapping[str, float], version: str
) -> None:
    """`shares`: percent of the model's new requests, by version, in a table of an owned model."""
    wanted = {
        "step": step_weight, "paused": step_weight, "promoting": 100.0, "done": 100.0
    }.get(phase, 0.0)  # fmt: skip
    total, mine = sum(shares.values()), shares.get(version, 0.0)
    if abs(total - 100.0) > 1e-6 or abs(mine - wanted) > 1e-6:
        raise Broken("shares_are_as_promised", f"{rollout} is {phase}, the table says {shares}")


def weights_have_one_owner(
    rollout: str, before: Mapping[str, float], after: Mapping[str, float]
) -> None:
    """Called when the rollout owned them all the while, and has not moved."""
    if before != after:
        raise Broken("weights_have_one_owner", f"{rollout}: {before} became {after}")


def the_old_group_stays(rollout: str, phase: str, leaving: Collection[str]) -> None:
    """`leaving`: instances of the old version that are told to go because they are replaced."""
    if leaving and phase != "done":
        raise Broken("the_old_group_stays", f"{rollout} is {phase}, and {sorted(leaving)} leave")


def a_version_that_is_gone_leaves_nothing(
    where: str, named: Collection[str], used: Collection[str]
) -> None:
    """`used`: versions that the file names, that have a weight, an instance, or are blocked."""
    left = sorted(set(named) - set(used))
    if left:
        raise Broken("a_version_that_is_gone_leaves_nothing", f"the {where} has {left}")


def nothing_opens_on_a_blocked_version(
    version: str, since: float | None, excused_until: float, now: float, bound_s: float
) -> None:
    if since is not None and now > max(since, excused_until) + bound_s:
        raise Broken(
            "nothing_opens_on_a_blocked_version",
            f"a request goes to version {version}, blocked for {now - since:.3f} s",
        )


def failures_were_seen(rollout: str, failed: int) -> None:
    """`failed`: attempts of its version that failed since it began; it is rolled back for that."""
    if failed < FLOOR:
        raise Broken("failures_were_seen", f"{rollout} is rolled back for {failed} failures")


def a_pass_was_earned(rollout: str, requests: int, requests_min: int) -> None:
    if requests < requests_min:
        raise Broken("a_pass_was_earned", f"{rollout} passed with {requests} of {requests_min}")

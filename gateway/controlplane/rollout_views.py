"""What admin reads of rollouts, made from the snapshot.

Floor 1, pure.   Flow: snapshot -> [rollout_views] -> admin
"""

from typing import Final

from gateway.config import Rollout as Keys
from gateway.fleet import groups
from gateway.fleet.rollout import Rollout, Transition, Watch
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollout.counts import Counts
from gateway.rollout.machine import ENDED, MOVES, Happened, Phase
from gateway.rollout.slowness import quantile_s
from gateway.rollouts import RolloutView, SideView, StepView, TransitionView

VERBS: Final = {
    "promote": Happened.PROMOTED,
    "pause": Happened.PAUSED,
    "resume": Happened.RESUMED,
    "abort": Happened.ABORTED,
    "retry": Happened.RETRIED,
}
IN_STEP: Final = frozenset({Phase.STEP, Phase.PAUSED})
NEVER: Final = Watch()


def rollouts(fleet: FleetSnapshot, model: str | None, now: float) -> tuple[RolloutView, ...]:
    """Newest first."""
    every = (one for many in fleet.rollouts.values() for one in many if model in {None, one.model})
    ordered = sorted(every, key=lambda one: (one.began, one.number), reverse=True)
    return tuple(rollout(fleet, one, now) for one in ordered)


def rollout(fleet: FleetSnapshot, one: Rollout, now: float) -> RolloutView:
    found, last = fleet.model(one.model), fleet.rollout(one.model) == one
    keys = found.rollout if found else Keys()
    watch = fleet.watches.get(one.model, NEVER) if last else NEVER
    step = one.steps[one.step - 1] if one.step else None
    left = step.requests_min - watch.canary.requests if step and one.phase in IN_STEP else 0
    return RolloutView(
        id=one.id,
        model=one.model,
        version=one.version,
        stable=one.stable,
        phase=one.phase.value,
        step=one.step,
        steps=_steps(one),
        replicas=one.replicas,
        reason=_reason(fleet, one, watch, now),
        began=one.began,
        since=one.since,
        hold_left_s=_hold_left_s(one, keys, watch, now),
        requests_left=max(0, left),
        ended=one.ended,
        canary=_side(fleet, one, one.version, watch.canary, watch.evidence.restarts.canary),
        baseline=_side(fleet, one, one.stable, watch.stable, watch.evidence.restarts.stable),
        checks=one.checks,
        transitions=tuple(
            TransitionView(told.at, told.phase.value, told.step, told.reason, told.by)
            for told in one.transitions
        ),
        verbs=tuple(verb for verb, what in VERBS.items() if last and what in MOVES[one.phase]),
    )


def _reason(fleet: FleetSnapshot, one: Rollout, watch: Watch, now: float) -> str:
    """Why it is where it is; while it waits for something, for what."""
    if one.phase is Phase.STARTING:
        return f"waits for its group: {groups.unready(fleet, one, now)}"
    waits = one.phase in {Phase.CHECKING_CAPACITY, Phase.STEP}
    return watch.said if waits and watch.said else one.reason


def _hold_left_s(one: Rollout, keys: Keys, watch: Watch, now: float) -> float:
    if one.by_hand or one.phase not in {*IN_STEP, Phase.PROMOTING}:
        return 0.0
    whole = keys.keep_old_s if one.phase is Phase.PROMOTING else one.hold_s
    running = watch.read_at is not None and one.phase is not Phase.PAUSED
    since_s = now - watch.read_at if running and watch.read_at is not None else 0.0
    return max(0.0, whole - watch.held_s - since_s)


def _steps(one: Rollout) -> tuple[StepView, ...]:
    found = []
    for number, step in enumerate(one.steps, 1):
        began = next((told for told in one.transitions if _in_step(told, number)), None)
        later = one.transitions[one.transitions.index(began) :] if began else ()
        ended = next((told.at for told in later if not _in_step(told, number)), None)
        found.append(
            StepView(
                step.weight,
                step.hold_s,
                step.requests_min,
                step.gate,
                began.at if began else None,
                ended,
            )
        )
    return tuple(found)


def _in_step(told: Transition, number: int) -> bool:
    return told.phase in IN_STEP and told.step == number


def _side(
    fleet: FleetSnapshot, one: Rollout, version: str, counts: Counts, restarts: int
) -> SideView:
    there = one.phase not in ENDED
    return SideView(
        version=version,
        requests=counts.requests,
        failures=counts.failed,
        failure_ratio=counts.failure_ratio,
        latency_p95_s=quantile_s(counts.latency),
        ttft_p95_s=quantile_s(counts.ttft),
        restarts=restarts,
        ready=groups.ready(fleet, one.model, version) if there else 0,
        instances=len(groups.group(fleet, one.model, version)) if there else 0,
    )

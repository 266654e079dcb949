"""Rollouts and what was counted of them, to documents of the store and back.

Floor 1, pure.   Flow: rollout -> [rollout_documents] -> store -> restore
Times are wall clock; loop time is of one control's life and is not kept. Both kinds carry the
number of their shape: one that this version does not know is left out by name, never guessed at.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from gateway.config import Step
from gateway.fleet.reading import Document, Reading
from gateway.fleet.rollout import Rollout, Transition, Watch, opened
from gateway.fleet.weights import Override, Overrides
from gateway.rollout.analysis import Evidence
from gateway.rollout.counts import Counts
from gateway.rollout.machine import Phase
from gateway.rollouts import CheckView
from gateway.store.base import Put

ROLLOUTS: Final = "rollouts"  # kinds
WATCHES: Final = "watches"
SHAPE: Final = 1


def overrides_document(overrides: Overrides) -> Document:
    return {name: {"weight": one.weight, "over": one.over} for name, one in overrides.items()}


def overrides(document: Document) -> Overrides:
    """Raises: ValueError and its like when it is none."""
    return {
        name: Override(float(row["weight"]), None if row["over"] is None else float(row["over"]))
        for name, row in document.items()
    }


def rollout_change(rollout: Rollout) -> Put:
    document = {
        "shape": SHAPE,
        "model": rollout.model,
        "number": rollout.number,
        "version": rollout.version,
        "stable": rollout.stable,
        "steps": [step.model_dump() for step in rollout.steps],
        "replicas": rollout.replicas,
        "rest": dict(rollout.rest),
        "before": overrides_document(rollout.before),
        "began": rollout.began,
        "since": rollout.since,
        "samples": rollout.samples,
        "force": rollout.force,
        "phase": rollout.phase.value,
        "step": rollout.step,
        "window": rollout.window,
        "by_hand": rollout.by_hand,
        "reason": rollout.reason,
        "ground": rollout.ground,
        "ended": rollout.ended,
        "forgiven": rollout.forgiven,
        "cut": rollout.cut,
        "checks": [asdict(one) for one in rollout.checks],
        "transitions": [{**asdict(one), "phase": one.phase.value} for one in rollout.transitions],
    }
    return Put(ROLLOUTS, rollout.id, document)


def _rollout(document: Document, now: float) -> Rollout:
    """Raises: ValueError and its like when it is none of ours."""
    known = dict(document)
    if known.pop("shape") != SHAPE:
        raise ValueError(f"its shape is {document['shape']}, this version knows {SHAPE}")
    return Rollout(
        **{
            **known,  # without `cut` in one of before there was any
            "steps": tuple(Step(**step) for step in document["steps"]),
            "rest": {name: float(one) for name, one in document["rest"].items()},
            "before": overrides(document["before"]),
            "phase": Phase(document["phase"]),
            "checks": tuple(CheckView(**one) for one in document["checks"]),
            "transitions": tuple(
                Transition(**{**one, "phase": Phase(one["phase"])})
                for one in document["transitions"]
            ),
            "entered": now,
        }
    )


def rollouts(reading: Reading, now: float) -> dict[str, tuple[Rollout, ...]]:
    """By model, oldest first."""
    found = reading.each(ROLLOUTS, lambda _, document: _rollout(document, now)).values()
    by_model: dict[str, tuple[Rollout, ...]] = {}
    for one in sorted(found, key=lambda one: one.number):
        by_model[one.model] = (*by_model.get(one.model, ()), one)
    return by_model


# --- what was counted ----------------------------------------------------------------------------


def watch_change(rollout: Rollout, watch: Watch) -> Put:
    document = {
        "shape": SHAPE,
        "window": watch.window,
        "segment": watch.segment,
        "seen": [one.to_json() for one in watch.seen] if watch.seen else None,
        "canary": watch.canary.to_json(),
        "stable": watch.stable.to_json(),
        "held_s": watch.held_s,
        "evidence": watch.evidence.to_json(),
        "lives": dict(watch.lives),
        "at": watch.at,
    }
    return Put(WATCHES, rollout.id, document)


def _watch(document: Document) -> Watch:
    """Raises: ValueError and its like when it is none of ours."""
    if document["shape"] != SHAPE:
        raise ValueError(f"its shape is {document['shape']}, this version knows {SHAPE}")
    canary, stable = document["seen"] or (None, None)
    return Watch(
        window=document["window"],
        segment=document["segment"],
        seen=(Counts.from_json(canary), Counts.from_json(stable)) if canary and stable else None,
        canary=Counts.from_json(document["canary"]),
        stable=Counts.from_json(document["stable"]),
        held_s=float(document["held_s"]),
        evidence=Evidence.from_json(document["evidence"]),
        lives=dict(document.get("lives", {})),  # this key and the next are younger than the others
        at=None if document.get("at") is None else float(document["at"]),
    )


def watches(reading: Reading, rollouts: dict[str, tuple[Rollout, ...]]) -> dict[str, Watch]:
    """Of each model's last rollout."""
    found = reading.each(WATCHES, lambda _, document: _watch(document))
    return {
        model: opened(found[many[-1].id], many[-1])
        for model, many in rollouts.items()
        if many[-1].id in found
    }


def rollout_as_it_is(
    kind: str,
    key: str,
    rollouts: Mapping[str, tuple[Rollout, ...]],
    watches: Mapping[str, Watch],
) -> Put | None:
    """What the store is to hold under the key; None: nothing."""
    model = key.rpartition("/")[0]
    found = next((one for one in rollouts.get(model, ()) if one.id == key), None)
    if found is None:
        return None
    if kind == ROLLOUTS:
        return rollout_change(found)
    last = rollouts[model][-1] is found and model in watches
    return watch_change(found, watches[model]) if last else None

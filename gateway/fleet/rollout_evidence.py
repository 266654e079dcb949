"""What is looked at for a rollout: readings and reports, asked for in time and kept as evidence.

Floor 1, pure.   Flow: CountsRead, Validated -> [rollout_evidence] -> Watch -> rollouts
Evidence moves no rollout: it is what the next look at the facts finds.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Final

from gateway.config import Rollout as Keys
from gateway.fleet import capacity, groups
from gateway.fleet.commands import ReadCounts
from gateway.fleet.rollout import (
    READ_S,
    Move,
    Reading,
    Rollout,
    Watch,
    news,
    opened,
    rules,
    watched,
)
from gateway.fleet.rollout_documents import watch_change
from gateway.fleet.rollout_events import CountsRead, Validated
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.turn import Turn
from gateway.rollout.machine import Happened, Phase
from gateway.rollout.memory import Held, check
from gateway.rollouts import CheckView

RETRY_S: Final = 1.0  # after a store that failed, or a report that is lost
SOON_S: Final = 0.001  # a rest of rounding would be read at once, for ever where time stands still


def running(fleet: FleetSnapshot) -> Iterator[tuple[Rollout, Keys, Watch]]:
    """Every rollout that has not ended, of models that there are."""
    for model in fleet.settings.model:
        rollout = fleet.rollout(model.name)
        if rollout is not None and rollout.active:
            watch = fleet.watches.get(model.name, Watch(window=rollout.window))
            yield rollout, model.rollout, watch


def say(turn: Turn, rollout: Rollout, text: str) -> None:
    """Why it goes no further just now; an event only when it is held for want of room."""
    watch = turn.fleet.watches.get(rollout.model, Watch(window=rollout.window))
    if watch.said == text:
        return
    turn.put_watch(rollout.model, replace(watch, said=text))
    if rollout.phase is Phase.CHECKING_CAPACITY:
        turn.record("rollout", rollout.model, f"rollout {rollout.id} {text}", warn=True)


def look(turn: Turn, rollout: Rollout, keys: Keys, watch: Watch) -> None:
    if rollout.phase is Phase.VALIDATING and watch.asked_at < rollout.entered:
        if waits := groups.untried(turn.fleet, rollout, turn.now):
            say(turn, rollout, waits)
            return
        turn.put_watch(rollout.model, replace(watch, asked_at=turn.now, said=""))
        turn.order(groups.validation(turn.fleet, rollout))
    elif rollout.watched and turn.now >= reads_at(rollout, keys, watch):
        turn.put_watch(rollout.model, replace(watch, asked_at=turn.now))
        turn.order(ReadCounts(rollout.model, rollout.version, rollout.stable))


def reads_at(rollout: Rollout, keys: Keys, watch: Watch) -> float:
    """The next reading: a second later, or when the time to hold is over."""
    if watch.read_at is None:
        return watch.asked_at + READ_S
    hold_s = keys.keep_old_s if rollout.phase is Phase.PROMOTING else rollout.hold_s
    left_s = hold_s - watch.held_s
    paused = rollout.phase is Phase.PAUSED
    return watch.asked_at + (READ_S if paused or not 0 < left_s < READ_S else max(left_s, SOON_S))


def counts_read(turn: Turn, event: CountsRead) -> None:
    """A reading of both versions is evidence, and is kept."""
    fleet = turn.fleet
    rollout, model = fleet.rollout(event.model), fleet.model(event.model)
    if rollout is None or model is None or not rollout.watched or fleet.still:
        return
    if event.version != rollout.version:
        return  # asked for by one that has ended meanwhile
    watch = opened(fleet.watches.get(event.model, Watch(window=rollout.window)), rollout)
    if watch.seen is not None and watch.segment != fleet.segment:
        return  # its window has to begin again first
    sides = (rollout.version, rollout.stable)
    lived = tuple(groups.ready(fleet, event.model, version) for version in sides)
    died = tuple(fleet.deaths.get((event.model, version), 0) for version in sides)
    known = [one.version for name, one in fleet.launches.items() if name in watch.lives]
    reading = Reading(
        fleet.segment,
        event.canary,
        event.stable,
        (lived[0], lived[1]),
        (died[0], died[1]),
        (known.count(sides[0]) + died[0], known.count(sides[1]) + died[1]),
        groups.lives(fleet, rollout, watch.lives),
        fleet.wall + turn.now,
    )
    watch = watched(watch, rollout, rules(model.rollout), reading, turn.now)
    turn.put_watch(event.model, watch)
    turn.forget_deaths(event.model)
    turn.keep(watch_change(rollout, watch))


def validated(turn: Turn, event: Validated) -> tuple[Move, ...]:
    """What follows from the report; from none, if nobody waits for it any more."""
    rollout = turn.fleet.rollout(event.model)
    if rollout is None or rollout.id != event.rollout or rollout.phase is not Phase.VALIDATING:
        return ()
    if turn.fleet.still:  # nothing moves; another gateway asks for a report of its own
        report_lost(turn, event.model)
        return ()
    checks, reason = event.checks, event.reason
    held = _memory(turn.fleet, rollout)
    if held is not None:
        checks = (*checks, held)
        reason = held.text if event.passed and not held.passed else reason
    passed = event.passed and (held is None or held.passed)
    happened = Happened.VALIDATED if passed else Happened.FAILED
    ground = "" if passed else "validation"
    return (news(rollout, happened, reason, ground, checks),)


def report_lost(turn: Turn, model: str = "") -> None:
    """It is asked for again; "": nobody knows whose, so all that are waited for are."""
    for rollout, _, watch in tuple(running(turn.fleet)):
        if rollout.phase is Phase.VALIDATING and model in {"", rollout.model}:
            again = replace(watch, asked_at=-inf, tries_at=turn.now + RETRY_S)
            turn.put_watch(rollout.model, again)


def _memory(fleet: FleetSnapshot, rollout: Rollout) -> CheckView | None:
    """What the new group has held while samples were tried on it."""
    model = fleet.model(rollout.model)
    if model is None:
        return None
    held = [
        Held(seen.name, seen.status.device.memory_used_bytes, seen.status.device.memory_peak_bytes)
        for seen in groups.group(fleet, rollout.model, rollout.version)
        if seen.status is not None and seen.status.device is not None
    ]
    ratio_max = model.rollout.validation.memory_ratio_max
    return check(held, capacity.needs(fleet, rollout.model, rollout.version), ratio_max)

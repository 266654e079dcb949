"""Intent: one change at a time, stored before it is true.

Floor 1, pure.   Flow: Asked, SettingsRead -> [intent] -> Write -> IntentKept -> asks, adoption
What was asked while another change is being stored waits for it. A refusal changes nothing, in the
store neither: what was stored and cannot be carried out any more is taken back there.
"""

from typing import Final

from gateway.control import Denied, Reload
from gateway.fleet import (
    adoption,
    asks,
    forgetting,
    history,
    instances,
    rollout_asks,
    rollout_moves,
)
from gateway.fleet.commands import (
    Answer,
    Count,
    KeepText,
    LookUp,
    ReadSettings,
    Write,
)
from gateway.fleet.durable import as_it_is, counter_change
from gateway.fleet.events import (
    Asked,
    IntentKept,
    ReloadAsked,
    SettingsRead,
    SlotKept,
    WriteFailed,
)
from gateway.fleet.plan import Plan
from gateway.fleet.rollout import Move
from gateway.fleet.turn import Turn
from gateway.fleet.weights import Forget

HANDING_OVER: Final = Denied(
    "handing_over", "a take-over is under way: nothing is changed before its end, ask again"
)


def take(turn: Turn, event: Asked | ReloadAsked | SettingsRead | IntentKept | WriteFailed) -> None:
    """The next step of the change that the event speaks of, and of those that wait for it."""
    match event:
        case ReloadAsked(why):
            turn.order(ReadSettings(0, why))
        case Asked(ticket) if turn.fleet.still:
            turn.order(Answer(ticket, HANDING_OVER))
        case SettingsRead() if turn.fleet.still:
            _answer_reload(turn, event, HANDING_OVER)
        case Asked(ticket, Reload(), dry_run, revision):
            turn.order(ReadSettings(ticket, f"asked by {event.by}", dry_run, revision))
        case Asked() | SettingsRead():
            turn.change(asks=(*turn.fleet.asks, event))
            if len(turn.fleet.asks) == 1:
                _plan_next(turn)
        case IntentKept():
            _kept(turn, turn.fleet.asks[0])
            _plan_next(turn)
        case WriteFailed(IntentKept(), reason):
            first = turn.fleet.asks[0]
            _answer(turn, first, Denied("store_failed", reason))
            if isinstance(first, Asked) and isinstance(first.ask, Move):
                rollout_moves.not_kept(turn, first.ask, reason)
            elif isinstance(first, Asked) and isinstance(first.ask, Forget):
                forgetting.not_kept(turn)
            _plan_next(turn)
        case WriteFailed(SlotKept(slot), reason):
            turn.record("gateway", "store", f"slot {slot} not kept: {reason}", warn=True)
            instances.slot_not_kept(turn, slot)
        case WriteFailed(_, reason):
            turn.record("gateway", "store", reason, warn=True)


def _plan(turn: Turn, event: Asked | SettingsRead) -> Plan:
    if turn.fleet.closing is not None:
        raise Denied("closing", "the gateway is closing: nothing is changed any more")
    if event.revision is not None and event.revision != turn.fleet.revision:
        text = f"the revision is {turn.fleet.revision}, not {event.revision}: look again"
        raise Denied("revision_moved", text)
    if isinstance(event, SettingsRead):
        return adoption.plan(turn.fleet, event)
    plan = asks.plan(turn.fleet, event.ask, turn.now, event.by)
    return rollout_asks.in_stock(turn.fleet, plan, event.stock)


def _plan_next(turn: Turn) -> None:
    """Begin the first ask that has something to store; those that have not are answered now."""
    while turn.fleet.asks:
        event = turn.fleet.asks[0]
        try:
            plan = _plan(turn, event)
        except Denied as denied:
            _answer(turn, event, denied)
            continue
        if isinstance(event, Asked) and rollout_asks.unlooked(turn.fleet, plan, event.stock):
            assert plan.rollout is not None, "it is a rollout that wants a snapshot"
            turn.change(asks=turn.fleet.asks[1:])  # nobody waits for a repository: it asks again
            turn.order(LookUp(event, plan.rollout.model, plan.rollout.version))
            continue
        if event.dry_run or not (plan.changes or plan.unstored):
            turn.receipts.append((event.ticket, plan.sentences))
            turn.change(asks=turn.fleet.asks[1:])
            if isinstance(event, SettingsRead) and not event.dry_run:
                adoption.in_force(turn)
            continue
        _store(turn, event, plan)
        return


def _store(turn: Turn, event: Asked | SettingsRead, plan: Plan) -> None:
    """The change, the entry that tells of it, and the revision that contains both: one write."""
    revision = turn.fleet.revision + 1
    by, about = (
        (event.by, history.about(event.ask))
        if isinstance(event, Asked)
        else (event.why, history.about(Reload()))
    )
    entry = turn.draft(by, about, "; ".join(plan.sentences), revision)
    changes = (*plan.changes, *history.kept(turn.fleet.history, entry))
    turn.change(storing=changes, drafted=entry, drawn_up=plan.rollout)
    written = (*changes, counter_change("revision", revision))
    turn.order(Write(written, IntentKept(event.ticket, turn.now)))


def _kept(turn: Turn, event: Asked | SettingsRead) -> None:
    """Carry out what the store has, unless the fleet has moved away from under it."""
    try:
        plan = _plan(turn, event)
    except Denied as denied:  # it has left meanwhile, or the gateway began to close
        turn.change(revision=turn.fleet.revision + 1)
        turn.keep(*(as_it_is(turn.fleet, one, turn.now) for one in turn.fleet.storing))
        _answer(turn, event, denied)
    else:
        if turn.fleet.drafted is not None:
            turn.enter(turn.fleet.drafted)
        _carry_out(turn, event, plan.sentences)


def _carry_out(turn: Turn, event: Asked | SettingsRead, sentences: tuple[str, ...]) -> None:
    turn.change(asks=turn.fleet.asks[1:], revision=turn.fleet.revision + 1, drafted=None)
    turn.receipts.append((event.ticket, sentences))
    if isinstance(event, Asked):
        asks.carry_out(turn, event.ask)
        return
    assert event.settings is not None, "planned, so it parsed"
    adoption.carry_out(turn, event.settings)
    turn.order(KeepText(event.text))
    turn.order(Count("reloads", "applied"))
    text = f"config.toml taken over ({event.why}): {', '.join(sentences)}"
    turn.record("config", "config.toml", text, changes=list(sentences), why=event.why)


def _answer(turn: Turn, event: Asked | SettingsRead, denied: Denied) -> None:
    turn.change(asks=turn.fleet.asks[1:], drafted=None)
    if isinstance(event, SettingsRead):
        _answer_reload(turn, event, denied)
    else:
        turn.order(Answer(event.ticket, denied))


def _answer_reload(turn: Turn, event: SettingsRead, denied: Denied) -> None:
    turn.order(Answer(event.ticket, denied))
    adoption.refused(turn, event, denied)

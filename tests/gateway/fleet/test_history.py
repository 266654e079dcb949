import pytest

from gateway.config import Webhook, parse
from gateway.control import (
    AddInstance,
    Ask,
    CancelLease,
    Denied,
    DrainInstance,
    Reload,
    RemoveInstance,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StartInstance,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet.commands import Answer, Write
from gateway.fleet.events import (
    Asked,
    IntentKept,
    LeasesCut,
    SettingsRead,
    SlotSent,
    StopAsked,
    Ticked,
    WriteFailed,
)
from gateway.fleet.history import HISTORY_MAX, KIND, Entry, about, entry, grown, kept
from gateway.fleet.notes import now_told, upcoming
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import LostRequest
from gateway.store.base import Put, Remove
from tests.gateway.fleet.builders import STATICS, both_ready, only, play
from tests.gateway.fleet.test_restore import again, lived

LAST = Entry(7, 5.0, "ada", "drain", "a", "a is drained", 3)


def asked(fleet: FleetSnapshot, ask: Ask, now: float = 10.0) -> FleetSnapshot:
    return play(fleet, Asked(1, ask, False, None, now, "ada"))[0]


def told(fleet: FleetSnapshot) -> list[tuple[str, str, str, str, int]]:
    return [(one.by, one.kind, one.subject, one.text, one.revision) for one in fleet.history]


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        (SetWeights("m", {}), ("weights", "m")),
        (ResetWeights("m"), ("weights", "m")),
        (SetInstanceWeight("a", 1.0), ("weights", "a")),
        (DrainInstance("a", None, False, False), ("drain", "a")),
        (StopInstance("a", False), ("drain", "a")),
        (UndrainInstance("a"), ("drain", "a")),
        (StartInstance("a"), ("instance", "a")),
        (RemoveInstance("a"), ("instance", "a")),
        (AddInstance("a", "m", "1", "", ""), ("instance", "a")),
        (CancelLease("ff"), ("lease", "ff")),
        (Reload(), ("config", "config.toml")),
    ],
)
def test_every_ask_has_a_kind_and_a_subject(ask: Ask, found: tuple[str, str]) -> None:
    assert about(ask) == found


def test_it_is_read_as_it_was_kept() -> None:
    (put,) = kept((), LAST)
    assert isinstance(put, Put)
    assert entry(put.document) == LAST


def test_only_so_many_are_kept_and_the_oldest_goes() -> None:
    full = tuple(Entry(n, 0.0, "", "", "", "", 0) for n in range(HISTORY_MAX))
    after = Entry(HISTORY_MAX, 0.0, "", "", "", "", 0)
    _, removed = kept(full, after)
    assert removed == Remove(KIND, f"{0:015d}")
    assert grown(full, after)[0].id == 1
    assert len(grown(full, after)) == HISTORY_MAX


def test_who_changed_what_is_part_of_the_very_write_of_the_change() -> None:
    event = Asked(1, SetWeights("m", {"1": 7.0}), False, None, 10.0, "ada")
    fleet, commands = play(both_ready(), event)
    kinds = [change.kind for change in only(Write, commands)[0].changes]
    assert kinds == ["weights", KIND, "counters"]
    assert told(fleet) == [("ada", "weights", "m", "weight of m version 1: 100 to 7", 1)]
    assert fleet.history[0].at == 10.0


def test_a_drain_is_told_with_its_end_and_what_it_lost() -> None:
    fleet = asked(both_ready(), DrainInstance("a", 5.0, False, False))
    token, slot = fleet.drains["a"].token, fleet.instances["a"].slot
    lost = LostRequest(255, "", slot, "streaming", 3.0, 7)
    fleet, _ = play(
        fleet, SlotSent(0, token, 10.1), Ticked(15.0), LeasesCut(0, token, (lost,), 15.1)
    )
    began, ended = told(fleet)
    assert began == ("ada", "drain", "a", "a is drained for at most 5 s and held out", 1)
    assert ended[:3] == ("the gateway", "drain", "a")
    assert ended[3].endswith("cut, 1 lost: 00000000000000ff")


@pytest.mark.parametrize("stored", [True, False])
def test_a_hook_is_told_a_change_that_a_drain_overtook_in_the_store(stored: bool) -> None:
    """It once went past it: the drain that ended meanwhile has the later number."""
    hook = Webhook(name="h", url="http://h/", events=("weights", "drain"))
    fleet = asked(both_ready(), DrainInstance("a", 5.0, False, False))
    cursor, token = now_told(fleet), fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 10.1), Ticked(15.0))
    change = Asked(1, SetWeights("m", {"1": 7.0}), False, None, 15.0, "ada")
    fleet, _ = play(fleet, change, keep=False)
    lost = LostRequest(255, "", fleet.instances["a"].slot, "streaming", 3.0, 7)
    fleet, _ = play(fleet, LeasesCut(0, token, (lost,), 15.1), keep=False)
    assert [one.kind for one in fleet.history] == ["drain", "drain"]
    assert upcoming(fleet, hook, cursor) is None
    assert now_told(fleet) == cursor  # of a hook that begins now: it is not told less
    kept = IntentKept(1, 15.2)
    fleet, _ = play(fleet, kept if stored else WriteFailed(kept, "full", 15.2))
    ids = []
    while (note := upcoming(fleet, hook, cursor)) is not None:
        ids.append(note.id)
        cursor = note.after
    assert ids == (["change:2", "change:3"] if stored else ["change:3"])
    assert cursor == now_told(fleet)


def test_it_survives_a_restart_and_its_numbers_grow_on() -> None:
    before, documents = lived(SetWeights("m", {"1": 7.0}), DrainInstance("a", 5.0, False, False))
    after = again(documents)
    assert after.history == before.history
    assert after.entries == before.entries == 2


def test_a_reload_tells_what_made_it_happen() -> None:
    text = STATICS.replace("100", "50")
    read = SettingsRead(0, "the file changed", False, None, text, parse(text), (), 10.0)
    fleet, _ = play(both_ready(), read)
    ((by, kind, subject, said, _),) = told(fleet)
    assert (by, kind, subject) == ("the file changed", "config", "config.toml")
    assert "model.m.weights.1 changed" in said


def test_what_the_store_did_not_take_and_what_changes_nothing_are_not_in_it() -> None:
    ask = Asked(1, SetWeights("m", {"1": 7.0}), False, None, 10.0, "ada")
    fleet, _ = play(both_ready(), ask, keep=False)
    fleet, _ = play(fleet, WriteFailed(IntentKept(1, 10.0), "full", 10.1))
    fleet, _ = play(fleet, Asked(1, SetWeights("m", {"1": 7.0}), True, None, 11.0))
    fleet = asked(fleet, SetWeights("m", {"1": 100.0}))
    assert fleet.history == ()


def test_what_was_stored_and_then_refused_is_taken_back_in_the_store() -> None:
    """It once stayed there: refused to the caller, and in force with the next control."""
    ask = Asked(1, SetWeights("m", {"1": 7.0}), False, None, 10.0)
    fleet, _ = play(both_ready(), ask, keep=False)
    fleet, _ = play(fleet, StopAsked(1, 10.1), keep=False)
    fleet, commands = play(fleet, IntentKept(1, 10.2), keep=False)
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, Denied)
    (write,) = only(Write, commands)
    assert write.changes == (Remove("weights", "m"), Remove(KIND, f"{1:015d}"))
    assert fleet.history == ()

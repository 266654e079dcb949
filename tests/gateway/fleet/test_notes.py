"""What hooks are told: everything once, in order, whatever the cursor; nothing from before."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Webhook
from gateway.fleet.history import Entry
from gateway.fleet.notes import (
    Cursor,
    Note,
    cursor_change,
    cursor_of,
    now_told,
    signature,
    upcoming,
)
from gateway.fleet.rollout import Transition
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollout.machine import Phase
from gateway.rollouts import AbortRollout
from tests.gateway.fleet.builders import play
from tests.gateway.fleet.rolling import asked, rollout, serving, start

ALL = Webhook(
    name="h", url="http://h/", events=("rollout", "weights", "drain", "instance", "config", "lease")
)
ROLLOUTS = Webhook(name="h", url="http://h/")


def _told(fleet: FleetSnapshot, hook: Webhook, cursor: Cursor) -> list[Note]:
    found: list[Note] = []
    while (note := upcoming(fleet, hook, cursor)) is not None:
        found.append(note)
        cursor = note.after
    return found


def _rolled_back() -> FleetSnapshot:
    fleet, _ = play(serving(), asked(start(), 10.0))
    fleet, _ = play(fleet, asked(AbortRollout("m", "odd"), 12.0))
    return fleet


def _entry(number: int, at: float, kind: str) -> Entry:
    return Entry(number, at, "ada", kind, "m", f"change {number}", number)


def test_each_transition_of_a_rollout_is_told_with_who_what_and_why() -> None:
    before = serving()
    fleet = _rolled_back()
    notes = _told(fleet, ROLLOUTS, now_told(before))
    assert [note.id for note in notes] == [
        f"rollout:m/1:{at}" for at in range(1, len(rollout(fleet).transitions) + 1)
    ]
    phases = [note.fields["phase"] for note in notes]
    assert phases[0] == "pending"
    assert "rolling_back" in phases
    first = notes[0]
    assert (first.subject, first.fields["version"], first.fields["stable"]) == ("m", "2", "1")
    assert first.fields["by"] == "ann"
    assert orjson.loads(orjson.dumps(first.document()))["id"] == "rollout:m/1:1"


def test_a_hook_that_begins_is_told_nothing_of_before() -> None:
    fleet = replace(_rolled_back(), history=(_entry(7, 1.0, "weights"),))
    assert _told(fleet, ALL, now_told(fleet)) == []


@pytest.mark.parametrize(
    ("events", "ids"),
    [
        (("weights",), ["change:1", "change:4"]),
        (("drain", "config"), ["change:2", "change:5"]),
        (("rollout",), []),  # the ask is no transition
    ],
)
def test_a_hook_is_told_only_what_it_asks_for(events: Sequence[str], ids: list[str]) -> None:
    kinds = ("weights", "drain", "rollout", "weights", "config")
    history = tuple(_entry(at, float(at), kind) for at, kind in enumerate(kinds, 1))
    hook = Webhook(name="h", url="http://h/", events=events)  # type: ignore[arg-type]
    fleet = replace(serving(), history=history)
    assert [note.id for note in _told(fleet, hook, Cursor())] == ids


times = st.lists(st.floats(0, 100), max_size=8)


@given(times, times, times, st.integers(0, 30))
def test_everything_is_told_once_and_each_source_in_its_order_from_any_place(
    changes: list[float], first: list[float], second: list[float], stopped: int
) -> None:
    fleet = _rolled_back()
    one = rollout(fleet)
    transitions = [
        tuple(Transition(at, Phase.PAUSED, 1, "r", "b") for at in given_times)
        for given_times in (first, second)
    ]
    fleet = replace(
        fleet,
        history=tuple(_entry(at, when, "weights") for at, when in enumerate(changes, 1)),
        rollouts={
            "m": (replace(one, transitions=transitions[0]),),
            "n": (replace(one, model="n", transitions=transitions[1]),),
        },
    )
    notes = _told(fleet, ALL, Cursor())
    ids = [note.id for note in notes]
    for source, count in (("change", changes), ("rollout:m/1", first), ("rollout:n/1", second)):
        mine = [one for one in ids if one.startswith(f"{source}:")]
        assert mine == [f"{source}:{at}" for at in range(1, len(count) + 1)]
    if notes[:stopped]:  # another control goes on from what was kept
        cursor = cursor_of(orjson.loads(orjson.dumps(
            cursor_change("h", notes[:stopped][-1].after).document)))  # fmt: skip
        assert [note.id for note in _told(fleet, ALL, cursor)] == ids[stopped:]
    if all(times == sorted(times) for times in (changes, first, second)):
        assert [note.at for note in notes] == sorted(note.at for note in notes)


def test_the_place_in_a_rollout_that_is_forgotten_is_forgotten_too() -> None:
    cursor = Cursor(0, {"m/0": 9, "gone/3": 4})
    (note, *_) = _told(_rolled_back(), ROLLOUTS, cursor)
    assert note.after.rollouts == {"m/1": 1}


@given(st.binary(min_size=1), st.integers(0, 1 << 40), st.binary())
def test_a_signature_is_what_docs_tell_receivers_to_compute(
    secret: bytes, at: int, body: bytes
) -> None:
    said = dict(part.split("=") for part in signature(secret, at, body).split(","))
    code = hmac.new(secret, said["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert said == {"t": str(at), "v1": code}


def test_the_receiver_of_the_docs_knows_what_we_sign_and_nothing_else() -> None:
    text = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text()
    names: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)
    is_genuine, field = names["is_genuine"], signature(b"s", 1000, b"{}")
    assert is_genuine(b"s", field, b"{}", 1100.0)
    assert not is_genuine(b"other", field, b"{}", 1100.0)
    assert not is_genuine(b"s", field, b"{} ", 1100.0)
    assert not is_genuine(b"s", field.replace("1000", "1001"), b"{}", 1100.0)
    assert not is_genuine(b"s", field, b"{}", 1400.0)  # recorded, and sent again
    assert not is_genuine(b"s", "", b"{}", 1100.0)

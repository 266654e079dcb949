from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.health import UNSEEN, Rules, answered
from gateway.fleet.registry import (
    SUPERSEDED_MAX,
    Origin,
    Seen,
    admissible,
    admits,
    doubtful,
    hashed,
    hindrance,
    literal_host,
    observe,
    registered,
)
from gateway.fleet.status import Status
from gateway.records import Health, Intent
from sluicegate.v1.states import TRANSITIONS, State
from tests.gateway.fleet.builders import status

RULES = Rules(3, 2, 30.0, 600.0, 4.0)
EMPTY = Seen("a", "m", "1", Origin.REGISTERED)


def seen(**fields: object) -> Seen:
    found = observe(EMPTY, status("a"), "", 1.0)
    assert isinstance(found, Seen)
    good = replace(found, opinion=answered(UNSEEN, RULES))
    return replace(good, **fields)  # type: ignore[arg-type]  # a test spells the right ones


def test_all_three_opinions_and_a_weight_admit_and_each_alone_does_not() -> None:
    assert admissible(seen(), 1.0)
    unhealthy = replace(UNSEEN, health=Health.UNHEALTHY, reason="refused")
    refusals = {
        "state": (seen(status=status("a", State.DRAINING, reason="as told")), 1.0),
        "intent": (seen(intent=Intent.DRAIN), 1.0),
        "health": (seen(opinion=unhealthy), 1.0),
        "weight": (seen(), 0.0),
        "model": (seen(status=status("a", model="other")), 1.0),
        "address": (seen(host=""), 1.0),
    }
    for why, (one, weight) in refusals.items():
        assert not admissible(one, weight), why
        assert hindrance(one, weight), why
    assert hindrance(seen(), 1.0) == ""


def test_an_equal_sequence_refreshes_and_a_lower_one_is_ignored() -> None:
    one = observe(seen(), status("a", sequence=5), "", 2.0)
    assert isinstance(one, Seen)
    again = observe(one, status("a", sequence=5, active_requests=3), "", 3.0)
    assert isinstance(again, Seen)
    assert again.active_requests == 3
    assert isinstance(observe(one, status("a", sequence=4), "", 3.0), str)


def test_a_new_incarnation_starts_clean_and_the_old_ones_word_counts_no_more() -> None:
    old = seen(slot=3, ready_since=1.0)
    new = observe(old, status("a", State.INITIALIZING, incarnation="a2"), "", 9.0)
    assert isinstance(new, Seen)
    assert (new.slot, new.ready_since, new.opinion) == (-1, 0.0, UNSEEN)
    assert "superseded" in str(observe(new, status("a", sequence=99), "", 10.0))


def test_nothing_leaves_stopped_in_one_incarnation() -> None:
    stopped = seen(status=status("a", State.STOPPED))
    assert "not legal" in str(observe(stopped, status("a", sequence=9), "", 2.0))


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_one_step_of_the_sequence_is_one_legal_move(old: State, new: State) -> None:
    before = seen(status=status("a", old, sequence=5))
    after = observe(before, status("a", new, sequence=6), "", 2.0)
    if new is old or new in TRANSITIONS[old]:
        assert isinstance(after, Seen)
    else:
        assert after == f"a: {old.name} to {new.name} is not legal in one incarnation"


@given(st.lists(st.sampled_from(State), max_size=9), st.sampled_from(State))
def test_a_legal_life_of_which_we_see_the_ends_only_is_believed(
    wishes: list[State], first: State
) -> None:
    state, sequence = first, 1
    for wish in wishes:
        if wish in TRANSITIONS[state]:
            state, sequence = wish, sequence + 1
    before = seen(status=status("a", first, sequence=1))
    assert isinstance(observe(before, status("a", state, sequence=sequence), "", 2.0), Seen)


def test_a_static_instance_keeps_the_address_of_the_file() -> None:
    static = replace(EMPTY, origin=Origin.CONFIG, http="127.0.0.1:1", grpc="127.0.0.1:2")
    found = observe(static, status("a"), "", 1.0)
    assert isinstance(found, Seen)
    assert (found.http, found.grpc, found.host) == ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1")


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=120))
def test_a_superseded_incarnation_never_comes_back(readings: list[tuple[int, int]]) -> None:
    one, past = EMPTY, list[str]()
    for life, sequence in readings:
        found = observe(one, status("a", incarnation=f"i{life}", sequence=sequence), "", 1.0)
        if isinstance(found, str):
            continue
        assert found.incarnation not in past[-SUPERSEDED_MAX:]
        if one.incarnation and found.incarnation != one.incarnation:
            past.append(one.incarnation)
        elif one.status is not None and found.incarnation == one.incarnation:
            assert found.status is not None
            assert found.status.sequence >= one.status.sequence
        one = found


# --- who may register ----------------------------------------------------------------------------

LOST = replace(UNSEEN, health=Health.LOST)
AWAY = status("a", incarnation="a2", grpc="127.0.0.1:9", http="127.0.0.1:8")
ELSEWHERE = status("a", grpc="127.0.0.1:9")
BACK = status("a", incarnation="a2")
STATIC = {"origin": Origin.CONFIG, "grpc": "127.0.0.1:2"}
OURS = {"origin": Origin.LAUNCHED, "token": hashed("secret")}
HELD = {"lease": hashed("mine")}


@pytest.mark.parametrize(
    ("known", "status_", "token", "taken"),
    [
        (None, AWAY, "", True),
        (seen(), AWAY, "", False),
        (seen(), BACK, "", True),
        (seen(), status("a"), "", True),
        (seen(opinion=LOST), AWAY, "", True),
        (seen(status=status("a", State.STOPPED)), AWAY, "", True),
        (seen(superseded=("a2",)), BACK, "", False),
        (seen(**STATIC), AWAY, "", False),
        (seen(**STATIC), replace(AWAY, grpc="127.0.0.1:2"), "", True),
        (seen(**OURS), AWAY, "secret", True),
        (seen(**OURS), AWAY, "guess", False),
        (seen(**OURS), AWAY, "", False),
        (seen(origin=Origin.LAUNCHED), AWAY, "", False),
        (seen(**OURS), status("a"), "", False),
        (seen(), ELSEWHERE, "", False),
        (seen(opinion=LOST), ELSEWHERE, "", True),
        (seen(**OURS), ELSEWHERE, "", False),
        (seen(**OURS), ELSEWHERE, "secret", True),
    ],
    ids=[
        "unknown",
        "live elsewhere",
        "restarted in place",
        "again",
        "after it was lost",
        "after its farewell",
        "superseded",
        "static elsewhere",
        "static itself",
        "launched, with its token",
        "launched, with another",
        "launched, with none",
        "launched, before a token was made",
        "launched, known already",
        "its incarnation, elsewhere",
        "its incarnation, elsewhere, after it was lost",
        "launched, its incarnation, elsewhere",
        "launched, its incarnation, elsewhere, with its token",
    ],
)
def test_who_may_register_under_a_name(
    known: Seen | None, status_: Status, token: str, taken: bool
) -> None:
    assert (admits(known, status_, token, "") == "") is taken


@pytest.mark.parametrize(
    ("known", "status_", "lease", "taken"),
    [
        (seen(**HELD), status("a"), "mine", True),
        (seen(**HELD), status("a"), "guess", False),
        (seen(**HELD), status("a"), "", False),
        (seen(**HELD, opinion=LOST), status("a"), "guess", False),
        (seen(**HELD, opinion=LOST), ELSEWHERE, "guess", False),
        (seen(**HELD), BACK, "of its own", True),
        (seen(), status("a"), "mine", True),
    ],
    ids=["its own", "another", "none", "lost", "lost, elsewhere", "the next", "it gave none"],
)
def test_an_incarnation_speaks_with_the_secret_it_registered_with(
    known: Seen, status_: Status, lease: str, taken: bool
) -> None:
    assert (admits(known, status_, "", hashed(lease)) == "") is taken


@pytest.mark.parametrize(
    ("known", "doubted"),
    [
        (None, False),
        (seen(), True),
        (seen(incarnation="a2"), False),
        (seen(incarnation="", status=None), False),
        (seen(opinion=LOST), False),
        (seen(**OURS), False),
    ],
    ids=["unknown", "live", "the same", "never seen", "lost", "launched"],
)
def test_a_registration_that_pushes_a_live_incarnation_aside_is_asked_for(
    known: Seen | None, doubted: bool
) -> None:
    assert doubtful(known, BACK) is doubted


def test_the_next_incarnation_begins_without_the_secret_of_the_one_before() -> None:
    new = observe(seen(**HELD), status("a", incarnation="a2"), "", 9.0)
    assert isinstance(new, Seen)
    assert new.lease == ""


def test_a_registration_names_its_weight_and_limit_and_its_reading_the_addresses() -> None:
    one = registered(None, AWAY, 0.0, 9)
    assert (one.weight, one.limit, one.grpc, one.origin) == (1.0, 9, "", Origin.REGISTERED)
    found = observe(one, AWAY, "", 1.0)
    assert isinstance(found, Seen)
    assert (found.http, found.grpc) == (AWAY.http, AWAY.grpc)


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1:1", "127.0.0.1"), ("[::1]:1", "::1"), ("name:1", ""), ("", "")],
)
def test_only_an_address_is_a_literal_host(address: str, host: str) -> None:
    assert literal_host(address) == host

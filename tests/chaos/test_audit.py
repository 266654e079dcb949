"""The account of a run finds what it is there to find."""

from dataclasses import replace

import pytest

from tests.chaos.audit import IN_HAND, UNREAD, Asked, End, Kill, audit, kept_promise
from tests.chaos.report import counters

PORT = 40_000
KILL = Kill("worker 0", at=10.0, held=frozenset({"a"}), ports={PORT: False})


def asked(end: End, *, began: float = 9.0, ended: float = 11.0, **fields: object) -> Asked:
    one = Asked("a", "short", began, PORT, end, ended)
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def test_a_cut_that_the_log_names_has_its_cause() -> None:
    account = audit([asked(End.BROKEN)], {"a": "worker died"}, [KILL])
    assert account.lost == {"worker died": 1}
    assert account.last_line == "sent=1 answered=0 lost=1 unnamed=0"


def test_a_cut_that_nobody_names_is_unnamed() -> None:
    account = audit([asked(End.BROKEN)], {"b": "worker died"}, [KILL])
    assert account.last_line == "sent=1 answered=0 lost=1 unnamed=1"


def test_a_refusal_names_itself_but_one_after_an_attempt_has_to_be_in_the_log_as_well() -> None:
    assert audit([asked(End.REFUSED, code="saturated")], {}, []).lost == {"saturated": 1}
    lost = asked(End.REFUSED, code="instance_reset")
    assert audit([lost], {}, []).unnamed == [lost]
    assert audit([lost], {"a": "reset"}, []).lost == {"reset": 1}


def test_a_wrong_answer_has_no_excuse() -> None:
    wrong = asked(End.WRONG)
    assert audit([wrong], {"a": "worker died"}, [KILL]).unnamed == [wrong]


def test_who_leaves_is_neither_sent_nor_lost() -> None:
    account = audit([asked(End.LEFT)], {}, [])
    assert (account.left, account.last_line) == (1, "sent=0 answered=0 lost=0 unnamed=0")


def test_a_loss_that_its_client_saw_answered_is_false() -> None:
    account = audit([asked(End.WHOLE)], {"a": "worker died"}, [KILL])
    assert (account.answered, account.false) == (1, ["a"])


@pytest.mark.parametrize(
    ("began", "unread", "begun", "port", "excused"),
    [
        (10.5, False, False, PORT, True),  # it came when the worker stood still
        (9.0, True, False, PORT, True),  # it lay in the worker's socket
        (9.0, False, False, PORT, False),  # the worker had read it
        (10.5, True, False, PORT + 1, False),  # it was connected to somebody else
        (10.5, True, True, PORT, False),  # an answer had begun
    ],
)
def test_only_what_a_dead_worker_cannot_have_read_needs_no_name_of_ours(
    began: float, unread: bool, begun: bool, port: int, excused: bool
) -> None:
    kill = Kill("worker 0", at=10.0, ports={PORT: unread})
    one = asked(End.BROKEN, began=began, begun=begun, port=port)
    account = audit([one], {}, [kill])
    assert account.lost == ({UNREAD: 1} if excused else {})
    assert account.uncounted == excused
    assert account.unnamed == ([] if excused else [one])


def test_one_request_of_each_dead_worker_may_have_been_in_hand() -> None:
    kill = Kill("worker 0", at=10.0, ports={PORT: False})
    fresh = [asked(End.BROKEN, began=9.9) for _ in range(2)]
    account = audit(fresh, {}, [kill])
    assert (account.lost, account.unnamed) == ({IN_HAND: 1}, fresh[1:])
    assert audit(fresh, {}, [kill, kill]).unnamed == []
    for no_excuse in (
        asked(End.BROKEN, began=9.0),  # it had time to be noted
        asked(End.BROKEN, began=9.9, port=PORT + 1),
        asked(End.BROKEN, began=9.9, begun=True),
        asked(End.WRONG, began=9.9),
    ):
        assert audit([no_excuse], {}, [kill]).unnamed == [no_excuse]
    noted = replace(kill, held=frozenset({"a"}))
    assert audit(fresh, {}, [noted]).unnamed == fresh


def test_a_kill_does_not_excuse_what_broke_before_it() -> None:
    one = asked(End.BROKEN, began=8.0, ended=9.0)
    kill = Kill("worker 0", at=10.0, ports={PORT: True})
    assert audit([one], {}, [kill]).unnamed == [one]


def test_what_a_victim_held_is_followed_to_its_end() -> None:
    one = asked(End.BROKEN)
    assert kept_promise(KILL, {"a": one}, {"a": "worker died"}) == {"lost": 1}
    assert kept_promise(KILL, {"a": one}, {}) == {"unnamed": 1}
    assert kept_promise(KILL, {"a": asked(End.WHOLE)}, {}) == {"answered": 1}


METRICS = """
sluicegate_in_flight{instance="v-1-0",model="v",version="1"} 0.0
sluicegate_requests_total{model="v",outcome="served",version="1"} 2.0
sluicegate_requests_total{model="v",outcome="served",version="2"} 1.0
sluicegate_requests_refused_total{code="saturated"} 1.0
"""


def test_the_gateway_s_counters_have_to_agree_with_its_clients() -> None:
    whole = [asked(End.WHOLE) for _ in range(3)]
    refused = asked(End.REFUSED, code="saturated")
    assert counters(METRICS, audit([*whole, refused], {}, [])) == []
    (said,) = counters(METRICS, audit(whole, {}, []))
    assert "counted 4 requests, clients 3" in said
    (said,) = counters(METRICS, audit([*whole[1:], refused, refused], {}, []))
    assert "counted 3 as served, clients 2" in said
    (said,) = counters(METRICS.replace("} 0.0", "} 1.0"), audit([*whole, refused], {}, []))
    assert "in_flight is not 0" in said

from typing import Any

import pytest

from admin.calls import How, Unanswered
from admin.client import Client
from gateway.control import (
    AbortRollout,
    PauseRollout,
    PromoteRollout,
    ResumeRollout,
    RetryRollout,
    StartRollout,
)
from tests.admin.conftest import Served
from tests.admin.fakes import RECEIPT, ROLLED_BACK, ROLLOUT

STEPS: tuple[dict[str, Any], ...] = ({"weight": 5.0, "hold_s": 9.0, "gate": True},)


@pytest.fixture
def client(served: Served) -> Client:
    return Client(served.address)


def test_a_rollout_comes_back_as_the_record_it_was_made_of(client: Client) -> None:
    assert client.rollouts.latest("m") == ROLLOUT
    assert client.rollouts.of("m") == client.rollouts.every() == (ROLLOUT, ROLLED_BACK)


def test_what_is_asked_arrives_as_it_was_asked(client: Client, served: Served) -> None:
    calls, how = client.rollouts, How(wait=True, revision=12)
    whole = StartRollout("m", "2", 3, STEPS, "samples.jsonl", True)
    for ask in (whole, StartRollout("m", "2")):
        assert calls.start(ask, how) == RECEIPT
    calls.promote("m", True, how)
    calls.promote("m", how=how, step=2)
    calls.pause("m", how)
    calls.resume("m", how)
    calls.abort("m", "odd", how)
    calls.retry("m", True, how)
    assert [one.ask for one in served.control.asked] == [
        whole,
        StartRollout("m", "2"),
        PromoteRollout("m", True),
        PromoteRollout("m", step=2),
        PauseRollout("m"),
        ResumeRollout("m"),
        AbortRollout("m", "odd"),
        RetryRollout("m", True),
    ]
    assert {(one.wait, one.dry_run, one.revision) for one in served.control.asked} == {
        (True, False, 12)
    }


def test_no_rollout_is_a_refusal_with_a_sentence(client: Client, served: Served) -> None:
    served.control.rolling = ()
    with pytest.raises(Unanswered, match="no rollout of m runs or has ended") as raised:
        client.rollouts.latest("m")
    assert raised.value.code == "unknown_rollout"

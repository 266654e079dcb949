from dataclasses import replace

import pytest

from admin.calls import Unanswered
from admin.client import Client
from gateway.control import (
    AddInstance,
    CancelLease,
    DrainInstance,
    Problem,
    Reload,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StartInstance,
    StopInstance,
    UndrainInstance,
)
from tests.admin.conftest import Served
from tests.admin.fakes import (
    CONFIG,
    DRAIN,
    EVENTS,
    INSTANCE,
    LEASE,
    LOADING,
    LOST,
    MODEL,
    RECEIPT,
    STATUS,
)


def test_views_come_back_as_the_records_they_were(served: Served) -> None:
    read = Client(served.address).read
    lossy = replace(DRAIN, lost=(LOST,))
    served.control.draining = [lossy]
    assert read.status() == STATUS
    assert read.instances() == (INSTANCE, LOADING)
    assert read.instance("m-2-0") == LOADING
    assert read.models() == (MODEL,)
    assert read.drains() == (lossy,)
    assert read.drain("m-1-0") == lossy
    assert read.leases(None, "m") == (LEASE,)
    assert read.config() == CONFIG
    assert served.control.filters == [(None, "m")]


def test_every_change_is_asked_for(served: Served) -> None:
    change = Client(served.address).change
    added = {"id": "i", "model": "m", "version": "1", "http": "h:1", "grpc": "h:2"}
    receipts = [
        change.set_weights("m", {"1": 5.0}),
        change.reset_weights("m"),
        change.set_instance_weight("i", 0.5),
        change.reset_instance_weight("i"),
        change.drain("i", 9.0, stop=True, force=True),
        change.undrain("i"),
        change.stop("i", force=True),
        change.stop("i", 5.0),
        change.start("i"),
        change.add(added),
        change.remove("i"),
        change.cancel("00000000000000ff"),
        change.reload(),
    ]
    assert receipts == [RECEIPT] * 13
    assert [one.ask for one in served.control.asked] == [
        SetWeights("m", {"1": 5.0}),
        ResetWeights("m"),
        SetInstanceWeight("i", 0.5),
        ResetInstanceWeight("i"),
        DrainInstance("i", 9.0, True, True),
        UndrainInstance("i"),
        StopInstance("i", True),
        StopInstance("i", False, 5.0),
        StartInstance("i"),
        AddInstance(**added),
        RemoveInstance("i"),
        CancelLease("00000000000000ff"),
        Reload(),
    ]


@pytest.mark.parametrize("name", ["a/b", "../status", "a?b=c", "模型", "a b"])
def test_a_name_is_one_segment_whatever_is_in_it(served: Served, name: str) -> None:
    Client(served.address).change.undrain(name)
    assert [one.ask for one in served.control.asked] == [UndrainInstance(name)]


def test_a_candidate_is_checked(served: Served) -> None:
    served.control.found = (Problem("a", "is wrong"),)
    assert Client(served.address).read.check("a = 1") == (Problem("a", "is wrong"),)


def test_events_that_are_remembered_end_when_not_followed(served: Served) -> None:
    read = Client(served.address).read
    assert tuple(read.events(0, follow=False)) == EVENTS
    assert tuple(read.events(2, follow=False)) == EVENTS[2:]


def test_followed_events_go_on_until_the_gateway_ends_them(served: Served) -> None:
    stream = Client(served.address).read.events(1, follow=True)
    assert [next(stream), next(stream)] == list(EVENTS[1:])
    stream.close()


def test_a_refused_stream_is_a_refusal(served: Served) -> None:
    with pytest.raises(Unanswered) as unanswered:
        next(Client(served.address).read.events(-1, follow=False))
    assert unanswered.value.code == "invalid"

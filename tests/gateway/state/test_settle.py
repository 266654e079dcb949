import os
from collections.abc import Iterator

import pytest

from gateway.records import Outcome
from gateway.state.ledger import Ledger
from gateway.state.settle import clear_slot, losses, settle_row, unsettled
from gateway.state.shared import ACCEPTED, ATTEMPTS, CONNECTIONS, SETTLED, Layout, Segment, create

NS = 1_000_000_000


@pytest.fixture
def segment() -> Iterator[Segment]:
    fd = create(Layout(rows=2, slots=4, sections=2, leases=4))
    yield Segment(fd)
    os.close(fd)


def test_everything_a_dead_row_held_is_named_and_settled(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    ledger.open(1, 1, 0xFF, b"mine", 2 * NS)
    done = ledger.open(1, 1, 0xEE, b"", 2 * NS)
    ledger.settle(done, Outcome.SERVED, 3 * NS, 0)
    ledger.wait_began(1)
    ledger.connected()
    assert unsettled(segment) == {0}
    (lost,) = losses(segment, 0, 5 * NS)
    assert segment.in_flight(1) == 1  # named, and still held
    settle_row(segment, 0)
    assert (lost.request_id, lost.client_request_id, lost.slot) == (0xFF, "mine", 1)
    assert (lost.stage, lost.age_s) == ("connecting", 3.0)
    totals = segment.slot_totals(1)
    assert totals[ACCEPTED] == totals[SETTLED] == 2
    assert totals[ATTEMPTS + Outcome.LOST] == 1
    assert segment.in_flight(1) == segment.waiting(1) == 0
    assert segment.cells[segment.base(0) + CONNECTIONS] == 0
    assert list(segment.leases(0)) == []
    assert unsettled(segment) == frozenset()


def test_a_request_that_had_no_instance_is_named_and_counts_nowhere(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    ledger.list_unplaced(1, 0xFF, b"mine", 2 * NS)
    before = [segment.slot_totals(slot) for slot in range(4)]
    (lost,) = losses(segment, 0, 5 * NS)
    settle_row(segment, 0)
    assert (lost.client_request_id, lost.slot, lost.stage) == ("mine", -1, "unplaced")
    assert [segment.slot_totals(slot) for slot in range(4)] == before
    assert list(segment.leases(0)) == []


def test_the_next_worker_goes_on_counting_in_the_row(segment: Segment) -> None:
    Ledger(segment, 0).open(1, 1, 1, b"", 0)
    settle_row(segment, 0)
    ledger = Ledger(segment, 0)
    ledger.settle(ledger.open(1, 1, 2, b"", 0), Outcome.SERVED, 0, 0)
    assert segment.slot_totals(1)[ACCEPTED] == segment.slot_totals(1)[SETTLED] == 2


def test_another_row_is_not_touched(segment: Segment) -> None:
    Ledger(segment, 0)
    Ledger(segment, 1).open(1, 1, 1, b"", 0)
    settle_row(segment, 0)
    assert segment.in_flight(1) == 1


def test_a_cleared_slot_counts_from_nothing_in_every_row(segment: Segment) -> None:
    for row in (0, 1):
        ledger = Ledger(segment, row)
        ledger.settle(ledger.open(1, 1, 1, b"", 0), Outcome.SERVED, 0, 0)
        ledger.settle(ledger.open(2, 1, 1, b"", 0), Outcome.SERVED, 0, 0)
    clear_slot(segment, 1)
    assert set(segment.slot_totals(1)) == {0}
    assert segment.slot_totals(2)[ACCEPTED] == 2

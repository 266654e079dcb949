"""The ledger: what is opened is settled once, and everything adds up at every moment."""

import os
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.errors import REFUSALS
from gateway.records import Outcome, Stage
from gateway.state.ledger import NO_LEASE, Ledger
from gateway.state.settle import clear_slot
from gateway.state.shared import (
    ACCEPTED,
    APART,
    ATTEMPTS,
    FIRST_BYTE,
    FIRST_BYTE_SUM_US,
    HISTOGRAM_CELLS,
    LATENCY,
    LATENCY_SUM_US,
    RECEIVED_BYTES,
    REFUSED,
    REQUESTS,
    SENT_BYTES,
    SETTLED,
    SLOT_CELLS,
    Layout,
    Segment,
    create,
    histogram_cell,
)

LAYOUT = Layout(rows=2, slots=3, sections=2, leases=6)
SLOTS = st.integers(0, 2)
PICKS = st.integers(0, LAYOUT.leases - 1)
PORT = 4000


@dataclass
class Held:
    """What the model knows of a lease. `told`: of the bytes received, those that others can read
    of."""

    slot: int
    request: int
    stage: Stage
    port: int
    began: int
    drawn: bool
    received: int = 0
    told: int = 0


class LedgerAgainstCounters(RuleBasedStateMachine):
    """The model: held leases, and for each slot what was counted since it was begun."""

    def __init__(self) -> None:
        super().__init__()
        self.fd = create(LAYOUT)
        self.segment = Segment(self.fd)
        self.ledger = Ledger(self.segment, 1)
        self.told_sent: list[int] = []
        self.told_settled: list[int] = []
        self.ledger.on_sent = self.told_sent.append
        self.ledger.on_settled = self.told_settled.append
        self.held: dict[int, Held] = {}
        self.now = self.requests = 0
        self.sent: list[int] = []
        self.settled: list[int] = []
        self.cells: Counter[tuple[int, int]] = Counter()  # slot and cell

    def teardown(self) -> None:
        os.close(self.fd)

    def lease(self, pick: int) -> int:
        return sorted(self.held)[pick % len(self.held)]

    def early(self, slot: int) -> int:
        return sum(h.slot == slot and h.stage < Stage.WAITING for h in self.held.values())

    def handed_over(self, lease: int, stage: Stage) -> None:
        """The lease is in this stage now; was it the last of its slot that was not sent?"""
        held = self.held[lease]
        before, held.stage = held.stage, stage
        if before < Stage.WAITING <= stage and not self.early(held.slot):
            self.sent.append(held.slot)

    def timed(self, slot: int, drawn: bool, histogram: int, total: int, elapsed_ns: int) -> None:
        self.counted(slot, drawn, histogram + histogram_cell(elapsed_ns // 1000))
        self.cells[slot, total] += elapsed_ns // 1000

    def counted(self, slot: int, drawn: bool, cell: int) -> None:
        """As totals have it: in the first half all, in the second what is apart."""
        self.cells[slot, cell] += 1
        if not drawn:
            self.cells[slot, cell + APART] += 1

    @rule(step=st.integers(0, 1 << 44))
    def time_passes(self, step: int) -> None:
        self.now += step

    @rule(
        slot=SLOTS,
        stage=st.sampled_from([Stage.CONNECTING, Stage.SENDING, Stage.WAITING]),
        drawn=st.booleans(),
    )
    def open(self, slot: int, stage: Stage, drawn: bool) -> None:
        self.requests += 1
        port = 0 if stage is Stage.CONNECTING else PORT + self.requests
        name = b"c%d" % self.requests
        lease = self.ledger.open(slot, 1, self.requests, name, self.now, stage, port, drawn)
        assert (lease == NO_LEASE) == (len(self.held) == LAYOUT.leases)
        if lease != NO_LEASE:
            assert lease not in self.held
            self.held[lease] = Held(slot, self.requests, stage, port, self.now, drawn)
            self.cells[slot, ACCEPTED] += 1

    @precondition(lambda self: self.held)
    @rule(pick=PICKS, stage=st.sampled_from([Stage.SENDING, Stage.WAITING, Stage.STREAMING]))
    def advance(self, pick: int, stage: Stage) -> None:
        """An early response begins before the whole request is out, which it is later."""
        lease = self.lease(pick)
        held = self.held[lease]
        if stage is Stage.WAITING:
            self.ledger.waiting(lease)
            self.handed_over(lease, max(held.stage, stage))
        elif stage > held.stage:
            if stage is Stage.SENDING:
                self.ledger.sending(lease, PORT)
                held.port = PORT
            else:
                self.ledger.streaming(lease, self.now)
                elapsed = self.now - held.began
                self.timed(held.slot, held.drawn, FIRST_BYTE, FIRST_BYTE_SUM_US, elapsed)
            self.handed_over(lease, stage)

    @precondition(lambda self: self.held)
    @rule(pick=PICKS, count=st.integers(0, 1 << 40))
    def receive(self, pick: int, count: int) -> None:
        lease = self.lease(pick)
        self.ledger.received(lease, count)
        self.held[lease].received += count

    @rule()
    def account(self) -> None:
        """Of all that are held, as the sweep does."""
        for lease, held in self.held.items():
            self.ledger.account(lease)
            self.cells[held.slot, RECEIVED_BYTES] += held.received - held.told
            held.told = held.received

    @precondition(lambda self: self.held)
    @rule(
        pick=PICKS,
        outcome=st.sampled_from(Outcome),
        sent_bytes=st.integers(0, 1 << 40),
        answered=st.booleans(),
        took_ns=st.sampled_from([0, 0, 5_000, 3_000_000]),
    )
    def settle(
        self, pick: int, outcome: Outcome, sent_bytes: int, answered: bool, took_ns: int
    ) -> None:
        """`answered`: the response came in one read, or in another as long after as `took_ns`."""
        lease = self.lease(pick)
        held = self.held[lease]
        slot = held.slot
        first = self.now if answered and held.stage < Stage.STREAMING and self.now else 0
        self.now += took_ns
        self.ledger.settle(lease, outcome, self.now, sent_bytes, first)
        self.ledger.ended(slot, outcome)
        self.handed_over(lease, Stage.STREAMING)
        del self.held[lease]
        self.settled.append(slot)
        if first:
            self.timed(slot, held.drawn, FIRST_BYTE, FIRST_BYTE_SUM_US, first - held.began)
        says = held.drawn and outcome is Outcome.SERVED
        self.timed(slot, says, LATENCY, LATENCY_SUM_US, self.now - held.began)
        self.cells[slot, RECEIVED_BYTES] += held.received - held.told
        self.cells[slot, SENT_BYTES] += sent_bytes
        self.counted(slot, held.drawn, ATTEMPTS + outcome)
        self.cells[slot, REQUESTS + outcome] += 1
        self.cells[slot, SETTLED] += 1

    @rule(cleared=st.sets(SLOTS))
    def a_new_table_names_slots_that_were_begun_again(self, cleared: set[int]) -> None:
        """Control does so only with those that are empty; there may be none."""
        for slot in cleared - {held.slot for held in self.held.values()}:
            clear_slot(self.segment, slot)
            self.cells = Counter({at: n for at, n in self.cells.items() if at[0] != slot})
        self.ledger.reread()

    @invariant()
    def the_cells_are_what_was_counted(self) -> None:
        for slot in range(LAYOUT.slots):
            totals = self.segment.slot_totals(slot)
            held = sum(entry.slot == slot for entry in self.held.values())
            assert totals[ACCEPTED] - totals[SETTLED] == held == self.ledger.in_flight(slot)
            assert held == self.ledger.held(slot) == self.segment.in_flight(slot)
            assert sum(totals[LATENCY : LATENCY + HISTOGRAM_CELLS]) == totals[SETTLED]
            counted = [0] * SLOT_CELLS
            for (place, cell), count in self.cells.items():
                if place == slot:
                    counted[cell] = count
            assert totals == counted

    @invariant()
    def unsent_are_those_that_connect_or_send(self) -> None:
        for slot in range(LAYOUT.slots):
            assert self.ledger.unsent(slot) == self.early(slot)

    @invariant()
    def who_asked_is_told(self) -> None:
        assert self.told_sent == self.sent
        assert self.told_settled == self.settled

    @invariant()
    def the_segment_names_what_is_held(self) -> None:
        named = {
            (r.slot, r.request_id, r.stage, r.connection, r.start_ns, r.bytes)
            for r in self.segment.leases(1)
        }
        assert named == {
            (h.slot, h.request, h.stage, h.port, h.began, h.told) for h in self.held.values()
        }
        for lease, held in self.held.items():
            assert self.ledger.lease_bytes(lease) == held.received


TestLedger = LedgerAgainstCounters.TestCase
TestLedger.settings = settings(max_examples=25, deadline=None)


def test_a_record_that_is_used_again_begins_with_nothing() -> None:
    fd = create(LAYOUT)
    segment = Segment(fd)
    ledger = Ledger(segment, 0)
    for request in (1, 2):
        lease = ledger.open(1, 1, request, b"", 0, Stage.WAITING)
        assert ledger.lease_bytes(lease) == 0
        for _ in range(2):
            ledger.received(lease, 5)
            ledger.account(lease)
        assert [record.bytes for record in segment.leases(0)] == [10]
        ledger.settle(lease, Outcome.SERVED, 0, 0)
        assert segment.slot_totals(1)[RECEIVED_BYTES] == 10 * request
    os.close(fd)


def test_a_listed_request_holds_a_record_and_counts_nowhere() -> None:
    fd = create(LAYOUT)
    segment = Segment(fd)
    ledger = Ledger(segment, 0)
    free = len(ledger.free)
    record = ledger.list_unplaced(1, 7, b"mine", 5)
    (one,) = segment.leases(0)
    assert (one.request_id, one.client_request_id, one.slot, one.section) == (7, "mine", -1, 1)
    assert (one.stage, one.start_ns, one.bytes) == (Stage.UNPLACED, 5, 0)
    assert len(ledger.free) == free - 1
    ledger.unlist(record)
    assert list(segment.leases(0)) == []
    assert len(ledger.free) == free
    for _ in range(free):
        assert ledger.list_unplaced(1, 7, b"", 5) != NO_LEASE
    assert ledger.list_unplaced(1, 7, b"", 5) == NO_LEASE
    os.close(fd)


@pytest.mark.parametrize("took_us", [0, 1, 15, 16, 17, 5000, 1 << 33, 1 << 40])
@pytest.mark.parametrize("first_us", [None, 0, 7, 1 << 39])
def test_both_times_of_an_answer_are_counted_where_they_belong(
    took_us: int, first_us: int | None
) -> None:
    """First byte and end are mostly one moment, which is counted in one step."""
    fd = create(LAYOUT)
    segment = Segment(fd)
    ledger = Ledger(segment, 0)
    began = 0 if first_us is None else 10**12
    lease = ledger.open(1, 1, 1, b"", began, Stage.WAITING)
    first = None if first_us is None else min(first_us, took_us)
    first_ns = 0 if first is None else began + 1000 * first
    ledger.settle(lease, Outcome.SERVED, began + 1000 * took_us, 0, first_ns)
    totals = segment.slot_totals(1)
    for at, micros in ((LATENCY, took_us), (FIRST_BYTE, first)):
        filled = [cell for cell in range(HISTOGRAM_CELLS) if totals[at + cell]]
        assert filled == ([] if micros is None else [histogram_cell(micros)])
    assert totals[LATENCY_SUM_US] == took_us
    assert totals[FIRST_BYTE_SUM_US] == (first or 0)
    os.close(fd)


def test_refusals_count_in_their_model_s_section() -> None:
    fd = create(LAYOUT)
    segment = Segment(fd)
    Ledger(segment, 0).refused(1, REFUSALS["saturated"])
    assert segment.section_totals(1)[REFUSED + REFUSALS["saturated"].cell] == 1
    os.close(fd)


def test_waiting_is_begun_and_not_ended_over_all_workers() -> None:
    fd = create(LAYOUT)
    segment = Segment(fd)
    one, two = Ledger(segment, 0), Ledger(segment, 1)
    one.wait_began(1)
    two.wait_began(1)
    two.wait_ended(1, 5)
    assert one.waiting_for(1) == two.waiting_for(1) == 1
    os.close(fd)


def test_a_slot_that_was_begun_again_is_counted_from_where_it_stands() -> None:
    """A folded slot is zeroed by control while this worker, which once used it, lives on."""
    fd = create(LAYOUT)
    segment = Segment(fd)
    ledger = Ledger(segment, 0)
    held = ledger.open(1, 1, 1, b"", 0)
    ledger.settle(ledger.open(2, 1, 2, b"", 0), Outcome.SERVED, 0, 3)
    clear_slot(segment, 2)
    ledger.reread()
    ledger.settle(ledger.open(2, 1, 3, b"", 0), Outcome.SERVED, 0, 4)
    totals = segment.slot_totals(2)
    assert (totals[ACCEPTED], totals[SETTLED], totals[SENT_BYTES]) == (1, 1, 4)
    assert ledger.held(1) == 1  # a slot with a lease on it is never begun again
    ledger.settle(held, Outcome.SERVED, 0, 0)
    assert segment.in_flight(1) == ledger.in_flight(1) == 0
    os.close(fd)


def test_leases_of_other_workers_count_once_they_have_been_seen() -> None:
    fd = create(LAYOUT)
    segment = Segment(fd)
    one = Ledger(segment, 0)
    one.open(1, 1, 1, b"", 0)
    two = Ledger(segment, 1)
    two.open(1, 1, 2, b"", 0)
    assert (one.in_flight(1), two.in_flight(1), segment.in_flight(1)) == (1, 2, 2)
    one.look_around()
    assert one.in_flight(1) == 2
    assert (one.held(1), two.held(1)) == (1, 1)
    os.close(fd)

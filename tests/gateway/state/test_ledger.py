"""The ledger: what is opened is settled once, and everything adds up at every moment."""

import os
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.errors import REFUSALS
from gateway.records import Outcome, Stage
from gateway.state.ledger import NO_LEASE, Ledger
from gateway.state.settle import clear_slot
from gateway.state.shared import (
    ACCEPTED,
    ATTEMPTS,
    RECEIVED_BYTES,
    REFUSED,
    REQUESTS,
    SENT_BYTES,
    SETTLED,
    Layout,
    Segment,
    create,
)

LAYOUT = Layout(rows=2, slots=3, sections=2, leases=6)
SLOTS = st.integers(0, 2)


class LedgerAgainstCounters(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fd = create(LAYOUT)
        self.segment = Segment(self.fd)
        self.ledger = Ledger(self.segment, 1)
        self.told_sent: list[int] = []
        self.told_settled: list[int] = []
        self.ledger.on_sent = self.told_sent.append
        self.ledger.on_settled = self.told_settled.append
        self.held: dict[int, tuple[int, int, Stage]] = {}  # lease: slot, request, stage
        self.now = 0
        self.opened: Counter[int] = Counter()
        self.ended: Counter[tuple[int, int]] = Counter()
        self.received: Counter[int] = Counter()
        self.told: dict[int, int] = {}  # bytes of a lease that others can read of

    def teardown(self) -> None:
        os.close(self.fd)

    @rule(slot=SLOTS)
    def open(self, slot: int) -> None:
        self.now += 1000
        lease = self.ledger.open(slot, 1, self.now, b"c%d" % self.now, self.now)
        assert (lease == NO_LEASE) == (len(self.held) == LAYOUT.leases)
        if lease != NO_LEASE:
            assert lease not in self.held
            self.held[lease] = (slot, self.now, Stage.CONNECTING)
            self.opened[slot] += 1

    @precondition(lambda self: self.held)
    @rule(chance=st.randoms(use_true_random=False), stage=st.sampled_from(list(Stage)[2:]))
    def advance(self, chance: object, stage: Stage) -> None:
        lease = sorted(self.held)[0]
        slot, request, before = self.held[lease]
        if stage <= before:
            return
        if stage is Stage.SENDING:
            self.ledger.sending(lease, 4000)
        elif stage is Stage.WAITING:
            self.ledger.waiting(lease)
        else:
            self.ledger.streaming(lease, self.now)
        self.held[lease] = (slot, request, stage)

    @precondition(lambda self: self.held)
    @rule(count=st.integers(0, 1 << 40))
    def receive(self, count: int) -> None:
        lease = sorted(self.held)[-1]
        self.ledger.received(lease, count)
        self.received[self.held[lease][0]] += count
        assert self.ledger.lease_bytes(lease) >= count

    @rule()
    def account(self) -> None:
        for lease in self.held:
            self.ledger.account(lease)
            self.told[lease] = self.ledger.lease_bytes(lease)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 5), outcome=st.sampled_from(Outcome))
    def settle(self, pick: int, outcome: Outcome) -> None:
        lease = sorted(self.held)[pick % len(self.held)]
        slot = self.held.pop(lease)[0]
        self.told.pop(lease, None)
        self.now += 1000
        self.ledger.settle(lease, outcome, self.now, 10)
        self.ledger.ended(slot, outcome)
        self.ended[(slot, outcome)] += 1
        assert self.told_settled[-1] == slot

    @invariant()
    def accepted_is_settled_and_in_flight(self) -> None:
        for slot in range(LAYOUT.slots):
            totals = self.segment.slot_totals(slot)
            held = sum(1 for entry in self.held.values() if entry[0] == slot)
            assert totals[ACCEPTED] == self.opened[slot]
            assert totals[ACCEPTED] - totals[SETTLED] == held == self.ledger.in_flight(slot)
            assert held == self.ledger.held(slot) == self.segment.in_flight(slot)
            for outcome in Outcome:
                assert totals[ATTEMPTS + outcome] == self.ended[(slot, outcome)]
                assert totals[REQUESTS + outcome] == self.ended[(slot, outcome)]
            untold = sum(
                self.ledger.lease_bytes(lease) - self.told.get(lease, 0)
                for lease, entry in self.held.items()
                if entry[0] == slot
            )
            assert totals[RECEIVED_BYTES] + untold == self.received[slot]
            assert totals[SENT_BYTES] == 10 * totals[SETTLED]

    @invariant()
    def unsent_are_those_that_connect_or_send(self) -> None:
        for slot in range(LAYOUT.slots):
            early = [e for e in self.held.values() if e[0] == slot and e[2] < Stage.WAITING]
            assert self.ledger.unsent(slot) == len(early)

    @invariant()
    def the_segment_names_what_is_held(self) -> None:
        named = {(r.slot, r.request_id, r.stage) for r in self.segment.leases(1)}
        assert named == set(self.held.values())


TestLedger = LedgerAgainstCounters.TestCase
TestLedger.settings = settings(max_examples=25, deadline=None)


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

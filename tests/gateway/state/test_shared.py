"""The segment: cells that never overlap, sums that never go back, records never half believed."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import REFUSALS, REFUSALS_MAX
from gateway.records import OUTCOMES_MAX, Outcome, Stage
from gateway.state import shared
from gateway.state.ledger import Ledger
from gateway.state.shared import (
    HISTOGRAM_CELLS,
    LEASE_CELLS,
    PAGE_CELLS,
    Layout,
    Segment,
    create,
    histogram_bound_us,
    histogram_cell,
)

SMALL = Layout(rows=3, slots=4, sections=2, leases=8)


def segment(layout: Layout = SMALL) -> Segment:
    fd = create(layout)
    try:
        return Segment(fd)
    finally:
        os.close(fd)


def test_a_segment_says_its_own_layout() -> None:
    assert segment().layout == SMALL


def test_a_segment_of_another_layout_version_is_refused() -> None:
    fd = create(SMALL)
    Segment(fd).cells[0] += 1
    with pytest.raises(ValueError, match="this version reads"):
        Segment(fd)
    os.close(fd)


def test_a_segment_cannot_be_resized_under_its_readers() -> None:
    fd = create(SMALL)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 5), st.integers(1, 40))
def test_no_two_parts_of_a_segment_share_a_cell(
    rows: int, slots: int, sections: int, leases: int
) -> None:
    layout = Layout(rows, slots, sections, leases)
    fd = create(layout)
    held = Segment(fd)
    os.close(fd)
    edges = []
    for row in range(rows):
        base = held.base(row)
        assert base % PAGE_CELLS == 0
        edges += [(base, base + shared.HEAD_CELLS)]
        edges += [
            (at, at + shared.SLOT_CELLS) for at in (held.slot_base(row, s) for s in range(slots))
        ]
        starts = (held.section_base(row, section) for section in range(sections))
        edges += [(at, at + shared.SECTION_CELLS) for at in starts]
        at = base + layout.leases_at
        assert at % 8 == 0  # a lease begins on a cache line
        edges += [(at + n * LEASE_CELLS, at + (n + 1) * LEASE_CELLS) for n in range(leases)]
    assert all(end <= start for (_, end), (start, _) in pairwise(edges))
    assert edges[-1][1] * 8 <= layout.size_bytes


def test_every_counter_of_a_slot_and_a_section_has_its_own_cell() -> None:
    slot = [
        *(shared.ACCEPTED, shared.SETTLED, shared.SENT_BYTES, shared.RECEIVED_BYTES),
        *(shared.LATENCY_SUM_US, shared.FIRST_BYTE_SUM_US),
        *range(shared.ATTEMPTS, shared.ATTEMPTS + OUTCOMES_MAX),
        *range(shared.REQUESTS, shared.REQUESTS + OUTCOMES_MAX),
        *range(shared.LATENCY, shared.LATENCY + HISTOGRAM_CELLS),
        *range(shared.FIRST_BYTE, shared.FIRST_BYTE + HISTOGRAM_CELLS),
    ]
    section = [
        *(shared.WAIT_BEGUN, shared.WAIT_ENDED, shared.WAIT_SUM_US),
        *(shared.REPLAYS_SERVED, shared.REPLAYS_FAILED),
        *range(shared.REFUSED, shared.REFUSED + REFUSALS_MAX),
        *range(shared.WAIT, shared.WAIT + HISTOGRAM_CELLS),
    ]
    assert len(set(slot)) == len(slot)
    assert max(slot) < shared.SLOT_CELLS
    assert len(set(section)) == len(section)
    assert max(section) < shared.SECTION_CELLS


def test_every_refusal_has_a_cell_of_its_own() -> None:
    cells = [refusal.cell for refusal in REFUSALS.values()]
    assert len(set(cells)) == len(cells)
    assert max(cells) < REFUSALS_MAX


# --- histograms ----------------------------------------------------------------------------------


@given(st.integers(0, 1 << 33))
def test_a_time_counts_in_the_cell_whose_bounds_hold_it(micros: int) -> None:
    cell = histogram_cell(micros)
    assert micros < histogram_bound_us(cell) or cell == HISTOGRAM_CELLS - 1
    assert cell == 0 or micros >= histogram_bound_us(cell - 1)


def test_a_step_is_never_more_than_an_eighth() -> None:
    bounds = [histogram_bound_us(cell) for cell in range(16, HISTOGRAM_CELLS)]
    assert all(high - low <= low / 8 for low, high in pairwise(bounds))


@given(st.integers(0, 1 << 62))
def test_any_time_has_a_cell(micros: int) -> None:
    assert 0 <= histogram_cell(micros) < HISTOGRAM_CELLS


# --- what readers see ----------------------------------------------------------------------------


def test_in_flight_is_the_sum_over_workers() -> None:
    held = segment()
    ledgers = [Ledger(held, row) for row in range(3)]
    leases = [ledger.open(2, 1, 7, b"", 0) for ledger in ledgers for _ in range(2)]
    assert held.in_flight(2) == 6
    ledgers[0].settle(leases[0], Outcome.SERVED, 1000, 0)
    assert held.in_flight(2) == 5
    assert held.slot_totals(2)[shared.ACCEPTED] == 6


def test_a_lease_of_another_process_can_be_named() -> None:
    held = segment()
    ledger = Ledger(held, 1)
    lease = ledger.open(3, 1, 0x7FFF_FFFF_FFFF_FFFF, b"client-" + b"x" * 60, 5)
    ledger.sending(lease, 50123)
    (record,) = held.leases(1)
    assert record.request_id == 0x7FFF_FFFF_FFFF_FFFF
    assert record.client_request_id == "client-" + "x" * 41
    assert (record.slot, record.connection, record.stage) == (3, 50123, Stage.SENDING)
    assert list(held.leases(0)) == []


def test_a_record_that_is_being_written_is_not_believed() -> None:
    held = segment()
    ledger = Ledger(held, 0)
    ledger.open(1, 1, 7, b"", 5)
    at = held.base(0) + SMALL.leases_at + (SMALL.leases - 1) * LEASE_CELLS
    assert len(list(held.leases(0))) == 1
    held.cells[at + shared.END] += 1  # the next record, of which only the end has arrived
    assert list(held.leases(0)) == []


WRITER = """
import sys
from gateway.state.ledger import Ledger
from gateway.state.shared import Segment
ledger = Ledger(Segment(int(sys.argv[1])), 0)
print("up", flush=True)
while True:
    lease = ledger.open(1, 1, 7, b"", 0)
    ledger.sending(lease, 1)
    ledger.settle(lease, 0, 1000, 1)
"""


def test_a_reader_beside_a_busy_writer_never_sees_a_count_go_back() -> None:
    fd = create(SMALL)
    held = Segment(fd)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(fd)], pass_fds=[fd], stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        last = 0
        for _ in range(20_000):
            settled = held.cells[held.slot_base(0, 1) + shared.SETTLED]
            assert settled >= last
            last = settled
            assert held.in_flight(1) >= 0  # a race may overstate it, never the other way
            for record in held.leases(0):
                assert (record.request_id, record.slot) == (7, 1)
        assert last > 0
    finally:
        writer.kill()
        writer.wait()
        os.close(fd)

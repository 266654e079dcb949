"""Rates are of the last seconds, totals only grow."""

from hypothesis import given
from hypothesis import strategies as st

from backends.readings import MS_NS, SECOND_NS, WINDOW_S, Meter

HALF = SECOND_NS // 2


def test_a_full_batch_all_the_time_is_a_utilisation_of_one() -> None:
    meter = Meter(slots=4, started_ns=0)
    for half in range(1, 61):
        meter.step_ran(half * HALF, HALF, busy=4, tokens=4)
    readings = meter.read(30 * SECOND_NS, 4, 0, 0, "")
    # The second that the clock has just begun is one of the ten.
    assert 0.9 <= readings.batch_utilisation_ratio <= 1.0
    assert 7.2 <= readings.tokens_per_s <= 8.0


def test_times_begin_anew_and_totals_go_on() -> None:
    meter = Meter(slots=1, started_ns=0)
    meter.memory_seen(9)

    def serve(at: int) -> None:
        meter.waited(at, HALF)
        meter.first_token_came(HALF)
        meter.step_ran(at, HALF, busy=1, tokens=4, prompt_tokens=3)
        meter.ended_well(HALF, tokens=3, decoding_ns=HALF)

    serve(HALF)
    meter.time_from(SECOND_NS)
    found = meter.read(SECOND_NS, 0, 0, 0, "")
    seen = (found.waits, found.first_tokens, found.token_gaps, found.durations)
    assert [(sum(one.counts), one.total) for one in seen] == [(0, 0.0)] * 4
    assert (found.tokens_per_s, found.prompt_tokens_per_s, found.queue_wait_ms) == (0, 0, 0)
    assert (found.batch_utilisation_ratio, found.last_latency_ms) == (0, 0)
    assert (found.progress_total, found.served_total, found.memory_peak_bytes) == (1, 1, 9)
    serve(SECOND_NS + HALF)
    found = meter.read(2 * SECOND_NS, 0, 0, 0, "")
    assert (sum(found.durations.counts), found.tokens_per_s) == (1, 4.0)
    assert found.batch_utilisation_ratio == 0.5


def test_half_the_slots_half_the_time_is_a_quarter() -> None:
    meter = Meter(slots=4, started_ns=0)
    for second in range(5):
        meter.step_ran(second * SECOND_NS + HALF, HALF, busy=2, tokens=2)
    readings = meter.read(5 * SECOND_NS, 0, 0, 0, "")
    assert readings.batch_utilisation_ratio == 0.25
    assert readings.tokens_per_s == 2.0


def test_an_idle_instance_reads_zero_but_keeps_its_totals() -> None:
    meter = Meter(slots=1, started_ns=0)
    meter.step_ran(SECOND_NS, SECOND_NS, busy=1, tokens=1)
    meter.waited(SECOND_NS, 70 * MS_NS)
    meter.ended_well(90 * MS_NS)
    readings = meter.read((WINDOW_S + 2) * SECOND_NS, 0, 0, 0, "")
    assert readings.batch_utilisation_ratio == 0
    assert readings.tokens_per_s == 0
    assert readings.queue_wait_ms == 0
    assert readings.last_latency_ms == 90
    assert (readings.progress_total, readings.completion_tokens_total) == (1, 1)
    assert readings.served_total == 1


def test_a_step_longer_than_the_window_is_still_no_more_than_all_of_it() -> None:
    meter = Meter(slots=1, started_ns=0)
    meter.step_ran(60 * SECOND_NS, 60 * SECOND_NS, busy=1, tokens=1)
    assert meter.read(60 * SECOND_NS, 1, 0, 0, "").batch_utilisation_ratio == 1.0


def test_the_wait_shown_is_the_mean_of_the_admitted_or_the_oldest_still_waiting() -> None:
    meter = Meter(slots=1, started_ns=0)
    meter.waited(HALF, 100 * MS_NS)
    meter.waited(HALF, 300 * MS_NS)
    assert meter.read(SECOND_NS, 0, 1, 50 * MS_NS, "").queue_wait_ms == 200
    assert meter.read(SECOND_NS, 0, 1, 900 * MS_NS, "").queue_wait_ms == 900


def test_prompts_are_counted_with_what_was_reused_of_them() -> None:
    meter = Meter(slots=1, started_ns=0)
    for reused in (0, 30, 12):
        meter.prompt_became_whole(reused)
    readings = meter.read(1, 0, 0, 0, "")
    assert (readings.prompts_total, readings.prefix_hits_total) == (3, 2)
    assert readings.reused_tokens_total == 42


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_the_peak_is_the_highest_memory_ever_seen(seen: list[int]) -> None:
    meter = Meter(slots=1, started_ns=0)
    for held_bytes in seen:
        meter.memory_seen(held_bytes)
    readings = meter.read(1, 0, 0, 0, "")
    assert (readings.memory_bytes, readings.memory_peak_bytes) == (seen[-1], max(seen))

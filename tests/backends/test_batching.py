"""Which step comes next, as properties over every possible batch and over whole runs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.batching import Decode, Occupied, Prefill, Step, plan

CHUNKS = (4, 16)
sizes = st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True).map(sorted)
lefts = st.one_of(st.just(0), st.integers(1, 500))
batches = st.lists(st.one_of(st.none(), lefts), min_size=1, max_size=8).flatmap(
    lambda held: st.permutations(range(len(held))).map(
        lambda order: [
            None if left is None else Occupied(place, left)
            for left, place in zip(held, order, strict=True)
        ]
    )
)


@given(batches, st.booleans())
def test_there_is_a_step_exactly_when_something_is_held(
    slots: list[Occupied | None], after_prefill: bool
) -> None:
    assert (plan(slots, CHUNKS, after_prefill) is not None) == any(slots)


@given(batches)
def test_no_two_prefills_follow_each_other_while_a_stream_waits_for_a_decode(
    slots: list[Occupied | None],
) -> None:
    decoding = {slot for slot, held in enumerate(slots) if held and held.prompt_left == 0}
    if decoding:
        assert plan(slots, CHUNKS, True) == Decode(tuple(sorted(decoding)))


@given(batches, st.booleans())
def test_a_prefill_is_of_the_oldest_prompt_that_is_not_whole(
    slots: list[Occupied | None], after_prefill: bool
) -> None:
    step = plan(slots, CHUNKS, after_prefill)
    if isinstance(step, Prefill):
        unfinished = [held for held in slots if held and held.prompt_left]
        assert slots[step.slot] == min(unfinished, key=lambda held: held.order)


@given(batches)
def test_after_a_decode_an_unfinished_prompt_comes_first(slots: list[Occupied | None]) -> None:
    prompts = [held for held in slots if held and held.prompt_left]
    assert isinstance(plan(slots, CHUNKS, False), Prefill) == bool(prompts)


def test_nothing_held_is_no_step() -> None:
    assert plan([None, None], CHUNKS, False) is None


@given(batches, sizes, st.booleans())
def test_a_chunk_beside_streams_is_the_smallest_and_never_more_than_is_left(
    slots: list[Occupied | None], chunks: list[int], after_prefill: bool
) -> None:
    step = plan(slots, chunks, after_prefill)
    if isinstance(step, Prefill):
        left = getattr(slots[step.slot], "prompt_left", 0)
        assert 1 <= step.count <= min(left, chunks[-1])
        if any(held and not held.prompt_left for held in slots):
            assert step.count == min(left, chunks[0])


@pytest.mark.parametrize(
    ("left", "counts"),
    [
        (900, [128] * 7 + [4]),
        (128, [128]),
        (65, [65]),  # more than half of a long chunk
        (64, [32, 32]),
        (33, [32, 1]),
        (5, [5]),
    ],
)
def test_alone_a_prompt_is_computed_in_chunks_that_are_mostly_used(
    left: int, counts: list[int]
) -> None:
    got = []
    while left:
        step = plan([Occupied(0, left)], (32, 128), after_prefill=True)
        assert isinstance(step, Prefill)
        got.append(step.count)
        left -= step.count
    assert got == counts


# --- whole runs: who waits for how many steps ---------------------------------------------------


def run(
    arrivals: list[tuple[int, int, int]], slots: int, chunks: list[int]
) -> list[tuple[Step, tuple[Occupied | None, ...]]]:
    """Every step and the slots before it. An arrival: at which step, prompt ids, tokens asked for.

    One that finds no free slot waits its turn.
    """
    held: list[Occupied | None] = [None] * slots
    tokens_left = [0] * slots
    waiting = sorted(arrivals)
    ran: list[tuple[Step, tuple[Occupied | None, ...]]] = []
    order = 0
    while waiting or any(held):
        for slot in range(slots):
            if held[slot] is None and waiting and waiting[0][0] <= len(ran):
                _, prompt, tokens_left[slot] = waiting.pop(0)
                held[slot] = Occupied(order, prompt)
                order += 1
        after_prefill = bool(ran) and isinstance(ran[-1][0], Prefill)
        step = plan(held, chunks, after_prefill)
        if step is None:  # nobody is there yet
            waiting = [(0, prompt, tokens) for _, prompt, tokens in waiting]
            continue
        ran.append((step, tuple(held)))
        given_to = [step.slot] if isinstance(step, Prefill) else list(step.slots)
        for slot in given_to:
            occupied = held[slot]
            assert occupied is not None
            left = occupied.prompt_left - (step.count if isinstance(step, Prefill) else 0)
            held[slot] = Occupied(occupied.order, left)
            tokens_left[slot] -= left == 0
            if not left and not tokens_left[slot]:
                held[slot] = None
    return ran


arrivals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(1, 10)), min_size=1, max_size=10
)


@given(arrivals, st.integers(1, 4), sizes)
def test_a_running_stream_waits_for_one_chunk_of_others_prompts_at_most(
    arrivals: list[tuple[int, int, int]], slots: int, chunks: list[int]
) -> None:
    ran = run(arrivals, slots, chunks)
    for (step, before), (following, _) in pairwise(ran):
        decoding = {slot for slot, held in enumerate(before) if held and not held.prompt_left}
        if isinstance(step, Prefill) and decoding:
            assert step.count <= chunks[0]
            assert isinstance(following, Decode)
        if isinstance(step, Decode):
            assert set(step.slots) == decoding  # nobody is left out of a decode


@given(arrivals, st.integers(1, 4), sizes)
def test_a_prompt_that_holds_a_slot_waits_for_one_decode_and_for_the_prompts_before_it(
    arrivals: list[tuple[int, int, int]], slots: int, chunks: list[int]
) -> None:
    ran = run(arrivals, slots, chunks)
    for (step, _), (following, before) in pairwise(ran):
        unfinished = [held for held in before if held and held.prompt_left]
        if isinstance(step, Decode) and unfinished:
            assert isinstance(following, Prefill)
            assert before[following.slot] == min(unfinished, key=lambda held: held.order)


@given(arrivals, st.integers(1, 4), sizes)
def test_every_run_ends_after_the_steps_that_it_needs(
    arrivals: list[tuple[int, int, int]], slots: int, chunks: list[int]
) -> None:
    """Neither prompts nor streams starve: each id is computed once, each token is of one step."""
    ran = run(arrivals, slots, chunks)
    computed = sum(step.count for step, _ in ran if isinstance(step, Prefill))
    decodes = sum(len(step.slots) for step, _ in ran if isinstance(step, Decode))
    assert computed == sum(prompt for _, prompt, _ in arrivals)
    assert decodes == sum(tokens - 1 for _, _, tokens in arrivals)  # a prefill gives the first

"""Which step comes next, as properties over every possible batch."""

from hypothesis import given
from hypothesis import strategies as st

from backends.batching import Decode, Occupied, Plan, Prefill, plan

lefts = st.one_of(st.just(0), st.integers(1, 500))
batches = st.lists(st.one_of(st.none(), lefts), min_size=1, max_size=8).flatmap(
    lambda held: st.permutations(range(len(held))).map(
        lambda order: [
            None if left is None else Occupied(place, left)
            for left, place in zip(held, order, strict=True)
        ]
    )
)


@given(batches, st.integers(0, 10), st.booleans())
def test_free_slots_go_to_the_first_that_wait(
    slots: list[Occupied | None], waiting: int, after_prefill: bool
) -> None:
    admitted = plan(slots, waiting, after_prefill).admitted
    assert all(slots[slot] is None for slot in admitted)
    assert len(set(admitted)) == len(admitted) == min(waiting, slots.count(None))


@given(batches, st.integers(0, 10), st.booleans())
def test_there_is_a_step_exactly_when_something_is_held_or_admitted(
    slots: list[Occupied | None], waiting: int, after_prefill: bool
) -> None:
    planned = plan(slots, waiting, after_prefill)
    assert (planned.step is not None) == (bool(planned.admitted) or any(slots))


@given(batches, st.integers(0, 10))
def test_no_two_prefills_follow_each_other_while_a_stream_waits_for_a_decode(
    slots: list[Occupied | None], waiting: int
) -> None:
    decoding = {slot for slot, held in enumerate(slots) if held and held.prompt_left == 0}
    if decoding:
        assert plan(slots, waiting, True).step == Decode(tuple(sorted(decoding)))


@given(batches, st.integers(0, 10), st.booleans())
def test_a_prefill_is_of_the_oldest_prompt_that_is_not_whole(
    slots: list[Occupied | None], waiting: int, after_prefill: bool
) -> None:
    planned = plan(slots, waiting, after_prefill)
    if not isinstance(planned.step, Prefill):
        return
    chosen = slots[planned.step.slot]
    unfinished = [held for held in slots if held and held.prompt_left]
    if unfinished:
        assert chosen == min(unfinished, key=lambda held: held.order)
    else:
        assert planned.step.slot == planned.admitted[0]


@given(batches, st.integers(0, 10))
def test_after_a_decode_an_unfinished_prompt_comes_first(
    slots: list[Occupied | None], waiting: int
) -> None:
    planned = plan(slots, waiting, False)
    prompts = planned.admitted or [held for held in slots if held and held.prompt_left]
    assert isinstance(planned.step, Prefill) == bool(prompts)


def test_nothing_held_and_nobody_waiting_is_no_step() -> None:
    assert plan([None, None], 0, False) == Plan((), None)

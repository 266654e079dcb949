"""Who gets which free slot, and what is found in it."""

from hypothesis import given
from hypothesis import strategies as st

from backends.placing import NOTHING_KEPT, Kept, Place, place, shared

ids = st.lists(st.integers(1, 2), max_size=12).map(tuple)
prompts = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=12).map(tuple), max_size=5)
slots = st.dictionaries(st.integers(0, 7), st.builds(Kept, ids, st.integers(0, 20)), max_size=5)

LONG = tuple(range(900))
TALK = tuple(range(1000, 1100))


@given(prompts, slots)
def test_the_first_prompts_get_a_free_slot_each(
    prompts: list[tuple[int, ...]], free: dict[int, Kept]
) -> None:
    places = place(prompts, free, 20)
    assert len(places) == min(len(prompts), len(free))
    taken = [each.slot for each in places]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(free)


@given(prompts, slots)
def test_what_is_reused_is_the_beginning_of_both_and_never_the_whole_prompt(
    prompts: list[tuple[int, ...]], free: dict[int, Kept]
) -> None:
    for prompt, (slot, reused) in zip(
        prompts, [(each.slot, each.reused) for each in place(prompts, free, 20)], strict=False
    ):
        assert prompt[:reused] == free[slot].ids[:reused]
        assert reused < len(prompt)
        longest = reused + 1
        assert longest == len(prompt) or prompt[:longest] != free[slot].ids[:longest]


@given(st.lists(st.integers(), min_size=1, max_size=9).map(tuple))
def test_a_prompt_that_is_there_as_a_whole_still_has_its_last_id_computed(
    prompt: tuple[int, ...],
) -> None:
    assert shared(prompt, prompt) == len(prompt) - 1
    assert shared(prompt, (*prompt, 7)) == len(prompt) - 1


def test_the_longest_common_beginning_wins() -> None:
    free = {0: Kept(TALK[:20]), 1: Kept(TALK[:60]), 2: Kept(LONG)}
    assert place([TALK], free, 0) == (Place(1, 60),)


def test_a_long_prefix_is_not_given_up_while_a_slot_is_empty() -> None:
    for age in (0, 1000):
        assert place([TALK], {0: Kept(LONG), 1: NOTHING_KEPT}, age) == (Place(1, 0),)
        # Not even for its first few ids, which every prompt of a template has.
        assert place([(*LONG[:30], 5, 6)], {0: Kept(LONG), 1: NOTHING_KEPT}, age) == (Place(1, 0),)


def test_of_slots_that_are_no_use_the_shorter_goes_first_and_of_equals_the_older() -> None:
    assert place([TALK], {0: Kept(LONG, 5), 1: Kept(LONG[:40], 5)}, 5) == (Place(1, 0),)
    assert place([TALK], {0: Kept(LONG, 5), 1: Kept(LONG, 4)}, 5) == (Place(1, 0),)


def test_a_long_prefix_that_nobody_came_for_goes_in_the_end() -> None:
    """Else it would hold its slot for ever, and all others would push out each other."""
    fresh = Kept(LONG[:40], 100)
    assert place([TALK], {0: Kept(LONG, 0), 1: fresh}, 100) == (Place(0, 0),)


def test_talks_do_not_push_out_each_other_while_what_nobody_comes_for_stays() -> None:
    """Two talks in turn and three slots, of which long prompts of old hold all."""
    slots = {slot: Kept(LONG[slot:], 0) for slot in range(3)}
    talks = [(7, *TALK), (8, *TALK)]
    found = []
    for turn in range(1, 9):
        talks[turn % 2] += (turn,) * 10
        (taken,) = place([talks[turn % 2]], slots, turn - 1)
        slots[taken.slot] = Kept(talks[turn % 2], turn)
        found.append(taken.reused > 0)
    assert found[3:] == [True] * 5


def test_who_saves_most_chooses_first() -> None:
    """The first of the two could take either slot; the second finds itself in one."""
    free = {0: Kept(TALK[:90], 7), 1: Kept(LONG[:95], 7)}
    assert place([(5, 6, 7), TALK], free, 7) == (Place(1, 0), Place(0, 90))


def test_where_nothing_is_kept_the_first_slots_go_to_the_first_prompts() -> None:
    free = dict.fromkeys((2, 1, 3), NOTHING_KEPT)
    assert place([(5,), (6,)], free, 9) == (Place(1, 0), Place(2, 0))

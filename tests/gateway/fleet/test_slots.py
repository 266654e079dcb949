from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.slots import (
    NO_SLOT,
    QUIET_S,
    Holder,
    SlotBook,
    allocate,
    foldable,
    kept,
    leave,
    release,
    section_of,
)

WHO = Holder("a", "a1", "m", "1")


def test_a_slot_is_folded_only_after_every_worker_serves_a_table_without_it_and_a_quiet_while() -> (
    None
):
    book, slot = allocate(SlotBook(4, 4), WHO)
    assert foldable(book, 100, 1e6) == ()
    book = leave(book, slot, generation=7, now=50.0)
    assert foldable(book, 6, 1e6) == ()
    assert foldable(book, 7, 50.0 + QUIET_S - 0.1) == ()
    assert foldable(book, 7, 50.0 + QUIET_S) == (slot,)
    assert leave(book, slot, generation=9, now=60.0) == book


def test_a_released_slot_is_given_out_last() -> None:
    book, first = allocate(SlotBook(3, 4), WHO)
    book = release(book, first)
    order = []
    for _ in range(3):
        book, slot = allocate(book, WHO)
        order.append(slot)
    assert order == [1, 2, first]
    assert allocate(book, WHO)[1] == NO_SLOT


@given(st.lists(st.integers(0, 2), max_size=80))
def test_no_slot_ever_has_two_holders(deeds: list[int]) -> None:
    book, living, past = SlotBook(5, 4), set[int](), set[int]()
    for number, deed in enumerate(deeds):
        if deed == 0:
            book, slot = allocate(book, WHO)
            assert slot not in living | past
            living |= {slot} - {NO_SLOT}
        elif deed == 1 and living:
            slot = min(living)
            book = leave(kept(book, slot), slot, number, float(number))
            living.remove(slot)
            past.add(slot)
        elif deed == 2 and past:
            slot = past.pop()
            book = release(book, slot)
        assert book.holders.keys() == living | past


def test_sections_belong_to_models_for_good_and_0_to_nobody() -> None:
    book, one = section_of(SlotBook(4, 3), "m")
    book, two = section_of(book, "n")
    assert (one, two) == (1, 2)
    assert section_of(book, "m")[1] == one
    assert section_of(book, "x") == (book, 0)

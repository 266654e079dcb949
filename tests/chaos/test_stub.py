"""An answer of the stub belongs to one request, and to each place in it."""

from tests.chaos.stub import LETTERS, answer, numbered

SPAN = LETTERS * (LETTERS - 1)


def test_answers_to_numbers_less_than_a_span_apart_differ_in_their_first_two_letters() -> None:
    assert len({answer(number, 2) for number in range(1000, 1000 + SPAN)}) == SPAN


def test_a_letter_left_out_or_doubled_shows() -> None:
    said = answer(77, 20)
    assert said[:5] + said[6:] != answer(77, 19)
    assert said[:5] + said[4:] != answer(77, 21)


def test_the_engine_says_what_the_client_expects() -> None:
    ids = tuple(b"u:n=4711;")
    for _ in range(120):
        ids = (*ids, numbered(ids))
    assert bytes(ids[9:]).decode() == answer(4711, 120)


def test_a_prompt_without_a_number_gets_an_answer_too() -> None:
    assert 32 <= numbered(tuple(b"hello")) < 127
    assert 32 <= numbered(tuple(b"u:hello;")) < 127

import pytest

from gateway.controlplane.tickets import Tickets


async def test_an_answer_finds_who_waits_for_it() -> None:
    tickets = Tickets()
    (first, one), (second, two) = tickets.draw(), tickets.draw()
    tickets.answer(second, "two")
    tickets.answer(first, "one")
    assert (await one, await two) == ("one", "two")


async def test_an_exception_is_raised_where_it_is_awaited_and_late_answers_find_nobody() -> None:
    tickets = Tickets()
    number, future = tickets.draw()
    tickets.answer(number, KeyError("no"))
    with pytest.raises(KeyError):
        await future
    tickets.answer(number, "late")
    tickets.answer(0, "nobody waits for 0")

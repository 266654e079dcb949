"""One generation as its consumer sees it."""

import asyncio

import pytest

from backends.engines.base import Finish, Token
from backends.errors import EngineFailed
from backends.stream import Stream

Left = list[tuple[int, bool]]


def stream() -> tuple[Stream, Left]:
    left: Left = []
    return Stream(7, lambda number, served: left.append((number, served))), left


async def test_tokens_come_in_order_and_the_last_one_ends_it() -> None:
    tokens = [Token(1, None), Token(2, None), Token(3, Finish.STOP)]
    reading, left = stream()
    assert all(reading.push(token) for token in tokens)
    assert [token async for token in reading] == tokens
    assert not reading.push(Token(4, None))
    assert left == []


async def test_a_reader_that_waits_is_woken_by_a_token() -> None:
    reading, _ = stream()
    waiting = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)  # one turn: it waits
    reading.push(Token(5, None))
    assert await waiting == Token(5, None)


async def test_a_failure_comes_after_the_tokens_before_it() -> None:
    reading, _ = stream()
    reading.push(Token(1, None))
    reading.fail("broken")
    reading.fail("broken again")
    assert await anext(reading) == Token(1, None)
    for _ in range(2):
        with pytest.raises(EngineFailed, match=r"^broken$"):
            await anext(reading)


async def test_a_failure_after_the_end_changes_nothing() -> None:
    reading, _ = stream()
    reading.push(Token(1, Finish.LENGTH))
    reading.fail("too late")
    assert [token async for token in reading] == [Token(1, Finish.LENGTH)]


@pytest.mark.parametrize("served", [False, True])
async def test_leaving_is_told_once_and_ends_the_reader(served: bool) -> None:
    reading, left = stream()
    reading.push(Token(1, None))
    waiting = asyncio.ensure_future(reader(reading))
    await asyncio.sleep(0)  # one turn: it has taken the token and waits
    for _ in range(2):
        (reading.stop if served else reading.cancel)()
    assert await waiting == [Token(1, None)]
    assert left == [(7, served)]
    assert not reading.push(Token(2, None))
    assert [token async for token in reading] == []


async def reader(reading: Stream) -> list[Token]:
    return [token async for token in reading]

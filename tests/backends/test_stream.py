"""One generation as its consumer sees it."""

import asyncio

import pytest

from backends.engines.base import Finish, Token
from backends.errors import EngineFailed
from backends.stream import Bell, Stream, merged

Left = list[tuple[int, bool]]


def stream() -> tuple[Stream, Left]:
    left: Left = []
    return Stream(7, lambda number, served: left.append((number, served)), Bell()), left


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


# --- several of one request ----------------------------------------------------------------------


def several(count: int) -> list[Stream]:
    bell = Bell()
    return [Stream(number, lambda number, served: None, bell) for number in range(count)]


async def merge(streams: list[Stream], into: list[tuple[int, int]]) -> None:
    async for index, token in merged(streams):
        into.append((index, token.id))


async def turn() -> None:
    """Whoever can go on has gone on."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_tokens_of_several_streams_come_as_they_are_made_with_their_index() -> None:
    streams, got = several(3), list[tuple[int, int]]()
    reading = asyncio.ensure_future(merge(streams, got))
    await turn()
    streams[2].push(Token(1, None))
    await turn()
    assert got == [(2, 1)]
    streams[0].push(Token(2, Finish.STOP))
    streams[1].push(Token(3, None))
    await turn()
    assert got == [(2, 1), (0, 2), (1, 3)]
    streams[1].push(Token(4, Finish.LENGTH))
    await turn()
    assert not reading.done()
    streams[2].push(Token(5, Finish.LENGTH))
    await reading
    assert got[3:] == [(1, 4), (2, 5)]


async def test_a_stream_that_its_consumer_stopped_does_not_hold_up_the_others() -> None:
    streams, got = several(2), list[tuple[int, int]]()
    for stream in streams:
        stream.push(Token(1, None))
        stream.push(Token(2, Finish.LENGTH))  # there already, and not wanted of the first
    async for index, token in merged(streams):
        got.append((index, token.id))
        if index == 0:
            streams[0].stop()
    assert got == [(0, 1), (1, 1), (1, 2)]


async def test_a_failure_behind_what_its_consumer_wanted_concerns_nobody() -> None:
    streams = several(2)
    for stream in streams:
        stream.push(Token(1, None))
    reading = merged(streams)
    assert await anext(reading) == (0, Token(1, None))
    streams[0].fail("broken")
    streams[0].stop()
    assert await anext(reading) == (1, Token(1, None))
    streams[1].push(Token(2, Finish.LENGTH))
    assert [pair async for pair in reading] == [(1, Token(2, Finish.LENGTH))]


async def test_the_failure_of_one_of_several_is_told_also_if_it_comes_while_one_is_read() -> None:
    streams = several(2)
    streams[0].push(Token(1, None))
    reading = merged(streams)
    assert await anext(reading) == (0, Token(1, None))
    streams[0].fail("broken")  # after it was looked at, before the next look
    with pytest.raises(EngineFailed, match="broken"):
        await asyncio.wait_for(anext(reading), 300)

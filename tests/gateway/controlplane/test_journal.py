import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import count

import pytest

from gateway.control import Event
from gateway.controlplane.journal import REMEMBERED, Journal


def journal() -> Journal:
    ticks = count(1000)
    return Journal(lambda: float(next(ticks)), 5000)


async def test_ids_grow_by_one_and_last_event_id_resumes_behind_it() -> None:
    book = journal()
    for text in ("one", "two", "three"):
        book.record("drain", "a", text, {"held": 1}, warn=False)
    events = book.events(5000)
    assert [(await anext(events)).text for _ in range(2)] == ["two", "three"]


async def test_a_follower_sees_what_happens_from_now_on() -> None:
    book = journal()
    book.record("drain", "a", "before", {}, warn=False)
    following = asyncio.ensure_future(anext(book.events(None)))
    await asyncio.sleep(0)
    book.record("drain", "a", "after", {}, warn=True)
    event = await following
    assert (event.text, event.id, event.at) == ("after", 5001, 1001.0)


async def test_only_so_many_are_remembered() -> None:
    book = journal()
    for number in range(REMEMBERED + 10):
        book.record("drain", "a", str(number), {}, warn=False)
    assert (await anext(book.events(0))).text == "10"


def test_a_warning_is_logged_with_all_that_it_knows(caplog: pytest.LogCaptureFixture) -> None:
    """The ring ends with the process; who was lost has to be in what stays."""
    fields = {"client_request_id": "mine", "cause": "worker died"}
    journal().record("request", "1f", "request 1f lost", fields, warn=True)
    (line,) = caplog.records
    assert vars(line).items() >= {**fields, "kind": "request", "subject": "1f"}.items()


async def test_a_follower_looks_at_what_is_new_and_not_at_all_that_is_remembered() -> None:
    """A fleet that comes up tells thousands of things, and each wakes every follower."""

    class Unwalked(deque[Event]):
        def __iter__(self) -> Iterator[Event]:
            raise AssertionError("walked from the beginning")

    book = journal()
    book._ring = Unwalked(maxlen=REMEMBERED)
    for number in range(REMEMBERED):
        book.record("drain", "a", str(number), {}, warn=False)
    events = book.events(5000 + REMEMBERED - 3)
    assert [(await anext(events)).text for _ in range(2)] == ["1998", "1999"]


async def test_who_asks_for_what_is_yet_to_come_waits_for_it() -> None:
    book = journal()
    book.record("drain", "a", "one", {}, warn=False)
    following = asyncio.ensure_future(anext(book.events(5001)))
    await asyncio.sleep(0)
    for text in ("two", "three"):
        book.record("drain", "a", text, {}, warn=False)
    assert (await following).text == "three"

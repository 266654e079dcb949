import asyncio
from itertools import count

import pytest

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

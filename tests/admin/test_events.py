import asyncio
from dataclasses import replace

import orjson
import pytest
from aiohttp import ClientResponse

from admin import events, views
from gateway.control import Event
from tests.admin.conftest import Api
from tests.admin.fakes import EVENTS, FakeControl

NEXT = Event(4, 1.7e9, "weights", "m", "a line\nand another", {})


async def _frames(answer: ClientResponse, count: int) -> list[bytes]:
    """The next `count` frames, without the empty line that ends each."""
    return [(await answer.content.readuntil(b"\n\n")).strip() for _ in range(count)]


def _wire(event: Event) -> bytes:
    return b"id: %d\ndata: %b" % (event.id, orjson.dumps(views.event(event)))


def test_an_event_is_one_line_of_data_whatever_its_text_holds() -> None:
    assert events.encode(NEXT) == _wire(NEXT) + b"\n\n"
    assert events.encode(NEXT).count(b"\n") == 3


async def test_without_a_last_id_only_new_events_come(api: Api, control: FakeControl) -> None:
    async with api.get("/admin/v1/events") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        control.coming.put_nowait(NEXT)
        assert await _frames(answer, 2) == [b"retry: 1000", _wire(NEXT)]


async def test_a_stream_resumes_behind_the_last_id(api: Api, control: FakeControl) -> None:
    async with api.get("/admin/v1/events", headers={"Last-Event-ID": "1"}) as answer:
        control.coming.put_nowait(NEXT)
        frames = await _frames(answer, 4)
        assert frames[1:] == [_wire(EVENTS[1]), _wire(EVENTS[2]), _wire(NEXT)]


async def test_without_following_the_stream_ends_after_what_is_remembered(
    api: Api, control: FakeControl
) -> None:
    answer = await api.get("/admin/v1/events?follow=0")
    ids = [line for line in (await answer.text()).splitlines() if line.startswith("id:")]
    assert ids == ["id: 1", "id: 2", "id: 3"]
    assert control.streams == 0


async def test_a_quiet_stream_is_kept_alive_by_comments(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.001)
    async with api.get("/admin/v1/events") as answer:
        assert await _frames(answer, 3) == [b"retry: 1000", b": nothing new", b": nothing new"]


async def test_a_stream_ends_when_the_gateway_has_no_more_to_tell(
    api: Api, control: FakeControl
) -> None:
    control.coming.put_nowait(None)
    answer = await api.get("/admin/v1/events")
    assert await answer.read() == b"retry: 1000\n\n"


async def test_a_client_that_leaves_frees_its_subscription(
    api: Api, control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.001)
    left = asyncio.Event()
    watched = control.events

    async def noticed(after: int | None):  # type: ignore[no-untyped-def]
        try:
            async for event in watched(after):
                yield event
        finally:
            left.set()

    monkeypatch.setattr(FakeControl, "events", lambda _, after: noticed(after))
    answer = await api.get("/admin/v1/events")
    await _frames(answer, 1)
    answer.close()
    await asyncio.wait_for(left.wait(), 300)


async def test_the_server_ends_without_waiting_for_streams(api: Api, control: FakeControl) -> None:
    async with api.get("/admin/v1/events") as answer:
        await _frames(answer, 1)
        await api.server.close()
        assert await answer.read() == b""
    assert control.streams == 0


async def test_there_is_a_most_of_streams(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAMS_MAX", 1)
    async with api.get("/admin/v1/events") as first:
        await _frames(first, 1)
        refused = await api.get("/admin/v1/events")
        assert refused.status == 503
        assert (await refused.json())["error"]["code"] == "streams_full"


async def test_an_id_that_is_no_number_is_refused(api: Api) -> None:
    answer = await api.get("/admin/v1/events", headers={"Last-Event-ID": "latest"})
    assert answer.status == 422


async def test_a_client_that_reads_nothing_gives_its_place_to_others(
    api: Api, control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STALLED_S", 0.01)
    ended = asyncio.Event()
    watched = control.events

    async def noticed(after: int | None):  # type: ignore[no-untyped-def]
        try:
            async for event in watched(after):
                yield event
        finally:
            ended.set()

    monkeypatch.setattr(FakeControl, "events", lambda self, after: noticed(after))
    control.remembered = tuple(
        replace(NEXT, id=number, text="x" * 1_000_000) for number in range(64)
    )
    host, port = api.server.host, api.server.port
    _, writer = await asyncio.open_connection(host, port, limit=1)
    writer.write(b"GET /admin/v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.wait_for(ended.wait(), 300)
    writer.close()

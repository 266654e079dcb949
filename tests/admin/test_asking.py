import asyncio

import pytest

from admin import asking
from admin.asking import BODY_MAX_BYTES
from admin.openapi import SAYS
from tests.admin.conftest import Api
from tests.admin.fakes import FakeControl


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"weight": NaN}', b"{}{}", b"'a'"])
async def test_a_body_that_is_not_json_is_400(api: Api, control: FakeControl, raw: bytes) -> None:
    answer = await api.put(
        "/admin/v1/instances/i/weight", data=raw, headers={"Content-Type": "application/json"}
    )
    assert answer.status == 400
    assert (await answer.json())["error"]["code"] == "not_json"
    assert control.asked == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_of_another_type_is_415(api: Api, control: FakeControl, kind: str) -> None:
    answer = await api.put(
        "/admin/v1/instances/i/weight", data=b'{"weight": 1}', headers={"Content-Type": kind}
    )
    assert answer.status == 415
    assert (await answer.json())["error"]["message"] == f"send application/json, not {kind}"
    assert control.asked == []


async def test_a_body_past_the_bound_is_413(api: Api, control: FakeControl) -> None:
    answer = await api.post("/admin/v1/config/check", json={"text": "#" * BODY_MAX_BYTES})
    assert answer.status == 413
    assert (await answer.json())["error"]["code"] == "body_too_large"
    assert control.texts == []


@pytest.mark.parametrize(
    ("said", "by"),
    [
        (None, "somebody at 127.0.0.1"),
        ("ada", "ada at 127.0.0.1"),
        ("b\u00e9" + "x" * 100, "b" + "x" * 79 + " at 127.0.0.1"),
    ],
)
async def test_the_history_is_told_who_asks(
    said: str | None, by: str, api: Api, control: FakeControl
) -> None:
    headers = {} if said is None else {SAYS: said}
    await api.request("PUT", "/admin/v1/instances/i/drain", headers=headers)
    assert control.callers == [by]


async def test_a_body_that_does_not_come_is_408(
    api: Api, control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "BODY_S", 0.01)
    host, port = api.server.host, api.server.port
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        b"PUT /admin/v1/models/m/weights HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    )
    assert await asyncio.wait_for(reader.readline(), 300) == b"HTTP/1.1 408 Request Timeout\r\n"
    assert control.asked == []
    writer.close()


async def test_a_body_that_would_be_too_large_is_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "BODY_S", 3600.0)
    reader, writer = await asyncio.open_connection(api.server.host, api.server.port)
    writer.write(
        b"PUT /admin/v1/models/m/weights HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    )
    line = await asyncio.wait_for(reader.readline(), 300)
    assert line.split()[1] == b"413"
    writer.close()

import asyncio

import pytest
from aiohttp import web

from admin.api import create_app, served
from admin.asking import BODY_MAX_BYTES
from tests.admin.conftest import Api
from tests.admin.fakes import FakeControl


def test_an_application_is_made_without_a_running_loop() -> None:
    assert isinstance(create_app(FakeControl()), web.Application)


def test_two_applications_share_nothing() -> None:
    first, second = create_app(FakeControl()), create_app(FakeControl())
    assert [first[key] is second[key] for key in first] == [False] * len(first)


@pytest.mark.parametrize("path", ["/", "/metrics", "/livez", "/readyz", "/admin/v1/status"])
async def test_a_head_is_a_get_without_its_body(api: Api, path: str) -> None:
    answer = await api.head(path)
    assert (answer.status, await answer.read()) == (200, b"")


async def test_a_body_at_the_bound_is_read(api: Api, control: FakeControl) -> None:
    text = "#" * (BODY_MAX_BYTES - 100)
    assert (await api.post("/admin/v1/config/check", json={"text": text})).status == 200
    assert control.texts == [text]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: lo"])
async def test_who_does_not_ask_in_time_is_not_kept(sent: bytes) -> None:
    runner = served(create_app(FakeControl()), 1.0, idle_s=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
    writer.write(sent)
    assert await asyncio.wait_for(reader.read(), 300) == b""
    writer.close()
    await runner.cleanup()

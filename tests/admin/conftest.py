"""An admin app on the test's own loop, and one in a thread for whoever calls synchronously."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from admin.api import create_app
from tests.admin.fakes import FakeControl
from tests.admin.typed import Run, running

Api = TestClient[web.Request, web.Application]
AiohttpClient = Callable[[web.Application], Awaitable[Api]]


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
async def api(aiohttp_client: AiohttpClient, control: FakeControl) -> Api:
    return await aiohttp_client(create_app(control))


@dataclass(slots=True)
class Served:
    """An admin port that is really served, from another thread."""

    address: str
    control: FakeControl


@pytest.fixture
def served(control: FakeControl) -> Iterator[Served]:
    address: list[str] = []
    is_up = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        runner = web.AppRunner(create_app(control))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        address.append(f"{host}:{port}")
        is_up.set()
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert is_up.wait(300)  # seconds; far beyond what a bind takes
    yield Served(address[0], control)
    loop.call_soon_threadsafe(over.set)
    thread.join(300)
    assert not thread.is_alive()
    loop.close()


@pytest.fixture
def run(served: Served) -> Run:
    return running(served.address)

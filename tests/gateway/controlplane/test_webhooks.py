"""Hooks that post to receivers that are really there: well, broken, silent, untrusted."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from aiohttp import web

from gateway.config import Settings, Webhook
from gateway.controlplane import webhooks
from gateway.controlplane.webhooks import Webhooks
from gateway.fleet.history import Entry
from gateway.fleet.notes import KIND, signature
from gateway.fleet.snapshot import FleetSnapshot
from gateway.store.base import Change, Put, Remove
from gateway.telemetry.tally import Tally
from tests.gateway.controlplane.test_folds import FakeStore
from tests.gateway.fleet.rolling import serving

SECRET_PATH = "/services/T0/very-secret"
Answer = Callable[[], Awaitable[web.StreamResponse]]


class Receiver:
    """A server that keeps what it is sent and answers with the next of its statuses, then 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: asyncio.Queue[tuple[dict[str, Any], Any, bytes]] = asyncio.Queue()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        status = self.statuses.pop(0) if self.statuses else 200
        self.got.put_nowait((orjson.loads(body), request.headers, body))
        if status == 0:  # never answers
            await asyncio.Event().wait()
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async def ids(self, count: int) -> list[str]:
        async with asyncio.timeout(300):
            return [(await self.got.get())[0]["id"] for _ in range(count)]


@asynccontextmanager
async def receiving(
    *statuses: int, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Receiver]:
    receiver = Receiver(*statuses)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    scheme = "https" if tls else "http"
    receiver.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}{SECRET_PATH}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


class Watched(FakeStore):
    """A store whose writes can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._woken = asyncio.Event()

    async def write(self, changes: Sequence[Change]) -> None:
        await super().write(changes)
        self._woken.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not holds():
                self._woken.clear()
                await self._woken.wait()


class World:
    """A fleet whose history grows on demand, and hooks that watch it."""

    def __init__(self, *hooks: Webhook, environment: dict[str, str] | None = None) -> None:
        settings = Settings.model_copy(serving().settings, update={"webhook": hooks})
        self.fleet: FleetSnapshot = replace(serving(), settings=settings, history=())
        self.store, self.tally = Watched(), Tally()
        self.pauses: list[float] = []
        self.paused, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.hooks = self.another(environment or {})

    def another(self, environment: dict[str, str] | None = None) -> Webhooks:
        return Webhooks(
            lambda: self.fleet, self.store, self.tally, Random(1), lambda: 1.7e9, environment or {}
        )

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.paused.set()
        await self.go_on.wait()

    def happen(self, *numbers: int) -> None:
        entries = (Entry(at, float(at), "ada", "weights", "m", f"{at}", at) for at in numbers)
        self.fleet = replace(self.fleet, history=(*self.fleet.history, *entries))
        self.hooks.look(self.fleet)

    def names(self) -> list[str]:
        return [hook.name for hook in self.fleet.settings.webhook]

    def documents(self) -> dict[str, dict[str, Any]]:
        """What the store holds."""
        kept: dict[str, dict[str, Any]] = {KIND: {}}
        for change in self.store.written:
            if isinstance(change, Put):
                kept[change.kind][change.key] = change.document
            else:
                kept[change.kind].pop(change.key)
        return kept

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.hooks.run(self.pause))
        try:
            await self.store.until(lambda: len(self.documents()[KIND]) == len(self.names()))
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def settled(self, count: int) -> None:
        """So many notes have been delivered or given up, and their place is kept."""
        await self.store.until(lambda: self.documents()[KIND]["h"]["history"] >= count)


def _hook(url: str, **keys: Any) -> Webhook:
    return Webhook(name="h", url=url, **({"events": ("weights",)} | keys))


async def test_what_happens_is_told_in_order_and_signed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    async with receiving() as receiver:
        world = World(_hook(receiver.url, secret_file=str(tmp_path / "secret")))
        async with world.running():
            world.happen(1, 2)
            world.happen(3)
            for number in (1, 2, 3):
                document, headers, body = await asyncio.wait_for(receiver.got.get(), 300)
                assert document["id"] == headers[webhooks.ID] == f"change:{number}"
                assert headers[webhooks.EVENT] == document["kind"] == "weights"
                assert headers[webhooks.SIGNATURE] == signature(b"s3cret", 1_700_000_000, body)
            await world.settled(3)
    assert world.tally.webhooks == {("h", "delivered"): 3}
    assert world.hooks.problems() == ()


async def test_one_that_fails_is_asked_again_later_and_later_and_order_stays() -> None:
    async with receiving(500, 503, 429) as receiver:
        world = World(_hook(receiver.url))
        async with world.running():
            world.happen(1, 2)
            assert await receiver.ids(5) == [*["change:1"] * 4, "change:2"]
            await world.settled(2)
    assert world.tally.webhooks == {("h", "failed"): 3, ("h", "delivered"): 2}
    assert [0.5 * 2**at <= one <= 2**at for at, one in enumerate(world.pauses)] == [True] * 3
    assert world.hooks.problems() == ()


async def test_a_failure_is_a_problem_while_it_lasts_and_never_says_the_url() -> None:
    async with receiving(500) as receiver:
        world = World(_hook(receiver.url))
        world.go_on.clear()
        async with world.running():
            world.happen(1)
            await asyncio.wait_for(world.paused.wait(), 300)
            assert world.hooks.problems() == (
                "webhook h: change:1 is not delivered: the answer is 500",
            )
            world.go_on.set()
            await world.settled(1)
            assert world.hooks.problems() == ()


@pytest.mark.parametrize(
    ("statuses", "why", "tries"),
    [
        ((500, 500, 500), "the answer is 500", 3),
        ((302,), "the answer is 302, and redirects are not followed", 1),
        ((400,), "the answer is 400", 1),
        ((410,), "the answer is 410", 1),
    ],
)
async def test_what_stays_wrong_is_given_up_and_the_next_one_goes_on(
    statuses: tuple[int, ...], why: str, tries: int
) -> None:
    async with receiving(*statuses) as receiver:
        world = World(_hook(receiver.url, retries=2))
        async with world.running():
            world.happen(1)
            assert await receiver.ids(tries) == ["change:1"] * tries
            await world.settled(1)
            assert world.hooks.problems() == (f"webhook h: change:1 was given up: {why}",)
            world.happen(2)
            assert await receiver.ids(1) == ["change:2"]
            await world.settled(2)
    assert world.tally.webhooks["h", "given_up"] == 1
    assert world.hooks.problems() == ()
    assert receiver.got.empty()  # nothing was followed anywhere


async def test_a_silent_and_an_absent_receiver_are_no_answer() -> None:
    async with receiving(0) as receiver:
        world = World(_hook(receiver.url, retries=0, timeout_s=0.2))
        async with world.running():
            world.happen(1)
            await world.settled(1)
            assert world.hooks.problems() == (
                "webhook h: change:1 was given up: no answer in 0.2 s",
            )
    async with receiving() as gone:
        pass
    world = World(_hook(gone.url, retries=0))
    async with world.running():
        world.happen(1)
        await world.settled(1)
        assert world.hooks.problems() == (
            "webhook h: change:1 was given up: no connection: Connection refused",
        )


async def test_another_control_goes_on_from_the_place_that_was_kept() -> None:
    async with receiving(200, 500) as receiver:
        world = World(_hook(receiver.url))
        world.go_on.clear()
        async with world.running():
            world.happen(1, 2, 3)
            await asyncio.wait_for(world.paused.wait(), 300)  # 1 is told, 2 has failed
        world.go_on.set()
        kept = world.documents()
        world.hooks = world.another()
        world.hooks.restore(kept)
        async with world.running():
            assert await receiver.ids(4) == ["change:1", "change:2", "change:2", "change:3"]


async def test_a_hook_that_is_new_or_has_lost_its_place_begins_now() -> None:
    async with receiving() as receiver:
        world = World(_hook(receiver.url))
        world.happen(1, 2)
        world.hooks.restore({KIND: {"h": {"history": "?"}}})
        async with world.running():
            world.happen(3)
            assert await receiver.ids(1) == ["change:3"]


async def test_a_hook_that_is_taken_out_is_told_no_more_and_forgotten() -> None:
    async with receiving() as receiver:
        world = World(_hook(receiver.url))
        async with world.running():
            settings = world.fleet.settings.model_copy(update={"webhook": ()})
            world.fleet = replace(world.fleet, settings=settings)
            world.happen(1)
            await world.store.until(lambda: isinstance(world.store.written[-1], Remove))
    assert world.documents() == {KIND: {}}
    assert receiver.got.empty()


async def test_hooks_do_not_wait_for_each_other() -> None:
    async with receiving(0) as silent, receiving() as well:
        world = World(
            _hook(silent.url, timeout_s=3600), Webhook(name="w", url=well.url, events=("weights",))
        )
        async with world.running():
            world.happen(1, 2)
            assert await silent.ids(1) == ["change:1"]
            assert await well.ids(2) == ["change:1", "change:2"]


async def test_a_store_that_fails_stops_no_hook() -> None:
    async with receiving() as receiver:
        world = World(_hook(receiver.url))
        async with world.running():
            world.store.broken = True
            world.happen(1, 2)
            assert await receiver.ids(2) == ["change:1", "change:2"]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"secret_env": "HOOK"}, "its secret is empty, or not set"),
        ({"secret_file": "nowhere"}, "its secret_file cannot be read: No such file or directory"),
        ({"ca_file": "nowhere"}, "no answer: FileNotFoundError"),
    ],
)
async def test_without_its_secret_or_its_authority_nothing_is_sent(
    keys: dict[str, str], why: str
) -> None:
    async with receiving() as receiver:
        world = World(_hook(receiver.url, retries=0, **keys))
        async with world.running():
            world.happen(1)
            await world.settled(1)
            assert world.hooks.problems() == (f"webhook h: change:1 was given up: {why}",)
    assert receiver.got.empty()


async def test_a_secret_of_the_environment_signs() -> None:
    async with receiving() as receiver:
        world = World(_hook(receiver.url, secret_env="HOOK"), environment={"HOOK": "e"})
        async with world.running():
            world.happen(1)
            _, headers, body = await asyncio.wait_for(receiver.got.get(), 300)
    assert headers[webhooks.SIGNATURE] == signature(b"e", 1_700_000_000, body)


async def test_tls_is_spoken_with_who_is_trusted_and_with_nobody_else(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)  # noqa: ASYNC221
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    async with receiving(tls=tls) as receiver:
        world = World(_hook(receiver.url, retries=0))
        async with world.running():
            world.happen(1)
            await world.settled(1)
            assert world.hooks.problems() == (
                "webhook h: change:1 was given up: its certificate is not trusted",
            )
            assert receiver.got.empty()
        world = World(_hook(receiver.url, ca_file=str(cert)))
        async with world.running():
            world.happen(1)
            assert await receiver.ids(1) == ["change:1"]

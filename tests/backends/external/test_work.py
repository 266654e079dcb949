"""Whole lives of agents, each for a real server process, with every kind of trouble."""

import asyncio
import logging
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import aiohttp
import grpc
import openai
import pytest
import pytest_asyncio

from backends.living import Ending
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from sluicegate.v1.states import State
from tests.backends.external.rig import PATIENCE_S, Lived, chat, living, settings_for
from tests.backends.fake_registry import LONG_S, FakeRegistry, listening

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served() -> AsyncIterator[Lived]:
    """A READY one, for tests that leave it READY."""
    async with living(settings_for()) as lived:
        await lived.ready()
        yield lived


@asynccontextmanager
async def orders(lived: Lived) -> AsyncIterator["stubs.LifecycleAsyncStub"]:
    address = lived.standin.identity.grpc_address
    async with asyncio.timeout(PATIENCE_S), grpc.aio.insecure_channel(address) as channel:
        yield stubs.LifecycleStub(channel)


# --- the way to READY -----------------------------------------------------------------------------


async def test_a_slow_server_is_followed_from_its_start_to_an_orderly_end(
    http: aiohttp.ClientSession,
) -> None:
    async with living(settings_for("--load-s", "1")) as lived:
        await lived.ready()
        async with http.post(f"{lived.url}/v1/chat/completions", json=chat()) as answered:
            assert (await answered.json())["choices"][0]["text"] == "0 1 2 3"
        lived.terminate()
        assert await lived.ending() == Ending(0, abrupt=False)
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(lived.settings.health)
    phases = list(dict.fromkeys(phase for phase, _ in lived.seen))
    assert phases == ["starting", "loading_model", "warming_up", "serving", "draining", "releasing"]
    reasons = " / ".join(reason for _, reason in lived.seen)
    assert "nothing listens there" in reasons
    assert "answers 503" in reasons
    assert lived.life.standing.reason == "stopped; nothing was lost"


async def test_the_log_names_the_program_and_nothing_else_of_the_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = settings_for(command=("/bin/sh", "-c", "exit 78", "--api-key", "SECRET"))
    async with living(settings) as lived:
        assert (await lived.ending()).code == 78
    (started,) = [one for one in caplog.records if one.message == "server started"]
    assert vars(started)["program"] == "/bin/sh"
    assert not [one for one in caplog.records if "SECRET" in repr(vars(one))]


async def test_while_it_loads_nothing_is_let_through_and_a_stop_ends_the_server_too(
    http: aiohttp.ClientSession,
) -> None:
    async with living(settings_for("--load-s", "600")) as lived:
        await lived.tells("answers 503")
        async with http.post(f"{lived.url}/v1/chat/completions", json=chat()) as answered:
            assert answered.status == 503
            assert (await answered.json())["error"]["phase"] == "loading_model"
        async with http.get(f"{lived.url}/readyz") as answered:
            assert answered.status == 503
        lived.terminate()
        assert await lived.ending() == Ending(0, abrupt=False)
    with pytest.raises(aiohttp.ClientConnectorError):
        await http.get(lived.settings.health)


async def test_another_name_for_the_model_is_said_and_not_tried_again() -> None:
    async with living(settings_for("--model", "qwen")) as lived:
        assert await lived.ending() == Ending(78, abrupt=False)
    reason = lived.life.standing.reason
    assert "the server serves qwen, not m" in reason
    assert "--served-model-name" in reason
    assert lived.life.standing.state is State.ERROR


@pytest.mark.parametrize(
    ("trouble", "code", "said"),
    [
        (("--verification", "500"), 1, 'answered 500: \'{"error": {"message": "boom"}}\''),
        (("--verification", "400"), 78, "answered 400"),
        (("--garbage",), 1, "is not one: 'hello, I am not a completion'"),
        (
            ("--dies-loading", "3"),
            1,
            "exited with status 3; it said last: reading weights | RuntimeError",
        ),
        (("--dies-loading", "78"), 78, "exited with status 78"),
        (("--no-such-option",), 78, "unrecognized arguments: --no-such-option. Starting it again"),
    ],
)
async def test_what_cannot_serve_is_an_error_that_says_why_and_if_a_restart_helps(
    trouble: tuple[str, ...], code: int, said: str
) -> None:
    async with living(settings_for(*trouble)) as lived:
        assert await lived.ending() == Ending(code, abrupt=False)
    assert said in lived.life.standing.reason
    assert lived.life.standing.state is State.ERROR


async def test_a_command_that_is_not_there_is_exit_78() -> None:
    async with living(settings_for(command=("no-such-server",))) as lived:
        assert (await lived.ending()).code == 78
    assert "no-such-server: No such file or directory" in lived.life.standing.reason


async def test_a_load_that_takes_too_long_is_ended_with_the_last_reason() -> None:
    settings = settings_for(
        command=(sys.executable, "-c", "import time; time.sleep(600)"), load_timeout_s=0.5
    )
    async with living(settings) as lived:
        assert (await lived.ending()).code == 1
    assert "not ready after 0.5 s: " in lived.life.standing.reason
    assert "nothing listens there" in lived.life.standing.reason


async def test_a_stranger_on_the_port_is_not_taken_for_the_server() -> None:
    stranger = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    async with stranger, living(settings_for(port=port)) as lived:
        assert (await lived.ending()).code == 1
    assert f"something listens on 127.0.0.1:{port} already" in lived.life.standing.reason


async def test_a_server_that_talks_but_not_http_never_becomes_ready() -> None:
    talks = "import socket\ns = socket.create_server(('127.0.0.1', int(__import__('sys').argv[1])))"
    talks += "\nwhile 1:\n c = s.accept()[0]; c.sendall(b'\\0\\1SSH-2.0' * 99 + b'\\n'); c.close()"
    settings = settings_for(load_timeout_s=3.0)
    port = settings.upstream.port
    settings = settings_for(
        command=(sys.executable, "-c", talks, str(port)), port=port, load_timeout_s=3.0
    )
    async with living(settings) as lived:
        assert (await lived.ending()).code == 1
    assert "HTTP" in lived.life.standing.reason


async def test_a_server_of_chats_only_is_verified_by_a_chat() -> None:
    async with living(settings_for("--chat-only")) as lived:
        await lived.ready()


# --- serving --------------------------------------------------------------------------------------


async def test_the_official_client_speaks_through_the_proxy(served: Lived) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=5, stream=True
        )
        told = [chunk.choices[0].delta.content async for chunk in stream]
        assert [one.id async for one in client.models.list()] == ["m"]

    assert told == ["0", "1", "2", "3", "4"]


async def test_the_server_dies_in_a_stream_which_is_cut_and_the_reason_told(
    http: aiohttp.ClientSession,
) -> None:
    async with living(settings_for(error_linger_s=LONG_S)) as lived:
        await lived.ready()
        await lived.trouble(http, dies_at=5)
        url = f"{lived.url}/v1/chat/completions"
        async with http.post(url, json=chat(50, stream=True)) as answered:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answered.read()
        await lived.until("ERROR")
        reason = lived.life.standing.reason
        assert "exited with status 9; it said last: out of device memory" in reason
        async with http.post(url, json=chat()) as refused:  # whoever is late is sent elsewhere
            assert (refused.status, refused.headers["x-sluicegate-refused"]) == (503, "away")
        assert lived.standin.gate.in_flight == 0


async def test_bad_health_three_times_in_a_row_is_an_error(http: aiohttp.ClientSession) -> None:
    async with living(settings_for()) as lived:
        await lived.ready()
        await lived.trouble(http, health=500)
        assert (await lived.ending()).code == 1
    assert lived.life.standing.state is State.ERROR
    assert "3 times in a row" in lived.life.standing.reason


async def test_a_server_that_hangs_is_an_error_but_not_for_silence_while_tokens_come(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    patient = settings_for(health_timeout_s=0.05, health_failures=40)
    async with living(patient) as lived:
        await lived.ready()
        url = f"{lived.url}/v1/chat/completions"
        async with http.post(url, json=chat(100_000, stream=True)) as answered:
            await answered.content.readline()
            await lived.trouble(http, hangs=True)
            while not _was_excused(caplog):
                await answered.content.readline()
        assert (await lived.ending()).code == 1
    assert "no answer within 0.05 s; 40 times in a row" in lived.life.standing.reason


def _was_excused(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether a bad answer was told that did not count."""
    told = [vars(one)["failures"] for one in caplog.records if one.message == "bad health"]
    return any(now <= before for before, now in pairwise([0, *told]))


async def test_what_the_server_counts_is_in_the_status(
    served: Lived, http: aiohttp.ClientSession
) -> None:
    before = served.standin.status()
    async with http.post(f"{served.url}/v1/chat/completions", json=chat(7)) as answered:
        await answered.read()
    await _until_counted(served, before.completion_tokens_total + 7)
    status = served.standin.status()
    assert status.progress_total == status.prompt_tokens_total + status.completion_tokens_total
    assert status.progress_total > before.progress_total
    assert (status.served_total - before.served_total, status.max_concurrency) == (1, 256)
    assert status.last_latency_ms > 0
    async with http.get(f"{served.url}/metrics") as answered:
        text = await answered.text()
    assert 'sluicegate_instance_served_total{instance="m-1-0"' in text
    assert re.search(r'instance_kv_cache_ratio{.*kind="held".*} 0.25', text)


async def _until_counted(lived: Lived, tokens: int) -> None:
    """Returns when a scrape has brought so many."""
    scraped, then = lived.standin.scraped, asyncio.Event()

    def noted(*given: object) -> None:
        scraped(*given)  # type: ignore[arg-type]
        if (lived.standin.counts.generation_tokens or 0) >= tokens:
            then.set()

    lived.standin.scraped = noted  # type: ignore[assignment]
    async with asyncio.timeout(PATIENCE_S):
        await then.wait()


# --- drains and stops -----------------------------------------------------------------------------


async def test_a_drain_waits_for_the_stream_and_resume_gives_back(
    served: Lived, http: aiohttp.ClientSession
) -> None:
    async with orders(served) as stub:
        url = f"{served.url}/v1/chat/completions"
        async with http.post(url, json=chat(40, stream=True)) as answered:
            await answered.content.readline()
            drained = await stub.Drain(wire.DrainRequest(grace_s=60))
            assert (drained.status.state, drained.status.active_requests) == (wire.DRAINING, 1)
            async with http.post(url, json=chat()) as refused:
                assert refused.headers["x-sluicegate-refused"] == "draining"
            assert (await answered.read()).endswith(b"[DONE]\n\n")
        async for status in stub.WatchStatus(wire.WatchStatusRequest(interval_ms=50)):
            if "nothing is in flight" in status.reason:
                break
        await stub.Resume(wire.ResumeRequest())
        async with http.post(url, json=chat()) as answered:
            assert answered.status == 200


async def test_a_drain_waits_for_what_the_server_itself_holds(
    served: Lived, http: aiohttp.ClientSession
) -> None:
    await served.trouble(http, direct=2)
    async with orders(served) as stub:
        watch = stub.WatchStatus(wire.WatchStatusRequest(interval_ms=50))
        async for status in watch:
            if status.active_requests == 2:
                break
        assert "nothing" not in (await stub.Drain(wire.DrainRequest(grace_s=60))).status.reason
        await served.trouble(http, direct=0)
        async for status in watch:
            if "nothing is in flight" in status.reason:
                break
        assert status.active_requests == 0
        await stub.Resume(wire.ResumeRequest())


async def test_a_client_that_leaves_takes_its_request_along(
    served: Lived, http: aiohttp.ClientSession
) -> None:
    answered = await http.post(f"{served.url}/v1/chat/completions", json=chat(100_000, stream=True))
    await answered.content.readline()
    answered.close()
    await served.standin.gate.holds(0)  # type: ignore[attr-defined]
    async for seen in _seen(served, http):
        if seen == {"running": 0, "cancelled": 1}:
            break


async def _seen(lived: Lived, http: aiohttp.ClientSession) -> AsyncIterator[dict[str, int]]:
    while True:
        async with http.get(f"{lived.settings.base}/seen") as answered:
            yield await answered.json()


async def test_a_server_that_ignores_sigterm_is_killed_with_all_its_children(
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = settings_for("--ignores-sigterm", "--grandchild", kill_after_s=0.3)
    async with living(settings) as lived:
        await lived.ready()
        lived.terminate()
        assert (await lived.ending()).code == 0
    pid = int(capfd.readouterr().err.partition("grandchild ")[2].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_it_registers_like_any_instance_and_obeys_the_answer_to_a_beat() -> None:
    gateway = FakeRegistry(interval_s=0.001)
    async with listening(gateway) as address:
        settings = settings_for(registry=address, launch_token="secret")
        async with living(settings) as lived:
            first = await gateway.next()
            await lived.ready()
            gateway.beats = [wire.HeartbeatReply(order=wire.ORDER_STOP, grace_s=5)]
            assert (await lived.ending()).code == 0
        heard = [await gateway.next() for _ in range(gateway.heard.qsize())]
    assert (first.launch_token, first.status.state) == ("secret", wire.INITIALIZING)
    assert isinstance(heard[-1], wire.DeregisterRequest)

"""The way to READY as it is asked and told, of a scripted server behind a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from backends.errors import DependencyMissing, LoadFailed
from backends.external.asking import Asker
from backends.external.derive import REFUSALS_MAX
from backends.external.readiness import ROUNDS, Readiness
from backends.http_server import HttpServer
from sluicegate.v1.states import State
from tests.backends.external.rig import settings_for, standin_for

TEXT = {"choices": [{"index": 0, "text": "hi", "finish_reason": "length"}]}
MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}


class Server:
    """Answers by path from `script`, one after the other, the last one again and again."""

    def __init__(self, **script: list[tuple[int, Any]]) -> None:
        self.script: dict[str, list[tuple[int, Any]]] = {
            "/health": [(200, None)],
            "/v1/models": [(200, MODELS)],
            "/v1/completions": [(200, TEXT)],
        }
        self.script |= {f"/{path.replace('__', '/')}": told for path, told in script.items()}
        self.asked: list[str] = []
        self.words: list[int] = []

    async def answer(self, http: web.Request) -> web.Response:
        self.asked.append(http.path)
        if http.method == "POST":
            document = await http.json()
            self.words.append(len(str(document.get("prompt", "")).split()))
        told = self.script.get(http.path, [(404, None)])
        status, document = told.pop(0) if len(told) > 1 else told[0]
        return web.json_response(document, status=status)


@asynccontextmanager
async def reaching(server: Server, **given: Any) -> AsyncIterator[tuple[Readiness, list[str]]]:
    """What asks it, and each (phase, reason) that was told, once."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    listening = HttpServer(app, "127.0.0.1", 0)
    await listening.start()
    settings = settings_for(port=listening.port, again_s=0.001, **given)
    standin = standin_for(settings)
    told: list[str] = []

    def look() -> None:
        standing = standin.life.standing
        line = f"{standing.phase.name.lower()}: {standing.reason}"
        assert standing.state is State.INITIALIZING  # it tells; READY is for others to say
        if line not in told:
            told.append(line)

    standin.life.watch(look)
    asker = Asker("")
    async with asyncio.timeout(60):
        yield Readiness(settings, asker, standin.life), told
    await asker.close()
    await listening.close()


async def test_each_question_is_asked_once_the_one_before_it_was_answered_well() -> None:
    server = Server(health=[(503, None), (503, None), (200, None)])
    async with reaching(server, warm_up=(3, 7)) as (readiness, told):
        await readiness.reach()
    assert server.asked[:5] == [*["/health"] * 3, "/v1/models", "/v1/completions"]
    assert server.asked[5:] == ["/v1/completions"] * (2 * ROUNDS)
    assert server.words == [1, *[3, 7] * ROUNDS]
    phases = [line.partition(":")[0] for line in told]
    assert phases == sorted(phases, key=["starting", "loading_model", "warming_up"].index)
    assert told[-1] == f"warming_up: round {ROUNDS} of {ROUNDS}"


async def test_a_good_health_is_not_enough() -> None:
    """Health, models and verification: each alone holds it back."""
    other = {"object": "list", "data": [{"id": "other"}]}
    for script, asked in (
        ({"v1__models": [(200, other)]}, "/v1/models"),
        ({"v1__completions": [(200, {})]}, "/v1/completions"),
        ({"v1__completions": [(500, None)]}, "/v1/completions"),
    ):
        server = Server(**script)
        async with reaching(server) as (readiness, _):
            with pytest.raises((LoadFailed, DependencyMissing)):
                await readiness.reach()
        assert server.asked.count(asked) == REFUSALS_MAX
        assert server.asked[-1] == asked


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ({"health": [(404, None)]}, DependencyMissing, "/health"),
        ({"v1__models": [(200, {"data": [{"id": "other"}]})]}, DependencyMissing, "other"),
        ({"v1__completions": [(422, None)]}, DependencyMissing, "422"),
        ({"v1__completions": [(500, None)]}, LoadFailed, "500"),
    ],
)
async def test_what_waiting_does_not_mend_is_over_soon_and_says_if_a_restart_helps(
    script: dict[str, Any], kind: type[Exception], words: str
) -> None:
    async with reaching(Server(**script)) as (readiness, _):
        with pytest.raises(kind, match=words):
            await readiness.reach()


async def test_one_good_answer_begins_the_count_of_bad_ones_anew() -> None:
    server = Server(v1__completions=[(500, None)] * (REFUSALS_MAX - 1) + [(200, TEXT)])
    async with reaching(server) as (readiness, _):
        await readiness.reach()


async def test_a_sample_that_is_too_long_for_it_is_left_out() -> None:
    server = Server(v1__completions=[(200, TEXT), *[(200, TEXT), (400, None)] * ROUNDS])
    async with reaching(server, warm_up=(3, 9000)) as (readiness, _):
        await readiness.reach()
    assert server.words == [1, *[3, 9000] * ROUNDS]


async def test_a_warm_up_that_fails_is_not_ready() -> None:
    server = Server(v1__completions=[(200, TEXT), (500, None)])
    async with reaching(server) as (readiness, _):
        with pytest.raises(LoadFailed, match=r"^warm-up, 3 words: "):
            await readiness.reach()


async def test_the_route_that_is_there_is_asked_and_kept() -> None:
    message = {"role": "assistant", "content": "hi"}
    chat = {"choices": [{"index": 0, "message": message, "finish_reason": "length"}]}
    server = Server(v1__completions=[(404, None)], v1__chat__completions=[(200, chat)])
    async with reaching(server) as (readiness, _):
        await readiness.reach()
    assert server.asked[-ROUNDS:] == ["/v1/chat/completions"] * ROUNDS
    assert server.asked.count("/v1/completions") == 1

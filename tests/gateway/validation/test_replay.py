"""Samples sent to scripted instances over real connections."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gateway.validation import replay as replaying
from gateway.validation.judging import Outcome, Pair, Rules
from gateway.validation.orders import Order, Way
from gateway.validation.replay import carry_out, replay
from gateway.validation.samples import Sample
from tests.gateway.validation.scripted import (
    Answering,
    broken,
    otherwise,
    says,
    serving,
    slowly,
    well,
)

CHAT = "/v1/chat/completions"


def _samples(count: int) -> tuple[Sample, ...]:
    return tuple(Sample(at, CHAT, {"model": "m", "messages": [], "at": at}) for at in range(count))


async def _tried(answering: Answering, way: Way | None = None) -> Pair:
    async with serving(answering) as api:
        pairs, _ = await replay(_samples(1), (api.url,), (), way or Way())
    return pairs[0]


async def test_every_sample_goes_to_both_versions_and_over_all_instances() -> None:
    async with serving(well) as one, serving(well) as two, serving(otherwise) as old:
        pairs, untried = await replay(_samples(10), (one.url, two.url), (old.url,), Way())
    assert untried == 0
    assert [pair.line for pair in pairs] == list(range(10))
    assert all(pair.both_served for pair in pairs)
    assert len(one.seen) == len(two.seen) == 5
    assert sorted(body["at"] for _, body in old.seen) == list(range(10))
    assert {path for path, _ in old.seen} == {CHAT}
    assert pairs[0].new.answer.words[0] == "Paris"
    assert pairs[0].old is not None
    assert pairs[0].old.answer.words[0] == "I"


async def test_every_second_time_the_old_version_is_asked_first() -> None:
    order: list[str] = []

    def noting(name: str) -> Answering:
        async def noted(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            order.append(name)
            return says("well")

        return noted

    async with serving(noting("new")) as new, serving(noting("old")) as old:
        await replay(_samples(4), (new.url,), (old.url,), Way(concurrency=1))
    assert order == ["new", "old", "old", "new"] * 2


async def test_no_more_than_so_many_are_under_way_at_each_version() -> None:
    both_here, go_on = asyncio.Event(), asyncio.Event()

    async def waits(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if api.under_way == 2:
            both_here.set()
        await go_on.wait()
        return says("now")

    async with serving(waits) as api:
        running = asyncio.create_task(replay(_samples(6), (api.url,), (), Way(concurrency=2)))
        await asyncio.wait_for(both_here.wait(), 300)
        go_on.set()
        await running
    assert api.most == 2


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (200, {}, Outcome.FAILED),  # and nothing in it
        (302, {"Location": "/v1/other"}, Outcome.FAILED),  # not followed
        (400, {}, Outcome.DENIED),
        (404, {}, Outcome.DENIED),
        (500, {}, Outcome.FAILED),
        (503, {}, Outcome.FAILED),
    ],
)
async def test_an_answer_counts_as_what_it_is(
    status: int, headers: dict[str, str], outcome: Outcome
) -> None:
    async def answers(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    assert (await _tried(answers)).new.outcome is outcome


@pytest.mark.parametrize(("status", "headers"), [(429, {}), (503, {replaying.REFUSED: "full"})])
async def test_an_instance_without_room_is_asked_again_and_is_no_failure(
    status: int, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAUSE_S", 0.0)
    left = 2

    async def soon(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal left
        left -= 1
        return web.Response(status=status, headers=headers) if left >= 0 else says("at last")

    assert (await _tried(soon)).new.outcome is Outcome.SERVED
    left = 100
    assert (await _tried(soon)).new.outcome is Outcome.REFUSED
    assert left == 100 - replaying.REFUSALS_MAX


async def test_a_cut_answer_a_dead_instance_and_a_silent_one_have_failed() -> None:
    async def cuts(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: {}\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async def never(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    cut = (await _tried(cuts)).new
    assert cut.outcome is Outcome.FAILED
    silent = (await _tried(never, Way(request_s=0.2))).new
    assert (silent.outcome, silent.cause.startswith("no answer in ")) == (Outcome.FAILED, True)
    async with serving(well) as gone:
        pass
    pairs, _ = await replay(_samples(1), (gone.url,), (), Way())
    assert pairs[0].new.outcome is Outcome.FAILED
    assert pairs[0].new.cause.startswith("no answer: ")


async def test_what_was_answered_in_time_is_kept_and_the_rest_is_counted() -> None:
    async def all_but_the_last(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body["at"] == 5:
            await asyncio.Event().wait()
        return says("quick")

    async with serving(all_but_the_last) as api:
        pairs, untried = await replay(_samples(6), (api.url,), (), Way(total_s=3.0))
    assert (len(pairs), untried) == (5, 1)


async def test_a_stream_is_read_to_its_end_and_its_first_byte_is_timed() -> None:
    async def streams(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for text in ("Par", "is"):
            event = {"choices": [{"index": 0, "delta": {"content": text}}]}
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    tried = (await _tried(streams)).new
    assert tried.answer.words == ("Paris",)
    assert 0 < tried.first_byte_s <= tried.latency_s


# --- whole ---------------------------------------------------------------------------------------


def _file(tmp_path: Path, count: int) -> str:
    path = tmp_path / "samples.jsonl"
    lines = [orjson.dumps({"messages": [{"role": "user", "content": "?"}]}) for _ in range(count)]
    path.write_bytes(b"\n".join([*lines, b"nonsense"]))
    return str(path)


@pytest.mark.parametrize(
    ("answering", "passed", "failed"),
    [
        (well, True, set[str]()),
        (broken, False, {"errors"}),
        (slowly, False, {"latency"}),
        (otherwise, False, {"answers"}),
    ],
)
async def test_a_new_version_is_judged_by_the_old_one(
    answering: Answering, passed: bool, failed: set[str], tmp_path: Path
) -> None:
    async with serving(answering) as new, serving(well) as old:
        ratio = 3.0 if answering is slowly else 30.0  # the machine may be slow as well, at times
        rules = Rules(latency_ratio_max=ratio, answers="similar", similarity=0.8)
        way = Way(concurrency=4)
        order = Order(_file(tmp_path, 8), "m", (new.url,), (old.url,), rules, way)
        report = await carry_out(order)
    assert report.passed == passed, report
    assert {one.name for one in report.checks if not one.passed} == failed
    assert report.checks[-1].text.startswith("1 line is no sample: line 9 is not JSON")
    if passed:
        assert report.reason == "8 requests were tried: errors, latency and answers passed"
    assert {body["temperature"] for _, body in new.seen} == {0}


async def test_samples_that_cannot_be_read_or_are_none_have_failed(tmp_path: Path) -> None:
    report = await carry_out(Order(str(tmp_path / "none"), "m", ("http://x",), ()))
    assert report.reason.endswith("none cannot be read: No such file or directory")
    report = await carry_out(Order(_file(tmp_path, 0), "m", ("http://x",), ()))
    assert "has no request to try: line 1 is not JSON" in report.reason


async def test_a_version_without_instances_has_a_report_as_well(tmp_path: Path) -> None:
    report = await carry_out(Order(_file(tmp_path, 1), "m", (), ()))
    assert not report.passed
    assert report.reason == "the new version has no instance to send samples to"


async def test_of_a_long_file_only_so_many_are_tried(tmp_path: Path) -> None:
    async with serving(well) as new:
        order = Order(_file(tmp_path, 30), "m", (new.url,), (), way=Way(samples_max=7))
        report = await carry_out(order)
    assert (report.passed, report.new.tried, report.old) == (True, 7, None)

"""Samples, sent to instances of two versions at the same time, beside whatever they serve.

Floor 3, I/O.   Flow: samples -> [replay] -> judge
Each sample goes to both versions, one right after the other, every second time the old one first:
what slows the machine slows both. At most `concurrency` of these pairs are under way. An instance
without room is asked again a little later; real requests go before.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Final

import aiohttp
import orjson

from gateway.rollouts import CheckView
from gateway.validation import answers
from gateway.validation.judging import Outcome, Pair, Report, Tried, judge, unusable
from gateway.validation.orders import Order, Way
from gateway.validation.samples import Flaw, Sample, chosen, greedy, read

ANSWER_MAX_BYTES: Final = 64 << 20
REFUSALS_MAX: Final = 6  # tries of an instance without room
PAUSE_S: Final = 0.5  # before the second, doubled for each later one: 15 s in all
REFUSED: Final = "x-sluicegate-refused"
CONNECT_S: Final = 5.0


async def carry_out(order: Order) -> Report:
    """The whole validation: samples read, tried and judged."""
    if not order.new:
        return unusable("the new version has no instance to send samples to")
    try:
        with open(order.samples, "rb") as file:  # noqa: ASYNC230  # before anything else is done
            samples, flaws = read(file, order.model)
    except OSError as exc:
        return unusable(f"{order.samples} cannot be read: {exc.strerror}")
    if not samples:
        why = f": line {flaws[0].line} {flaws[0].text}" if flaws else ""
        return unusable(f"{order.samples} has no request to try{why}")
    if order.rules.answers != "off":
        samples = tuple(greedy(one) for one in samples)
    tried = chosen(samples, order.way.samples_max)
    pairs, untried = await replay(tried, order.new, order.old, order.way)
    report = judge(pairs, order.rules, untried)
    return replace(report, checks=(*report.checks, *_flawed(flaws)))


def _flawed(flaws: Sequence[Flaw]) -> tuple[CheckView, ...]:
    """What was passed over is no failure of a version, and is said."""
    if not flaws:
        return ()
    count = "1 line is no sample" if len(flaws) == 1 else f"{len(flaws)} lines are no samples"
    text = f"{count}: line {flaws[0].line} {flaws[0].text}"
    return (CheckView("samples", True, text),)


async def replay(
    samples: Sequence[Sample], new: Sequence[str], old: Sequence[str], way: Way
) -> tuple[tuple[Pair, ...], int]:
    """Pairs in the order of the samples, and how many samples there was no time for.

    new, old: base URLs of instances; an empty `old` means that there is nothing to compare with.
    """
    found: list[Pair | None] = [None] * len(samples)
    places = asyncio.Semaphore(way.concurrency)
    timeout = aiohttp.ClientTimeout(total=way.request_s, sock_connect=CONNECT_S)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0), auto_decompress=True
    ) as session:
        fresh, stable = cycle(new), cycle(old) if old else None

        async def both(at: int) -> None:
            async with places:
                to_new, to_old = next(fresh), next(stable) if stable is not None else None
                found[at] = await _pair(session, samples[at], to_new, to_old, bool(at % 2))

        try:
            async with asyncio.timeout(way.total_s), asyncio.TaskGroup() as tasks:
                for at in range(len(samples)):
                    tasks.create_task(both(at))
        except TimeoutError:
            pass  # what was answered is judged
    pairs = tuple(pair for pair in found if pair is not None)
    return pairs, len(samples) - len(pairs)


async def _pair(
    session: aiohttp.ClientSession, one: Sample, new: str, old: str | None, old_first: bool
) -> Pair:
    if old is None:
        return Pair(one.line, one.path, await _tried(session, new, one))
    if old_first:
        second = await _tried(session, old, one)
        return Pair(one.line, one.path, await _tried(session, new, one), second)
    first = await _tried(session, new, one)
    return Pair(one.line, one.path, first, await _tried(session, old, one))


async def _tried(session: aiohttp.ClientSession, base: str, one: Sample) -> Tried:
    pause_s = PAUSE_S
    for _ in range(REFUSALS_MAX - 1):
        tried = await _once(session, base, one)
        if tried.outcome is not Outcome.REFUSED:
            return tried
        await asyncio.sleep(pause_s)
        pause_s *= 2
    return await _once(session, base, one)


async def _once(session: aiohttp.ClientSession, base: str, one: Sample) -> Tried:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with session.post(
            base.rstrip("/") + one.path,
            data=orjson.dumps(one.body),
            headers={"Content-Type": "application/json"},
            allow_redirects=False,
        ) as response:
            raw, first_byte_s = await _body(response, began)
    except TimeoutError:
        return Tried(Outcome.FAILED, f"no answer in {loop.time() - began:.0f} s")
    except aiohttp.ClientPayloadError:
        return Tried(Outcome.FAILED, "an answer that was cut")
    except aiohttp.ClientError as exc:
        return Tried(Outcome.FAILED, f"no answer: {exc}"[:200])
    return _read(one, response, raw, loop.time() - began, first_byte_s)


async def _body(response: aiohttp.ClientResponse, began: float) -> tuple[bytes, float]:
    """The body whole, and when its first byte came."""
    loop = asyncio.get_running_loop()
    first_byte_s, size = 0.0, 0
    parts: list[bytes] = []
    async for part in response.content.iter_any():
        if not parts:
            first_byte_s = loop.time() - began
        parts.append(part)
        size += len(part)
        if size > ANSWER_MAX_BYTES:
            raise aiohttp.ClientPayloadError(f"more than {ANSWER_MAX_BYTES} bytes")
    return b"".join(parts), first_byte_s


def _read(
    one: Sample, response: aiohttp.ClientResponse, raw: bytes, took_s: float, first_byte_s: float
) -> Tried:
    status = response.status
    if status in {429, 503} and (status == 429 or REFUSED in response.headers):
        return Tried(Outcome.REFUSED, f"{status}, no room")
    if status >= 500 or 300 <= status < 400:
        return Tried(Outcome.FAILED, f"{status}: {raw[:120].decode(errors='replace')}")
    if status >= 400:
        return Tried(Outcome.DENIED, f"{status}: {raw[:120].decode(errors='replace')}")
    answer = answers.read(one.path, response.content_type, raw)
    if isinstance(answer, answers.Bad):
        return Tried(Outcome.FAILED, answer.cause)
    return Tried(Outcome.SERVED, "", took_s, first_byte_s, answer)

"""A worker's share in the recorder: what it chooses, and what it tells of it."""

import asyncio
from random import Random
from typing import Any, Final

import orjson
import pytest

from gateway.dataplane.sampler import LOT, Sampler
from gateway.messages import Sampled
from gateway.records import Sampling
from gateway.samples import BODY_MAX_BYTES
from tests.gateway.dataplane.rig import Rig, get, ok, post
from tests.gateway.plain import route, table, target, version

SAID: Final = "the client's own words"
ASKED: Final = {"model": "m", "prompt": SAID, "max_tokens": 3}
BODY: Final = orjson.dumps(ASKED)


class Clock:
    """A loop's timers, run when a test says so."""

    def __init__(self) -> None:
        self.due: list[Any] = []

    def call_later(self, delay: float, function: Any) -> None:
        self.due.append(function)

    def run(self) -> None:
        due, self.due = self.due, []
        for function in due:
            function()


class Bench:
    """A rig whose requests are sampled, and what control would hear."""

    def __init__(self, ratio: float = 1.0, redact: bool = True) -> None:
        self.rig = Rig(table(1, route(version(target(1, 1)))))
        self.told: list[Sampled] = []
        self.reads = True
        self.clock = Clock()
        loop: Any = self.clock
        self.sampler = Sampler(loop, Random(3), self.say)
        self.use(ratio, redact)

    def use(self, ratio: float, redact: bool = True) -> None:
        on = self.sampler.use(Sampling(ratio, redact))
        self.rig.plane.sampler = self.sampler if on else None

    def say(self, message: Sampled) -> bool:
        if self.reads:
            self.told.append(message)
        return self.reads

    async def served(self, request: bytes = post(BODY), answer: bytes = ok()) -> None:
        _, instance = await self.rig.asked(request)
        instance.feed(answer)

    def heard(self) -> list[Sampled]:
        self.clock.run()
        told, self.told = self.told, []
        return told


@pytest.fixture
async def bench() -> Any:
    made = Bench()
    yield made
    made.rig.check()
    made.rig.close()


async def test_a_request_that_was_served_is_told_without_what_it_says(bench: Bench) -> None:
    await bench.served(post(BODY, b"authorization: Bearer sk-secret", b"cookie: a=b"))
    assert not bench.told  # not in the request's time
    (sample,) = bench.heard()
    assert (sample.model, sample.path, sample.bucket) == ("m", "/v1/completions", "<100")
    assert sample.redacted
    assert sample.body.keys() == {"model", "prompt", "max_tokens"}
    assert len(sample.body["prompt"]) == len(SAID)
    everything = repr(sample)
    assert not [word for word in (SAID, "secret", "cookie") if word in everything]


async def test_the_operator_may_want_it_as_it_was(bench: Bench) -> None:
    bench.use(1.0, redact=False)
    await bench.served()
    (sample,) = bench.heard()
    assert sample.body == ASKED
    assert not sample.redacted


@pytest.mark.parametrize("status", [b"400 No", b"404 No", b"500 No", b"302 Elsewhere"])
async def test_what_was_not_answered_well_warms_nobody(bench: Bench, status: bytes) -> None:
    await bench.served(answer=ok(status=status))
    assert bench.heard() == []


async def test_a_request_that_fails_leaves_nothing_to_the_next_on_its_connection(
    bench: Bench,
) -> None:
    client, instance = await bench.rig.asked(post(BODY))
    instance.feed(ok(status=b"500 No"))
    bench.use(0.0)
    client.feed(post(b'{"model":"m","prompt":"other"}'))
    await bench.rig.dialled()
    bench.rig.busy(client).feed(ok())
    assert bench.heard() == []
    bench.use(1.0)
    client, _ = await bench.rig.asked(post(BODY))
    client.protocol.exchange.timed_out("600 s")  # the sample is never asked for
    bench.rig.loop.refused = set()
    client.feed(get())
    await bench.rig.dialled()
    bench.rig.busy(client).feed(ok())
    assert bench.heard() == []


async def test_only_requests_whose_body_names_their_model_are_sampled(bench: Bench) -> None:
    await bench.served(get())
    await bench.served(post(BODY, b"x-model: m"))
    assert bench.heard() == []


async def test_a_body_that_comes_in_parts_is_sampled_whole(bench: Bench) -> None:
    request = post(BODY)
    client = bench.rig.client()
    client.feed(request[:-10])
    client.feed(request[-10:])
    await bench.rig.dialled()
    bench.rig.busy(client).feed(ok())
    (sample,) = bench.heard()
    assert len(sample.body["prompt"]) == len(SAID)


async def test_too_long_a_body_is_not_sampled(bench: Bench) -> None:
    long = orjson.dumps({"model": "m", "prompt": "x" * (BODY_MAX_BYTES - 100)})
    await bench.served(post(long))
    (sample,) = bench.heard()
    assert sample.bucket == "longer"
    await bench.served(post(long + b" " * 200))
    assert bench.heard() == []


async def test_of_many_at_once_a_few_are_told(bench: Bench) -> None:
    for _ in range(3 * LOT):
        await bench.served()
    assert len(bench.heard()) == LOT
    await bench.served()
    assert len(bench.heard()) == 1


async def test_control_that_does_not_read_costs_the_samples_and_nothing_else(bench: Bench) -> None:
    bench.reads = False
    await bench.served()
    assert bench.heard() == []
    bench.reads = True
    await bench.served()
    assert len(bench.heard()) == 1


async def test_the_share_is_that_of_the_settings(bench: Bench) -> None:
    bench.use(0.25)
    chosen = sum(bench.sampler.chooses(1) for _ in range(4000))
    assert 900 < chosen < 1100
    bench.use(0.0)
    assert bench.rig.plane.sampler is None


async def test_a_mistake_that_routing_does_not_see_stops_no_other_sample(bench: Bench) -> None:
    """Routing reads long texts by their beginnings only."""
    bad = orjson.dumps({"model": "m", "prompt": "x" * 40_000})[:-3] + b'\\q"}'
    await bench.served(post(bad))
    await bench.served()
    assert [sample.bucket for sample in bench.heard()] == ["<100"]


async def test_what_is_nested_too_deep_to_be_written_stops_no_other_sample() -> None:
    loop, told = Clock(), list[Sampled]()

    def say(message: Sampled) -> bool:
        orjson.dumps(message)
        told.append(message)
        return True

    stands_in: Any = loop
    sampler = Sampler(stands_in, Random(1), say)
    sampler.use(Sampling(1.0, False))
    deep = b'{"model":"m","prompt":' + b"[" * 400 + b"]" * 400 + b"}"
    sampler.take("m", b"/v1/completions", deep)
    sampler.take("m", b"/v1/completions", BODY)
    loop.run()
    assert [message.body for message in told] == [ASKED]
    await asyncio.sleep(0)

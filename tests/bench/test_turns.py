"""A router that does not start costs a note; anything else that does not start ends the run."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.bench.contenders import Contender
from tests.bench.loads import Sizes
from tests.bench.outputs import LoadFailed
from tests.bench.starting import CannotStart
from tests.bench.turns import LOADS, OPTIONAL, TURNS, Bench


@asynccontextmanager
async def broken(folder: Path, addresses: Sequence[str]) -> AsyncIterator[Contender]:
    if addresses:
        raise CannotStart("it ended with exit code 3 before it answered")
    yield Contender("never", 0, ())


def bench(name: str) -> Bench:
    return Bench({name: broken}, [1], Sizes(Path("sse")))


async def test_a_router_that_does_not_start_is_left_out_once_and_told() -> None:
    made = bench("vllm-router")
    await made.memory(0)
    await made.memory(1)
    assert made.notes == ["vllm-router is left out: it ended with exit code 3 before it answered"]
    assert made.names() == []


async def test_another_proxy_that_does_not_start_ends_the_run() -> None:
    with pytest.raises(CannotStart):
        await bench("nginx").memory(0)


async def failing(who: Contender, sizes: Sizes) -> dict[str, float]:
    raise LoadFailed("Non-2xx or 3xx responses: 3")


async def test_a_router_that_fails_in_a_load_is_told_of_once_for_each_kind() -> None:
    made = bench("vllm-router")
    who = Contender("vllm-router", 1, ())
    for turn in range(3):
        await made.look(turn, "post", failing, who)
    await made.look(0, "up", failing, who)
    said = "Non-2xx or 3xx responses: 3"
    assert made.notes == [f"vllm-router, post: {said}", f"vllm-router, up: {said}"]
    assert made.samples == []


async def test_a_failed_load_of_another_proxy_ends_the_run() -> None:
    with pytest.raises(LoadFailed):
        await bench("nginx").look(0, "post", failing, Contender("nginx", 1, ()))


def test_contenders_are_named_in_the_order_of_the_table_once_they_have_figures() -> None:
    made = Bench(dict.fromkeys(["nginx", "HAProxy", "x"], broken), [1], Sizes(Path("sse")))
    made.note(0, "HAProxy", {"post_us": 1.0})
    made.note(0, "nginx", {"post_us": 1.0})
    assert made.names() == ["nginx", "HAProxy"]


def test_every_load_has_turns_and_only_routers_may_be_missing() -> None:
    assert set(TURNS) == set(LOADS)
    assert {name.partition("-")[2] for name in OPTIONAL} == {"router"}

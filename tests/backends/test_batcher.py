"""Requests joined into runs: who runs with whom and when, by a clock that the test owns."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.batcher import FAULTS_MAX, Batcher
from backends.errors import EngineFailed, LoadFailed, NotReady, QueueFull, SnapshotInvalid
from backends.signature import Signature, TensorSpec
from tests.backends.fakes import Gate
from tests.backends.graphs import PAIR, WIDTH, ScriptedGraph, ready_graph, row
from tests.sim.clock import simulate as run

T = TypeVar("T")
DELAY_S = 0.5
RUN_S = 4.0


class SimulatedThread:
    """Each job takes RUN_S on the loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._free_at = 0.0
        self.ended = False

    def call(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = self._loop.create_future()

        def done() -> None:
            try:
                answer.set_result(job())
            except Exception as exc:
                answer.set_exception(exc)

        self._free_at = max(self._loop.time(), self._free_at) + RUN_S
        self._loop.call_at(self._free_at, done)
        return answer

    def end(self) -> None:
        self.ended = True


async def started(engine: ScriptedGraph, queue_max: int = 8) -> Batcher:
    loop = asyncio.get_running_loop()
    batcher = Batcher(
        engine,
        DELAY_S,
        queue_max,
        thread=SimulatedThread,
        monotonic_ns=lambda: int(loop.time() * 1e9),
    )
    await batcher.start(lambda *_: None)
    return batcher


async def asked(batcher: Batcher, after_s: float, *values: float) -> tuple[float, Any]:
    """When the answer came, and how many rows ran with it."""
    await asyncio.sleep(after_s)
    outputs = await batcher.infer(row(*values))
    assert outputs["y"][0, : len(values)].tolist() == [2 * value for value in values]
    return asyncio.get_running_loop().time() - RUN_S, int(outputs["n"][0])


def test_one_request_waits_for_company_and_no_longer_than_the_delay() -> None:
    async def story() -> None:
        batcher = await started(ScriptedGraph())
        assert await asked(batcher, 0.0, 1.0) == (DELAY_S + RUN_S, 1)

    run(story())


def test_requests_that_come_within_the_delay_share_a_run_and_each_has_its_own_answer() -> None:
    async def story() -> None:
        batcher = await started(ScriptedGraph())
        answers = await asyncio.gather(*(asked(batcher, 0.1 * i, float(i)) for i in range(3)))
        assert answers == [(DELAY_S + RUN_S, 3)] * 3

    run(story())


def test_a_full_batch_does_not_wait() -> None:
    async def story() -> None:
        batcher = await started(ScriptedGraph())
        answers = await asyncio.gather(*(asked(batcher, 0.0, float(i)) for i in range(4)))
        assert answers == [(RUN_S, 4)] * 4

    run(story())


def test_what_came_during_a_run_leaves_right_after_it_however_short_it_waited() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        batcher = await started(engine)
        first = asyncio.create_task(asked(batcher, 0.0, 1.0))
        later = [asyncio.create_task(asked(batcher, 2.0 + i, 2.0)) for i in range(2)]
        assert await first == (DELAY_S + RUN_S, 1)
        assert [await one for one in later] == [(DELAY_S + 2 * RUN_S, 2)] * 2
        assert engine.runs == [1, 2]

    run(story())


def test_utilisation_queue_and_wait_are_measured() -> None:
    async def story() -> None:
        batcher = await started(ScriptedGraph())
        tasks = [asyncio.create_task(asked(batcher, 0.0, 1.0)) for _ in range(6)]
        await asyncio.sleep(1.0)
        readings = batcher.readings()
        assert (readings.active, readings.queue_depth) == (4, 2)
        assert readings.queue_wait_ms == 1000.0
        await asyncio.gather(*tasks)
        readings = batcher.readings()
        assert (readings.progress_total, readings.served_total) == (2, 6)
        assert (readings.active, readings.queue_depth, readings.failure) == (0, 0, "")
        # A full run and a half one, of 4 s each; since the last window began, which is 10 s ago.
        assert readings.batch_utilisation_ratio == (4 + 2) * RUN_S / (4 * 10)
        assert readings.last_latency_ms == 2 * RUN_S * 1000
        assert readings.memory_bytes == 1000

    run(story())


def test_whoever_is_cancelled_gives_up_its_place_and_runs_nothing() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        batcher = await started(engine)
        first = asyncio.create_task(asked(batcher, 0.0, 1.0))
        second = asyncio.create_task(asked(batcher, 0.0, 2.0))
        await asyncio.sleep(0.1)
        first.cancel()
        assert (await second)[1] == 1
        assert engine.runs == [1]
        assert batcher.readings().served_total == 1

    run(story())


def test_a_client_that_leaves_in_the_middle_of_a_run_costs_the_others_nothing() -> None:
    async def story() -> None:
        batcher = await started(ScriptedGraph())
        first = asyncio.create_task(asked(batcher, 0.0, 1.0))
        second = asyncio.create_task(asked(batcher, 0.0, 2.0))
        await asyncio.sleep(DELAY_S + 1.0)
        first.cancel()
        assert (await second)[1] == 2
        assert batcher.readings().served_total == 1

    run(story())


def test_more_than_the_room_is_refused() -> None:
    async def story() -> None:
        batcher = await started(ScriptedGraph(), queue_max=1)
        tasks = [asyncio.create_task(asked(batcher, 0.0, 1.0)) for _ in range(5)]
        await asyncio.sleep(0.1)
        with pytest.raises(QueueFull, match="5 of 5"):
            await batcher.infer(row(1.0))
        await asyncio.gather(*tasks)

    run(story())


# --- faults --------------------------------------------------------------------------------------


def poison(x: NDArray[Any]) -> None:
    if (x == 13).any():
        raise ValueError("index 13 is out of bounds")


def test_values_that_break_a_run_fail_the_request_they_came_with_and_no_other() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        engine.fault = poison
        batcher = await started(engine)
        bad, good = batcher.infer(row(13.0)), batcher.infer(row(1.0))
        failure, answer = await asyncio.gather(bad, good, return_exceptions=True)
        assert isinstance(failure, EngineFailed)
        assert "index 13 is out of bounds" in str(failure)
        assert isinstance(answer, dict)
        assert engine.runs == [2, 1, 1], "together, then each alone"

    run(story())


def test_a_client_whose_values_always_break_the_run_does_not_end_the_instance() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        engine.fault = poison
        batcher = await started(engine)
        for _ in range(3 * FAULTS_MAX):
            with pytest.raises(EngineFailed):
                await batcher.infer(row(13.0))
        assert batcher.readings().failure == ""
        assert (await batcher.infer(row(1.0)))["n"].tolist() == [1]

    run(story())


def test_who_left_during_a_run_that_failed_is_not_run_again() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        engine.fault = poison
        batcher = await started(engine)
        bad = asyncio.create_task(batcher.infer(row(13.0)))
        good = asyncio.create_task(batcher.infer(row(1.0)))
        await asyncio.sleep(DELAY_S + 1.0)
        bad.cancel()
        assert (await good)["n"].tolist() == [1]
        assert engine.runs == [2, 1]

    run(story())


def test_a_request_that_is_run_again_waited_once() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        engine.fault = poison
        batcher = await started(engine)
        bad = asyncio.create_task(batcher.infer(row(13.0)))
        good = asyncio.create_task(batcher.infer(row(1.0)))
        with pytest.raises(EngineFailed):
            await bad
        assert batcher.readings().queue_wait_ms == DELAY_S * 1000
        await good

    run(story())


def test_failures_with_answers_in_between_are_no_reason_to_doubt_the_graph() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        engine.fault = poison
        batcher = await started(engine)
        for _ in range(FAULTS_MAX):
            with pytest.raises(EngineFailed):
                await batcher.infer(row(13.0))
            await batcher.infer(row(1.0))
        assert len(engine.runs) == 2 * FAULTS_MAX, "no run of zeros"

    run(story())


def test_a_graph_that_fails_even_with_zeros_is_given_up_and_says_so() -> None:
    def broken(x: NDArray[Any]) -> None:
        raise RuntimeError("device lost")

    async def story() -> None:
        engine, told = ScriptedGraph(), asyncio.Event()
        engine.fault = broken
        batcher = await started(engine)
        batcher.on_given_up = told.set
        for count in range(FAULTS_MAX):
            assert batcher.readings().failure == "", count
            with pytest.raises(EngineFailed, match="device lost"):
                await batcher.infer(row(1.0))
        assert "zeros fail too" in batcher.readings().failure, "known before the last one hears it"
        assert told.is_set()
        with pytest.raises(EngineFailed, match="zeros fail too"):
            await batcher.infer(row(1.0))

    run(story())


def test_an_answer_that_is_not_what_the_signature_says_is_the_graphs_fault() -> None:
    async def story() -> None:
        outputs = (TensorSpec("y", "FP32", (-1, 7)), TensorSpec("n", "INT64", (-1,)))
        batcher = await started(ScriptedGraph(Signature(PAIR.inputs, outputs, 4)))
        with pytest.raises(EngineFailed, match=r"output 'y' is float32 \[1, 3\], not .* \[1, 7\]"):
            await batcher.infer(row(1.0))

    run(story())


# --- its life ------------------------------------------------------------------------------------


def test_nothing_runs_before_it_is_loaded_and_after_it_is_closed() -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        batcher = Batcher(engine, DELAY_S, 8, thread=SimulatedThread)
        with pytest.raises(NotReady):
            await batcher.infer(row(1.0))
        await batcher.start(lambda *_: None)
        held = asyncio.create_task(batcher.infer(row(1.0)))
        await asyncio.sleep(0)
        await batcher.close()
        await batcher.close()
        assert engine.closed
        for refused in (held, batcher.infer(row(1.0))):
            with pytest.raises(EngineFailed, match="the instance was stopped"):
                await refused

    run(story())


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (SnapshotInvalid("model.mindir: cannot be read"), SnapshotInvalid, "^model.mindir: cannot"),
        (RuntimeError("no kernel"), LoadFailed, "did not load: RuntimeError: no kernel"),
    ],
)
def test_a_load_that_fails_says_why(failure: Exception, kind: type[Exception], words: str) -> None:
    async def story() -> None:
        engine = ScriptedGraph()
        engine.load_failure = failure
        batcher = Batcher(engine, DELAY_S, 8, thread=SimulatedThread)
        with pytest.raises(kind, match=words):
            await batcher.start(lambda *_: None)
        await batcher.close()

    run(story())


async def test_a_real_thread_runs_the_graph_while_the_loop_goes_on() -> None:
    gate = Gate()
    async with ready_graph(gate=gate) as rig:
        first = asyncio.create_task(rig.batcher.infer(row(1.0)))
        await asyncio.to_thread(gate.await_arrivals, 1)  # it runs; these wait, all on this loop
        rest = [asyncio.create_task(rig.batcher.infer(row(float(i)))) for i in range(3)]
        await asyncio.sleep(0)
        assert rig.batcher.readings().queue_depth == 3
        gate.open()
        assert (await first)["n"].tolist() == [1]
        answers = [await one for one in rest]
        assert [int(answer["n"][0]) for answer in answers] == [3, 3, 3]
        assert np.array_equal(answers[2]["y"], row(4.0)["x"])
        assert rig.engine.runs == [1, 3]


# --- laws ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Client:
    """Comes at a time with a number of rows, leaves early or stays; 13 breaks the run."""

    at: float
    rows: int
    value: int
    patience_s: float | None


clients = st.lists(
    st.builds(
        Client,
        st.floats(0, 12, width=16),
        st.integers(1, 4),
        st.sampled_from([1, 2, 3, 5, 13]),
        st.none() | st.floats(0, 9, width=16),
    ),
    max_size=14,
)


@given(clients)
def test_whatever_happens_each_request_ends_once_and_answers_are_its_own(
    arrivals: list[Client],
) -> None:
    async def one(batcher: Batcher, client: Client) -> str:
        await asyncio.sleep(client.at)
        x = np.full((client.rows, WIDTH), client.value, np.float32)
        try:
            async with asyncio.timeout(client.patience_s):
                outputs = await batcher.infer({"x": x})
        except TimeoutError:
            return "left"
        except QueueFull:
            return "refused"
        except EngineFailed:
            return "failed"
        assert np.array_equal(outputs["y"], 2 * x)
        assert client.rows <= outputs["n"][0] <= PAIR.max_batch
        return "served"

    async def story() -> None:
        engine = ScriptedGraph()
        engine.fault = poison
        batcher = await started(engine, queue_max=6)
        ends = await asyncio.gather(*(one(batcher, client) for client in arrivals))
        breaking = [client.value == 13 for client in arrivals]
        for end, breaks in zip(ends, breaking, strict=True):
            assert end != ("served" if breaks else "failed"), "for another's values"
        readings = batcher.readings()
        assert readings.failure == ""
        assert readings.queue_depth == 0
        assert readings.served_total == ends.count("served")
        assert max(engine.runs, default=0) <= PAIR.max_batch
        assert 0 <= readings.batch_utilisation_ratio <= 1

    run(story())

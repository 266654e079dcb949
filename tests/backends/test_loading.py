"""The way to READY: what is checked, in which order, and what is said on the way."""

import os
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from backends.engines.base import Generation, Sampling
from backends.engines.families import GraphParts
from backends.errors import DependencyMissing, InstanceError, LoadFailed, SnapshotInvalid
from backends.loading import Loading
from backends.settings import Settings
from backends.snapshots import measured
from backends.snapshots.remote import RemoteRepository
from backends.snapshots.repository import Repository, Snapshot, SnapshotInUse
from backends.snapshots.roots import Root, Url
from sluicegate.v1.states import Phase
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.graphs import ScriptedGraph
from tests.backends.rig import Rig, ScriptedFamily, rig, snapshot_of, write_snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_snapshot(tmp_path)
    return tmp_path


def loading(root: Root, made: Rig, *, missing: str = "", **more: Any) -> Loading:
    given = {"cache_root": root / ".cache"} if isinstance(root, Path) else {}
    settings = Settings(model="m", version="1", root=root, instance_id="m-1-0", **{**given, **more})
    family = ScriptedFamily(made.engine, missing)
    return Loading(settings, {"llm": family}, made.facts, Random(7))


async def run(load: Loading) -> None:
    with ExitStack() as held:
        try:
            await load.run(held)
        finally:
            if load.executor is not None:
                await load.executor.close()


def change(root: Path) -> None:
    """A file of the snapshot is another one, with as many bytes."""
    changed = root / "m" / "1" / "model.safetensors"
    changed.chmod(0o644)
    changed.write_bytes(b"Weights" * 1000)


async def failure(load: Loading) -> InstanceError:
    with pytest.raises(InstanceError) as caught:
        await run(load)
    return caught.value


def phases_of(made: Rig) -> list[Phase]:
    """Filled with each phase that is entered from now on."""
    seen: list[Phase] = []

    def look() -> None:
        if made.life.standing.phase not in seen:
            seen.append(made.life.standing.phase)

    made.life.watch(look)
    return seen


async def test_the_phases_come_in_order_and_end_with_an_answer(root: Path) -> None:
    made = rig(ScriptedEngine(rule=successor))
    phases = phases_of(made)
    await run(loading(root, made))
    assert phases == [
        Phase.FETCHING_MODEL,
        Phase.CHECKING_DEPENDENCIES,
        Phase.LOADING_MODEL,
        Phase.COMPILING,
        Phase.WARMING_UP,
    ]
    assert made.life.standing.reason == "asking for an answer"
    assert [call[0] for call in made.engine.calls] == ["prefill", "decode", "decode", "decode"]
    assert made.facts.held().slots == made.engine.slots


async def test_what_a_load_has_asked_is_kept_by_no_slot(root: Path) -> None:
    made = rig(ScriptedEngine(rule=successor))
    with ExitStack() as held:
        await loading(root, made).run(held)
        prompt = made.engine.calls[0][2]
        assert isinstance(prompt, tuple)
        executor = made.facts.text_model().executor
        again = executor.submit(Generation("r", prompt, 1, Sampling(), frozenset()))
        assert len([token async for token in again]) == 1
        assert again.reused == 0
        await executor.close()


async def test_a_snapshot_that_is_not_there_says_how_to_import_it(tmp_path: Path) -> None:
    found = await failure(loading(tmp_path, rig()))
    assert isinstance(found, SnapshotInvalid)
    assert "sluicegate models import" in str(found)


async def test_what_must_be_installed_is_checked_before_a_byte_is_read(root: Path) -> None:
    made = rig()
    found = await failure(loading(root, made, missing="MindSpore is not installed: pip"))
    assert isinstance(found, DependencyMissing)
    assert made.life.standing.reason == "checking what must be installed"
    assert not made.engine.calls


async def test_a_changed_file_is_named_before_the_engine_is_touched(root: Path) -> None:
    change(root)
    made = rig()
    found = await failure(loading(root, made))
    assert isinstance(found, SnapshotInvalid)
    assert "model.safetensors: has sha256" in str(found)
    assert not made.engine.threads


async def test_a_device_that_is_not_there_is_said_before_a_byte_is_read(root: Path) -> None:
    change(root)  # which whoever reads it says
    made = rig()
    found = await failure(loading(root, made, device_kind="ascend"))
    assert isinstance(found, DependencyMissing)
    assert "no ascend here" in str(found)
    assert not made.engine.threads


async def test_a_cache_that_cannot_be_written_is_said_before_a_byte_is_read(root: Path) -> None:
    change(root)
    (root / "file").touch()
    made = rig()
    found = await failure(loading(root, made, cache_root=root / "file" / "cache"))
    assert isinstance(found, DependencyMissing)
    assert "--cache-root" in str(found)
    assert not made.engine.threads


async def test_a_load_that_will_not_fit_is_not_begun(root: Path) -> None:
    change(root)
    made = rig()
    found = await failure(loading(root, made, memory_gb=1.0))
    assert isinstance(found, LoadFailed)
    assert "1.0 GiB needed (as configured)" in str(found)
    assert not made.engine.threads


async def test_each_check_is_told(root: Path) -> None:
    made = rig(ScriptedEngine(rule=successor))
    told: list[str] = []
    made.life.watch(lambda: told.append(made.life.standing.reason))
    await run(loading(root, made))
    starts = [words.partition(":")[0] for words in told]
    checks = ["checking what must be installed", "device", "cache", "memory"]
    assert [words for words in starts if words in checks] == checks


async def test_memory_that_runs_out_while_loading_is_told_with_the_numbers(root: Path) -> None:
    made = rig(ScriptedEngine(load_failure=MemoryError()))
    found = await failure(loading(root, made))
    assert isinstance(found, LoadFailed)
    assert str(found).startswith("out of memory: 0 MiB needed (by its manifest)")
    assert "MemoryError" in str(found)


async def test_samples_are_run_between_the_last_shape_and_the_last_check(root: Path) -> None:
    made = rig(ScriptedEngine(rule=successor))
    told: list[tuple[float, str]] = []
    made.life.watch(lambda: told.append((made.life.standing.progress, made.life.standing.reason)))
    await run(loading(root, made, warmup_rounds=2))
    assert told[-4:] == [
        (70 + 20 * 0.2, "verified"),
        (70 + 20 * 0.2, "sample 1 of 1, round 1 of 2 (length 56)"),
        (70 + 20 * 0.6, "sample 1 of 1, round 2 of 2 (length 56)"),
        (90.0, "asking for an answer"),
    ]
    assert made.facts.warmed is not None
    assert made.facts.warmed.samples == 1


async def test_samples_that_were_recorded_are_run(root: Path) -> None:
    body = orjson.dumps({"prompt": "hello"}).decode()
    line = f'{{"model":"m","path":"/v1/completions","bucket":"<100","body":{body}}}\n'
    (root / "m.jsonl").write_text(line)
    made = rig(ScriptedEngine(rule=successor))
    await run(loading(root, made, warmup_rounds=1, warmup_samples=root / "m.jsonl"))
    assert made.engine.calls[0] == ("prefill", 0, tuple(b"hello"), 0)


async def test_a_model_slower_than_its_baseline_is_not_ready(root: Path) -> None:
    made = rig(ScriptedEngine(rule=successor))
    found = await failure(loading(root, made, warmup_rounds=1, warmup_baseline_ms=1e-9))
    assert isinstance(found, LoadFailed)
    assert "the baseline is 1e-09 ms" in str(found)


async def test_what_is_answered_before_ready_was_nobodys_request(root: Path) -> None:
    made = rig(ScriptedEngine(rule=successor))
    load = loading(root, made, warmup_rounds=1)
    told: list[int] = []
    made.life.watch(lambda: told.append(made.facts.readings().completion_tokens_total))
    made.life.watch(lambda: told.append(sum(made.facts.readings().durations.counts)))
    with ExitStack() as held:
        await load.run(held)
        assert set(told) == {0}
        assert load.executor is not None
        ran = load.executor.readings()
        assert made.facts.readings().served_total == 0  # still INITIALIZING
        seen = (ran.waits, ran.first_tokens, ran.token_gaps, ran.durations)
        assert [sum(one.counts) for one in seen] == [0, 0, 0, 0]
        assert (ran.last_latency_ms, ran.tokens_per_s, ran.queue_wait_ms) == (0.0, 0.0, 0.0)
        assert min(ran.progress_total, ran.memory_peak_bytes) > 0
        made.life.verified(0.0)
        counted = made.facts.readings()
        await load.executor.close()
    assert (ran.served_total, ran.completion_tokens_total > 0) == (2, True)
    assert (counted.served_total, counted.completion_tokens_total) == (0, 0)
    assert counted.progress_total == ran.progress_total > 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be narrowed")
@pytest.mark.parametrize("failure_", [None, LoadFailed("broken")])
async def test_a_load_is_held_back_and_free_before_its_warm_up_however_it_ends(
    root: Path, failure_: Exception | None
) -> None:
    allowed = os.sched_getaffinity(0)
    made = rig(ScriptedEngine(rule=successor, load_failure=failure_))
    seen: dict[str, set[int]] = {}

    def look() -> None:
        seen[made.life.standing.phase.name] = os.sched_getaffinity(0)

    made.life.watch(look)
    load = loading(root, made, warmup_rounds=1, load_threads=1)
    try:
        await run(load)
    except LoadFailed:
        assert failure_ is not None
    else:
        assert seen["WARMING_UP"] == allowed
    assert len(seen["CHECKING_DEPENDENCIES"]) == len(seen["COMPILING"]) == 1
    assert os.sched_getaffinity(0) == allowed


async def test_an_engine_that_cannot_load_says_why(root: Path) -> None:
    made = rig(ScriptedEngine(load_failure=LoadFailed("out of memory: 3 GiB needed, 1 GiB free")))
    assert "out of memory" in str(await failure(loading(root, made)))


async def test_an_engine_that_loads_but_does_not_answer_is_not_ready(root: Path) -> None:
    def fault(step: str) -> None:
        raise RuntimeError("kernel failed")

    made = rig()
    made.engine.faults = fault
    found = await failure(loading(root, made))
    assert isinstance(found, LoadFailed)
    assert str(found).startswith("verification: ")


class GraphFamily:
    """Runs every snapshot with the graph it was given."""

    def __init__(self, graph: ScriptedGraph) -> None:
        self._graph = graph

    def require(self) -> None:
        pass

    def build(self, snapshot: Snapshot, settings: Settings) -> GraphParts:
        return GraphParts(self._graph, 0.0)


def graph_loading(root: Path, made: Rig, graph: ScriptedGraph) -> Loading:
    settings = Settings(
        model="m",
        version="1",
        root=root,
        instance_id="m-1-0",
        queue_max=3,
        cache_root=root / ".cache",
    )
    return Loading(settings, {"llm": GraphFamily(graph)}, made.facts, Random(7))


async def test_a_graph_takes_the_same_way_and_ends_with_a_run_of_zeros(root: Path) -> None:
    made, graph = rig(), ScriptedGraph()
    phases = phases_of(made)
    seen: list[bool] = []
    graph.fault = lambda x: seen.append(bool((x == 0).all()))
    await run(graph_loading(root, made, graph))
    assert phases[-1] is Phase.WARMING_UP
    assert made.life.standing.reason == "asking for an answer"
    assert (seen, graph.closed) == ([True], True)
    assert (made.facts.held().slots, made.gate.room) == (4, 7)


async def test_a_graph_that_answers_zeros_with_no_numbers_is_not_ready(root: Path) -> None:
    graph = ScriptedGraph()

    def spoil(x: NDArray[Any]) -> None:
        x.fill(np.nan)  # the answer is made of it

    graph.fault = spoil
    found = await failure(graph_loading(root, rig(), graph))
    assert isinstance(found, LoadFailed)
    assert str(found) == "verification: zeros in, no finite numbers out in y"


async def test_a_graph_that_loads_but_does_not_run_is_not_ready(root: Path) -> None:
    def broken(x: NDArray[Any]) -> None:
        raise RuntimeError("kernel failed")

    graph = ScriptedGraph()
    graph.fault = broken
    found = await failure(graph_loading(root, rig(), graph))
    assert str(found) == "verification: the graph failed: RuntimeError: kernel failed"


async def test_a_snapshot_in_use_cannot_be_removed(root: Path) -> None:
    load = loading(root, rig())
    with ExitStack() as held:
        await load.run(held)
        with pytest.raises(SnapshotInUse):
            Repository(root).remove("m", "1")
        assert load.executor is not None
        await load.executor.close()


async def test_checking_files_ends_when_it_is_given_up(root: Path) -> None:
    load = loading(root, rig())
    load.give_up()
    assert "stopped while the files were checked" in str(await failure(load))


async def test_what_was_really_held_is_noted_beside_a_snapshot_that_stays_as_it_was(
    root: Path,
) -> None:
    made = rig()
    await run(loading(root, made))
    assert measured.read(root / "m" / "1") == {"cpu": made.engine.memory_bytes()}
    Repository(root).verify(Repository(root).locate("m", "1"), lambda count: None)


@pytest.mark.parametrize("other", [{"slots": 1}, {"max_seq_len": 8}])
async def test_what_a_smaller_promise_holds_says_nothing_of_the_snapshot(
    root: Path, other: dict[str, Any]
) -> None:
    await run(loading(root, rig(), **other))
    assert measured.read(root / "m" / "1") == {}


async def test_a_repository_that_instances_cannot_write_to_serves_all_the_same(root: Path) -> None:
    (measured.place(root / "m" / "1") / "in the way").mkdir(parents=True)  # also for root
    await run(loading(root, rig()))


async def test_a_snapshot_in_a_store_is_fetched_told_and_held(tmp_path: Path) -> None:
    remote = RemoteRepository(Url(f"memory://{tmp_path.name}"))
    fill, describe = snapshot_of("1")
    remote.write("m", "1", fill, describe)
    made = rig(ScriptedEngine(rule=successor))
    told: list[str] = []
    made.life.watch(lambda: told.append(made.life.standing.reason))
    load = loading(remote.root, made, cache_root=tmp_path)
    local = Repository(tmp_path / "snapshots")
    with ExitStack() as held:
        await load.run(held)
        with pytest.raises(SnapshotInUse):
            local.remove("m", "1")
        with pytest.raises(SnapshotInUse, match=r"in use by m-1-0\.[0-9a-f]{8}: drain"):
            remote.remove("m", "1")
        assert load.executor is not None
        await load.executor.close()
    remote.remove("m", "1")
    assert told[0] == f"looking in {remote.root}"
    assert "0 of 0 MiB fetched" in told
    assert measured.read(tmp_path / "snapshots" / "m" / "1") == {"cpu": made.engine.memory_bytes()}


async def test_fetching_ends_when_it_is_given_up(tmp_path: Path) -> None:
    remote = RemoteRepository(Url(f"memory://{tmp_path.name}"))
    remote.write("m", "1", *snapshot_of("1"))
    load = loading(remote.root, rig(), cache_root=tmp_path)
    load.give_up()
    assert "stopped while fetching" in str(await failure(load))
    assert Repository(tmp_path / "snapshots").list() == ()

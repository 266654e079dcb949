"""A validation ordered of a supervisor that really starts processes, and what becomes of it."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway.children import Child, start
from gateway.config import Settings, parse
from gateway.controlplane import validating
from gateway.controlplane.validating import Validating, order_of
from gateway.fleet.commands import Validate
from gateway.fleet.events import ChildExited, ChildrenSeen, ChildStarted, StartFailed
from gateway.messages import Kill, Message, Spawn
from gateway.rollouts import AbortRollout
from gateway.validation.judging import Rules
from gateway.validation.orders import Order, Way
from tests.gateway.fleet.builders import only, play
from tests.gateway.fleet.rolling import NEW, asked, grown
from tests.gateway.fleet.rolling import serving as serving_fleet
from tests.gateway.fleet.rolling import start as start_rollout
from tests.gateway.validation.scripted import broken, otherwise, serving, well

NOW = 0.0
CONFIG = """
[[model]]
name = "m"
weights = { "1" = 100 }
[model.rollout.validation]
latency_ratio_max = 0
answers = "similar"
similarity = 0.8
concurrency = 4
"""


class Supervising:
    """Starts, kills and reaps as the supervisor does, and says so."""

    def __init__(self, run_dir: Path) -> None:
        self.validating = Validating(self.order, run_dir, os.getpid(), ("json", "info"))
        self.ordered: list[Message] = []
        self.began = asyncio.Event()
        self.children: dict[str, Child] = {}
        self.refuses = ""
        self._life, self._write = os.pipe()

    def order(self, message: Message) -> None:
        self.ordered.append(message)
        if isinstance(message, Kill) and message.name in self.children:
            self.children[message.name].signal(message.signal)
        if not isinstance(message, Spawn):
            return
        if self.refuses:
            asyncio.get_running_loop().call_soon(
                self.validating.sifted, StartFailed(message.name, self.refuses, NOW)
            )
            return
        child = self.children[message.name] = start(message, {"life": self._life})
        loop = asyncio.get_running_loop()
        loop.add_reader(child.pidfd, self._exited, loop, message.name, child)
        assert self.validating.sifted(ChildStarted(message.name, child.pid, NOW)) is None
        self.began.set()

    def _exited(self, loop: asyncio.AbstractEventLoop, name: str, child: Child) -> None:
        loop.remove_reader(child.pidfd)
        del self.children[name]
        event = ChildExited(name, child.pid, child.reap(), NOW, False)
        assert self.validating.sifted(event) is None

    def close(self) -> None:
        os.close(self._write)
        os.close(self._life)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Supervising]:
    supervising = Supervising(tmp_path)
    yield supervising
    supervising.close()


def _ordered(tmp_path: Path, new: str, old: str) -> tuple[Validate, Settings]:
    path = tmp_path / "samples.jsonl"
    line = orjson.dumps({"messages": [{"role": "user", "content": "?"}]})
    path.write_bytes(b"\n".join([line] * 8))
    old, new = old.removeprefix("http://"), new.removeprefix("http://")
    return Validate("m", "m/1", str(path), (new,), (old,)), parse(CONFIG)


@pytest.mark.live
@pytest.mark.parametrize(
    ("answering", "failed"),
    [(well, set[str]()), (broken, {"errors"}), (otherwise, {"answers"})],
)
async def test_a_child_tries_the_samples_and_its_report_comes_back(
    at: Supervising, tmp_path: Path, answering: object, failed: set[str]
) -> None:
    async with serving(answering) as new, serving(well) as old:  # type: ignore[arg-type]
        report = await at.validating.run(*_ordered(tmp_path, new.url, old.url))
    assert (report.passed, report.new.tried) == (not failed, 8)
    assert {one.name for one in report.checks if not one.passed} == failed
    assert at.children == {}
    assert os.listdir(tmp_path) == ["samples.jsonl"]


@pytest.mark.live
async def test_a_child_that_dies_is_a_failed_validation_with_a_sentence(
    at: Supervising, tmp_path: Path
) -> None:
    running = asyncio.create_task(at.validating.run(*_ordered(tmp_path, "http://x", "http://x")))
    await asyncio.wait_for(at.began.wait(), 300)
    (child,) = at.children.values()
    child.signal(signal.SIGKILL)
    report = await running
    assert (report.passed, report.reason) == (False, "the validation ended with status -9")


@pytest.mark.live
async def test_a_child_that_does_not_end_is_stopped(
    at: Supervising, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "MARGIN_S", -599.9)  # of 600 in all
    report = await at.validating.run(*_ordered(tmp_path, "http://x", "http://x"))
    assert "has not ended in 0.1 s, and was stopped" in report.reason
    assert isinstance(at.ordered[-1], Kill)


async def test_a_child_that_cannot_be_started_is_a_failed_validation(
    at: Supervising, tmp_path: Path
) -> None:
    at.refuses = "no more processes"
    report = await at.validating.run(*_ordered(tmp_path, "http://x", "http://x"))
    assert report.reason == "the validation could not be started: no more processes"


@pytest.mark.parametrize(
    ("written", "said"),
    [(None, "ended without a report"), (b"{", "cannot be read"), (b"{}", "cannot be read")],
)
async def test_a_child_that_left_no_report_is_a_failed_validation(
    at: Supervising, tmp_path: Path, written: bytes | None, said: str
) -> None:
    ordered: list[Spawn] = []

    def order(message: Message) -> None:
        assert isinstance(message, Spawn)
        ordered.append(message)
        if written is not None:
            (tmp_path / f"{message.name}.json").write_bytes(written)
        event = ChildExited(message.name, 1, 0, NOW, False)
        asyncio.get_running_loop().call_soon(mute.sifted, event)

    mute = Validating(order, tmp_path, 42, ("json", "info"))
    report = await mute.run(*_ordered(tmp_path, "http://x", "http://x"))
    assert not report.passed
    assert said in report.reason
    assert os.listdir(tmp_path) == ["samples.jsonl"]


def test_decisions_never_hear_of_our_children(tmp_path: Path) -> None:
    ordered: list[Message] = []
    one = Validating(ordered.append, tmp_path, 42, ("json", "info"))
    (tmp_path / "validation.42.7.json").touch()
    pids = {"worker0.0": 5, "validation.42.7": 6}
    seen = ChildrenSeen(pids, 1, frozenset(), NOW, {})
    assert one.sifted(seen) == ChildrenSeen({"worker0.0": 5}, 1, frozenset(), NOW, {})
    assert ordered == [Kill("validation.42.7", signal.SIGKILL)]  # left by another control
    assert list(tmp_path.iterdir()) == []
    assert one.sifted(ChildExited("validation.42.7", 6, -9, NOW, False)) is None
    for event in (ChildExited("worker0.0", 5, 0, NOW, False), ChildStarted("worker0.0", 5, NOW)):
        assert one.sifted(event) is event


def test_an_order_has_the_keys_of_the_model(tmp_path: Path) -> None:
    command, settings = _ordered(tmp_path, "h:2", "h:1")
    rules = Rules(0.0, 0.0, "similar", 0.8)
    samples = str(tmp_path / "samples.jsonl")
    wanted = Order(samples, "m", ("http://h:2",), ("http://h:1",), rules, Way(concurrency=4))
    assert order_of(command, settings) == wanted


async def test_nothing_is_sent_any_longer_for_a_rollout_that_was_aborted(tmp_path: Path) -> None:
    ordered: list[Message] = []
    one = Validating(ordered.append, tmp_path, 42, ("json", "info"))
    fleet, commands = play(serving_fleet(), asked(start_rollout(samples="s.jsonl"), 10.0))
    fleet, commands = play(fleet, *grown(NEW, "2", 10.0))
    (validate,) = only(Validate, commands)
    running = asyncio.create_task(one.run(validate, fleet.settings))
    await asyncio.sleep(0)
    one.look(fleet)
    assert [type(message) for message in ordered] == [Spawn]
    fleet, _ = play(fleet, asked(AbortRollout("m"), 14.0))
    one.look(fleet)
    one.look(fleet)
    (spawn, kill) = ordered
    assert isinstance(spawn, Spawn)
    assert kill == Kill(spawn.name, signal.SIGKILL)
    assert (await running).reason == "the rollout has left its validation"


async def test_the_end_of_a_child_that_another_control_left_ends_none_of_ours(
    tmp_path: Path,
) -> None:
    """Both had the same name, and a good version was rolled back."""
    ordered: list[Message] = []
    command = _ordered(tmp_path, "http://x", "http://x")
    left, ours = (Validating(ordered.append, tmp_path, 42, ("json", "info")) for _ in range(2))
    tasks = [asyncio.create_task(one.run(*command)) for one in (left, ours)]
    await asyncio.sleep(0)
    old, new = (one.name for one in ordered if isinstance(one, Spawn))
    assert ours.sifted(ChildExited(old, 6, -9, NOW, False)) is None
    await asyncio.sleep(0)
    assert not tasks[1].done()
    assert ours.sifted(ChildExited(new, 7, 0, NOW, False)) is None
    assert (await tasks[1]).reason == "the validation ended without a report"
    assert left.sifted(ChildExited(old, 6, 0, NOW, False)) is None
    await tasks[0]

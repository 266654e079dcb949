"""`make bench-engine`: tokens per second of the `llm` engine beside torch, in the same minutes.

Floor 5, I/O.
Both hold the model in processes of their own and take turns: one works, the other waits. The same
greedy ids from both show that they compute the same model.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.bench.engine_text import OURS, PART, PEER, Measured, Run, line, section, table
from tests.bench.parts import with_part

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = ROOT / "tests" / "golden" / "smollm2_greedy.json"
BATCHES: Final = (1, 4, 8)
LENGTH: Final = 1024
PROMPT: Final = 32  # ids before the decodes
PREFILLS: Final = (128, 512)
LATE: Final = 600  # a position outside the short window
PAUSE_S: Final = 0.1  # until threads that wait for work stop spinning
AGREE_MIN: Final = 8  # ids that both must say alike; later ones may part at a near-tie


class Child:
    """A contender's process."""

    def __init__(self, command: Sequence[str], about: str) -> None:
        self.about = about
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def said(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.about} has ended: {self._process.wait()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def do(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        time.sleep(PAUSE_S)
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.said()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Bench:
    def __init__(self, given: argparse.Namespace, cache: Path) -> None:
        self.given, self._cache = given, cache
        self.notes: list[str] = []
        self.ids: list[int] = json.loads(GOLDEN.read_text())["cases"][0]["prompt_ids"]

    def ours(self, slots: int) -> list[str]:
        run = [sys.executable, "-m", "tests.bench.engine_ours", *self._arguments(slots)]
        return [*run, str(self._cache)]

    def peer(self, slots: int) -> list[str]:
        script = ROOT / "tests" / "bench" / "engine_torch.py"
        return [str(self.given.peer), str(script), *self._arguments(slots)]

    def _arguments(self, slots: int) -> list[str]:
        return [str(self.given.snapshot), str(slots), str(LENGTH), str(self.given.threads)]

    def ready(self, slots: int) -> float:
        """Seconds from an engine's process to READY."""
        began = time.perf_counter()
        with _running(self.ours(slots), OURS):
            return time.perf_counter() - began

    def batch(self, slots: int) -> Iterator[Measured]:
        with ExitStack() as stack:
            pair = {
                OURS: stack.enter_context(_running(self.ours(slots), OURS)),
                PEER: stack.enter_context(_running(self.peer(slots), PEER)),
            }
            many = "1 sequence" if slots == 1 else f"{slots} sequences"
            prompt = self._prompt(PROMPT)
            yield self._measured(f"decode, {many}", pair, self._decode(prompt))
            if slots == 8:
                late = self._decode(self._prompt(LATE))
                yield self._measured(f"decode, {many}, after {LATE} ids", pair, late)
            if slots == 1:
                for count in PREFILLS:
                    order = {"do": "prefill", "ids": self._prompt(count)}
                    yield self._measured(f"prefill, {count} ids", pair, order)

    def _prompt(self, count: int) -> list[int]:
        return (self.ids * (count // len(self.ids) + 1))[:count]

    def _decode(self, prompt: list[int]) -> dict[str, Any]:
        return {"do": "decode", "ids": prompt, "first": self.ids[0], "steps": self.given.steps}

    def _measured(self, label: str, pair: dict[str, Child], order: dict[str, Any]) -> Measured:
        rounds = []
        for number in range(-1, self.given.rounds):  # the first warms up
            order["fill"] = number < 0
            turns = list(pair.items()) if number % 2 else list(reversed(pair.items()))
            found = {name: child.do(**order) for name, child in turns}
            if number < 0:
                self._compare(label, found)
                continue
            rounds.append(
                {
                    name: Run(each["tokens"], each["wall_s"], each["cpu_s"])
                    for name, each in found.items()
                }
            )
        measured = Measured(label, rounds)
        print(table([measured]).splitlines()[-1], file=sys.stderr, flush=True)
        return measured

    def _compare(self, label: str, found: dict[str, dict[str, Any]]) -> None:
        if "ids" not in found[OURS]:
            return
        pairs = zip(found[OURS]["ids"], found[PEER]["ids"], strict=True)
        alike = next((i for i, (a, b) in enumerate(pairs) if a != b), self.given.steps)
        if alike < min(AGREE_MIN, self.given.steps):
            raise SystemExit(f"{label}: the contenders part after {alike} ids: not the same model")
        if alike < self.given.steps:
            self.notes.append(f"{label}: both said the same for {alike} ids, then parted")


@contextmanager
def _running(command: Sequence[str], about: str) -> Iterator[Child]:
    child = Child(command, about)
    try:
        how = child.said()
        if how:
            print(f"{about}: {how}", file=sys.stderr, flush=True)
        yield child
    finally:
        child.end()


def facts(given: argparse.Namespace, load_before: float) -> list[str]:
    asked = subprocess.run(
        [given.peer, "-c", "import torch; print(torch.__version__)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        f"{datetime.now(UTC):%Y-%m-%d}; {given.rounds} rounds of {given.steps} steps; "
        f"{given.threads} threads each; {given.snapshot.parent.name}, slots of {LENGTH}",
        f"MindSpore {version('mindspore')}, torch {asked.stdout.strip()}, Python "
        f"{platform.python_version()}; {os.cpu_count()} cores; load average {load_before:.1f} "
        f"before the run, {os.getloadavg()[0]:.1f} after it, itself included",
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.engine", description=__doc__)
    parser.add_argument("--snapshot", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True, help="a Python that has torch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--write", type=Path, metavar="FILE", help="whose part is written")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-engine-") as cache:
        bench = Bench(given, Path(cache))
        ready = {f"{state} compile cache": bench.ready(4) for state in ("cold", "warm")}
        rows = {batch: list(bench.batch(batch)) for batch in BATCHES}
    flat = [row for found in rows.values() for row in found]
    said = section(flat, ready, facts(given, load_before), bench.notes)
    print(said)
    if given.write:
        old = given.write.read_text() if given.write.exists() else ""
        given.write.write_text(with_part(old, PART, said))
    decodes = {batch: found[0] for batch, found in rows.items()}
    print(line(decodes, ready["warm compile cache"]))


if __name__ == "__main__":
    main()

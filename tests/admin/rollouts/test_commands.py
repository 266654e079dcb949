"""Rollouts as they are typed, against an admin port that is really served."""

import os
import pty
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from admin import views
from gateway.control import (
    AbortRollout,
    Denied,
    PauseRollout,
    PromoteRollout,
    ResumeRollout,
    RetryRollout,
    StartRollout,
)
from tests.admin.conftest import Served
from tests.admin.fakes import RECEIPT, ROLLED_BACK, ROLLOUT, Asked
from tests.admin.typed import Run, document_of

PLAN = RECEIPT.changes[0]
DONE = replace(ROLLED_BACK, phase="done")


# --- begin ---------------------------------------------------------------------------------------


def test_a_start_for_scripts_prints_the_plan_and_then_starts_it(run: Run, served: Served) -> None:
    result = run("rollout", "start", "m", "2", "--yes")
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == PLAN
    assert result.output.splitlines()[1].startswith("it has begun: ")
    ask = StartRollout("m", "2")
    assert served.control.asked == [
        Asked(ask, False, True, None),
        Asked(ask, False, False, None),
    ]


def test_all_that_can_be_said_of_it_arrives(run: Run, served: Served, tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text("")
    steps = ["--step", "5:10m", "--step", "50:600:200", "--gate"]
    more = ["--replicas", "3", "--samples", str(samples), "--force", "--yes", "--if-revision", "7"]
    assert run("rollout", "start", "m", "2", *steps, *more).exit_code == 0
    typed: tuple[dict[str, Any], ...] = (
        {"weight": 5.0, "hold_s": 600.0, "gate": True},
        {"weight": 50.0, "hold_s": 600.0, "requests_min": 200, "gate": True},
    )
    ask = StartRollout("m", "2", 3, typed, str(samples), True)
    assert served.control.asked[-1] == Asked(ask, False, False, 7)


def test_no_validation_is_said_by_no_samples(run: Run, served: Served) -> None:
    assert run("rollout", "start", "m", "2", "--yes", "--no-validation").exit_code == 0
    assert served.control.asked[-1].ask == StartRollout("m", "2", samples="")


def test_a_dry_run_starts_nothing(run: Run, served: Served) -> None:
    result = run("rollout", "start", "m", "2", "--dry-run")
    assert (result.exit_code, result.output) == (
        0,
        f"{PLAN}\nnothing was started: this is the plan\n",
    )
    assert document_of(run("rollout", "start", "m", "2", "--dry-run", "--json"))["dry_run"] is True
    served.control.asked.pop()
    assert [one.dry_run for one in served.control.asked] == [True]


def test_a_plan_that_is_refused_starts_nothing(run: Run, served: Served) -> None:
    served.control.denial = Denied("conflict", "12 GB are needed, 3 GB are free")
    result = run("rollout", "start", "m", "2", "--yes")
    assert (result.exit_code, result.stderr) == (1, "Error: 12 GB are needed, 3 GB are free\n")
    assert [one.dry_run for one in served.control.asked] == [True]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_where_nobody_can_be_asked_a_start_needs_yes(
    run: Run, served: Served, form: list[str]
) -> None:
    result = run("rollout", "start", "m", "2", *form)
    assert result.exit_code == 2
    assert "say --yes, or --dry-run for the plan" in result.stderr
    assert [one.dry_run for one in served.control.asked] == [True]


def test_what_runs_already_is_no_change(run: Run, served: Served) -> None:
    served.control.receipt = replace(RECEIPT, changes=())
    result = run("rollout", "start", "m", "2", "--yes")
    assert (result.exit_code, result.output) == (0, "nothing to change: it runs already\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m"], "Missing argument 'VERSION'"),
        (["m", "2", "--step", "x"], "x: x is not a weight"),
        (["m", "2", "--gate"], "--gate is said of steps"),
        (["m", "2", "--samples", "nowhere.jsonl"], "nowhere.jsonl"),
        (["m", "2", "--samples", __file__, "--no-validation"], "names what --no-validation leaves"),
        (["m", "2", "--replicas", "0"], "replicas"),
    ],
)
def test_a_mistyped_start_is_a_mistake_on_the_command_line(
    run: Run, served: Served, arguments: list[str], said: str
) -> None:
    result = run("rollout", "start", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert served.control.asked == []


@pytest.mark.parametrize(("ended", "code"), [(DONE, 0), (ROLLED_BACK, 1)])
def test_a_start_that_is_waited_for_ends_as_the_rollout_does(
    run: Run, served: Served, ended: Any, code: int
) -> None:
    served.control.rolling = (ended,)
    result = run("rollout", "start", "m", "2", "--yes", "--wait")
    assert result.exit_code == code
    assert (ROLLED_BACK.reason in result.output.splitlines()[-1]) == bool(code)
    result = run("rollout", "start", "m", "2", "--yes", "--wait", "--json")
    assert result.exit_code == code
    assert orjson.loads(result.stdout) == orjson.loads(orjson.dumps(views.rollout(ended)))


def test_a_retry_is_begun_like_a_start(run: Run, served: Served) -> None:
    assert run("rollout", "retry", "m", "--force", "--yes").exit_code == 0
    assert run("rollout", "retry", "m").exit_code == 2
    assert [(one.ask, one.dry_run) for one in served.control.asked] == [
        (RetryRollout("m", True), True),
        (RetryRollout("m", True), False),
        (RetryRollout("m"), True),
    ]


# --- look ----------------------------------------------------------------------------------------


def test_status_shows_the_one_that_runs_whole(run: Run) -> None:
    result = run("rollout", "status", "m")
    assert result.exit_code == 0
    assert "m/2: version 2 in place of 1, step 1 of 3" in result.output
    assert document_of(run("rollout", "status", "m", "--json"))["id"] == "m/2"


def test_status_without_a_model_is_the_newest_of_each(run: Run, served: Served) -> None:
    other = replace(ROLLED_BACK, id="n/1", model="n")
    served.control.rolling = (ROLLOUT, other, ROLLED_BACK)
    ids = [one["id"] for one in document_of(run("rollout", "status", "--json"))["rollouts"]]
    assert ids == ["m/2", "n/1"]
    lines = run("rollout", "status").output.splitlines()
    assert [line.split()[0] for line in lines] == ["ROLLOUT", "m/2", "n/1"]
    served.control.rolling = ()
    assert run("rollout", "status").output == "no rollout runs or has ended\n"


@pytest.mark.parametrize(("ended", "code"), [(DONE, 0), (ROLLED_BACK, 1)])
@pytest.mark.parametrize("word", ["--watch", "--wait"])
def test_a_status_that_is_watched_ends_as_the_rollout_does(
    run: Run, served: Served, ended: Any, code: int, word: str
) -> None:
    served.control.rolling = (ended,)
    assert run("rollout", "status", "m", word).exit_code == code


def test_what_is_watched_has_to_be_one(run: Run, served: Served) -> None:
    served.control.rolling = (ROLLOUT, replace(ROLLOUT, id="n/1", model="n"))
    result = run("rollout", "status", "--watch")
    assert (result.exit_code, "say which MODEL: m, n" in result.stderr) == (2, True)
    served.control.rolling = (ROLLED_BACK,)
    result = run("rollout", "status", "--watch")
    assert (result.exit_code, "no rollout runs" in result.stderr) == (2, True)


def test_a_model_that_was_never_rolled_out_is_refused(run: Run, served: Served) -> None:
    served.control.rolling = ()
    result = run("rollout", "status", "m")
    assert (result.exit_code, result.stderr) == (1, "Error: no rollout of m runs or has ended\n")


def test_history_lists_all_or_those_of_one_model(run: Run, served: Served) -> None:
    lines = run("rollout", "history", "m").output.splitlines()
    assert [line.split()[0] for line in lines] == ["ROLLOUT", "m/2", "m/1"]
    assert len(document_of(run("rollout", "history", "--json"))["rollouts"]) == 2
    served.control.rolling = ()
    assert run("rollout", "history").output == "nothing was rolled out so far\n"


def test_ctrl_c_leaves_the_rollout_running_and_says_so(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    result = run("rollout", "status", "m", "--watch")
    assert result.exit_code == 1
    assert "m/2 goes on; `sluicegate rollout abort m` rolls it back" in result.output
    assert served.control.asked == []


# --- steer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "ask"),
    [
        (["promote", "m"], PromoteRollout("m", step=ROLLOUT.step)),
        (["promote", "m", "--full"], PromoteRollout("m", True)),
        (["pause", "m"], PauseRollout("m")),
        (["resume", "m"], ResumeRollout("m")),
        (["abort", "m"], AbortRollout("m")),
        (["abort", "m", "--reason", "odd"], AbortRollout("m", "odd")),
    ],
    ids=str,
)
def test_a_verb_is_asked_and_waits_for_the_workers(
    run: Run, served: Served, arguments: list[str], ask: Any
) -> None:
    result = run("rollout", *arguments)
    assert (result.exit_code, result.output) == (0, f"{PLAN}\n")
    dry = run("rollout", *arguments, "--dry-run", "--no-wait", "--if-revision", "3")
    assert (dry.exit_code, dry.output) == (0, f"would: {PLAN}\n")
    assert served.control.asked == [Asked(ask, True, False, None), Asked(ask, False, True, 3)]


# --- on a terminal -------------------------------------------------------------------------------


def _on_a_terminal(served: Served, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Exit code and everything that a person at a real terminal sees, who answers so."""
    ours, theirs = pty.openpty()
    program = "from admin.rollouts.commands import rollout; rollout()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "SLUICEGATE_ADMIN": served.address, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    os.write(ours, answer)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # EIO: nobody holds the other end any more
            break
    os.close(ours)
    return process.wait(300), seen.decode()


def test_a_person_is_shown_the_plan_and_asked(served: Served) -> None:
    code, seen = _on_a_terminal(served, b"y\n", "start", "m", "2")
    assert code == 0, seen
    assert seen.index(PLAN) < seen.index("roll it out to m? [y/N]")
    ask = StartRollout("m", "2")
    # To that plan he said yes: a change of anything in between refuses it.
    assert served.control.asked == [
        Asked(ask, False, True, None),
        Asked(ask, False, False, RECEIPT.revision),
    ]


def test_a_person_who_says_no_has_started_nothing(served: Served) -> None:
    code, seen = _on_a_terminal(served, b"n\n", "start", "m", "2")
    assert code == 1, seen
    assert [one.dry_run for one in served.control.asked] == [True]


def test_a_person_watches_a_page_to_the_end(served: Served) -> None:
    served.control.rolling = (ROLLED_BACK,)
    code, seen = _on_a_terminal(served, b"", "status", "m", "--watch")
    assert code == 1
    assert "canary" in seen
    assert "m/1: version 2 rolled_back after 10 min" in seen.rstrip().splitlines()[-1]

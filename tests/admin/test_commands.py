"""Every verb as it is typed, against an admin port that is really served."""

import pkgutil
import tomllib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click
import orjson
import pytest
from click.testing import CliRunner

from admin import views
from gateway.control import (
    CancelLease,
    Denied,
    Problem,
    Reload,
    ResetInstanceWeight,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    UndrainInstance,
)
from tests.admin.conftest import Served
from tests.admin.fakes import CHANGES, CONFIG, EVENTS, INSTANCE, LEASE, STATUS, Asked
from tests.admin.typed import VERBS, Run, document_of

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

# --- what every verb has -------------------------------------------------------------------------


def test_every_verb_of_the_package_is_here() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    ours = {
        name: pkgutil.resolve_name(place)
        for name, place in declared["sluicegate.commands"].items()
        if place.startswith("admin.")
    }
    assert ours == VERBS


def _leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    below = command.commands.items() if isinstance(command, click.Group) else ()
    return [(name, command), *((f"{name} {key}", one) for key, one in below)]


@pytest.mark.parametrize(
    ("name", "command"), [leaf for verb in VERBS for leaf in _leaves(VERBS[verb], verb)]
)
def test_help_has_an_example_that_begins_with_the_verb(name: str, command: click.Command) -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    if name not in {"config", "rollout"}:  # groups without an action of their own
        assert f"Example: sluicegate {name}" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["instances"],
        ["weight", "m", "1=5"],
        ["drain", "i"],
        ["undrain", "i"],
        ["stop", "i"],
        ["start", "i"],
        ["leases"],
        ["leases", "cancel", "0"],
        ["events"],
        ["reload"],
        ["config", "show"],
        ["rollout", "status"],
        ["rollout", "start", "m", "2", "--yes"],
        ["rollout", "abort", "m"],
    ],
    ids=" ".join,
)
def test_without_a_gateway_every_verb_says_so_and_exits_3(arguments: list[str]) -> None:
    environment = {"SLUICEGATE_ADMIN": "unix:/nonexistent/admin.sock"}
    result = CliRunner().invoke(VERBS[arguments[0]], arguments[1:], env=environment)
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: no gateway answers at unix:/nonexistent/admin.sock: is `sluicegate serve` "
        "running? (--admin HOST:PORT)\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["weight", "m", "1=5"],
        ["drain", "i"],
        ["undrain", "i"],
        ["stop", "i"],
        ["start", "i"],
        ["leases", "cancel", "0"],
        ["reload"],
        ["rollout", "start", "m", "2", "--yes"],
        ["rollout", "promote", "m"],
        ["rollout", "pause", "m"],
        ["rollout", "resume", "m"],
        ["rollout", "abort", "m"],
        ["rollout", "retry", "m", "--yes"],
    ],
    ids=" ".join,
)
def test_a_refused_change_exits_1_with_the_gateways_sentence(
    run: Run, served: Served, arguments: list[str]
) -> None:
    served.control.denial = Denied("conflict", "a reload is running")
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (1, "Error: a reload is running\n")


# --- looking -------------------------------------------------------------------------------------


def test_status_is_a_page_for_people(run: Run) -> None:
    result = run("status")
    assert result.exit_code == 0
    assert "generation 7, served by every worker; revision 12" in result.output
    assert "! m-2-0 is not READY yet" in result.output
    assert "rollout m/2: version 2, step 1 of 3, 5 min left" in result.output
    assert "m/1" not in result.output  # it has ended


def test_json_is_what_the_api_answers(run: Run) -> None:
    assert document_of(run("status", "--json"))["revision"] == STATUS.revision
    assert len(document_of(run("instances", "--json"))["instances"]) == 2
    assert document_of(run("instances", "m-1-0", "--json"))["id"] == "m-1-0"
    assert document_of(run("leases", "--json"))["leases"][0]["request_id"] == LEASE.request_id
    assert document_of(run("config", "show", "--json"))["config"] == CONFIG


def test_a_table_that_is_not_on_a_terminal_is_plain_and_uncut(run: Run, served: Served) -> None:
    reason = "very " * 60 + "long"
    served.control.fleet = (replace(INSTANCE, reason=reason),)
    result = run("instances")
    assert reason in result.output
    assert "\x1b" not in result.output


def test_one_instance_is_shown_whole(run: Run) -> None:
    assert "tokens_per_s" in run("instances", "m-1-0").output
    unknown = run("instances", "nobody")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: no instance is called nobody\n")


def test_an_empty_fleet_and_an_idle_one_are_said_in_words(run: Run, served: Served) -> None:
    served.control.fleet, served.control.held = (), ()
    assert run("instances").output.startswith("no instances: ")
    assert run("leases").output == "no requests in flight\n"


def test_leases_are_filtered_and_cancelled(run: Run, served: Served) -> None:
    assert LEASE.request_id in run("leases", "--instance", "m-1-0", "--model", "m").output
    assert document_of(run("leases", "--json", "--model", "m"))
    assert served.control.filters == [("m-1-0", "m"), (None, "m")]
    assert run("leases", "cancel", "00000000000000ff").exit_code == 0
    assert served.control.asked == [Asked(CancelLease("00000000000000ff"), True, False, None)]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_leases_of_an_instance_that_is_not_there_are_refused(run: Run, form: list[str]) -> None:
    result = run("leases", "--instance", "nobody", *form)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == run("instances", "nobody").stderr


def test_events_end_with_what_is_remembered(run: Run) -> None:
    clock = datetime.fromtimestamp(EVENTS[0].at).strftime("%H:%M:%S")
    lines = run("events").output.splitlines()
    assert lines[0] == f"{clock}  drain     m-1-0: step 1"
    assert len(lines) == 3
    assert len(run("events", "--after", "2").output.splitlines()) == 1


def test_events_are_a_json_document_a_line(run: Run) -> None:
    lines = run("events", "--json").stdout.splitlines()
    assert [orjson.loads(line) for line in lines] == [views.event(one) for one in EVENTS]


def test_followed_events_end_with_the_gateway(run: Run, served: Served) -> None:
    served.control.coming.put_nowait(replace(EVENTS[0], id=4, text="the last one"))
    served.control.coming.put_nowait(None)
    result = run("events", "--follow")
    assert result.exit_code == 0
    assert result.output.splitlines()[-1].endswith("the last one")


# --- changing ------------------------------------------------------------------------------------


def test_weights_are_set_all_at_once(run: Run, served: Served) -> None:
    result = run("weight", "m", "v1=95", "v2=5")
    assert result.output == "m: version 2 from weight 0 to 5\n"
    assert served.control.asked == [
        Asked(SetWeights("m", {"v1": 95.0, "v2": 5.0}), True, False, None)
    ]


def test_weights_that_a_rollout_owns_are_set_when_that_is_said(run: Run, served: Served) -> None:
    assert run("weight", "m", "1=9", "--override").exit_code == 0
    assert run("weight", "m", "1=9", "--override", "--dry-run").exit_code == 0
    assert served.control.asked == [
        Asked(SetWeights("m", {"1": 9.0}, True), True, False, None),
        Asked(SetWeights("m", {"1": 9.0}, True), True, True, None),
    ]


def test_weights_are_reset(run: Run, served: Served) -> None:
    assert run("weight", "m", "--reset").exit_code == 0
    assert served.control.asked[0].ask == ResetWeights("m")


def test_the_weight_of_an_instance_is_set_and_reset(run: Run, served: Served) -> None:
    assert run("weight", "--instance", "m-1-0", "0.5").exit_code == 0
    assert run("weight", "m-1-0", "--instance", "--reset").exit_code == 0
    assert [one.ask for one in served.control.asked] == [
        SetInstanceWeight("m-1-0", 0.5),
        ResetInstanceWeight("m-1-0"),
    ]


def test_a_dry_run_says_that_it_is_one(run: Run, served: Served) -> None:
    result = run("weight", "m", "1=5", "--dry-run", "--if-revision", "12")
    assert result.output == "would: m: version 2 from weight 0 to 5\n"
    assert (served.control.asked[0].dry_run, served.control.asked[0].revision) == (True, 12)


def test_a_change_that_changes_nothing_says_so(run: Run, served: Served) -> None:
    served.control.receipt = replace(served.control.receipt, changes=())
    assert run("reload").output == "nothing to change\n"
    assert served.control.asked == [Asked(Reload(), True, False, None)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m"], "give either weights or --reset"),
        (["m", "1=5", "--reset"], "give either weights or --reset"),
        (["m", "5"], "5 is not VERSION=WEIGHT, as in 2=5"),
        (["m", "1=x"], "1=x: x is not a number"),
        (["m", "1="], "1=: nothing is not a number"),
        (["m", "1=5", "1=6"], "version 1 is named twice"),
        (["--instance", "i", "1=5"], "1=5 is not one number, as in 0.5"),
        (["--instance", "i", "1", "2"], "1 2 is not one number, as in 0.5"),
        (["--instance", "i"], "give either weights or --reset"),
        ([], "Missing argument 'MODEL|INSTANCE'"),
    ],
)
def test_a_mistyped_weight_is_a_mistake_on_the_command_line(
    run: Run, served: Served, arguments: list[str], said: str
) -> None:
    result = run("weight", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert served.control.asked == []


def test_a_weight_that_json_cannot_hold_is_refused_by_the_gateway(run: Run) -> None:
    result = run("weight", "m", "1=nan")
    assert result.exit_code == 1
    assert "1: must be a number from 0 to 1000000, not null" in result.stderr


def test_undrain_gives_back(run: Run, served: Served) -> None:
    assert run("undrain", "i").exit_code == 0
    assert served.control.asked == [Asked(UndrainInstance("i"), True, False, None)]


def test_a_reload_with_problems_lists_them_and_exits_1(run: Run, served: Served) -> None:
    problems = (Problem("poll.timeout_s", "must be more than 0"), Problem("a", "is unknown"))
    served.control.denial = Denied("invalid", "2 problems", problems)
    result = run("reload")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: 2 problems\n  poll.timeout_s: must be more than 0\n  a: is unknown\n"
    )


# --- config --------------------------------------------------------------------------------------


def test_config_is_shown_by_prefix_and_with_origins(run: Run) -> None:
    assert "model.m.weights.1" not in run("config", "show", "gateway.").output
    assert run("config", "show", "--origin").output.splitlines()[0].split() == [
        "KEY",
        "VALUE",
        "ORIGIN",
    ]
    assert run("config", "show", "nothing.").output == "no key begins with nothing.\n"
    shown = orjson.loads(run("config", "show", "gateway.", "--json").output)
    assert list(shown["config"]) == ["gateway.workers"]


def test_a_candidate_config_is_checked_by_the_gateway(
    run: Run, served: Served, tmp_path: Path
) -> None:
    path = tmp_path / "new.toml"
    path.write_text("a = 1\n")
    result = run("config", "check", str(path))
    assert (result.exit_code, result.output) == (0, f"{path}: fine\n")
    assert served.control.texts == ["a = 1\n"]
    served.control.found = (Problem("a", "is unknown"), Problem("b", "is wrong"))
    result = run("config", "check", str(path))
    assert (result.exit_code, result.output) == (1, "a: is unknown\nb: is wrong\n")
    result = run("config", "check", str(path), "--json")
    assert (result.exit_code, orjson.loads(result.stdout)["ok"]) == (1, False)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_candidate_that_cannot_be_read_is_a_mistake(
    run: Run, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "new.toml"
    if content is not None:
        path.write_bytes(content)
    assert run("config", "check", str(path)).exit_code == 2


# --- history -------------------------------------------------------------------------------------


def test_history_tells_who_changed_what_and_when(run: Run) -> None:
    said = " ".join(run("history").output.split())
    for change in CHANGES:
        assert change.by in said
        assert change.text in said
    only = " ".join(run("history", "m-1-0").output.split())
    assert CHANGES[1].text in only
    assert CHANGES[0].text not in only
    assert "nothing of nobody" in run("history", "nobody").output
    document = orjson.loads(run("history", "m", "--json").output)
    assert document == {"history": [views.change(CHANGES[0])]}

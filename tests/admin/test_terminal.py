from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from admin import commands
from admin.calls import How, Unanswered
from admin.terminal import Failed, Terminal, how_options, speaks
from gateway.control import Problem
from tests.admin.conftest import Served


@click.command()
@how_options
@speaks
def probe(terminal: Terminal, how: How) -> None:
    """Say how it was called."""
    click.echo(f"{how.wait} {how.dry_run} {how.revision} {terminal.as_json}")


@click.command()
@speaks
def refused(_: Terminal) -> None:
    problems = (Problem("a", "is wrong"), Problem("b", "is wrong too"))
    raise Unanswered("invalid", "a: is wrong; b: is wrong too", problems)


def _run(command: click.Command, arguments: Sequence[str], **environment: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env=environment)


def test_a_change_waits_for_the_workers_unless_told_not_to() -> None:
    assert _run(probe, ["--admin", "h:1"]).output == "True False None False\n"
    arguments = ["--admin", "h:1", "--no-wait", "--dry-run", "--if-revision", "12", "--json"]
    assert _run(probe, arguments).output == "False True 12 True\n"


def test_several_problems_are_a_line_each() -> None:
    result = _run(refused, ["--admin", "h:1"])
    assert result.exit_code == 1
    assert result.stderr == "Error: 2 problems\n  a: is wrong\n  b: is wrong too\n"


def test_one_refusal_is_the_sentence_of_the_gateway() -> None:
    assert Failed(Unanswered("conflict", "no")).format_message() == "no"


@pytest.mark.parametrize("arguments", [["--admin", "nowhere"], ["--config", "none.toml"]])
def test_an_unclear_address_is_a_mistake_on_the_command_line(arguments: list[str]) -> None:
    assert _run(commands.status, arguments).exit_code == 2


def test_the_address_is_read_from_flag_then_environment_then_config(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gone = "unix:/nonexistent/admin.sock"
    (tmp_path / "config.toml").write_text(f'[admin]\nlisten = "{served.address}"\n')
    (tmp_path / "other.toml").write_text(f'[admin]\nlisten = "{gone}"\n')
    assert _run(commands.status, []).exit_code == 0
    assert _run(commands.status, ["--config", "other.toml"]).exit_code == 3
    assert _run(commands.status, [], SLUICEGATE_ADMIN=gone).exit_code == 3
    assert _run(commands.status, ["--admin", served.address], SLUICEGATE_ADMIN=gone).exit_code == 0


def test_a_verb_below_another_speaks_to_the_same_gateway(served: Served) -> None:
    arguments = ["--admin", served.address, "--json", "cancel", "00000000000000ff"]
    result = _run(commands.leases, arguments, SLUICEGATE_ADMIN="unix:/nonexistent")
    assert result.exit_code == 0
    assert '"dry_run": false' in result.output

"""The command: every verb is there, helps, and imports only what it needs."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli import root

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
VERBS = sorted(DECLARED["sluicegate.commands"])


def test_help_lists_every_verb_with_a_line() -> None:
    result = CliRunner().invoke(root, ["--help"])
    assert result.exit_code == 0
    listed = result.output.partition("Commands:")[2]
    assert [line.split()[0] for line in listed.splitlines() if line.strip()] == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    result = CliRunner().invoke(root, [verb, "--help"])
    assert result.exit_code == 0
    command = root.get_command(click.Context(root), verb)
    assert command is not None
    assert command.help


def test_an_unknown_verb_is_a_usage_error() -> None:
    result = CliRunner().invoke(root, ["sing"])
    assert result.exit_code == 2
    assert "No such command 'sing'" in result.output


def test_the_version_is_the_package_s() -> None:
    assert "sluicegate, version " in CliRunner().invoke(root, ["--version"]).output


@pytest.mark.live
@pytest.mark.parametrize(
    ("verb", "foreign"),
    [
        ("status", {"mindspore", "grpc", "backends"}),
        ("serve", {"mindspore", "backends", "aiohttp"}),
        ("instance", {"mindspore", "gateway.control", "admin"}),
    ],
)
def test_a_verb_imports_only_what_it_needs(verb: str, foreign: set[str]) -> None:
    program = (
        "import json, sys; from gateway.cli import main\n"
        f"try: main(['{verb}', '--help'])\n"
        "except SystemExit: pass\n"
        "json.dump(list(sys.modules), sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert foreign & set(json.loads(done.stderr)) == set()

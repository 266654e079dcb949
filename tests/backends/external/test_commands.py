"""The command line of an agent, and how its process ends and what ends with it."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from click.testing import CliRunner

from backends.external.commands import agent, settle
from backends.external.presets import PRESETS, Protocol
from backends.settings import Address
from tests.backends.external.rig import SERVER

ROOT: Final = Path(__file__).parents[3]
AGENT: Final = (sys.executable, "-m", "backends.external")
PATIENCE_S: Final = 300.0
NAMED: Final = ("--model", "m", "--version", "1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--version", "1", "--", "x"), "--model"),
        ((*NAMED,), "COMMAND"),
        ((*NAMED, "--", "server"), "--upstream HOST:PORT, or {port}"),
        ((*NAMED, "--upstream", "8000", "--", "server"), "must be host:port"),
        ((*NAMED, "--health", "health", "--", "s", "{port}"), "must be a path that begins with /"),
        ((*NAMED, "--warm-up", "many", "--", "s", "{port}"), "numbers of words"),
        ((*NAMED, "--env", "X", "--", "s", "{port}"), "NAME=VALUE"),
        ((*NAMED, "--preset", "vllm", "--", "s", "{port}"), "--preset"),
    ],
)
def test_a_wrong_command_line_is_exit_2_with_what_is_wrong(
    arguments: tuple[str, ...], complaint: str
) -> None:
    result = CliRunner().invoke(agent, arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_help_shows_what_people_may_use_and_nothing_else() -> None:
    shown = CliRunner().invoke(agent, ["--help"]).output
    assert "--preset [vllm-mindspore|mindie|mindformers]" in shown
    assert "--served-model-name" in shown
    assert "token" not in shown
    assert "life-fd" not in shown


def given(**more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "model": "qwen",
        "version": "2",
        "instance_id": "",
        "preset": None,
        "protocol": None,
        "upstream": "",
        "health": "",
        "models": "",
        "metrics": None,
        "env": {},
        "command": ("serve", "--port", "{port}", '{"x": {"y": "{model}"}}'),
        "http": Address("127.0.0.1", 0),
        "grpc": Address("127.0.0.1", 0),
        "advertise": "",
    }
    return made | more


def test_the_port_is_chosen_once_and_is_the_same_everywhere() -> None:
    made = settle(given(env={"PORT": "{port}"}))
    port = made.upstream.port
    assert port > 0
    assert made.command == ("serve", "--port", str(port), '{"x": {"y": "qwen"}}')
    assert made.environment == {"PORT": str(port)}
    assert made.health == f"http://127.0.0.1:{port}/health"
    assert made.metrics == f"http://127.0.0.1:{port}/metrics"
    assert made.instance_id == "qwen-2"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_complete_and_what_is_given_goes_before_it(name: str) -> None:
    preset = PRESETS[name]
    made = settle(given(preset=name))
    assert made.protocol is preset.protocol
    assert all(place.startswith("http://") for place in (made.health, made.models, made.metrics))
    assert preset.environment.items() <= made.environment.items()
    other = settle(given(preset=name, health="http://h:1/x", metrics="", upstream="[::1]:7"))
    assert (other.health, other.metrics, other.base) == ("http://h:1/x", "", "http://[::1]:7")


def test_kserve_asks_for_the_model_by_its_name() -> None:
    made = settle(given(protocol=Protocol.KSERVE.value))
    assert made.models.endswith("/v2/models/qwen")
    assert made.metrics == ""


def test_the_presets_of_the_documentation_are_those_of_the_code() -> None:
    lines = (ROOT / "docs" / "external.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = {row[0]: row[1:] for row in cells if len(row) == 4}
    names = [name.strip("`") for name in rows[""]]
    assert set(names) == set(PRESETS)
    for index, name in enumerate(names):
        preset = PRESETS[name]
        environment = ", ".join(f"`{key}={value}`" for key, value in preset.environment.items())
        said = [rows[row][index] for row in ("health", "models", "metrics", "listens on")]
        places = [preset.health, preset.models, preset.metrics, preset.upstream or "{port}"]
        assert said == [f"`{place}`" for place in places]
        assert rows["environment"][index] == environment


def test_an_agent_needs_neither_mindspore_nor_numpy() -> None:
    """It runs where the server's environment is, which has versions of its own."""
    looks = "import backends.external.commands, sys; print({'mindspore', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", looks], capture_output=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == b"set()"


# --- real processes -------------------------------------------------------------------------------


@contextmanager
def started(
    *trouble: str, options: tuple[str, ...] = (), life_fd: int | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    own = () if life_fd is None else ("--life-fd", str(life_fd))
    options = ("--warm-up", "3", "--error-linger-s", "0", *own, *options)
    process = subprocess.Popen(
        [*AGENT, *NAMED, *options, "--", *SERVER, "--port", "{port}", *trouble],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=() if life_fd is None else (life_fd,),
        env={**os.environ, **environment},
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines_until(process: subprocess.Popen[bytes], wanted: str) -> list[str]:
    """Everything it wrote up to the first line with `wanted` in it."""
    assert process.stderr is not None
    seen = []
    for raw in process.stderr:
        seen.append(raw.decode())
        if wanted in seen[-1]:
            return seen
    raise AssertionError(f"no {wanted!r} in {seen}")


def pids(lines: list[str]) -> list[int]:
    """Of guard and grandchild, from what was written until READY."""
    text = "".join(lines)
    found = [re.search(pattern, text) for pattern in (r'"guard":(\d+)', r"grandchild (\d+)")]
    return [int(one[1]) for one in found if one is not None]


def gone(pid: int) -> None:
    """Returns when the process has ended; the kernel says so."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ready, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    os.close(pidfd)
    assert ready


READY: Final = '"state":"READY"'


@pytest.mark.live
def test_an_agent_that_is_killed_takes_everything_along() -> None:
    with started("--grandchild", "--ignores-sigterm") as process:
        below = pids(lines_until(process, READY))
        assert len(below) == 2
        process.kill()
        for pid in below:
            gone(pid)


@pytest.mark.live
def test_a_guard_that_is_killed_leaves_nothing_either_and_is_an_error() -> None:
    with started("--grandchild") as process:
        guard, grandchild = pids(lines_until(process, READY))
        os.kill(guard, signal.SIGKILL)
        lines = lines_until(process, '"state":"ERROR"')
        assert "was ended by signal 9 (SIGKILL)" in lines[-1]
        assert process.wait(PATIENCE_S) == 1
        gone(grandchild)


@pytest.mark.live
def test_it_ends_at_once_when_whoever_started_it_is_gone() -> None:
    ours, theirs = os.pipe()
    with started("--grandchild", life_fd=ours) as process:
        os.close(ours)
        below = pids(lines_until(process, READY))
        os.close(theirs)
        assert process.wait(PATIENCE_S) == 70
        for pid in below:
            gone(pid)


@pytest.mark.live
def test_sigterm_is_an_orderly_end_and_standard_output_stays_empty() -> None:
    options = ("--registry", "127.0.0.1:9")  # nobody is there: that costs nothing
    with started(options=options) as process:
        lines_until(process, READY)
        process.send_signal(signal.SIGTERM)
        lines_until(process, "nothing was lost")
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""


@pytest.mark.live
def test_the_server_gets_its_environment_and_none_of_our_secrets() -> None:
    shows = "import os, sys; print(sorted(os.environ.items()), file=sys.stderr); sys.exit(78)"
    command = [*AGENT, *NAMED, "--error-linger-s", "0", "--env", "SEEN=port {port}", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", shows],
        env={
            **os.environ,
            "SLUICEGATE_LAUNCH_TOKEN": "s3cret-launch",
            "SLUICEGATE_UPSTREAM_KEY": "s3cret-key",
        },
        capture_output=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 78
    assert re.search(rb"\('SEEN', 'port \d+'\)", done.stderr)
    assert b"s3cret" not in done.stderr


@pytest.mark.live
def test_an_address_that_is_taken_is_exit_2() -> None:
    with started() as first:
        line = orjson.loads(lines_until(first, '"listening"')[-1])
        with started(options=("--http", line["http"])) as second:
            assert line["http"] in lines_until(second, "cannot listen")[-1]
            assert second.wait(PATIENCE_S) == 2

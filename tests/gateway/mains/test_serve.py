"""What `serve` refuses before it starts anything, and `check` with it."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.mains.belongings import lock
from gateway.mains.serve import EXIT_CONFIG, EXIT_REFUSED
from tests.gateway.mains.configs import quiet_config

pytestmark = pytest.mark.live
BAD = "[gateway]\nworkers = -1\ntimout = 1\n[poll]\nfailures = 0\n"


def sluicegate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False
    )


@pytest.mark.parametrize("verb", ["serve", "check"])
def test_every_problem_of_a_config_is_told_and_nothing_started(verb: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(BAD)
    done = sluicegate(verb, cwd=tmp_path)
    assert done.returncode == EXIT_CONFIG
    assert done.stderr.splitlines() == [
        "config.toml: 3 problems, nothing started",
        "  gateway.workers: must be at least 0, not -1 (line 2)",
        "  gateway.timout: is not a key that config.toml knows "
        "(a typing error, or of another version?) (line 3)",
        "  poll.failures: must be at least 1, not 0 (line 5)",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("verb", ["serve", "check"])
def test_a_file_that_is_not_there_says_how_to_name_another(verb: str, tmp_path: Path) -> None:
    done = sluicegate(verb, "--config", "none.toml", cwd=tmp_path)
    assert done.returncode == EXIT_CONFIG
    assert "none.toml: No such file or directory: name another file with --config" in done.stderr


def test_a_fine_config_says_what_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(quiet_config(tmp_path))
    done = sluicegate("check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "config.toml: fine: 0 models, 0 instances\n")


@pytest.mark.parametrize("key", ["gateway.listen", "admin.listen", "registry.listen"])
def test_a_port_in_use_is_named_with_its_key(key: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        (tmp_path / "config.toml").write_text(quiet_config(tmp_path, **{key: address}))
        done = sluicegate("serve", cwd=tmp_path)
    assert done.returncode == EXIT_REFUSED
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("sluicegate:")]
    assert f"{address} is in use (config.toml: {key})" in line


def test_a_second_gateway_in_the_same_folder_is_told_who_is_there(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    held = lock(run_dir)
    assert held is not None
    (tmp_path / "config.toml").write_text(quiet_config(tmp_path))
    done = sluicegate("serve", cwd=tmp_path)
    os.close(held)
    assert done.returncode == EXIT_REFUSED
    assert f"another gateway (pid {os.getpid()}) runs in {run_dir}" in done.stderr


def test_a_run_folder_that_cannot_be_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(quiet_config(tmp_path))
    (tmp_path / "run").write_text("a file")
    done = sluicegate("serve", cwd=tmp_path)
    assert done.returncode == EXIT_REFUSED
    assert f"cannot start in {tmp_path / 'run'} (config.toml: gateway.run_dir): " in done.stderr


def test_a_folder_too_deep_for_a_unix_socket_is_a_sentence(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    (tmp_path / "config.toml").write_text(quiet_config(deep))
    done = sluicegate("serve", cwd=tmp_path)
    assert done.returncode == EXIT_REFUSED
    assert "is too long for a Unix socket: shorten gateway.run_dir" in done.stderr


async def test_children_run_our_code_whatever_the_folder_holds(tmp_path: Path) -> None:
    """`python -m` looks into the current folder first, and people keep a `gateway` in theirs."""
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "__init__.py").write_text("raise SystemExit(78)\n")
    (tmp_path / "config.toml").write_text(quiet_config(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.cli", "serve", "--log-format", "json"),
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300):
            said = b""
            while b"every worker serves a table" not in said:
                said = await process.stderr.readline()
                assert said, "it ended"
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

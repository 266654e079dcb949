"""The command line of an instance, and how its process ends."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import orjson
import psutil
import pytest
from click.testing import CliRunner

from backends import commands
from backends.commands import instance
from backends.engines.llm.cache import CompileCache
from tests.backends.rig import write_snapshot
from tests.tiny import write_tiny_folder

SLUICEGATE: Final = [sys.executable, "-m", "gateway.cli"]
# For a real engine to compile on a busy machine. Not a duration that is asserted.
PATIENCE_S: Final = 240.0
DATA_BYTES: Final = 768 << 20


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--version", "1"], "--model"),
        (["--model", "m"], "--version"),
        (["--model", "../m", "--version", "1"], "--model"),
        (["--model", "m", "--version", "1", "--http", "8000"], "must be host:port"),
        (["--model", "m", "--version", "1", "--grpc", "h:99999"], "port from 0 to 65535"),
        (["--model", "m", "--version", "1", "--slots", "0"], "--slots"),
        (["--model", "m", "--version", "1", "--device-kind", "tpu"], "--device-kind"),
        (["--model", "m", "--version", "1", "--grace-s", "-1"], "--grace-s"),
    ],
)
def test_a_wrong_command_line_is_exit_2_with_what_is_wrong(
    arguments: list[str], complaint: str
) -> None:
    result = CliRunner().invoke(instance, arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_every_option_says_what_it_is_or_is_no_business_of_people() -> None:
    shown = CliRunner().invoke(instance, ["--help"]).output
    assert "--registry" in shown
    assert "token" not in shown
    assert "life-fd" not in shown


def test_the_importers_are_loaded_when_they_are_asked_for() -> None:
    assert isinstance(commands.models, click.Group)
    with pytest.raises(AttributeError, match="importers"):
        _ = commands.importers


# --- real processes -------------------------------------------------------------------------------


@contextmanager
def started(
    *arguments: str, root: Path, life_fd: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    command = [*SLUICEGATE, "instance", "--model", "m", "--version", "1", "--root", str(root)]
    command += ["--cache-root", str(root.parent / "cache"), "--error-linger-s", "0", *arguments]
    process = subprocess.Popen(
        command if life_fd is None else [*command, "--life-fd", str(life_fd)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=() if life_fd is None else (life_fd,),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines_until(process: subprocess.Popen[bytes], message: str, **fields: str) -> dict[str, Any]:
    """The first log line with that message and those fields; everything before it is taken too."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if not line.startswith(b"{"):
            continue  # a library that writes past the log
        document: dict[str, Any] = orjson.loads(line)
        if document["message"] == message and fields.items() <= document.items():
            return document
    raise AssertionError(f"no {message!r} in {seen}")


@pytest.mark.live
def test_a_snapshot_that_is_missing_is_exit_78(tmp_path: Path) -> None:
    with started(root=tmp_path / "models") as process:
        failed = lines_until(process, "load failed")
        assert process.wait(PATIENCE_S) == 78
    assert (failed["instance_id"], failed["model_version"]) == ("m-1", "1")
    assert "no snapshot here" in failed["reason"]


@pytest.mark.live
def test_an_address_that_is_taken_is_exit_2(tmp_path: Path) -> None:
    root = tmp_path / "models"
    with started("--error-linger-s", "600", root=root) as first:
        address = lines_until(first, "listening")["http"]
        with started("--http", address, root=root) as second:
            assert address in lines_until(second, "cannot listen")["reason"]
            assert second.wait(PATIENCE_S) == 2


@pytest.mark.live
def test_it_ends_at_once_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    with started("--error-linger-s", "600", root=tmp_path / "models", life_fd=ours) as process:
        os.close(ours)
        lines_until(process, "listening")
        os.close(theirs)
        assert process.wait(PATIENCE_S) == 70


@pytest.mark.live
def test_a_changed_file_is_named_and_exit_78(tmp_path: Path) -> None:
    root = tmp_path / "models"
    folder = write_snapshot(root).folder
    changed = folder / "model.safetensors"
    changed.chmod(0o644)
    changed.write_bytes(b"Weights" * 1000)
    with started(root=root) as process:
        failed = lines_until(process, "state changed", state="ERROR")
        assert process.wait(PATIENCE_S) == 78
    assert str(changed) in failed["reason"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a tiny model that a real engine can run."""
    folder = tmp_path_factory.mktemp("tiny")
    source, root = write_tiny_folder(folder / "source"), folder / "models"
    imported = [*SLUICEGATE, "models", "import", str(source), "--root", str(root)]
    imported += ["--model", "m", "--version", "1"]
    subprocess.run(imported, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
    return root


@pytest.mark.live
@pytest.mark.mindspore
def test_a_real_model_lives_from_initializing_to_exit_0(models: Path) -> None:
    import openai

    with started(root=models) as process:
        address = lines_until(process, "listening")["http"]
        lines_until(process, "state changed", state="INITIALIZING", phase="compiling")
        lines_until(process, "state changed", state="READY")
        with openai.OpenAI(base_url=f"http://{address}/v1", api_key="none") as client:
            chunks = client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=8,
                temperature=0,
                stream=True,
            )
            finishes = [chunk.choices[0].finish_reason for chunk in chunks]
        process.send_signal(signal.SIGTERM)
        stopped = lines_until(process, "state changed", state="STOPPED")
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert finishes[-1] == "length"
    assert stopped["reason"] == "stopped; nothing was lost"


@pytest.mark.live
@pytest.mark.mindspore
def test_memory_that_runs_out_while_it_loads_is_a_sentence_with_numbers_and_exit_1(
    models: Path,
) -> None:
    with started("--cache-root", str(models.parent / "short"), root=models) as process:
        # Enough to import MindSpore, too little for what it allocates then.
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
        failed = lines_until(process, "state changed", state="ERROR")
        assert process.wait(PATIENCE_S) == 1
    assert failed["reason"].startswith("out of memory: ")
    assert "needed (" in failed["reason"]
    assert "\n" not in failed["reason"]


@pytest.mark.live
@pytest.mark.mindspore
@pytest.mark.parametrize("phase", ["loading_model", "compiling", "warming_up"])
def test_sigterm_on_the_way_to_ready_is_exit_0_at_once_and_leaves_nothing(
    models: Path, phase: str
) -> None:
    # A warm-up that would go on for longer than anybody waits for the process here.
    cold = models.parent / f"cold-{phase}"
    given = ("--cache-root", str(cold), "--warmup-rounds", "1000")
    with started(*given, root=models) as process:
        lines_until(process, "state changed", state="INITIALIZING", phase=phase)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        stopped = lines_until(process, "state changed", state="STOPPED")
        assert process.wait(PATIENCE_S) == 0
    assert stopped["reason"] == "stopped while it was loading"
    assert not children
    with CompileCache(cold, "x") as cache:  # whoever comes next sweeps what nobody finished
        assert set(cold.glob(".building-*")) <= {cache.folder}
    assert not list(cold.glob("*/.reading-*"))

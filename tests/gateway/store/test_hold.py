"""One gateway a store, over the lives of its processes."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.store.base import StoreUnusable
from gateway.store.hold import hold

HOLDER = """
import signal, sys
from pathlib import Path
from gateway.store.hold import hold
hold(Path(sys.argv[1]), Path(sys.argv[2]))
print("held", flush=True)
signal.pause()
"""


async def holder(path: Path, run_dir: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER, str(path), str(run_dir)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    return process


async def test_a_store_that_another_gateway_holds_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "s.db"
    other = await holder(path, tmp_path / "one")
    with pytest.raises(StoreUnusable, match=f"of the gateway in {tmp_path / 'one'}, which runs"):
        hold(path, tmp_path / "two")
    os.close(hold(path, tmp_path / "one"))  # its own next control, or its successor
    other.send_signal(signal.SIGKILL)
    await other.wait()
    os.close(hold(path, tmp_path / "two"))


async def test_a_gateways_next_process_goes_on_holding_what_the_last_one_held(
    tmp_path: Path,
) -> None:
    first = await holder(tmp_path / "s.db", tmp_path / "one")
    second = await holder(tmp_path / "s.db", tmp_path / "one")
    first.kill()
    await first.wait()
    with pytest.raises(StoreUnusable, match="which runs"):
        hold(tmp_path / "s.db", tmp_path / "two")
    second.kill()
    await second.wait()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        hold(tmp_path / "file" / "s.db", tmp_path)

"""Reading the machine's memory."""

from pathlib import Path

import pytest

from backends.device import measure
from backends.status import Memory

MEMINFO = """MemTotal:       24689744 kB
MemFree:          561232 kB
MemAvailable:   12000000 kB
SwapTotal:             0 kB
"""


def test_a_cpus_memory_is_the_machines(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    assert measure("cpu", "cpu0", meminfo) == Memory(
        "cpu", "cpu0", total_bytes=24689744 * 1024, free_bytes=12_000_000 * 1024
    )


@pytest.mark.parametrize("text", ["", "MemTotal: lots"])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(text)
    assert measure("cpu", "cpu0", meminfo) == Memory("cpu", "cpu0")


def test_a_machine_without_the_file_is_not_known(tmp_path: Path) -> None:
    assert measure("cpu", "cpu0", tmp_path / "none") == Memory("cpu", "cpu0")


def test_an_accelerators_memory_is_not_the_machines(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    assert measure("ascend", "npu0", meminfo) == Memory("ascend", "npu0")

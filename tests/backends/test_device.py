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
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert measure("cpu", "cpu0", tmp_path, tmp_path) == Memory(
        "cpu", "cpu0", total_bytes=24689744 * 1024, free_bytes=12_000_000 * 1024
    )


def group(folder: Path, limit: str, held: int, pages: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{held}\n")
    text = f"anon 5\ninactive_file {pages - 1}\nactive_file 1\nslab 7\n"
    (folder / "memory.stat").write_text(text)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("max", "max", (24689744 * 1024, 12_000_000 * 1024)),
        ("max", "1000", (1000, 400)),  # 700 held, of which 100 are pages of files
        ("900", "1000", (900, 300)),
        ("900", "max", (900, 300)),
        (str(1 << 60), "1000", (1000, 400)),
        ("max", "100", (100, 0)),
    ],
)
def test_a_control_group_that_allows_less_is_what_there_is(
    tmp_path: Path, outer: str, inner: str, expected: tuple[int, int]
) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/old\n0::/pods/one\n")
    group(tmp_path / "groups" / "pods", outer, 700, 100)
    group(tmp_path / "groups" / "pods" / "one", inner, 700, 100)
    found = measure("cpu", "cpu0", tmp_path, tmp_path / "groups")
    assert (found.total_bytes, found.free_bytes) == expected


def test_the_most_that_the_process_held_is_the_systems_word(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("VmPeak:\t 9 kB\nVmHWM:\t  52340 kB\nVmRSS: 1 kB\n")
    assert measure("cpu", "cpu0", tmp_path, tmp_path).peak_bytes == 52340 * 1024


def test_this_process_held_something_and_not_more_than_there_is() -> None:
    found = measure("cpu", "cpu0")
    assert 0 < found.peak_bytes < found.total_bytes


@pytest.mark.parametrize("text", ["", "MemTotal: lots"])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert measure("cpu", "cpu0", tmp_path, tmp_path) == Memory("cpu", "cpu0")


def test_a_machine_without_the_file_is_not_known(tmp_path: Path) -> None:
    assert measure("cpu", "cpu0", tmp_path / "none", tmp_path) == Memory("cpu", "cpu0")


def test_an_accelerators_memory_is_not_the_machines(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert measure("ascend", "npu0", tmp_path) == Memory("ascend", "npu0")

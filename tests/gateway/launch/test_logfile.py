from pathlib import Path

import pytest

from gateway.launch.logfile import LogFile


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.log"
    for line in (b"1\n", b"2\n"):
        log = LogFile(path, 100)
        assert log.write(line)
        log.close()
    assert path.read_bytes() == b"1\n2\n"


def test_a_full_file_becomes_the_one_before_and_the_oldest_goes(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.log", 10)
    for line in (b"11111111\n", b"22222222\n", b"33333333\n"):
        assert log.write(line)
    assert (tmp_path / "a.log").read_bytes() == b"33333333\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"22222222\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_disk_that_takes_nothing_is_told_by_the_answer() -> None:
    log = LogFile(Path("/dev/full"), 10)
    assert not log.write(b"1\n")
    assert not log.write(b"2\n")


def test_one_that_cannot_be_opened_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Is a directory"):
        LogFile(tmp_path, 10)

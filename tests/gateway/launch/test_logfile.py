import os
from pathlib import Path

import pytest

from gateway.launch.logfile import QUEUE_MAX, LogFile, Writer


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


def test_a_writer_writes_in_order_and_all_of_it_before_it_finishes(tmp_path: Path) -> None:
    writer = Writer(LogFile(tmp_path / "a.log", 1000))
    assert [writer.put(b"%d\n" % n) for n in range(10)] == [[]] * 10
    writer.finish(60)
    assert (tmp_path / "a.log").read_bytes() == b"".join(b"%d\n" % n for n in range(10))


def test_a_writer_gives_back_what_the_disk_did_not_take() -> None:
    writer = Writer(LogFile(Path("/dev/full"), 1000))
    writer.put(b"1\n")
    writer.finish(60)
    assert writer.put(b"2\n") == [b"1\n"]


def test_a_disk_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    """A FIFO that nobody reads takes some and then no more."""
    os.mkfifo(tmp_path / "a.log")
    reader = os.open(tmp_path / "a.log", os.O_RDWR)
    writer = Writer(LogFile(tmp_path / "a.log", 1 << 30))
    piece = b"x" * (1 << 17)
    missed = [one for _ in range(QUEUE_MAX + 2) for one in writer.put(piece)]
    assert missed
    assert set(missed) == {piece}
    writer.finish(0.01)
    os.close(reader)


def test_a_log_that_was_removed_or_moved_begins_anew_when_it_would_be_full(tmp_path: Path) -> None:
    """Once nothing was written any more after that."""
    log = LogFile(tmp_path / "a.log", 10)
    assert log.write(b"11111111\n")
    (tmp_path / "a.log").unlink()
    assert log.write(b"22222222\n")
    assert (tmp_path / "a.log").read_bytes() == b"22222222\n"

"""What a worker is told on its command line."""

import pytest

from gateway.mains.worker import arguments, listen_fds


def test_every_index_may_have_several_sockets() -> None:
    assert listen_fds("0:7,0:8,1:9") == {0: [7, 8], 1: [9]}
    assert listen_fds("") == {}


def test_the_command_line_of_a_worker() -> None:
    text = (
        "--index 1 --row 3 --control /run/c --segment-fd 5 --life-fd 6 --listen-fds 1:7 "
        "--bell-fds 8,9 --parent 99 --log-format text --log-level error"
    )
    given = arguments(text.split())
    assert (given.index, given.row, given.control) == (1, 3, "/run/c")
    assert (given.segment_fd, given.life_fd, given.listen_fds) == (5, 6, {1: [7]})
    assert given.bell_fds == (8, 9)
    assert (given.parent, given.log_format, given.log_level) == (99, "text", "error")


def test_what_is_no_list_of_descriptors_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        listen_fds("0:x")

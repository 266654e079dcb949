"""How a process ended is known of one that is not ours, before and after it was reaped."""

import os
import select
import signal
import subprocess
import sys

import pytest

from gateway.takeover.adopted import status_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize(("code", "status"), [("exit 78", 78), ("kill -9 $$", -signal.SIGKILL)])
def test_the_status_of_a_process_that_its_parent_has_not_reaped(code: str, status: int) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", code])
    pidfd = os.pidfd_open(process.pid)
    select.select([pidfd], [], [])
    assert status_of(process.pid, pidfd) == status
    process.wait()
    os.close(pidfd)


def test_the_status_of_one_that_was_reaped_is_known_or_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    pidfd = os.pidfd_open(process.pid)
    process.wait()
    kernel = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    assert status_of(process.pid, pidfd) == (7 if kernel >= (6, 15) else None)
    os.close(pidfd)

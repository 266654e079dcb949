"""How a process ended that is not our child: asked of its pidfd, and of /proc.

Floor 3, I/O.
Only the parent can wait for a process. One that its parent has not reaped yet shows its status in
/proc (proc_pid_stat(5), exit_code). Since Linux 6.15 a pidfd that was opened before the end tells
it afterwards too (include/uapi/linux/pidfd.h, PIDFD_GET_INFO). On an older kernel a status that the
parent has taken is gone: None.
"""

import array
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

PIDFD_GET_INFO: Final = 0xC0000000 | 64 << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, 64 bytes)
INFO_EXIT: Final = 1 << 3
EXIT_CODE_AT: Final = 60  # behind mask, cgroupid and eleven ids
SIZE: Final = 64


def status_of(pid: int, pidfd: int) -> int | None:
    """Exit status (negative: the signal) of a process that has ended; None: not to be known."""
    code = _of_pidfd(pidfd)
    if code is None:
        code = _of_zombie(pid)
    if code is None:  # it was reaped between the two questions
        code = _of_pidfd(pidfd)
    return None if code is None else os.waitstatus_to_exitcode(code)


def _of_pidfd(pidfd: int) -> int | None:
    buffer = array.array("B", struct.pack("Q", INFO_EXIT) + bytes(SIZE - 8))
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, buffer, True)
    except OSError:  # an older kernel
        return None
    (mask,) = struct.unpack_from("Q", buffer)
    code: int
    (code,) = struct.unpack_from("i", buffer, EXIT_CODE_AT)
    return code if mask & INFO_EXIT else None


def _of_zombie(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[-1]) if fields[0] == "Z" else None

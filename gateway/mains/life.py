"""How a child process makes sure that it never outlives the supervisor.

Floor 5, I/O.
A life pipe covers every way in which the supervisor can end; the death signal also covers a child
that is stopped or stuck, which reads no pipe. Instances watch a pipe only: they have to survive a
hand-over to another supervisor.
"""

import ctypes
import os
import signal
import sys
import threading
from typing import Final

EXIT_ORPHANED: Final = 70  # EX_SOFTWARE of sysexits.h
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def end_with(life_fd: int, parent: int | None) -> None:
    """Exit at once when the other end of the pipe is gone; with `parent`, also by death signal.

    Call it from the main thread: the signal follows the thread that started the child.
    """

    def watch() -> None:
        os.read(life_fd, 1)
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=watch, name="life", daemon=True).start()
    if parent is not None and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call above
            os._exit(EXIT_ORPHANED)

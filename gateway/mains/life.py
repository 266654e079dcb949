"""How a child process makes sure that it never outlives the supervisor.

Floor 5, I/O.
A life pipe covers every way in which the supervisor can end; the death signal also covers a child
that is stopped or stuck, which reads no pipe. Instances watch a pipe only: they have to survive a
hand-over to another supervisor.
"""

import os

from sluicegate import processes
from sluicegate.processes import EXIT_ORPHANED


def end_with(life_fd: int, parent: int | None) -> None:
    """Exit at once when the other end of the pipe is gone; with `parent`, also by death signal.

    Call it from the main thread: the signal follows the thread that started the child.
    """
    processes.end_with(life_fd)
    if parent is not None:
        processes.die_with_parent()
        if os.getppid() != parent:  # it died before the call above
            os._exit(EXIT_ORPHANED)

"""What this process holds open, to see that a test has left nothing there."""

import os
from contextlib import suppress


def descriptors(kind: str = "") -> set[str]:
    """Number and kind with inode (`7 socket:[123]`) of each open descriptor of this kind.

    Compare as `descriptors() - before`: what earlier tests have left may go at any moment, and a
    number alone may by then be that of another.
    """
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            if (link := os.readlink(f"/proc/self/fd/{fd}")).startswith(kind):
                found.add(f"{fd} {link}")
    return found

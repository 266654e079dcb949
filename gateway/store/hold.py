"""The store's file is one gateway's: a second one is told whose it is.

Floor 3, I/O.
A lock that the kernel lets go of with the process, on a file beside the store. Every control of one
gateway shares it, since a successor begins before its predecessor has ended; which gateway that is,
its run_dir says. (SQLite's own locks are of one transaction each: they keep the file whole, not its
meaning.)
"""

import fcntl
import os
from pathlib import Path

from gateway.store.base import StoreUnusable


def hold(path: Path, run_dir: Path) -> int:
    """Hold the store at `path` for the gateway of `run_dir`, as long as the descriptor is open.

    Raises: StoreUnusable.
    """
    beside, owner = path.with_name(f"{path.name}.lock"), str(run_dir.resolve())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreUnusable(f"{path} cannot be opened: {exc}") from exc
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, owner.encode(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 4096, 0).decode(errors="replace")
        if holder != owner:
            os.close(fd)
            text = f"{path} is the store of the gateway in {holder}, which runs"
            raise StoreUnusable(f"{text}: give this one a [store] url of its own") from None
    except OSError as exc:
        os.close(fd)
        raise StoreUnusable(f"{path} cannot be held: {exc}") from exc
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd

"""Whether the model repository has a version, in a folder or in an object store.

Floor 3, I/O.   Flow: effects -> [repository] -> Stock
The manifest decides, as for whoever loads it. A store that cannot be asked is no reason against a
version: its instances may have fetched it before, or may fetch it when they start. Stores come with
clients of their own, which block: they are asked in a thread that nobody waits for at the end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from gateway.fleet.stock import Stock
from gateway.launch.needs import elsewhere, where

LOOK_S: Final = 5.0  # an operator waits for it
MANIFEST: Final = "manifest.toml"


async def stocked(root: str, model: str, version: str) -> Stock:
    """What the repository says of the version; never raises for anything that a store does."""
    if elsewhere(root):
        return await _apart(lambda: _in_store(root, model, version), version)
    return await _apart(lambda: _in_folder(where(root, ""), model, version), version)


async def _apart(look: Callable[[], Stock], version: str) -> Stock:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Stock] = loop.create_future()

    def settle(stock: Stock) -> None:
        if not found.done():
            found.set_result(stock)

    def run() -> None:
        try:
            stock = look()
        except Exception as exc:
            # A house rule broken (no broad except): each store comes with errors of its own, of
            # packages that are not known here.
            stock = Stock(version, None, doubt=str(exc) or type(exc).__name__)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, stock)

    Thread(target=run, name="repository", daemon=True).start()
    try:
        async with asyncio.timeout(LOOK_S):
            return await found
    except TimeoutError:
        return Stock(version, None, doubt=f"no answer in {LOOK_S:g} s")


def _in_folder(root: Path, model: str, version: str) -> Stock:
    """Raises: OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        (root / model / version / MANIFEST).stat()
        return Stock(version, True)
    others = (one.parent.name for one in (root / model).glob(f"*/{MANIFEST}"))
    return Stock(version, False, tuple(sorted(others)))


def _in_store(root: str, model: str, version: str) -> Stock:
    """Raises: whatever the store's package does."""
    import fsspec  # only a repository elsewhere pays for it

    store, top = fsspec.core.url_to_fs(root.rstrip("/"))
    store.invalidate_cache()  # it may have been imported a moment ago
    try:
        # Read, as an instance reads it: some stores say "not found" of whatever goes wrong
        # when they are asked what they have.
        store.cat_file(f"{top}/{model}/{version}/{MANIFEST}")
    except FileNotFoundError:
        return Stock(version, False, _listed(store.glob, f"{top}/{model}"))
    return Stock(version, True)


def _listed(glob: Callable[[str], list[str]], folder: str) -> tuple[str, ...]:
    """For the sentence only: a store may serve files and list none."""
    with suppress(Exception):  # as above: it is known by now that the version is not there
        return tuple(sorted(key.split("/")[-2] for key in glob(f"{folder}/*/{MANIFEST}")))
    return ()

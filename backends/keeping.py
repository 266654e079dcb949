"""An instance's word in a store that it serves a version from there, said again and again.

Floor 3, I/O.
A lock in a store would outlive a killed process, so it is a lease: who dies without a word is
forgotten after a while. Credentials that can only read are common; then nothing is said, and it is
the gateway's config alone that keeps the version from being removed.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Protocol

from backends.errors import InstanceError

log = logging.getLogger(__name__)

LEASE_S: Final = 600.0  # longer than any outage that a renewal should survive
RENEW_S: Final = 150.0  # so that three may be missed


class Leases(Protocol):
    """Of a repository in a store; one holder's lease is for one version."""

    def lease(self, model: str, version: str, holder: str, span_s: float) -> None:
        """Raises: StoreFailed."""

    def release(self, model: str, version: str, holder: str) -> None:
        """Raises: StoreFailed."""


class Keeping:
    """One version in use by one holder, until `held` is closed."""

    def __init__(self, leases: Leases, model: str, version: str, holder: str) -> None:
        self._leases = leases
        self._named = (model, version, holder)

    async def begin(self, held: ExitStack, renew_s: float = RENEW_S) -> None:
        if not await asyncio.to_thread(self._said, self._renew):
            return
        task = asyncio.create_task(self._renewing(renew_s), name="lease")
        held.callback(self._said, lambda: self._leases.release(*self._named))
        held.callback(task.cancel)  # before the release: what is closed last is called first

    async def _renewing(self, renew_s: float) -> None:
        while True:
            await asyncio.sleep(renew_s)
            await asyncio.to_thread(self._said, self._renew)

    def _renew(self) -> None:
        self._leases.lease(*self._named, LEASE_S)

    def _said(self, say: Callable[[], None]) -> bool:
        try:
            say()
        except InstanceError as exc:
            log.warning("lease not written", extra={"reason": str(exc)})
            return False
        return True

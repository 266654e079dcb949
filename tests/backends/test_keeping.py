"""What an instance says in a store while it serves from there."""

import asyncio
from contextlib import ExitStack

from backends.errors import InstanceError
from backends.keeping import LEASE_S, RENEW_S, Keeping


class FakeLeases:
    """Remembers what was said; from call number `fails_from` on it refuses."""

    def __init__(self, fails_from: int = 1000) -> None:
        self.said: list[str] = []
        self.tried = 0
        self.renewed = asyncio.Event()
        self._fails_from = fails_from
        self._loop = asyncio.get_running_loop()

    def lease(self, model: str, version: str, holder: str, span_s: float) -> None:
        self.tried += 1
        if self.tried >= 3:
            self._loop.call_soon_threadsafe(self.renewed.set)
        if self.tried > self._fails_from:
            raise InstanceError("read only")
        self.said.append(f"{model} {version} {holder} {span_s:g}")

    def release(self, model: str, version: str, holder: str) -> None:
        self.said.append(f"{model} {version} {holder} released")


async def test_a_lease_is_said_again_until_it_is_released() -> None:
    leases = FakeLeases()
    with ExitStack() as held:
        await Keeping(leases, "m", "1", "a").begin(held, renew_s=0.0)
        await leases.renewed.wait()
    assert set(leases.said[:3]) == {f"m 1 a {LEASE_S:g}"}
    assert "m 1 a released" in leases.said
    assert 3 * RENEW_S < LEASE_S


async def test_a_store_that_cannot_be_written_is_asked_once_and_nothing_ends_by_it() -> None:
    leases = FakeLeases(fails_from=0)
    with ExitStack() as held:
        await Keeping(leases, "m", "1", "a").begin(held, renew_s=0.0)
    assert (leases.said, leases.tried) == ([], 1)
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "lease"] == []


async def test_a_renewal_that_fails_is_tried_again() -> None:
    leases = FakeLeases(fails_from=1)
    with ExitStack() as held:
        await Keeping(leases, "m", "1", "a").begin(held, renew_s=0.0)
        await leases.renewed.wait()
    assert leases.said == [f"m 1 a {LEASE_S:g}", "m 1 a released"]

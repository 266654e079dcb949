"""SIGKILL of a worker, an instance or control, with a picture of what it held.

Floor 3, I/O.
The victim is stopped first. While it stands still, the gateway's own list says which requests it
holds, and the kernel says which clients are connected to a worker and whose bytes it has not read.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Final

from admin.calls import Unanswered
from tests.chaos.audit import Kill
from tests.chaos.fleet import Fleet, serving

KINDS: Final = ("instance", "worker", "control")
LOOK_TIMEOUT_S: Final = 2.0  # a worker that stands still longer than 5 s is killed by control


async def killer(fleet: Fleet, count: int, seconds: float, rng: Random, kills: list[Kill]) -> None:
    """So many kills at random moments, of each kind in turn, until `seconds` from now."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    moments = sorted(rng.uniform(0.05, 0.95) * seconds for _ in range(count))
    kinds = rng.sample(KINDS, len(KINDS))
    for i, moment in enumerate(moments):
        await asyncio.sleep(max(0.0, begin + moment - loop.time()))
        kind = kinds[i % len(kinds)]
        kill = await {"instance": _instance, "worker": _worker, "control": _control}[kind](
            fleet, rng
        )
        if kill is not None:
            kills.append(kill)
            held = "?" if kill.held is None else len(kill.held)
            print(f"  killed {kill.what}, which held {held}", flush=True)


async def _instance(fleet: Fleet, rng: Random) -> Kill | None:
    found = await fleet.ask(lambda client: client.read.instances())
    victims = [one for one in found if one.pid and serving(one)]
    if not victims:
        return None
    victim = rng.choice(victims)
    if not _stop(victim.pid):
        return None
    at = time.monotonic()
    try:
        held = await _held(fleet, victim.id, 0)
    finally:
        _kill(victim.pid)
    return Kill(victim.id, at, held)


async def _worker(fleet: Fleet, rng: Random) -> Kill | None:
    status = await fleet.ask(lambda client: client.read.status())
    workers = [one for one in status.workers if one.pid]
    if not workers:
        return None
    victim = rng.choice(workers)
    if not _stop(victim.pid):
        return None
    at = time.monotonic()
    try:
        held = await _held(fleet, None, victim.pid)
        ports = connections(victim.pid, int(fleet.address.rpartition(":")[2]))
    finally:
        _kill(victim.pid)
    return Kill(f"worker {victim.index}", at, held, ports)


async def _control(fleet: Fleet, rng: Random) -> Kill | None:
    pid = fleet.control_pid()
    if not pid or not _stop(pid):
        return None
    at = time.monotonic()
    await asyncio.sleep(rng.uniform(0.0, 0.3))
    _kill(pid)
    return Kill("control", at)


def _stop(pid: int) -> bool:
    """Whether the process stands still now: the signal alone takes a moment."""
    try:
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "TtZX":
            os.sched_yield()
    except OSError:
        return False
    return True


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)  # it stands still: the number is still its own


async def _held(fleet: Fleet, instance: str | None, worker: int) -> frozenset[str] | None:
    """Client ids of the requests in flight there; None when control does not answer now."""
    try:
        leases = await fleet.ask(lambda client: client.read.leases(instance, None), LOOK_TIMEOUT_S)
    except Unanswered:
        return None
    return frozenset(one.client_request_id for one in leases if worker in (0, one.worker))


def connections(pid: int, listens: int) -> dict[int, bool]:
    """Ports of the clients that are connected to the process at `listens`; True where bytes lie in
    its socket that it has not read. From the kernel's own table."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, _, _, _, _, inode, *_ = line.split()
        if inode in inodes and int(local.partition(":")[2], 16) == listens:
            port = int(remote.partition(":")[2], 16)
            if port:
                found[port] = int(queues.partition(":")[2], 16) > 0
    return found

"""Where an instance may be started now: whether a device takes it, and which does best.

Floor 1, pure.
One loader per device at a time: two that load at once slow each other down or fail (F4). Memory is
counted by what the manifests say, for every process that is there, not by what is free at this
instant: an instance that is still loading has not taken its share yet (F3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BYTES_PER_GB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process on the device; one that has ended is none."""

    name: str
    needs_bytes: int  # 0: its manifest was not found
    loading: bool


@dataclass(frozen=True, slots=True)
class Room:
    """A device, and who is there."""

    device: str
    memory_gb: float
    tenants: tuple[Tenant, ...]

    @property
    def total_bytes(self) -> int:
        return int(self.memory_gb * BYTES_PER_GB)

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - sum(tenant.needs_bytes for tenant in self.tenants)

    @property
    def loader(self) -> str:
        """Who is loading there; "" when nobody is."""
        return next((tenant.name for tenant in self.tenants if tenant.loading), "")


def choose(rooms: Sequence[Room], needs_bytes: int) -> tuple[str, str]:
    """The device with the most room, and ""; or "", and why it has to wait, with the numbers.

    Equal room goes to the device of fewer tenants: not every manifest says what it needs.
    """
    open_now = [room for room in rooms if not room.loader and needs_bytes <= room.free_bytes]
    if open_now:
        best = max(open_now, key=lambda room: (room.free_bytes, -len(room.tenants)))
        return best.device, ""
    roomy = next((room for room in rooms if needs_bytes <= room.free_bytes), None)
    if roomy is not None:
        return "", f"waits for {roomy.device}: {roomy.loader} is loading there"
    widest = max(rooms, key=lambda room: room.free_bytes)
    free, total = gb(max(widest.free_bytes, 0)), gb(widest.total_bytes)
    return "", (
        f"waits for memory on {widest.device}: needs {gb(needs_bytes)}, {free} of {total} are free"
    )


def taken(free: Mapping[str, int], needs_bytes: int) -> Mapping[str, int] | None:
    """What is left of the free memory, by device, when one more has taken the roomiest; None: it
    has no room."""
    widest = max(free, key=lambda device: free[device], default=None)
    if widest is None or free[widest] < needs_bytes:
        return None
    return {**free, widest: free[widest] - needs_bytes}


def gb(count: int) -> str:
    return f"{count / BYTES_PER_GB:.1f} GB"

"""Whether an instance may be started on a device now.

Floor 1, pure.
One loader per device at a time: two that load at once slow each other down or fail (F4). Memory is
counted by what the manifests say, for every process that is there, not by what is free at this
instant: an instance that is still loading has not taken its share yet (F3).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BYTES_PER_GB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process on the device; one that has ended is none."""

    name: str
    needs_bytes: int  # 0: its manifest was not found
    loading: bool


def hindrance(device: str, memory_gb: float, tenants: Iterable[Tenant], needs_bytes: int) -> str:
    """Why it has to wait, with the numbers; "" when it may start."""
    present = tuple(tenants)
    loading = [tenant.name for tenant in present if tenant.loading]
    if loading:
        return f"waits for {device}: {loading[0]} is loading there"
    total = int(memory_gb * BYTES_PER_GB)
    taken = sum(tenant.needs_bytes for tenant in present)
    if taken + needs_bytes > total:
        return (
            f"waits for memory on {device}: needs {_gb(needs_bytes)}, "
            f"{_gb(max(total - taken, 0))} of {_gb(total)} are free"
        )
    return ""


def _gb(count: int) -> str:
    return f"{count / BYTES_PER_GB:.1f} GB"

"""gRPC to instances: one channel per address, statuses translated, failures in one shape.

Floor 3, I/O.   Owner: the control process.
Both seams to gRPC are here: `reading` turns a message into a record, `calling` turns its exceptions
into Unreachable. Nothing above this file sees either.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Final

import grpc

from gateway.config import NAME, NAME_RULE, is_address
from gateway.fleet.status import Device, Status
from sluicegate.v1 import lifecycle_pb2
from sluicegate.v1.lifecycle_pb2_grpc import LifecycleStub
from sluicegate.v1.states import Phase, State

if TYPE_CHECKING:  # it exists in the generated .pyi only
    from sluicegate.v1.lifecycle_pb2_grpc import LifecycleAsyncStub

# Without ping_timeout a frozen peer is noticed after 70 s; `keepalive_timeout_ms` alone has no
# effect (measured with grpcio 1.85). Statuses are small; a proxy of the environment is never meant.
OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 1 << 20),
)
REASON_MAX: Final = 500  # characters: a sentence or three; it goes into tables and refusals
NAME_MAX: Final = 128
INCARNATION_MAX: Final = 128  # characters: twice a SHA-256 in hex, and it is kept by the dozen
FLOATS: Final = (
    "progress",
    "queue_wait_ms",
    "batch_utilisation_ratio",
    "last_latency_ms",
    "tokens_per_s",
    "load_ms",
    "compile_ms",
    "warmup_ms",
)


class Unreachable(Exception):
    """A call got no answer that could be used."""

    def __init__(self, reason: str, slow: bool, missing: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.slow = slow  # the deadline passed
        self.missing = missing  # the peer does not have this call


class Garbled(Exception):
    """A status that means nothing; the message says which field."""


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Around one awaited call. Raises: Unreachable."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        code = exc.code()
        slow = code is grpc.StatusCode.DEADLINE_EXCEEDED
        reason = f"{what}: {code.name.lower().replace('_', ' ')}"
        details = plain((exc.details() or "").partition("\n")[0], 200)
        if details and not slow:
            reason = f"{reason}, {details}"
        raise Unreachable(reason, slow, code is grpc.StatusCode.UNIMPLEMENTED) from exc


def reading(message: lifecycle_pb2.InstanceStatus) -> Status:
    """The record in a message.

    Raises: Garbled.
    """
    try:
        state, phase = State(message.state), Phase(message.phase)
    except ValueError as exc:
        raise Garbled(f"status of {_shown(message.instance_id)}: {exc}") from exc
    progress = message.progress
    if isfinite(progress):  # what is not comes through, and is garbled
        progress = min(max(progress, 0.0), 100.0)
    device = None
    if message.HasField("device"):
        held = message.device
        device = Device(
            plain(held.kind, NAME_MAX),
            plain(held.id, NAME_MAX),
            held.memory_total_bytes,
            held.memory_used_bytes,
            held.memory_reserved_bytes,
            held.memory_free_bytes,
            held.memory_peak_bytes,
        )
    status = Status(
        instance_id=message.instance_id,
        incarnation=message.incarnation,
        sequence=message.sequence,
        model=message.model,
        version=message.version,
        http=message.http_address,
        grpc=message.grpc_address,
        state=state,
        phase=phase,
        progress=progress,
        reason=plain(message.reason),
        active_requests=message.active_requests,
        queue_depth=message.queue_depth,
        queue_wait_ms=message.queue_wait_ms,
        batch_utilisation_ratio=message.batch_utilisation_ratio,
        last_latency_ms=message.last_latency_ms,
        tokens_per_s=message.tokens_per_s,
        served_total=message.served_total,
        progress_total=message.progress_total,
        rejected_total=message.rejected_total,
        max_concurrency=message.max_concurrency,
        prompt_tokens_total=message.prompt_tokens_total,
        completion_tokens_total=message.completion_tokens_total,
        device=device,
        load_ms=message.load_ms,
        compile_ms=message.compile_ms,
        warmup_ms=message.warmup_ms,
    )
    check(status)
    return status


def plain(text: str, length_max: int = REASON_MAX) -> str:
    """What somebody else says, for people: one line of bounded length that no terminal obeys."""
    if len(text) > length_max:
        text = text[: length_max - 3] + "..."
    return "".join(one if one.isprintable() else " " for one in text)


def check(status: Status) -> None:
    """That nothing in it can do harm further down: in the store, in a table, in a response head.

    What it does not say is for the caller to miss; what it says has to be well formed.

    Raises: Garbled.
    """
    for key in ("instance_id", "model", "version"):
        value = getattr(status, key)
        if value and not NAME.fullmatch(value):
            raise _garbled(status, key, NAME_RULE, value)
    incarnation = status.incarnation
    printable = incarnation.isascii() and incarnation.isprintable() and " " not in incarnation
    if not printable or not 1 <= len(incarnation) <= INCARNATION_MAX:
        rule = f"1 to {INCARNATION_MAX} printable ASCII characters without blanks"
        raise _garbled(status, "incarnation", rule, incarnation)
    for key in ("http", "grpc"):
        value = getattr(status, key)
        if value and not is_address(value):
            raise _garbled(status, f"{key}_address", "host:port", value)
    for key in FLOATS:
        if not isfinite(getattr(status, key)):
            raise _garbled(status, key, "a finite number", str(getattr(status, key)))


def _garbled(status: Status, key: str, rule: str, value: str) -> Garbled:
    return Garbled(
        f"status of {_shown(status.instance_id)}: {key} must be {rule}, not {_shown(value)}"
    )


def _shown(value: str) -> str:
    """Short, and without what could break a line or a terminal."""
    return value if NAME.fullmatch(value) else ascii(value[:40])


class Channels:
    """Channels by address, opened when first asked for."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[grpc.aio.Channel, LifecycleAsyncStub]] = {}

    def stub(self, address: str) -> "LifecycleAsyncStub":
        found = self._open.get(address)
        if found is None:
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
            found = self._open[address] = channel, LifecycleStub(channel)
        return found[1]

    async def drop(self, address: str) -> None:
        """The address belongs to nobody any more."""
        found = self._open.pop(address, None)
        if found is not None:
            await found[0].close()

    async def close(self) -> None:
        for address in tuple(self._open):
            await self.drop(address)

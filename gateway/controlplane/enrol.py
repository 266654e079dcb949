"""The Registry service: instances register, beat and say farewell.

Floor 3, I/O.   Flow: [enrol] -> Registered, Beaten -> decide -> answer
Every call becomes an event with a ticket, and the control loop answers it: nothing is looked up and
judged here, so two calls that race are in the end one after the other.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import grpc

from gateway.controlplane.channels import Garbled, plain, reading
from gateway.controlplane.tickets import Tickets
from gateway.fleet.commands import BeatAnswer, RegisterAnswer
from gateway.fleet.events import Beaten, Deregistered, Event, Registered
from gateway.fleet.registry import hashed
from gateway.fleet.status import Status
from sluicegate.v1 import lifecycle_pb2, lifecycle_pb2_grpc

# Peers may ping every 5 s without a call under way: a stricter server sends GOAWAY, too many pings.
OPTIONS: Final = (
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.so_reuseport", 1),  # the supervisor holds the port by a bound socket of its own
    ("grpc.max_receive_message_length", 1 << 20),
)
ANSWER_S: Final = 5.0  # the loop answers in a millisecond; more means that it is gone
WEIGHT_MAX: Final = 1_000_000.0  # as in config.toml
LIMIT_MAX: Final = 1_000_000  # as in config.toml
Context = grpc.aio.ServicerContext[object, object]


class Enrolment(lifecycle_pb2_grpc.RegistryServicer):
    """sample: bytes from an instance and leases on it, by the segment."""

    def __init__(
        self,
        post: Callable[[Event], None],
        tickets: Tickets,
        sample: Callable[[str], tuple[int, int]],
    ) -> None:
        self._post = post
        self._tickets = tickets
        self._sample = sample

    async def Register(  # noqa: N802 (named by lifecycle.proto)
        self, request: lifecycle_pb2.RegisterRequest, context: Context
    ) -> lifecycle_pb2.RegisterReply:
        status = await _named(request.status, context)
        if not 0 <= request.weight <= WEIGHT_MAX:  # NaN fails every comparison
            text = f"weight must be from 0 to {WEIGHT_MAX:g}, not {request.weight:g}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if request.limit > LIMIT_MAX:
            text = f"limit must be from 0 to {LIMIT_MAX}, not {request.limit}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        ticket, answer = self._tickets.draw()
        now = asyncio.get_running_loop().time()
        event = Registered(ticket, status, request.launch_token, request.weight, request.limit, now)
        self._post(replace(event, lease=hashed(request.lease_token)))
        async with asyncio.timeout(ANSWER_S):
            said: RegisterAnswer = await answer
        if said.refusal:
            await context.abort(grpc.StatusCode[said.code], said.refusal)
        return lifecycle_pb2.RegisterReply(ttl_s=said.ttl_s, interval_s=said.interval_s)

    async def Heartbeat(  # noqa: N802
        self, request: lifecycle_pb2.HeartbeatRequest, context: Context
    ) -> lifecycle_pb2.HeartbeatReply:
        status = await _named(request.status, context)
        ticket, answer = self._tickets.draw()
        received, held = self._sample(status.instance_id)
        now = asyncio.get_running_loop().time()
        self._post(Beaten(ticket, status, received, held, now, hashed(request.lease_token)))
        async with asyncio.timeout(ANSWER_S):
            said: BeatAnswer = await answer
        return lifecycle_pb2.HeartbeatReply(
            order=lifecycle_pb2.Order.Value(f"ORDER_{said.order}"),
            grace_s=said.grace_s,
            interval_s=said.interval_s,
        )

    async def Deregister(  # noqa: N802
        self, request: lifecycle_pb2.DeregisterRequest, context: Context
    ) -> lifecycle_pb2.DeregisterReply:
        now = asyncio.get_running_loop().time()
        name, lease = request.instance_id, hashed(request.lease_token)
        self._post(Deregistered(name, request.incarnation, plain(request.reason), now, lease))
        return lifecycle_pb2.DeregisterReply()


async def _named(message: lifecycle_pb2.InstanceStatus, context: Context) -> Status:
    """The status, if it can be registered under; otherwise the call ends as INVALID_ARGUMENT."""
    try:
        status = reading(message)
    except Garbled as exc:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
    if not (status.instance_id and status.model and status.version and status.grpc):
        text = "a status needs instance_id, model, version and grpc_address"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
    return status


async def serve(enrolment: Enrolment, address: str) -> grpc.aio.Server:
    """The running server.

    Raises: OSError when the address cannot be bound.
    """
    server = grpc.aio.server(options=OPTIONS)
    lifecycle_pb2_grpc.add_RegistryServicer_to_server(enrolment, server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as exc:
        raise OSError(f"registry.listen {address} cannot be bound: {exc}") from exc
    if not bound:
        raise OSError(f"registry.listen {address} cannot be bound")
    await server.start()
    return server

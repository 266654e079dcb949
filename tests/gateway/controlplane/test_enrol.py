"""Real gRPC on loopback, the real decision behind it."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from gateway.controlplane.enrol import Enrolment, serve
from gateway.controlplane.tickets import Tickets
from gateway.fleet.commands import Answer
from gateway.fleet.decide import decide
from gateway.fleet.events import Event
from gateway.fleet.registry import hashed
from sluicegate.v1 import lifecycle_pb2 as pb
from sluicegate.v1 import lifecycle_pb2_grpc
from tests.gateway.fleet.builders import begun

STATUS = pb.InstanceStatus(
    instance_id="r",
    incarnation="r1",
    sequence=1,
    model="m",
    version="1",
    http_address="127.0.0.1:1",
    grpc_address="127.0.0.1:2",
    state=pb.INITIALIZING,
    phase=pb.LOADING_MODEL,
)


class Gateway:
    """The Registry service over a snapshot that `decide` moves."""

    def __init__(self) -> None:
        self.fleet = begun()
        self.tickets = Tickets()

    def post(self, event: Event) -> None:
        self.fleet, commands = decide(self.fleet, event)
        for command in commands:
            if isinstance(command, Answer):
                self.tickets.answer(command.ticket, command.value)


@pytest.fixture
async def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
async def stub(gateway: Gateway) -> AsyncIterator[lifecycle_pb2_grpc.RegistryStub]:
    enrolment = Enrolment(gateway.post, gateway.tickets, lambda name: (0, 0))
    server = grpc.aio.server()
    lifecycle_pb2_grpc.add_RegistryServicer_to_server(enrolment, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield lifecycle_pb2_grpc.RegistryStub(channel)
    await server.stop(None)


def changed(**fields: object) -> pb.InstanceStatus:
    status = pb.InstanceStatus()
    status.CopyFrom(STATUS)
    for name, value in fields.items():
        setattr(status, name, value)
    return status


async def test_a_registration_is_answered_with_its_ttl_and_the_interval_to_beat_at(
    gateway: Gateway, stub: "lifecycle_pb2_grpc.RegistryAsyncStub"
) -> None:
    reply = await stub.Register(pb.RegisterRequest(status=STATUS, limit=3), timeout=300)
    assert (reply.ttl_s, reply.interval_s) == (30.0, 10.0)
    assert gateway.fleet.instances["r"].limit == 3


async def test_the_name_of_a_live_instance_elsewhere_is_already_exists(
    stub: "lifecycle_pb2_grpc.RegistryAsyncStub",
) -> None:
    await stub.Register(pb.RegisterRequest(status=STATUS), timeout=300)
    away = changed(incarnation="r2", grpc_address="127.0.0.1:9")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.Register(pb.RegisterRequest(status=away), timeout=300)
    assert failed.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert "live instance" in (failed.value.details() or "")


async def test_a_version_that_the_config_does_not_know_is_not_found(
    stub: "lifecycle_pb2_grpc.RegistryAsyncStub",
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="no version 9") as failed:
        await stub.Register(pb.RegisterRequest(status=changed(version="9")), timeout=300)
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_beat_of_somebody_unknown_is_told_to_register(
    stub: "lifecycle_pb2_grpc.RegistryAsyncStub",
) -> None:
    reply = await stub.Heartbeat(pb.HeartbeatRequest(status=STATUS), timeout=300)
    assert reply.order == pb.ORDER_REGISTER
    await stub.Register(pb.RegisterRequest(status=STATUS), timeout=300)
    reply = await stub.Heartbeat(pb.HeartbeatRequest(status=STATUS), timeout=300)
    assert (reply.order, reply.interval_s) == (pb.ORDER_NONE, 10.0)


async def test_a_farewell_is_taken(
    gateway: Gateway, stub: "lifecycle_pb2_grpc.RegistryAsyncStub"
) -> None:
    await stub.Register(pb.RegisterRequest(status=STATUS), timeout=300)
    goodbye = pb.DeregisterRequest(instance_id="r", incarnation="r1", reason="stopped")
    await stub.Deregister(goodbye, timeout=300)
    assert not gateway.fleet.instances["r"].live


async def test_a_beat_and_a_farewell_without_the_secret_are_nobodys(
    gateway: Gateway, stub: "lifecycle_pb2_grpc.RegistryAsyncStub"
) -> None:
    await stub.Register(pb.RegisterRequest(status=STATUS, lease_token="mine"), timeout=300)
    assert gateway.fleet.instances["r"].lease == hashed("mine")
    for token, order in (("", pb.ORDER_REGISTER), ("mine", pb.ORDER_NONE)):
        beat = pb.HeartbeatRequest(status=STATUS, lease_token=token)
        assert (await stub.Heartbeat(beat, timeout=300)).order == order
    for token, live in (("", True), ("mine", False)):
        goodbye = pb.DeregisterRequest(instance_id="r", incarnation="r1", lease_token=token)
        await stub.Deregister(goodbye, timeout=300)
        assert gateway.fleet.instances["r"].live is live


@pytest.mark.parametrize("missing", ["instance_id", "model", "version", "grpc_address"])
async def test_a_status_without_a_name_is_an_invalid_argument(
    stub: "lifecycle_pb2_grpc.RegistryAsyncStub", missing: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.Register(pb.RegisterRequest(status=changed(**{missing: ""})), timeout=300)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("instance_id", "a\r\nset-cookie: x"),
        ("version", "1:2"),
        ("http_address", "127.0.0.1:99999"),
        ("progress", float("nan")),
    ],
)
async def test_a_status_that_could_do_harm_changes_nothing(
    gateway: Gateway,
    stub: "lifecycle_pb2_grpc.RegistryAsyncStub",
    field: str,
    bad: object,
) -> None:
    await stub.Register(pb.RegisterRequest(status=STATUS), timeout=300)
    before = gateway.fleet
    status = changed(**{field: bad})
    with pytest.raises(grpc.aio.AioRpcError, match=field) as failed:
        await stub.Register(pb.RegisterRequest(status=status), timeout=300)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError, match=field) as failed:
        await stub.Heartbeat(pb.HeartbeatRequest(status=status), timeout=300)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert gateway.fleet is before


@pytest.mark.parametrize(
    ("field", "bad"),
    [("weight", float("inf")), ("weight", float("nan")), ("weight", -3.0), ("limit", 1_000_001)],
)
async def test_a_weight_or_limit_that_config_toml_could_not_have_is_an_invalid_argument(
    gateway: Gateway, stub: "lifecycle_pb2_grpc.RegistryAsyncStub", field: str, bad: float
) -> None:
    request = pb.RegisterRequest(status=STATUS)
    setattr(request, field, bad)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.Register(request, timeout=300)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "r" not in gateway.fleet.instances


async def test_an_address_that_cannot_be_bound_is_named(gateway: Gateway) -> None:
    enrolment = Enrolment(gateway.post, gateway.tickets, lambda name: (0, 0))
    with pytest.raises(OSError, match=r"registry.listen 192\.0\.2\.1:1"):
        await serve(enrolment, "192.0.2.1:1")  # TEST-NET-1: no machine has it


async def test_pings_every_ten_seconds_are_not_too_many() -> None:
    from gateway.controlplane import channels, enrol

    served, asked = dict(enrol.OPTIONS), dict(channels.OPTIONS)
    least = served["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert least <= asked["grpc.keepalive_time_ms"]
    assert served["grpc.keepalive_permit_without_calls"] == 1
    assert asked["grpc.http2.ping_timeout_ms"] == 3_000
    await asyncio.sleep(0)

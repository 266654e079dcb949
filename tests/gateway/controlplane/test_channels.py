"""What an instance says is checked where it comes in."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import NAME, is_address
from gateway.controlplane.channels import FLOATS, REASON_MAX, Channels, Garbled, reading
from sluicegate.v1 import lifecycle_pb2 as pb


def message(**fields: object) -> pb.InstanceStatus:
    given: dict[str, object] = {
        "instance_id": "a",
        "incarnation": "a1",
        "model": "m",
        "version": "1",
        "http_address": "127.0.0.1:1",
        "grpc_address": "[::1]:2",
        "state": pb.READY,
        "phase": pb.SERVING,
    }
    return pb.InstanceStatus(**(given | fields))  # type: ignore[arg-type]  # a test's own


@pytest.mark.parametrize("key", ["instance_id", "model", "version"])
@pytest.mark.parametrize("bad", ["a\r\nx: y", "1:2", "a b", "-a", "\u00e9", "a" * 129, "a\n"])
def test_a_name_that_config_toml_could_not_have_is_garbled(key: str, bad: str) -> None:
    with pytest.raises(Garbled, match=key):
        reading(message(**{key: bad}))


@pytest.mark.parametrize("bad", ["", "a b", "a\n", "\u00e9", "a" * 129, "\x7f"])
def test_an_incarnation_is_short_printable_ascii_without_blanks(bad: str) -> None:
    with pytest.raises(Garbled, match="incarnation"):
        reading(message(incarnation=bad))


@pytest.mark.parametrize("key", ["http_address", "grpc_address"])
@pytest.mark.parametrize(
    "bad",
    [
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:abc",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:999999",
        ":80",
        "a b:80",
        "a\r\nb:80",
        "unix:/tmp/s:80",
        "127.0.0.1:\u0661",
        "127.0.0.1:80\n",
    ],
)
def test_an_address_that_nobody_can_connect_to_is_garbled(key: str, bad: str) -> None:
    with pytest.raises(Garbled, match=key):
        reading(message(**{key: bad}))


@pytest.mark.parametrize("key", FLOATS)
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_every_reading_is_a_finite_number(key: str, bad: str) -> None:
    with pytest.raises(Garbled, match=key):
        reading(message(**{key: float(bad)}))


def test_every_float_of_the_message_is_among_those_that_are_checked() -> None:
    fields = pb.InstanceStatus.DESCRIPTOR.fields
    kinds = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}
    assert {one.name for one in fields if one.type in kinds} == set(FLOATS)


def test_what_is_not_said_is_not_wrong() -> None:
    status = reading(message(instance_id="", model="", version="", http_address=""))
    assert (status.http, status.progress) == ("", 0.0)


def test_progress_is_a_percentage() -> None:
    assert reading(message(progress=250.0)).progress == 100.0
    assert reading(message(progress=-1.0)).progress == 0.0


@given(st.text(), st.text(), st.text())
def test_whatever_is_read_is_safe_in_a_head_and_a_refusal_is_one_line(
    name: str, incarnation: str, address: str
) -> None:
    refusal = ""
    try:
        status = reading(message(instance_id=name, incarnation=incarnation, http_address=address))
    except Garbled as exc:
        refusal = str(exc)
    else:
        assert not name or NAME.fullmatch(status.instance_id)
        assert not address or is_address(status.http)
        assert status.incarnation.isprintable()
    assert refusal.isascii()
    assert refusal.isprintable()


async def test_an_address_has_one_channel_until_it_is_dropped() -> None:
    channels = Channels()
    first = channels.stub("127.0.0.1:1")
    assert channels.stub("127.0.0.1:1") is first
    await channels.drop("127.0.0.1:1")
    assert channels.stub("127.0.0.1:1") is not first
    await channels.close()


@pytest.mark.parametrize("said", ["x" * 1_000_000, "a\r\nb\x1b[2J", "\u202eevil"])
def test_what_an_instance_says_for_people_is_one_short_line_that_no_terminal_obeys(
    said: str,
) -> None:
    status = reading(message(reason=said, device=pb.Device(kind=said, id=said)))
    assert status.device is not None
    for told in (status.reason, status.device.kind, status.device.id):
        assert len(told) <= REASON_MAX
        assert told.isprintable()


def test_a_sentence_in_any_language_is_left_as_it_is() -> None:
    assert reading(message(reason="等待设备 cpu0: 内存不足")).reason == "等待设备 cpu0: 内存不足"

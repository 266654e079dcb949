"""An offer arrives whole or not at all, whatever its size, and from whatever version it comes."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.takeover.offer import (
    BATCH,
    DOOR,
    FORMAT,
    Facts,
    Lines,
    Offer,
    TakeOverRefused,
    Ward,
    ask,
    encode,
    receive,
    send,
    shared,
)
from tests.descriptors import descriptors

FACTS = Facts(1, "9", ("127.0.0.1:1", "unix:/x"), "127.0.0.1:2", "127.0.0.1:3", "/s.db")
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.settimeout(300)
    yield ours, theirs
    ours.close()
    theirs.close()


def offer_of(names: int, *wards: Ward) -> Offer:
    return Offer(FACTS, tuple(f"listen{k}.0" for k in range(names)), wards)


@pytest.mark.parametrize("count", [1, BATCH, BATCH + 1, 2 * BATCH + 3])
def test_descriptors_come_in_their_order_and_are_not_inheritable(count: int, pair: Pair) -> None:
    """More than the kernel takes at once, too."""
    ours, theirs = pair
    memories = [os.memfd_create(str(k)) for k in range(count)]
    offer = offer_of(count)
    sending = threading.Thread(target=send, args=(ours, offer, memories))
    sending.start()
    got, received = receive(theirs)
    sending.join()
    assert got == offer
    assert [os.readlink(f"/proc/self/fd/{fd}").split(" ")[0] for fd in received] == [
        f"/memfd:{k}" for k in range(count)
    ]
    assert not any(os.get_inheritable(fd) for fd in received)
    for fd in (*memories, *received):
        os.close(fd)


def test_an_instance_brings_its_pidfd_and_the_pipe_of_its_guard(pair: Pair) -> None:
    ours, theirs = pair
    wards = (Ward("instance.a", 7, 8, True, "t d0"), Ward("instance.b", 9, 0, False, ""))
    offer = offer_of(2, *wards)
    assert offer.descriptors == 2 + 2 + 1
    assert offer.workers == 2
    memories = [os.memfd_create("x") for _ in range(5)]
    send(ours, offer, memories)
    got, received = receive(theirs)
    assert got.wards == wards
    assert len(received) == 5
    for fd in (*memories, *received):
        os.close(fd)


def test_an_offer_that_ends_early_leaves_nothing_open(pair: Pair) -> None:
    ours, theirs = pair
    memory = os.memfd_create("x")
    before = descriptors()
    send(ours, offer_of(3), [memory])
    ours.shutdown(socket.SHUT_WR)
    with pytest.raises(TakeOverRefused, match="did not come whole: it ended early"):
        receive(theirs)
    assert descriptors() - before == set()
    os.close(memory)


def test_a_refusal_is_the_sentence_that_was_said(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(encode({"refused": "the running gateway is closing"}))
    with pytest.raises(TakeOverRefused, match=r"^the running gateway is closing$"):
        receive(theirs)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "hung up before it offered"),
        (b"HTTP/1.1 400\n", "no gateway"),
        (b'{"offer": {}}\n', "cannot be read"),
        (b'{"other": 1}\n', "cannot be read"),
    ],
)
def test_what_is_no_offer_is_a_sentence(said: bytes, sentence: str, pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(said)
    ours.shutdown(socket.SHUT_WR)
    with pytest.raises(TakeOverRefused, match=sentence):
        receive(theirs)


def test_keys_of_a_later_version_are_left_alone(pair: Pair) -> None:
    ours, theirs = pair
    facts = {name: getattr(FACTS, name) for name in Facts.__dataclass_fields__}
    document = {"facts": {**facts, "new": 1}, "names": [], "wards": [], "new": 2}
    ours.sendall(encode({"offer": document}))
    assert receive(theirs)[0] == Offer(FACTS, (), ())


def test_the_format_is_named_first_and_a_gateway_that_does_not_listen_is_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(TakeOverRefused, match=r"cannot be asked .* is it of an older version"):
        ask(tmp_path)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / DOOR))
        door.listen()
        heard: list[bytes] = []

        def answer() -> None:
            visitor, _ = door.accept()
            heard.append(visitor.recv(100))
            send(visitor, offer_of(0), [])
            visitor.close()

        answering = threading.Thread(target=answer)
        answering.start()
        sock, offer, received = ask(tmp_path)
        answering.join()
        sock.close()
    assert heard == [encode({"take_over": FORMAT})]
    assert (offer, received) == (offer_of(0), [])


def test_only_what_belongs_to_the_gateway_goes_along() -> None:
    held = ("listen0.0", "listen1.0", "admin", "registry", "lock", "segment", "life", "door")
    life = ("instances_life", "instances_life_write", "life_write")
    assert set(shared((*held, *life))) == {*held[:5], *life[:2]}


def test_lines_come_whole_and_the_end_is_told(pair: Pair) -> None:
    ours, theirs = pair
    theirs.setblocking(False)
    lines = Lines(theirs)
    assert lines.read() == ([], False)
    ours.sendall(b'{"a": 1}\n{"b"')
    assert lines.read() == ([{"a": 1}], False)
    ours.sendall(b": 2}\n")
    ours.shutdown(socket.SHUT_WR)
    assert lines.read() == ([{"b": 2}], True)
    assert lines.say({"c": 3})
    assert ours.recv(100) == b'{"c":3}\n'


def test_a_refusal_that_comes_before_the_question_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was refused at the door was told that the gateway is of an older version: stop it."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(tmp_path / DOOR))
    door.listen()

    def late(document: dict[str, object]) -> bytes:
        visitor, _ = door.accept()
        visitor.sendall(b'{"refused": "another take-over is under way"}\n')
        visitor.close()
        return encode(document)

    monkeypatch.setattr("gateway.takeover.offer.encode", late)
    with pytest.raises(TakeOverRefused, match=r"^another take-over is under way$"):
        ask(tmp_path)
    door.close()

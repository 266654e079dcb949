"""Both sides of a take-over, over a real socket, with a supervisor that only writes down."""

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.children import Child
from gateway.messages import (
    Committed,
    CutHeld,
    Freeze,
    HandedOver,
    Held,
    Message,
    Thaw,
)
from gateway.takeover.giving import Giving
from gateway.takeover.offer import (
    FORMAT,
    FREEZE_MAX_S,
    Facts,
    Lines,
    Offer,
    TakeOverRefused,
    encode,
    receive,
)
from gateway.takeover.taking import Taking

FACTS = Facts(41, "9", ("127.0.0.1:1",), "127.0.0.1:2", "127.0.0.1:3", "/s.db")


@dataclass
class House:
    """What Giving and Taking see of a supervisor."""

    descriptors: dict[str, int] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    told: list[Message] = field(default_factory=list)
    why_not: str = ""
    done: list[str] = field(default_factory=list)
    selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def watch(self, what: int | socket.socket, then: Callable[[int], None]) -> None:
        self.selector.register(what, selectors.EVENT_READ, then)

    def unwatch(self, what: int | socket.socket) -> None:
        self.selector.unregister(what)

    def tell(self, message: Message) -> None:
        self.told.append(message)

    def hindrance(self) -> str:
        return self.why_not

    def release(self) -> None:
        self.done.append("released")

    def adopt(self) -> None:
        self.done.append("adopted")

    def fail(self, why: str) -> None:
        self.done.append(why)

    def turn(self) -> None:
        """Serve what has come."""
        for key, mask in self.selector.select(5):
            key.data(mask)


@dataclass
class Old:
    house: House
    giving: Giving
    path: Path

    def visit(self, first: dict[str, object] | None = None) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(300)
        sock.connect(str(self.path))
        self.house.turn()
        if first is not None:
            sock.sendall(encode(first))
            self.house.turn()
        return sock

    def offered(self) -> socket.socket:
        sock = self.visit({"take_over": FORMAT})
        self.giving.frozen()
        _, received = receive(sock)
        for fd in received:
            os.close(fd)
        return sock


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(tmp_path / "d"))
    door.listen()
    door.setblocking(False)
    house = House({"listen0.0": os.memfd_create("x")})
    giving = Giving(house, door, FACTS)
    giving.begin()
    yield Old(house, giving, tmp_path / "d")
    house.selector.close()
    door.close()


def refusal(sock: socket.socket) -> str:
    with pytest.raises(TakeOverRefused) as caught:
        receive(sock)
    sock.close()
    return str(caught.value)


def test_the_order_is_asked_frozen_offered_given(old: Old) -> None:
    sock = old.visit({"take_over": FORMAT})
    assert old.house.told == [Freeze()]
    old.giving.frozen()
    offer, (fd,) = receive(sock)
    assert (offer.facts, offer.names) == (FACTS, ("listen0.0",))
    assert old.house.done == []
    sock.sendall(encode({"commit": True}))
    old.house.turn()
    assert old.giving.given
    assert old.house.done == ["released"]
    assert old.house.told == [Freeze(), HandedOver()]
    assert sock.recv(100) == encode({"committed": os.getpid()})
    old.giving.held(Held({"a": 2}))
    assert sock.recv(100) == encode({"held": {"a": 2}})
    sock.sendall(encode({"cut": "a"}))
    old.house.turn()
    assert old.house.told[-1] == CutHeld("a")
    sock.close()
    old.house.turn()  # a successor that dies after its commit
    assert Thaw() not in old.house.told
    os.close(fd)


def test_another_format_is_refused_with_both_numbers_and_nothing_is_frozen(old: Old) -> None:
    said = refusal(old.visit({"take_over": FORMAT + 1}))
    assert f"gives take-over format {FORMAT}, not {FORMAT + 1}" in said
    assert old.house.told == []


def test_a_gateway_that_cannot_be_taken_over_now_says_why(old: Old) -> None:
    old.house.why_not = "the running gateway is closing"
    assert refusal(old.visit({"take_over": FORMAT})) == "the running gateway is closing"
    assert old.house.told == []


@pytest.mark.parametrize("when", ["asked", "freezing", "offered"])
def test_a_visitor_that_goes_before_its_commit_changes_nothing_and_the_next_is_served(
    when: str, old: Old
) -> None:
    sock = old.visit() if when == "asked" else old.visit({"take_over": FORMAT})
    if when == "offered":
        old.giving.frozen()
        _, (fd,) = receive(sock)
        os.close(fd)
    sock.close()
    old.house.turn()
    assert old.house.told == ([] if when == "asked" else [Freeze(), Thaw()])
    assert old.house.done == []
    assert old.giving.due is None
    old.offered().close()


def test_a_visitor_that_dies_behind_its_commit_takes_nothing(old: Old) -> None:
    """Once the gateway was given to a process that was not there any more, and ended."""
    sock = old.offered()
    sock.sendall(encode({"commit": True}))
    sock.close()
    old.house.turn()
    assert not old.giving.given
    assert old.house.done == []
    assert old.house.told == [Freeze(), Thaw()]
    old.offered().close()


def test_a_visitor_that_takes_too_long_is_told_to_go(old: Old) -> None:
    sock = old.offered()
    old.giving.ticked(time.monotonic() + FREEZE_MAX_S - 1)
    assert Thaw() not in old.house.told
    old.giving.ticked(time.monotonic() + FREEZE_MAX_S + 1)
    assert old.house.told == [Freeze(), Thaw()]
    assert "it took too long" in refusal(sock)


def test_a_commit_that_was_not_offered_anything_is_refused(old: Old) -> None:
    sock = old.visit({"commit": True})
    assert "not the format" in refusal(sock)
    assert not old.giving.given


def test_one_visitor_at_a_time(old: Old) -> None:
    first = old.offered()
    assert "another take-over is under way" in refusal(old.visit())
    first.sendall(encode({"commit": True}))
    old.house.turn()
    assert old.giving.given
    first.close()


def test_a_control_that_dies_ends_the_take_over_and_is_not_told_to_thaw(old: Old) -> None:
    sock = old.offered()
    old.giving.control_died()
    assert old.house.told == [Freeze()]
    assert sock.recv(100) == b""
    sock.close()


def test_a_signal_to_end_comes_first(old: Old) -> None:
    sock = old.offered()
    old.giving.cancel("the running gateway is asked to end")
    assert old.house.told == [Freeze(), Thaw()]
    assert "asked to end" in refusal(sock)
    old.giving.cancel("again")  # with nobody there


# --- the successor's side ------------------------------------------------------------------------


@dataclass
class New:
    house: House
    taking: Taking
    predecessor: Lines
    finished: list[bool]
    full: list[str]  # what is wrong with the disk


@pytest.fixture
def new() -> Iterator[New]:
    ours, theirs = socket.socketpair()
    house, finished = House(), [False]
    full: list[str] = []

    def finish() -> None:
        finished[0] = True
        if full:
            raise OSError(full[0])

    taking = Taking(house, ours, Offer(FACTS, (), ()), finish)
    taking.begin()
    theirs.setblocking(False)
    yield New(house, taking, Lines(theirs), finished, full)
    house.selector.close()
    theirs.close()


def test_the_commit_is_asked_for_once_and_is_true_when_it_is_answered(new: New) -> None:
    new.taking.serving()
    new.taking.serving()
    assert new.predecessor.read() == ([{"commit": True}], False)
    assert not new.taking.committed
    assert new.house.told == []
    new.predecessor.say({"committed": 41})
    new.house.turn()
    assert new.taking.committed
    assert new.finished == [True]
    assert new.house.done == ["adopted"]
    assert new.house.told == [Committed()]


def test_a_run_folder_that_cannot_be_written_is_no_reason_to_end(new: New) -> None:
    """Once a full disk ended a successor behind its commit, and both gateways with it."""
    new.full.append("No space left on device")
    new.taking.serving()
    new.predecessor.say({"committed": 41})
    new.house.turn()
    assert new.finished == [True]
    assert new.taking.committed
    assert new.house.told == [Committed()]
    new.predecessor.say({"held": {"a": 1}})
    new.house.turn()
    assert new.house.told[-1] == Held({"a": 1})


def test_an_offer_that_is_withdrawn_ends_the_successor(new: New) -> None:
    new.predecessor.sock.close()
    new.house.turn()
    assert new.house.done == ["the running gateway has withdrawn its offer and goes on"]
    assert new.finished == [False]


def test_reports_go_to_control_and_again_to_one_that_was_started_later(new: New) -> None:
    new.taking.serving()
    new.predecessor.say({"committed": 41})
    new.predecessor.say({"held": {"a": 2}})
    new.house.turn()
    assert new.taking.predecessor == 41
    new.taking.control_began()
    assert new.house.told == [Committed(), Held({"a": 2}), Held({"a": 2})]
    new.taking.cut("a")
    assert new.predecessor.read()[0][-1] == {"cut": "a"}
    new.predecessor.sock.close()
    new.house.turn()
    assert new.house.told[-1] == Held({}, over=True)
    assert new.taking.predecessor == 0
    new.taking.cut("a")  # nobody is left to be asked
    new.taking.control_began()
    assert new.house.told[-1] == Held({}, over=True)

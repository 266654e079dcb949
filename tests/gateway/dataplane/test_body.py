"""Bodies in memory: their sum is known at every moment, and it comes back to nothing."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.body import JOINED_BYTES, HeldBody
from gateway.errors import GatewayError
from tests.gateway.dataplane.rig import FakeTransport, Rig, get, ok, post
from tests.gateway.plain import BOUNDS, route, table, target, version

SMALL: Final = replace(BOUNDS, replay_max_bytes=100, route_body_total_bytes=150)
MOVES: Final = st.sampled_from(["keep", "let go", "restart", "join"])


def rig_of_small_bodies() -> Rig:
    return Rig(table(1, route(version(target(1, 1))), bounds=SMALL))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = rig_of_small_bodies()
    yield made
    made.check()
    made.close()


class Writes:
    """A transport that keeps its writes apart."""

    def __init__(self) -> None:
        self.made: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.made.append(data)


@given(st.lists(st.tuples(st.integers(0, 2), MOVES, st.binary(min_size=1, max_size=200))))
async def test_what_is_held_is_the_sum_of_what_was_kept_and_not_let_go(
    moves: list[tuple[int, str, bytes]],
) -> None:
    rig = rig_of_small_bodies()
    bodies = [HeldBody(rig.plane) for _ in range(3)]
    kept = [b"", b"", b""]
    whole = [True, True, True]
    for at, move, part in moves:
        body = bodies[at]
        if move == "keep":
            body.keep(part)
            kept[at] += part
        elif move == "join":
            assert body.joined() == kept[at]
            assert body.parts == [kept[at]]
        else:
            body.let_go() if move == "let go" else body.restart()
            kept[at] = b""
            whole[at] = move == "restart"
        total = sum(map(len, kept))
        assert rig.plane.held_bytes == total
        assert [b.size for b in bodies] == [len(k) for k in kept]
        assert [b"".join(b.parts) for b in bodies] == kept
        assert [b.whole for b in bodies] == whole
        assert [b.is_much() for b in bodies] == [len(k) > 100 or total > 150 for k in kept]
    for body in bodies:
        body.let_go()
    assert rig.plane.held_bytes == 0
    rig.close()


async def test_a_body_is_much_by_itself_or_together_with_all_others(rig: Rig) -> None:
    one, two = HeldBody(rig.plane), HeldBody(rig.plane)
    one.keep(b"x" * 100)
    two.keep(b"x" * 50)
    assert not one.is_much()
    assert not two.is_much()
    two.keep(b"x")
    assert one.is_much()
    assert two.is_much()
    one.let_go()
    assert not two.is_much()
    two.let_go()


@pytest.mark.parametrize("size", [1, JOINED_BYTES])
async def test_a_small_body_is_one_write_with_its_head(rig: Rig, size: int) -> None:
    body, writes = HeldBody(rig.plane), Writes()
    body.keep(b"x" * size)
    body.send([b"POST / HTTP/1.1", b"", b""], writes)
    assert writes.made == [b"POST / HTTP/1.1\r\n\r\n" + b"x" * size]
    body.let_go()


@pytest.mark.parametrize(
    "parts",
    [[], [b"x" * (JOINED_BYTES + 1)], [b"a", b"b"], [b"x" * JOINED_BYTES, b"y"]],
    ids=["no body", "a large one", "two parts", "a large part and a small one"],
)
async def test_other_bodies_follow_their_head_as_they_came(rig: Rig, parts: list[bytes]) -> None:
    """A copy of a large part costs more than a second write."""
    body, writes = HeldBody(rig.plane), Writes()
    for part in parts:
        body.keep(part)
    body.send([b"POST / HTTP/1.1", b"", b""], writes)
    assert writes.made == [b"POST / HTTP/1.1\r\n\r\n", *parts]
    body.let_go()


async def test_a_body_can_be_sent_twice(rig: Rig) -> None:
    body = HeldBody(rig.plane)
    body.keep(b"once")
    for _ in range(2):
        writes = Writes()
        body.send([b"HEAD", b"", b""], writes)
        assert writes.made == [b"HEAD\r\n\r\nonce"]
    body.let_go()


CUT: Final = GatewayError("cut", "by an operator")
HELD: Final = post(b'{"model":"m"}')[:-4]  # what names its model is read whole first
UPLOAD: Final = b"PUT /x HTTP/1.1\r\nhost: g\r\ncontent-length: 300\r\n\r\n"


async def test_an_upload_is_kept_for_a_replay_until_it_is_larger_than_that(rig: Rig) -> None:
    client, instance = await rig.asked(UPLOAD + b"x" * 60)
    assert rig.plane.held_bytes == 60
    client.feed(b"x" * 40)
    assert rig.plane.held_bytes == 100
    client.feed(b"x")
    assert rig.plane.held_bytes == 0
    client.feed(b"x" * 199)
    assert rig.plane.held_bytes == 0  # once let go it is never whole again
    assert instance.out.endswith(b"\r\n\r\n" + b"x" * 300)
    instance.feed(ok())


async def test_nothing_is_kept_once_the_instance_has_answered(rig: Rig) -> None:
    _, instance = await rig.asked(post(b'{"model":"m"}'))
    assert rig.plane.held_bytes == 13
    instance.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
    assert rig.plane.held_bytes == 0
    instance.feed(b"ok")


ENDS: Final[dict[str, Callable[[Rig, FakeTransport], None]]] = {
    "the client leaves": lambda rig, client: client.end(),
    "the client ends its side": lambda rig, client: client.feed_eof(),
    "the client is too slow": lambda rig, client: rig.later(70),
    "an operator cuts it": lambda rig, client: client.protocol.exchange.cut(CUT),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("begin", [HELD, UPLOAD + b"x" * 60], ids=["held", "streamed"])
async def test_however_a_request_ends_its_body_is_let_go(rig: Rig, begin: bytes, how: str) -> None:
    client = rig.client()
    client.feed(begin)
    await rig.dialled()
    assert rig.plane.held_bytes > 0
    ENDS[how](rig, client)
    assert rig.plane.held_bytes == 0


async def test_the_next_request_begins_with_nothing_and_can_be_replayed(rig: Rig) -> None:
    client, instance = await rig.asked(UPLOAD + b"x" * 300)
    instance.feed(ok())
    assert not client.protocol.exchange.body.whole
    client.feed(get())
    assert client.protocol.exchange.body.whole
    assert rig.plane.held_bytes == 0
    rig.busy(client).feed(ok())


async def test_after_a_body_of_nothing_the_next_is_one_write_with_its_head(rig: Rig) -> None:
    """The empty one stayed as a part, and what has two parts is not joined to its head."""
    body = HeldBody(rig.plane)
    assert body.joined() == b""
    body.restart()
    body.keep(b"body")
    writes = Writes()
    body.send([b"POST / HTTP/1.1", b"", b""], writes)
    assert writes.made == [b"POST / HTTP/1.1\r\n\r\nbody"]
    body.let_go()

"""Whatever happens in whatever order: everything adds up, and every request ends once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.dataplane.rig import FakeTransport, Rig, get, ok, post
from tests.gateway.plain import route, table, target, version

REQUESTS = st.sampled_from(
    [
        get(),
        post(),
        post(b"not json"),
        post(path=b"/upload"),
        b"POST /u HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\nhalf",
        b"POST /u HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"rubbish\r\n\r\n",
        get(b"/v1/models"),
        get(b"/old").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ]
)
MORE = st.sampled_from([b"bytes", b"0\r\n\r\n", b"zz\r\n", get(), b"\r\n"])
ANSWERS = st.sampled_from(
    [
        ok(),
        ok(b""),
        ok(status=b"500 Oops"),
        ok(b"", b"x-sluicegate-refused: full", status=b"503 Busy"),
        ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil close",
        b"HTTP/1.1 103 Hints\r\n\r\n",
        b"HTTP/1.1 101 No\r\n\r\n",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 20",
        b"zz\r\n",
    ]
)
PLACE = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("asks"), PLACE, REQUESTS),
    st.tuples(st.just("sends more"), PLACE, MORE),
    st.tuples(st.just("leaves"), PLACE, st.booleans()),
    st.tuples(st.just("answers"), PLACE, ANSWERS),
    st.tuples(st.just("dies"), PLACE, st.booleans()),
    st.tuples(st.just("later"), st.sampled_from([1, 3, 31, 130]), st.none()),
    st.tuples(st.just("publishes"), st.sets(st.integers(1, 3)), st.integers(1, 2)),
    st.tuples(st.just("refuses"), st.sets(st.integers(1, 3)), st.sets(st.integers(1, 3))),
)


class World:
    def __init__(self) -> None:
        self.generation = 1
        self.rig = Rig(self._table({1, 2, 3}, 1), leases=5)
        self.clients: list[FakeTransport] = []

    def _table(self, slots: set[int], limit: int) -> Any:
        targets = [target(slot, slot, limit=limit) for slot in sorted(slots)]
        plan = route(version(*targets), queue_max=2, queue_timeout_s=20, replayable=True)
        return table(self.generation, plan)

    async def step(self, what: str, one: Any, two: Any) -> None:
        rig = self.rig
        if what == "asks":
            self.clients.append(client := rig.client())
            client.feed(two)
        elif what in ("sends more", "leaves") and one < len(self.clients):
            client = self.clients[one]
            if what == "leaves" and two:
                client.end(ConnectionResetError())
            elif what == "leaves" and client.reading:
                client.feed_eof()
            elif what == "sends more" and client.reading:
                client.feed(two)
        elif what in ("answers", "dies") and one < len(rig.loop.instances):
            instance = rig.loop.instances[one]
            if what == "answers" and instance.reading:
                instance.feed(two)
            elif what == "dies" and two:
                instance.feed_eof()
            elif what == "dies":
                instance.end(ConnectionResetError())
        elif what == "later":
            rig.later(one)
        elif what == "publishes":
            self.generation += 1
            rig.publish(self._table(one, two))
        elif what == "refuses":
            rig.loop.refused, rig.loop.stuck = one, two
        await rig.dialled()
        for transport in [*self.clients, *rig.loop.instances]:
            if transport.closed:
                transport.end()
        await rig.dialled()


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40))
async def test_accepted_is_settled_and_in_flight_and_every_request_ends_once(
    steps: list[tuple[str, Any, Any]],
) -> None:
    world = World()
    rig = world.rig
    first = rig.plane.next_number()
    for what, one, two in steps:
        await world.step(what, one, two)
        rig.check()
    for client in world.clients:
        client.end()
    await rig.dialled()
    rig.check()
    begun = rig.plane.next_number() - first - 1
    assert sum(rig.outcomes().values()) == begun
    assert list(rig.segment.leases(0)) == []
    assert rig.plane.held_bytes == 0
    assert not rig.plane.dials
    rig.close()

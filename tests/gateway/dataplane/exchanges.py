"""What tests of one exchange share: two instances, heads, and how attempts ended."""

from typing import Any

from gateway.records import Outcome
from gateway.state.shared import ATTEMPTS
from tests.gateway.dataplane.rig import Rig
from tests.gateway.plain import route, target, version

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def two(**changes: Any) -> Any:
    """A route over two instances with room for two requests each."""
    return route(version(target(1, 1, limit=2), target(2, 2, limit=2)), **changes)


def attempts(rig: Rig) -> dict[str, int]:
    """How attempts on those two ended."""
    totals = [rig.segment.slot_totals(slot) for slot in (1, 2)]
    sums = {o.name.lower(): sum(t[ATTEMPTS + o] for t in totals) for o in Outcome}
    return {name: count for name, count in sums.items() if count}

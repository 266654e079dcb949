"""What is left of a gateway that was taken over is told at once, and each time that it changes."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from gateway.controlplane.leftover import held, report
from gateway.messages import Held, Message
from gateway.records import Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create
from tests.gateway.fleet.builders import both_ready


@pytest.fixture
def segment() -> Iterator[Segment]:
    fd = create(Layout(rows=4, slots=8, sections=4, leases=8))
    yield Segment(fd)
    os.close(fd)


async def test_it_is_told_by_instance_at_once_and_when_it_has_changed(segment: Segment) -> None:
    fleet = both_ready()
    slot = fleet.instances["a"].slot
    ledger = Ledger(segment, 0)
    ledger.reread()
    said: asyncio.Queue[Message] = asyncio.Queue()
    task = asyncio.create_task(report(segment, lambda: fleet, said.put_nowait))
    assert await said.get() == Held({})
    lease = ledger.open(slot, 1, 1, b"", 0)
    assert await said.get() == Held({"a": 1})
    assert held(segment, fleet) == {"a": 1}
    ledger.settle(lease, Outcome.SERVED, 0, 0)
    assert await said.get() == Held({})
    assert said.empty()
    task.cancel()

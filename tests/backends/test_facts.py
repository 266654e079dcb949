"""One place to read everything from."""

from sluicegate.v1 import lifecycle_pb2 as wire
from tests.backends.rig import MEMORY, ready_rig, rig


def test_before_the_model_there_is_a_status_and_no_room() -> None:
    made = rig()
    status = made.facts.status()
    assert (status.state, status.max_concurrency) == (wire.INITIALIZING, 0)
    assert (made.gate.room, made.facts.readings().progress_total) == (0, 0)


async def test_with_the_model_come_its_slots_and_its_readings() -> None:
    async with ready_rig() as made:
        status = made.facts.status()
        assert (status.state, status.max_concurrency) == (wire.READY, made.engine.slots)
        assert made.gate.room == made.engine.slots + 2
        assert made.facts.memory() == MEMORY


async def test_the_gate_counts_what_is_active() -> None:
    async with ready_rig() as made:
        held = made.gate.admit(made.life.standing, "r-1")
        assert made.facts.status().active_requests == 1
        held.give_back()
        assert made.facts.status().active_requests == 0


async def test_a_request_that_fails_alone_does_not_condemn_the_instance() -> None:
    async with ready_rig() as made:
        made.facts.blame_engine(0.0)
        assert made.facts.status().state == wire.READY


async def test_an_engine_that_takes_nothing_more_is_an_error_with_its_reason() -> None:
    async with ready_rig() as made:
        await made.executor.close()
        made.facts.blame_engine(0.0)
        status = made.facts.status()
        assert (status.state, status.reason) == (wire.ERROR, made.facts.readings().failure)

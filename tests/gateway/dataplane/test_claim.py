"""Which version a request keeps, and which one takes over what failed."""

from gateway.records import Outcome
from gateway.state.shared import ATTEMPTS
from tests.gateway.dataplane.rig import Rig, code_of, ok, post, status_of
from tests.gateway.plain import route, table, target, version


def canary(fallback: bool, *, ours: int = 1) -> Rig:
    """Version 1 on port 1 has most weight, version 2 on port 2 a little."""
    stable = version(target(1, 1), weight=95)
    plan = route(
        stable,
        version(*(target(n, n) for n in range(2, 2 + ours)), name="2", weight=5),
        canary_fallback=fallback,
        pinnable=True,
    )
    return Rig(table(1, plan))


def attempts(rig: Rig, slot: int, outcome: Outcome) -> int:
    return rig.segment.slot_totals(slot)[ATTEMPTS + outcome]


COUNT = 100  # of these, the canary gets 4 to 6


async def served_and_failed(rig: Rig, *refused: int) -> tuple[int, int]:
    """Of COUNT requests, while nothing listens on these ports."""
    rig.loop.refused = set(refused)
    served = failed = 0
    for _ in range(COUNT):
        client = rig.client()
        client.feed(post())
        for _ in range(4):
            await rig.dialled()
        if not client.out:
            rig.busy(client).feed(ok())
        served += status_of(client.out) == 200
        failed += code_of(client.out) == "connect_failed"
        rig.check()
    return served, failed


async def test_what_failed_on_a_canary_is_served_by_the_stable_version_and_charged_to_it() -> None:
    rig = canary(True)
    assert await served_and_failed(rig, 2) == (COUNT, 0)
    assert 4 <= attempts(rig, 2, Outcome.CONNECT_FAILED) <= 6
    assert attempts(rig, 1, Outcome.CONNECT_FAILED) == 0
    assert attempts(rig, 1, Outcome.SERVED) == COUNT
    rig.close()


async def test_a_request_keeps_its_version_unless_the_model_says_otherwise() -> None:
    rig = canary(False)
    served, failed = await served_and_failed(rig, 2)
    assert 4 <= failed <= 6
    assert served == attempts(rig, 1, Outcome.SERVED) == COUNT - failed
    rig.close()


async def test_what_failed_on_the_stable_version_never_goes_to_a_canary() -> None:
    rig = canary(True)
    served, failed = await served_and_failed(rig, 1)
    assert 4 <= served <= 6
    assert served == attempts(rig, 2, Outcome.SERVED) == COUNT - failed
    rig.close()


async def test_a_canary_that_refuses_work_is_relieved_by_nobody() -> None:
    """Where its instances are full, another version would bend the split."""
    rig = canary(True, ours=2)
    refused = 0
    for _ in range(COUNT):
        client, instance = await rig.asked(post())
        if not rig.ledger.in_flight(1):
            refused += 1
            instance.feed(ok(b"", b"x-sluicegate-refused: full", status=b"503 Busy"))
            await rig.dialled()
        rig.busy(client).feed(ok())
    assert 4 <= refused <= 6
    assert attempts(rig, 1, Outcome.SERVED) == COUNT - refused
    rig.close()


async def test_who_gave_a_lease_back_last_is_known_to_its_version() -> None:
    """Where all others are full, it is the one that need not be searched for."""
    rig = canary(False)
    made = rig.plane.cell.read().routes["m"].by_name["1"]
    assert made.freed is None
    _, instance = await rig.asked(post())
    instance.feed(ok())
    assert made.freed is made.targets[0]
    rig.close()


async def test_a_pinned_request_keeps_its_version() -> None:
    rig = canary(True)
    rig.loop.refused = {2}
    client = rig.client()
    client.feed(post(b'{"model":"m"}', b"x-model-version: 2"))
    for _ in range(4):
        await rig.dialled()
    assert code_of(client.out) == "connect_failed"
    assert attempts(rig, 1, Outcome.SERVED) == 0
    rig.close()

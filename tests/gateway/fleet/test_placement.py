from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.placement import BYTES_PER_GB, Room, Tenant, choose

GB = BYTES_PER_GB


def room(device: str, *tenants: Tenant) -> Room:
    return Room(device, 10, tenants)


def test_one_loader_at_a_time_and_the_other_is_told_what_it_waits_for() -> None:
    assert choose([room("d0", Tenant("x", 0, loading=True))], 0) == (
        "",
        "waits for d0: x is loading there",
    )
    assert choose([room("d0", Tenant("x", 0, loading=False))], 0) == ("d0", "")


def test_memory_is_counted_by_manifests_and_short_of_it_the_numbers_are_said() -> None:
    there = room("d0", Tenant("x", 6 * GB, loading=False))
    assert choose([there], 4 * GB) == ("d0", "")
    assert choose([there], 5 * GB) == (
        "",
        "waits for memory on d0: needs 5.0 GB, 4.0 GB of 10.0 GB are free",
    )


def test_what_is_loading_has_its_memory_already() -> None:
    there = room("d0", Tenant("x", 6 * GB, loading=True))
    assert choose([there], 5 * GB)[1].startswith("waits for memory on d0")


def test_the_device_with_most_room_is_taken_and_of_equals_the_emptier() -> None:
    half, full = Tenant("x", 5 * GB, loading=False), Tenant("y", 9 * GB, loading=False)
    assert choose([room("d0", full), room("d1", half), room("d2", full)], GB) == ("d1", "")
    unknown = Tenant("z", 0, loading=False)
    assert choose([room("d0", unknown), room("d1")], 0) == ("d1", "")


def test_a_device_where_somebody_loads_is_passed_over_for_one_with_less_room() -> None:
    loading, half = Tenant("x", 0, loading=True), Tenant("y", 5 * GB, loading=False)
    assert choose([room("d0", loading), room("d1", half)], GB) == ("d1", "")
    assert choose([room("d0", loading), room("d1", half)], 6 * GB) == (
        "",
        "waits for d0: x is loading there",
    )


TENANTS = st.builds(Tenant, st.text(min_size=1), st.integers(0, 12 * GB), st.booleans())
ROOMS = st.lists(st.tuples(st.integers(1, 20), st.lists(TENANTS, max_size=3)), min_size=1)


@given(ROOMS, st.integers(0, 20 * GB))
def test_nobody_is_put_where_it_does_not_fit_or_somebody_loads(
    given_rooms: list[tuple[int, list[Tenant]]], needs: int
) -> None:
    rooms = [Room(str(n), gb, tuple(many)) for n, (gb, many) in enumerate(given_rooms)]
    fits = {
        one.device
        for one in rooms
        if not any(tenant.loading for tenant in one.tenants)
        and sum(tenant.needs_bytes for tenant in one.tenants) + needs <= one.memory_gb * GB
    }
    device, why = choose(rooms, needs)
    assert (device in fits, why == "") == (bool(fits), bool(fits))

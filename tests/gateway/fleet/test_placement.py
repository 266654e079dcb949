from gateway.fleet.placement import BYTES_PER_GB, Tenant, hindrance

GB = BYTES_PER_GB


def test_one_loader_at_a_time_and_the_other_is_told_what_it_waits_for() -> None:
    assert hindrance("d0", 10, [Tenant("x", 0, loading=True)], 0) == (
        "waits for d0: x is loading there"
    )
    assert hindrance("d0", 10, [Tenant("x", 0, loading=False)], 0) == ""


def test_memory_is_counted_by_manifests_and_short_of_it_the_numbers_are_said() -> None:
    there = [Tenant("x", 6 * GB, loading=False)]
    assert hindrance("d0", 10, there, 4 * GB) == ""
    assert hindrance("d0", 10, there, 5 * GB) == (
        "waits for memory on d0: needs 5.0 GB, 4.0 GB of 10.0 GB are free"
    )

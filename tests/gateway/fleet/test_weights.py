from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.weights import NO_OVERRIDES, Override, in_force, override, surviving

VERSIONS = st.sampled_from(["1", "2", "3"])
WEIGHTS = st.dictionaries(VERSIONS, st.sampled_from([0.0, 5.0, 95.0, 100.0]))


def test_versions_left_out_get_zero_and_zero_stands_against_the_file() -> None:
    file = {"1": 100.0, "2": 50.0}
    chosen = override(file, NO_OVERRIDES, {"1": 7.0})
    assert {v: one.weight for v, one in in_force(file, chosen).items()} == {"1": 7.0, "2": 0.0}


def test_an_override_yields_exactly_when_its_own_file_value_changes() -> None:
    overrides = {"1": Override(7.0, 100.0), "2": Override(3.0, 50.0)}
    file = {"1": 90.0, "2": 50.0}
    assert surviving(file, overrides) == {"2": overrides["2"]}
    assert in_force(file, overrides)["1"].weight == 90.0
    assert in_force(file, overrides)["2"].weight == 3.0


@given(file=WEIGHTS, asked=WEIGHTS)
def test_what_was_asked_is_in_force_and_a_reset_gives_the_file_back(
    file: dict[str, float], asked: dict[str, float]
) -> None:
    chosen = override(file, NO_OVERRIDES, asked)
    found = in_force(file, chosen)
    assert {v: one.weight for v, one in found.items() if v in asked} == asked
    assert all(one.weight == 0.0 for v, one in found.items() if v not in asked)
    assert {v: one.weight for v, one in in_force(file, NO_OVERRIDES).items()} == file


@given(before=WEIGHTS, after=WEIGHTS, asked=WEIGHTS)
def test_a_reload_moves_only_versions_whose_file_value_changed(
    before: dict[str, float], after: dict[str, float], asked: dict[str, float]
) -> None:
    overrides = surviving(after, override(before, NO_OVERRIDES, asked))
    for version, one in in_force(after, overrides).items():
        if before.get(version) == after.get(version):
            assert one.weight == asked.get(version, 0.0)
        else:
            assert one.weight == after[version]

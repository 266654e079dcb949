"""The state table is total, closed, and numbered as the protocol file numbers it."""

import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.v1 import lifecycle_pb2, states
from sluicegate.v1.states import (
    PROGRESS,
    TRANSITIONS,
    IllegalTransition,
    Phase,
    State,
    progress,
    transition,
)

ROOT = Path(__file__).parents[2]

# The legal moves, spelled again by hand. The code under test does not know this list.
LEGAL = {
    ("INITIALIZING", "READY"),
    ("INITIALIZING", "ERROR"),
    ("INITIALIZING", "STOPPED"),
    ("READY", "DRAINING"),
    ("READY", "STOPPED"),
    ("READY", "ERROR"),
    ("DRAINING", "STOPPED"),
    ("DRAINING", "ERROR"),
    ("DRAINING", "READY"),
    ("ERROR", "INITIALIZING"),
    ("ERROR", "STOPPED"),
}


@pytest.mark.parametrize(("old", "new"), list(product(State, State)), ids=lambda state: state.name)
def test_a_move_is_legal_exactly_when_the_table_has_it(old: State, new: State) -> None:
    if (old.name, new.name) in LEGAL:
        assert transition("i", old, new) is new
    else:
        with pytest.raises(IllegalTransition, match=f"^i: {old.name} to {new.name} is not legal$"):
            transition("i", old, new)


@given(st.lists(st.sampled_from(State)))
def test_no_history_leaves_stopped(asked: list[State]) -> None:
    state, history = State.INITIALIZING, [State.INITIALIZING]
    for new in asked:
        if new in TRANSITIONS[state]:
            state = transition("i", state, new)
            history.append(state)
    assert State.STOPPED not in history[:-1]
    assert all((a.name, b.name) in LEGAL for a, b in pairwise(history))


def test_states_have_the_numbers_of_the_protocol_file() -> None:
    ours = {state.name: int(state) for state in State}
    theirs = dict(lifecycle_pb2.State.items())
    assert theirs.pop("STATE_UNSPECIFIED") == 0
    assert ours == theirs


def test_phases_have_the_numbers_of_the_protocol_file() -> None:
    ours = {phase.name: int(phase) for phase in Phase}
    theirs = {name.removeprefix("PHASE_"): n for name, n in lifecycle_pb2.Phase.items()}
    assert theirs.pop("UNSPECIFIED") == 0
    assert ours == theirs


def test_every_phase_has_its_progress() -> None:
    assert set(PROGRESS) == set(Phase)
    assert [PROGRESS[phase] for phase in Phase][:8] == [5, 8, 10, 40, 50, 70, 90, 100]


@given(st.sampled_from(Phase), st.floats(0, 1), st.floats(0, 1))
def test_progress_grows_inside_a_phase_and_stays_inside_it(
    phase: Phase, a: float, b: float
) -> None:
    low, high = progress(phase, min(a, b)), progress(phase, max(a, b))
    assert progress(phase, 0.0) <= low <= high <= progress(phase, 1.0) == PROGRESS[phase]


@pytest.mark.parametrize("share", [-1.0, 7.0])
def test_a_share_out_of_range_is_held_to_its_phase(share: float) -> None:
    assert 10.0 <= progress(Phase.LOADING_MODEL, share) <= 40.0


def test_the_committed_stubs_are_what_the_protocol_file_generates(tmp_path: Path) -> None:
    package = Path(states.__file__).parent
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'proto'}"),
            *(f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"),
            "sluicegate/v1/lifecycle.proto",
        ],
        check=True,
    )
    for name in ("lifecycle_pb2.py", "lifecycle_pb2_grpc.py"):
        fresh = (tmp_path / "sluicegate" / "v1" / name).read_text()
        assert (package / name).read_text() == fresh, f"{name} is stale: make proto"

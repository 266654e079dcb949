"""An engine that answers wrongly is not called ready."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.engines.llm.verification import verify
from backends.errors import LoadFailed
from tests.backends.fakes import ScriptedEngine


class Forgetful(ScriptedEngine):
    """Its decodes write one position too early, as a wrong graph would."""

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        return super().decode(ids, np.maximum(positions - 1, 0))


class Confused(ScriptedEngine):
    """Its prefills go to the neighbour's slot."""

    def prefill(self, slot: int, ids: Sequence[int], start: int) -> NDArray[np.float32]:
        return super().prefill((slot + 1) % self.slots, ids, start)


@pytest.mark.parametrize("chunk_max", [2, 8, 32])
def test_an_engine_whose_decodes_say_what_its_prefills_say_is_accepted(chunk_max: int) -> None:
    engine = ScriptedEngine(chunks=(chunk_max,))
    verify(engine)
    assert {call[0] for call in engine.calls} == {"prefill", "decode"}


@pytest.mark.parametrize("broken", [Forgetful(), Confused()])
def test_an_engine_whose_decodes_and_prefills_disagree_is_refused(broken: ScriptedEngine) -> None:
    with pytest.raises(LoadFailed, match="differs from a prefill"):
        verify(broken)


def test_logits_that_are_not_numbers_are_refused() -> None:
    engine = ScriptedEngine(slots=2)
    engine.blank = {1}
    with pytest.raises(LoadFailed, match="not numbers"):
        verify(engine)

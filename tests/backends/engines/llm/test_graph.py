"""The compiled graphs against the transformer's definition in numpy, logit by logit."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.engines import runtime
from backends.engines.base import Report
from backends.engines.llm.engine import LlmEngine
from tests.backends.conftest import tiny_snapshot
from tests.backends.engines.llm import reference
from tests.tiny import VOCAB, tiny_config, tiny_weights

pytestmark = pytest.mark.mindspore

SLOTS, LENGTH = 3, 300  # 300: two windows, and no multiple of a prefill shape
CLOSE = 1e-4  # of the largest logit: float32 against float64 over two layers gives 1e-6


class Model:
    """A tiny engine and its reference."""

    def __init__(self, architecture: str, folder: Path) -> None:
        snapshot = tiny_snapshot(folder / "model", architecture, LENGTH, SLOTS)
        self.engine = LlmEngine(snapshot, folder / "cache")
        self.engine.load(quiet)
        self._config = tiny_config(architecture, tied=architecture == "llama")
        self._tensors = tiny_weights(architecture, tied=architecture == "llama")

    def prefill(self, slot: int, ids: Sequence[int], chunk: int = 128) -> NDArray[np.float32]:
        logits = np.zeros(VOCAB, np.float32)
        for start in range(0, len(ids), chunk):
            logits = self.engine.prefill(slot, ids[start : start + chunk], start)
        return logits

    def decode(self, ids: dict[int, int], positions: dict[int, int]) -> NDArray[np.float32]:
        id_row, position_row = np.zeros((2, SLOTS), np.int32)
        for slot in ids:
            id_row[slot], position_row[slot] = ids[slot], positions[slot]
        return self.engine.decode(id_row, position_row)

    def expect(self, logits: NDArray[np.float32], ids: Sequence[int]) -> None:
        wanted = reference.logits(self._config, self._tensors, ids)[-1]
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


def quiet(*report: Any) -> None:
    pass


_: Report = quiet


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(request.param, tmp_path_factory.mktemp(request.param))


def text(length: int, seed: int = 1) -> list[int]:
    rng = Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 127, 128])
def test_a_prefill_of_any_length_gives_the_logits_of_the_definition(
    model: Model, length: int
) -> None:
    ids = text(length)
    model.expect(model.prefill(1, ids), ids)


@pytest.mark.parametrize("chunk", [1, 7, 32, 100, 128])
def test_a_prompt_in_chunks_gives_what_the_whole_prompt_gives(model: Model, chunk: int) -> None:
    ids = text(130, seed=2) if chunk > 1 else text(12, seed=2)
    model.expect(model.prefill(0, ids, chunk), ids)


@pytest.mark.parametrize("length", [254, 255, 256, 257])
def test_a_chunk_that_ends_at_the_edge_of_the_short_window_sees_all_before_it(
    model: Model, length: int
) -> None:
    graphs = runtime.compiled()
    ids = text(length, seed=14)
    model.expect(model.prefill(1, ids), ids)
    ids.append(7)
    model.expect(model.decode({1: 7}, {1: length})[1], ids)
    assert runtime.compiled() == graphs


def test_decodes_go_on_where_the_prefill_ended_and_past_the_short_window(model: Model) -> None:
    ids = text(250, seed=3)
    model.prefill(2, ids)
    for id_ in text(12, seed=4):  # 255 lies in the middle
        ids.append(id_)
        logits = model.decode({2: id_}, {2: len(ids) - 1})
        model.expect(logits[2], ids)


def test_each_slot_answers_from_its_own_sequence(model: Model) -> None:
    sequences = {slot: text(20 + 40 * slot, seed=slot) for slot in range(SLOTS)}
    for slot, ids in sequences.items():
        model.prefill(slot, ids)
    for step in range(3):
        fed = {slot: 10 * step + slot for slot in sequences}
        for slot, ids in sequences.items():
            ids.append(fed[slot])
        logits = model.decode(fed, {slot: len(ids) - 1 for slot, ids in sequences.items()})
        for slot, ids in sequences.items():
            model.expect(logits[slot], ids)


def test_what_neighbours_decode_changes_no_bit_of_an_answer(model: Model) -> None:
    ids = text(40, seed=5)
    model.prefill(1, ids)
    alone = model.decode({1: 7}, {1: 40})[1].copy()
    model.prefill(0, text(60, seed=6))
    model.prefill(2, text(90, seed=7))
    beside = model.decode({0: 9, 1: 7, 2: 8}, {0: 60, 1: 40, 2: 90})[1]
    np.testing.assert_array_equal(alone, beside)


def test_a_slot_forgets_a_longer_sequence_when_a_shorter_one_takes_it(model: Model) -> None:
    model.prefill(1, text(280, seed=8))
    ids = text(5, seed=9)
    model.expect(model.prefill(1, ids), ids)
    for id_ in (3, 4):
        ids.append(id_)
        model.expect(model.decode({1: id_}, {1: len(ids) - 1})[1], ids)


def test_a_slot_can_be_filled_to_its_last_position_without_touching_the_next(model: Model) -> None:
    """The last chunk is shorter than its compiled shape, which reaches past the slot's end."""
    neighbour = text(30, seed=10)
    model.prefill(2, neighbour)
    ids = text(LENGTH - 1, seed=11)
    model.expect(model.prefill(1, ids), ids)
    ids.append(5)
    neighbour.append(6)
    logits = model.decode({1: 5, 2: 6}, {1: LENGTH - 1, 2: 30})
    model.expect(logits[1], ids)
    model.expect(logits[2], neighbour)


def test_a_decode_of_neighbours_does_not_disturb_a_prompt_that_is_half_done(model: Model) -> None:
    """A slot between two chunks stands at the position its next chunk begins at (see slots.py)."""
    neighbour, ids = text(10, seed=12), text(200, seed=13)
    model.prefill(0, neighbour)
    model.prefill(1, ids[:128])
    model.decode({0: 3, 1: 0}, {0: 10, 1: 128})
    model.expect(model.engine.prefill(1, ids[128:], 128), ids)


def test_a_slot_that_holds_what_is_no_number_answers_again_once_it_is_cleared(model: Model) -> None:
    from mindspore import Tensor  # it may not be installed where tests are collected

    ids, beside = text(40, seed=8), text(60, seed=9)
    sound = model.prefill(1, ids).copy()
    following = model.decode({1: 7}, {1: 40})[1].copy()
    model.prefill(0, beside)
    graphs = runtime.compiled()
    decoder = model.engine._decoder
    for parameter in (decoder.keys[0], decoder.values[0]):
        values = parameter.asnumpy().copy()
        rows = decoder.kv_heads * decoder.rows[0]
        values[rows : 2 * rows] = np.nan
        parameter.set_data(Tensor(values))
    assert not np.isfinite(model.prefill(1, ids)).all()
    model.engine.clear(1)
    np.testing.assert_array_equal(model.prefill(1, ids), sound)
    logits = model.decode({0: 9, 1: 7}, {0: 60, 1: 40})
    np.testing.assert_array_equal(logits[1], following)
    model.expect(logits[0], [*beside, 9])
    assert runtime.compiled() == graphs

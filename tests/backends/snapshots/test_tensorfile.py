import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from backends.snapshots.manifest import DTYPES
from backends.snapshots.source import ImportFailed
from backends.snapshots.tensorfile import TensorFile, narrow, widen, write
from backends.snapshots.transformer import TensorSpec
from tests.tiny import tiny_weights, write_tiny_folder

CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
floats = hnp.arrays(np.float32, st.integers(1, 16), elements=st.floats(width=32))


def _write(file: Path, weights: dict[str, NDArray[np.float32]], dtype: str = "float32") -> int:
    specs = [TensorSpec(name, values.shape) for name, values in weights.items()]
    done: list[int] = []
    write(file, specs, dtype, weights.__getitem__, done.append)
    return sum(done)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_library_reads_what_we_write(tmp_path: Path, dtype: str) -> None:
    weights = tiny_weights("qwen2", seed=3)
    written = _write(tmp_path / "w", weights, dtype)
    found = load_file(tmp_path / "w")
    assert set(found) == set(weights)
    for name, values in weights.items():
        np.testing.assert_array_equal(found[name], values.astype(dtype))
    assert written == sum(values.size for values in weights.values()) * DTYPES[dtype]


def test_the_library_finds_bfloat16_as_we_write_it(tmp_path: Path) -> None:
    _write(tmp_path / "w", {"x": np.ones((2, 3), np.float32)}, "bfloat16")
    with safe_open(str(tmp_path / "w"), "np") as opened:
        piece = opened.get_slice("x")
        assert (piece.get_dtype(), piece.get_shape()) == ("BF16", [2, 3])


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_we_read_what_the_library_writes(tmp_path: Path, dtype: str) -> None:
    folder = write_tiny_folder(tmp_path / "tiny", dtype=dtype)
    file = TensorFile(folder / "model.safetensors")
    for name, values in tiny_weights().items():
        assert file.shapes[name] == values.shape
        tolerance = {"float32": 0.0, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
        np.testing.assert_allclose(file.read(name), values, rtol=tolerance, atol=1e-7)
        assert file.read(name).dtype == np.float32


def test_values_begin_where_they_can_be_mapped(tmp_path: Path) -> None:
    for name in ("a", "ab", "abc", "abcdefgh"):
        _write(tmp_path / name, {name: np.zeros(1, np.float32)})
        assert int.from_bytes((tmp_path / name).read_bytes()[:8], "little") % 8 == 0


@given(floats)
def test_narrow_and_wide_again_is_the_nearest_bfloat16(values: NDArray[np.float32]) -> None:
    back = widen(narrow(values, "bfloat16", "x"), "BF16")
    np.testing.assert_array_equal(np.isnan(back), np.isnan(values))
    # The two neighbours with 16 bits: cut off, and one step away from zero. No third is nearer.
    down = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    up = ((values.view(np.uint32) & 0xFFFF0000) + np.uint32(0x10000)).view(np.float32)
    finite = np.isfinite(values) & np.isfinite(up)
    wide = [part[finite].astype(np.float64) for part in (values, back, down, up)]
    error = abs(wide[1] - wide[0])
    assert np.all(error <= np.minimum(abs(wide[2] - wide[0]), abs(wide[3] - wide[0])))


@given(floats)
def test_bfloat16_survives_a_second_narrowing(values: NDArray[np.float32]) -> None:
    once = narrow(values, "bfloat16", "x")
    np.testing.assert_array_equal(narrow(widen(once, "BF16"), "bfloat16", "x"), once)


def test_a_tie_goes_to_the_even_neighbour() -> None:
    values = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    assert [hex(bits) for bits in narrow(values, "bfloat16", "x")] == ["0x3f80", "0x3f82"]


def test_every_nan_stays_one() -> None:
    values = np.array([0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
    assert np.isnan(widen(narrow(values.view(np.float32), "bfloat16", "x"), "BF16")).all()


def test_a_value_too_large_for_float16_is_refused_by_tensor() -> None:
    with pytest.raises(ImportFailed, match=r"layer\.x has values that float16 cannot hold"):
        narrow(np.array([70000.0], np.float32), "float16", "layer.x")
    assert np.isinf(narrow(np.array([np.inf], np.float32), "float16", "x"))


def _entry(**change: object) -> bytes:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | change
    text = json.dumps({"x": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "cut short"),
        (b"\xff" * 20, "cut short or not a safetensors file"),
        ((4).to_bytes(8, "little") + b"{bad", "is not a safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "its header is no table"),
        (_entry(dtype="I8"), "x: has dtype I8; float32, float16 and bfloat16 are read"),
        (_entry(shape=[3]), "x: its byte range does not fit its shape"),
        (_entry(data_offsets=[-8, 0]), "x: its byte range does not fit its shape"),
        (_entry(data_offsets=[8, 16]), "x: the file is cut short"),
        (_entry(data_offsets=8), "x: its header entry is not one"),
        (_entry()[:-1], "x: the file is cut short"),
    ],
)
def test_a_damaged_file_is_refused_with_a_sentence(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(ImportFailed, match=problem):
        TensorFile(tmp_path / "w.safetensors")


def test_one_tensor_at_a_time_is_read(tmp_path: Path) -> None:
    alive: list[int] = []

    class Counted(np.ndarray):  # type: ignore[type-arg]
        def __del__(self) -> None:
            alive.pop()

    def read(name: str) -> NDArray[np.float32]:
        assert not alive, "the one before must be gone when the next one is read"
        alive.append(1)
        return np.zeros(4, np.float32).view(Counted)

    specs = [TensorSpec(f"t{i}", (4,)) for i in range(5)]
    write(tmp_path / "w", specs, "float32", read, lambda count: None)

"""Every step an engine can be asked for has a compiled shape, and they are few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engines.llm.shapes import DecodeShape, PrefillShape, Shapes, promised


@pytest.mark.parametrize(
    ("length", "shapes"),
    [
        (1024, Shapes((32, 128), (255, 1024))),
        (287, Shapes((32, 128), (255, 287))),
        (286, Shapes((32, 128), (286,))),
        (100, Shapes((32, 100), (100,))),
        (128, Shapes((32, 128), (128,))),
        (16, Shapes((16,), (16,))),
    ],
)
def test_the_shapes_of_a_length(length: int, shapes: Shapes) -> None:
    assert promised(length) == shapes


@given(st.integers(1, 5000), st.data())
def test_every_chunk_and_every_position_has_the_smallest_shape_that_holds_it(
    length: int, data: st.DataObject
) -> None:
    shapes = promised(length)
    count = data.draw(st.integers(1, min(shapes.prefills[-1], length)))
    position = data.draw(st.integers(0, length - 1))
    compiled = [shape for shape in shapes if isinstance(shape, PrefillShape)]
    prefill = shapes.prefill_for(count, position)
    assert prefill.ids == min(ids for ids in shapes.prefills if ids >= count)
    assert prefill.window == min(
        shape.window for shape in compiled if shape.ids == prefill.ids and shape.window > position
    )
    assert shapes.window_for(position) == min(w for w in shapes.windows if w > position)
    assert max(shapes.prefills) <= length
    assert all(shape.ids <= shape.window for shape in compiled)


def test_a_window_holds_its_own_positions_and_not_the_next() -> None:
    assert promised(1024).window_for(254) == 255
    assert promised(1024).window_for(255) == 1024
    assert promised(1024).prefill_for(100, 254) == PrefillShape(128, 255)
    assert promised(1024).prefill_for(100, 255) == PrefillShape(128, 1024)


def test_a_short_chunk_reads_the_whole_cache() -> None:
    assert promised(1024).prefill_for(32, 31) == PrefillShape(32, 1024)


def test_a_step_reads_the_parts_of_the_cache_up_to_its_window() -> None:
    assert [promised(1024).parts_of(window) for window in (255, 1024)] == [1, 2]
    assert promised(100).parts_of(100) == 1


def test_the_order_of_compiling_is_fixed_and_names_each_shape_once() -> None:
    assert list(promised(1024)) == [
        PrefillShape(32, 1024),
        PrefillShape(128, 255),
        PrefillShape(128, 1024),
        DecodeShape(255),
        DecodeShape(1024),
    ]
    assert len(promised(1024)) == 5

"""Bodies of KServe v2 -> arrays, arrays -> bodies, and a sentence with a path for every mistake."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from backends.errors import RequestInvalid
from backends.signature import DATATYPES, Signature, TensorSpec
from backends.tensors import (
    JSON_LENGTH,
    Inference,
    Wanted,
    mismatch,
    not_numbers,
    parse,
    render,
    rows_of,
    zeros,
)

SIGNATURE = Signature(
    inputs=(TensorSpec("x", "FP32", (-1, 2)), TensorSpec("k", "INT8", (-1,))),
    outputs=(TensorSpec("y", "FP32", (-1, 2)), TensorSpec("best", "INT64", (-1,))),
    max_batch=4,
)
X = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4.5]}
K = {"name": "k", "datatype": "INT8", "shape": [2], "data": [-128, 127]}


def body(**changes: Any) -> bytes:
    document = {"inputs": [X, K], **changes}
    return orjson.dumps({key: value for key, value in document.items() if value is not ...})


def with_x(**changes: Any) -> bytes:
    return body(inputs=[{k: v for k, v in {**X, **changes}.items() if v is not ...}, K])


def with_k(**changes: Any) -> bytes:
    return body(inputs=[X, {k: v for k, v in {**K, **changes}.items() if v is not ...}])


def binary(*chunks: bytes, sizes: tuple[object, object], **changes: Any) -> tuple[bytes, str]:
    """A body in the binary form, and the length of its JSON."""
    inputs = [
        {**{k: v for k, v in one.items() if k != "data"}, "parameters": {"binary_data_size": size}}
        for one, size in zip((X, K), sizes, strict=True)
    ]
    text = orjson.dumps({"inputs": inputs, **changes})
    return text + b"".join(chunks), str(len(text))


FLOATS = np.array([[1, 2], [3, 4.5]], "<f4")
BYTES = np.array([-128, 127], "i1")


@pytest.mark.parametrize("nested", [False, True])
def test_json_values_may_be_flat_or_nested(nested: bool) -> None:
    found = parse(with_x(data=[[1, 2], [3, 4.5]]) if nested else body(), None, SIGNATURE)
    assert found.id == ""
    assert (found.inputs["x"] == FLOATS).all()
    assert found.inputs["x"].dtype == np.float32
    assert found.inputs["k"].tolist() == [-128, 127]
    assert found.outputs == (Wanted("y", False), Wanted("best", False))
    assert rows_of(found.inputs, SIGNATURE) == 2


def test_binary_values_come_behind_the_json_in_the_order_of_the_inputs() -> None:
    text, length = binary(FLOATS.tobytes(), BYTES.tobytes(), sizes=(16, 2))
    found = parse(text, length, SIGNATURE)
    assert (found.inputs["x"] == FLOATS).all()
    assert (found.inputs["k"] == BYTES).all()


def test_one_input_may_be_binary_and_another_json() -> None:
    document = {"inputs": [K, {**X, "data": ..., "parameters": {"binary_data_size": 16}}]}
    del document["inputs"][1]["data"]  # type: ignore[attr-defined]
    text = orjson.dumps(document)
    found = parse(text + FLOATS.tobytes(), str(len(text)), SIGNATURE)
    assert (found.inputs["x"] == FLOATS).all()


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"outputs": [{"name": "best"}]}, (Wanted("best", False),)),
        ({"parameters": {"binary_data_output": True}}, (Wanted("y", True), Wanted("best", True))),
        (
            {
                "parameters": {"binary_data_output": True},
                "outputs": [{"name": "best", "parameters": {"binary_data": False}}, {"name": "y"}],
            },
            (Wanted("best", False), Wanted("y", True)),
        ),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}, (Wanted("y", True),)),
    ],
)
def test_outputs_are_those_asked_for_in_the_form_asked_for(
    changes: dict[str, Any], wanted: tuple[Wanted, ...]
) -> None:
    assert parse(body(**changes), None, SIGNATURE).outputs == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "the body must be JSON"),
        (b"[]", "the body must be a JSON object"),
        (body(id=7), "id: must be a text, not 7"),
        (body(inputs=...), "inputs: must be a list of at least one tensor, not nothing"),
        (body(inputs=[]), "inputs: must be a list of at least one tensor, not []"),
        (body(inputs=["x"]), "inputs[0]: must be an object, not 'x'"),
        (body(inputs=[X]), "inputs: 'k' is missing, must be INT8 [-1]"),
        (body(inputs=[X, K, X]), "inputs[2].name: 'x' is there twice"),
        (with_x(name="z"), "inputs[0].name: must be 'x' or 'k', not 'z'"),
        (with_x(name=...), "inputs[0].name: must be 'x' or 'k', not nothing"),
        (with_x(name=["x"]), "inputs[0].name: must be 'x' or 'k', not ['x']"),
        (with_x(datatype="FP64"), "inputs[0].datatype: must be FP32, not 'FP64'"),
        (with_x(shape=[2, 3]), "inputs[0].shape: must be [-1, 2], not [2, 3]"),
        (with_x(shape=[4]), "inputs[0].shape: must be [-1, 2], not [4]"),
        (with_x(shape=[-1, 2]), "inputs[0].shape: must be a list of sizes, not [-1, 2]"),
        (with_x(shape=[2.0, 2]), "inputs[0].shape: must be a list of sizes, not [2.0, 2]"),
        (with_x(shape=[True, 2]), "inputs[0].shape: must be a list of sizes, not [True, 2]"),
        (with_x(shape="2,2"), "inputs[0].shape: must be a list of sizes, not '2,2'"),
        (with_x(data=...), "inputs[0].data: must be a list of values, not nothing"),
        (with_x(data=1), "inputs[0].data: must be a list of values, not 1"),
        (with_x(data=[1, 2, 3]), "inputs[0].data: must hold 4 values for [2, 2], not [3]"),
        (with_x(data=[[1], [2, 3]]), "inputs[0].data: must be nested as [2, 2], or flat"),
        (with_x(data=[[1, 2, 3, 4]]), "inputs[0].data: must hold 4 values for [2, 2], not [1, 4]"),
        (with_x(data=[[1, 2], [3, [4]]]), "inputs[0].data: must hold numbers only, for FP32"),
        (with_x(data=[[1, 2], 3]), "inputs[0].data: must be nested as [2, 2], or flat"),
        (with_x(data=[[[1], [2]], [[3], [4]]]), "inputs[0].data: must be nested as [2, 2]"),
        (with_x(data=[1, 2, 3, True]), "inputs[0].data: must hold numbers only, for FP32"),
        (with_k(data=[True, 1]), "inputs[1].data: must hold whole numbers from -128 to 127 only"),
        (with_x(data=[1, 2, 3, "4"]), "inputs[0].data: must hold numbers only, for FP32"),
        (with_x(data=[1, 2, 3, None]), "inputs[0].data: must hold numbers only, for FP32"),
        (with_x(data=[True] * 4), "inputs[0].data: must hold numbers only, for FP32"),
        (with_x(data=[1, 2, 3, 1e39]), "inputs[0].data: holds a number that FP32 cannot hold"),
        (
            with_x(shape=[2**62, 2], data=[1]),
            f"inputs[0].shape: must be of no more than {2**31 - 1} values",
        ),
        (
            with_x(shape=[2**29, 2], data=[1]),
            f"inputs[0].data: must hold {2**30} values for [{2**29}, 2], not [1]",
        ),
        (with_x(parameters=[]), "inputs[0].parameters: must be an object, not []"),
        (with_x(shape=[1, 2], data=[1, 2]), "inputs[1].shape[0]: must be the same in all inputs"),
        (
            body(inputs=[{**X, "shape": [0, 2], "data": []}, {**K, "shape": [0], "data": []}]),
            "inputs[0].shape[0]: must be from 1 to 4 rows, not 0",
        ),
        (
            body(
                inputs=[
                    {**X, "shape": [5, 2], "data": [0] * 10},
                    {**K, "shape": [5], "data": [0] * 5},
                ]
            ),
            "inputs[0].shape[0]: must be from 1 to 4 rows, not 5",
        ),
        (with_k(data=[0, 128]), "inputs[1].data: must hold whole numbers from -128 to 127 only"),
        (with_k(data=[0, -129]), "inputs[1].data: must hold whole numbers from -128 to 127 only"),
        (with_k(data=[0, 1.0]), "inputs[1].data: must hold whole numbers from -128 to 127 only"),
        (with_k(data=[0, 2**63]), "inputs[1].data: must hold whole numbers from -128 to 127 only"),
        (body(outputs=[]), "outputs: must be a list of at least one tensor, not []"),
        (body(outputs=[{"name": "x"}]), "outputs[0].name: must be 'y' or 'best', not 'x'"),
        (body(outputs=[{"name": "y"}] * 2), "outputs[1].name: 'y' is there twice"),
        (
            body(outputs=[{"name": "y", "parameters": {"classification": 3}}]),
            "outputs[0].parameters.classification: is not supported",
        ),
        (
            body(outputs=[{"name": "y", "parameters": {"binary_data": 1}}]),
            "outputs[0].parameters.binary_data: must be true or false, not 1",
        ),
        (
            body(parameters={"binary_data_output": "yes"}),
            "parameters.binary_data_output: must be true or false, not 'yes'",
        ),
        (body(parameters=[1]), "parameters: must be an object, not [1]"),
    ],
)
def test_each_mistake_is_told_with_its_path(text: bytes, problem: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse(text, None, SIGNATURE)
    assert str(caught.value).startswith(problem)


def test_long_texts_among_the_values_cost_nothing() -> None:
    """numpy makes room for the longest at every place: 400 GB, here."""
    values = ["a" * 1_000_000, *[""] * 99_999]
    with pytest.raises(RequestInvalid, match=r"^inputs\[0\]\.data: must hold 4 values"):
        parse(with_x(data=values), None, SIGNATURE)
    spec = TensorSpec("x", "FP32", (-1,))
    text = body(inputs=[{"name": "x", "datatype": "FP32", "shape": [100_000], "data": values}])
    with pytest.raises(RequestInvalid, match=r"^inputs\[0\]\.data: must hold numbers only"):
        parse(text, None, Signature((spec,), (spec,), 0))


@pytest.mark.parametrize("key", ["name", "datatype", "shape", "data", "parameters"])
def test_what_is_nested_as_deep_as_json_can_be_is_a_mistake_at_its_place(key: str) -> None:
    """Python's repr() gives up before orjson does: that was an error of ours."""
    deep = b"[" * 1015 + b"]" * 1015
    text = with_x(**{key: "deep"}).replace(b'"deep"', deep)
    with pytest.raises(RequestInvalid, match=rf"^inputs\[0\]\.{key}: "):
        parse(text, None, SIGNATURE)


@pytest.mark.parametrize("shape", [[0, 2**62], [0, 2**64 - 1], [0, 2**31 - 1, 2**31 - 1]])
def test_an_empty_tensor_cannot_be_beyond_every_size(shape: list[int]) -> None:
    spec = TensorSpec("x", "FP32", (-1,) * len(shape))
    text = body(inputs=[{"name": "x", "datatype": "FP32", "shape": shape, "data": []}])
    with pytest.raises(RequestInvalid, match=r"^inputs\[0\]\.shape: must be of no more than"):
        parse(text, None, Signature((spec,), (spec,), 0))


SIZE = "parameters.binary_data_size"


@pytest.mark.parametrize(
    ("sizes", "rest", "problem"),
    [
        ((16, 2), b"\0" * 17, f"inputs[1].{SIZE}: is 2, but 1 bytes are left in the body"),
        ((16, 2), b"\0" * 19, "1 bytes follow the last tensor"),
        ((12, 2), b"\0" * 14, f"inputs[0].{SIZE}: must be 16 for FP32 [2, 2], not 12"),
        ((-1, 2), b"\0" * 18, f"inputs[0].{SIZE}: must be a number of bytes, not -1"),
        (("16", 2), b"\0" * 18, f"inputs[0].{SIZE}: must be a number of bytes, not '16'"),
        ((True, 2), b"\0" * 18, f"inputs[0].{SIZE}: must be a number of bytes, not True"),
    ],
)
def test_binary_sizes_must_add_up(sizes: tuple[object, object], rest: bytes, problem: str) -> None:
    text, length = binary(rest, sizes=sizes)
    with pytest.raises(RequestInvalid) as caught:
        parse(text, length, SIGNATURE)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("length", ["", "-1", "1.5", "0x10", "²", "9" * 40])
def test_the_length_of_the_json_must_be_a_number(length: str) -> None:
    with pytest.raises(RequestInvalid, match=f"^{JSON_LENGTH}: must be a number of bytes"):
        parse(body(), length, SIGNATURE)


def test_the_json_cannot_be_longer_than_the_body() -> None:
    with pytest.raises(RequestInvalid, match=f"^{JSON_LENGTH}: is 1000, but the body has"):
        parse(body(), "1000", SIGNATURE)


def test_an_input_has_its_values_in_one_form() -> None:
    with pytest.raises(RequestInvalid, match=r"^inputs\[0\]\.data: cannot stand beside"):
        parse(with_x(parameters={"binary_data_size": 0}), None, SIGNATURE)


FLAGS = Signature((TensorSpec("f", "BOOL", (2,)),), (TensorSpec("s", "FP16", ()),), 0)


def flags(data: Any) -> bytes:
    return body(inputs=[{"name": "f", "datatype": "BOOL", "shape": [2], "data": data}])


def test_a_bool_is_true_or_false_and_a_byte_of_0_or_1() -> None:
    assert parse(flags([True, False]), None, FLAGS).inputs["f"].tolist() == [True, False]
    with pytest.raises(RequestInvalid, match=r"^inputs\[0\]\.data: must hold true and false only"):
        parse(flags([1, 0]), None, FLAGS)
    sized = {"name": "f", "datatype": "BOOL", "shape": [2], "parameters": {"binary_data_size": 2}}
    text = body(inputs=[sized])
    assert parse(text + b"\1\0", str(len(text)), FLAGS).inputs["f"].tolist() == [True, False]
    with pytest.raises(RequestInvalid, match=r"^inputs\[0\]: a BOOL is a byte of 0 or 1"):
        parse(text + b"\1\2", str(len(text)), FLAGS)


@pytest.mark.parametrize("other", ["0.5", "-1", str(2**64), '"0"'])
def test_beside_a_number_beyond_int64_the_others_are_judged_as_strictly(other: str) -> None:
    spec = TensorSpec("u", "UINT64", (2,))
    signature = Signature((spec,), (spec,), 0)
    text = '{"inputs": [{"name": "u", "datatype": "UINT64", "shape": [2], "data": [%s, %s]}]}'
    found = parse((text % (2**63, 1)).encode(), None, signature)
    assert found.inputs["u"].tolist() == [2**63, 1]
    with pytest.raises(RequestInvalid, match=r"\.data: must hold whole numbers from 0 to"):
        parse((text % (2**63, other)).encode(), None, signature)


def test_where_nothing_is_batched_the_first_dimension_is_like_any_other() -> None:
    found = parse(flags([True, False]), None, FLAGS)
    assert rows_of(found.inputs, FLAGS) == 1
    with pytest.raises(RequestInvalid, match=r"must be \[2\], not \[1\]"):
        parse(flags([True]).replace(b"[2]", b"[1]"), None, FLAGS)


@pytest.mark.parametrize("datatype", sorted(DATATYPES))
@given(st.data())
def test_what_is_rendered_in_either_form_is_read_back_equal(
    datatype: str, data: st.DataObject
) -> None:
    dtype = np.dtype(DATATYPES[datatype])
    options: dict[str, Any] = {}
    if dtype.kind == "f":
        options = {"elements": {"allow_nan": False, "allow_infinity": False}}
    given_array = data.draw(arrays(dtype, array_shapes(max_dims=3, max_side=4), **options))
    spec = TensorSpec("t", datatype, (-1,) * given_array.ndim)
    signature = Signature((spec,), (spec,), 0)
    for as_bytes in (False, True):
        inference = Inference("7", {}, (Wanted("t", as_bytes),))
        text, length = render("m", "1", inference, {"t": given_array}, signature)
        assert (length is not None) is as_bytes
        document = orjson.loads(text[:length])
        assert (document["model_name"], document["model_version"]) == ("m", "1")
        again = orjson.dumps({"id": document["id"], "inputs": document["outputs"]})
        rest = text[length:] if length is not None else b""
        found = parse(again + rest, str(len(again)), signature)
        assert found.id == "7"
        assert found.inputs["t"].dtype == dtype
        assert np.array_equal(found.inputs["t"], given_array)


def test_a_scalar_keeps_its_shape() -> None:
    inference = Inference("", {}, (Wanted("s", False),))
    text, _ = render("m", "1", inference, {"s": np.float16(1.5).reshape(())}, FLAGS)
    assert orjson.loads(text) == {
        "model_name": "m",
        "model_version": "1",
        "outputs": [{"name": "s", "datatype": "FP16", "shape": [], "data": [1.5]}],
    }


def test_what_is_no_finite_number_is_null_in_json_and_itself_in_bytes() -> None:
    values = {"s": np.array(np.nan, "<f2")}
    text, _ = render("m", "1", Inference("", {}, (Wanted("s", False),)), values, FLAGS)
    assert orjson.loads(text)["outputs"][0]["data"] == [None]
    text, length = render("m", "1", Inference("", {}, (Wanted("s", True),)), values, FLAGS)
    assert text[length:] == values["s"].tobytes()


def test_an_answer_of_the_graph_is_held_against_its_signature() -> None:
    right = {"y": np.zeros((3, 2), "<f4"), "best": np.zeros(3, "<i8")}
    assert mismatch(right, SIGNATURE, 3) == ""
    assert mismatch(right, SIGNATURE, 2) == "output 'y' is float32 [3, 2], not float32 [2, 2]"
    wrong = {**right, "best": np.zeros(3, "<i4")}
    assert mismatch(wrong, SIGNATURE, 3) == "output 'best' is int32 [3], not int64 [3]"


def test_zeros_fit_the_signature() -> None:
    found = zeros(SIGNATURE, 3)
    assert {name: (a.dtype.str, a.shape) for name, a in found.items()} == {
        "x": ("<f4", (3, 2)),
        "k": ("|i1", (3,)),
    }
    assert zeros(FLAGS, 1)["f"].shape == (2,)


def test_what_is_no_finite_number_is_named() -> None:
    good, bad = np.zeros(2), np.array([0, np.inf])
    assert not_numbers({"a": good, "b": bad, "c": np.array([np.nan]), "d": np.ones(1, int)}) == (
        "b",
        "c",
    )

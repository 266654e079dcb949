"""Whatever is sent to KServe's /v2 is answered, 200 or 400 with its place, and holds no place."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.tensors import JSON_LENGTH
from tests.backends import hostile
from tests.backends.graphs import ready_graph
from tests.backends.hostile import JSON, SPELLINGS, Answer, Served, serving, spliced

INFER = "/v2/models/g/infer"
LENGTH = JSON_LENGTH.encode()
X: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
BODY = orjson.dumps({"inputs": [X]})
OF_TENSOR = ("name", "datatype", "shape", "data", "parameters")
OF_BODY = ("id", "inputs", "outputs", "parameters")
PARAMETERS = ("binary_data_size", "binary_data", "binary_data_output", "classification")
PLACES = ("id", "inputs", "outputs", "parameters", JSON_LENGTH)

VALUES = st.floats() | st.integers(-(2**63), 2**64 - 1)  # all that JSON can be made of here
parameters = JSON | st.dictionaries(st.sampled_from(PARAMETERS), JSON, max_size=2)
shapes = JSON | st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 2**31, 2**62, 2**63]), max_size=4)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "y", "n"]) | JSON,
        "datatype": st.sampled_from(["FP32", "INT64", "BYTES"]) | JSON,
        "shape": shapes,
        "data": JSON | st.lists(VALUES | JSON, max_size=3),
        "parameters": parameters,
    },
).map(lambda wrong: X | wrong)
bodies = st.fixed_dictionaries(
    {"inputs": JSON | st.lists(tensors, min_size=1, max_size=2)},
    optional={
        "id": JSON,
        "outputs": JSON | st.lists(tensors, max_size=2),
        "parameters": parameters,
    },
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(ready_graph) as made:
        yield made


def is_answered(answer: Answer, *, placed: bool = True) -> None:
    """`placed`: what was sent is a JSON object, so that a mistake in it has a place."""
    if answer.status == 200:
        assert b'"outputs":[' in answer.body
        return
    assert answer.status == 400, answer
    (error,) = answer.document().values()
    assert len(error) < 1000
    place = error.partition(":")[0].partition(".")[0].partition("[")[0]
    assert place in PLACES or not placed or "follow the last tensor" in error, error


@settings(max_examples=120)
@given(body=bodies)
def test_every_value_of_every_field_is_honoured_or_refused_with_its_place(
    served: Served, body: dict[str, Any]
) -> None:
    is_answered(served.post(INFER, orjson.dumps(body)))
    served.rests()


@settings(max_examples=60)
@given(body=bodies, rest=st.binary(max_size=40), said=st.none() | st.integers(-1, 400))
def test_every_binary_form_is_answered(
    served: Served, body: dict[str, Any], rest: bytes, said: int | None
) -> None:
    text = orjson.dumps(body)
    length = len(text) if said is None else said
    answer = served.post(INFER, text + rest, b"%s: %d" % (LENGTH, length))
    is_answered(answer, placed=length == len(text))
    served.rests()


@settings(max_examples=30)
@given(body=JSON | st.binary(max_size=60))
def test_every_json_document_and_every_run_of_bytes_is_answered(served: Served, body: Any) -> None:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    is_answered(served.post(INFER, text), placed=False)
    served.rests()


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_values_that_no_client_writes_are_honoured_or_refused(
    served: Served, spelling: bytes
) -> None:
    for field in OF_BODY:
        is_answered(served.post(INFER, spliced({"inputs": [X]}, field, spelling)), placed=False)
    for field in OF_TENSOR:
        for key in ("inputs", "outputs"):
            text = spliced({"inputs": [X]}, key, b"[%s]" % spliced(X, field, spelling))
            is_answered(served.post(INFER, text), placed=False)
    for name in PARAMETERS:
        tensor = spliced(X, "parameters", spliced({}, name, spelling))
        text = spliced({"inputs": [X]}, "inputs", b"[%s]" % tensor)
        is_answered(served.post(INFER, text), placed=False)
    served.rests()


@pytest.mark.parametrize("field", [b"Content-Encoding: gzip", b"Content-Length: 3"])
def test_what_is_no_body_is_the_clients_mistake(served: Served, field: bytes) -> None:
    assert served.post(INFER, BODY, field).status == 400
    served.rests()


@pytest.mark.parametrize("name", [b"x-request-id", LENGTH, b"x-other"])
def test_header_fields_may_hold_any_bytes(served: Served, name: bytes) -> None:
    for value in (b"\xff\xfe", b"\xed\xa0\x80", b"a" * 5000, b'"\\\t', b"\xc2\xb2", b"9" * 30):
        answer = served.post(INFER, BODY, name + b": " + value)
        is_answered(answer)
        assert (answer.status == 400) is (name == LENGTH)


def test_a_client_may_leave_at_any_byte(served: Served) -> None:
    text = hostile.request(INFER, BODY)
    body_at = text.index(b"\r\n\r\n") + 4
    for end in (0, 5, body_at - 3, body_at, body_at + 1, len(text) - 1, len(text)):
        with served.dial() as line:
            line.sendall(text[:end])
    with served.dial() as line:
        line.sendall(text)
        line.recv(1)
    served.rests()
    assert served.post(INFER, BODY).status == 200

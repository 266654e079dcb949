"""What answers of servers mean, as tables."""

import orjson
import pytest

from backends.external.derive import FINE, Patience
from backends.external.presets import Protocol
from backends.external.questions import (
    Answered,
    Question,
    Reply,
    Silent,
    is_well_formed,
    judge_answer,
    judge_health,
    judge_models,
    tensor_question,
    text_question,
)

URL = "http://127.0.0.1:1/x"
ASKED = Question("POST", URL)


def listed(*names: object) -> Answered:
    return Answered(200, orjson.dumps({"data": [{"id": name} for name in names]}))


@pytest.mark.parametrize(
    ("reply", "patience", "said"),
    [
        (Silent("nothing listens there"), Patience.WAIT, "nothing listens there"),
        (Answered(503, b"loading"), Patience.WAIT, "answers 503: 'loading'"),
        (Answered(500, b""), Patience.WAIT, "answers 500: nothing"),
        (Answered(404, b""), Patience.FEW_UNUSABLE, "--health"),
    ],
)
def test_bad_health_is_waited_for_but_not_at_a_place_that_is_not_there(
    reply: Reply, patience: Patience, said: str
) -> None:
    verdict = judge_health(reply, URL)
    assert (verdict.patience, said in verdict.problem) == (patience, True)


def test_health_is_fine_whatever_its_body_says() -> None:
    assert judge_health(Answered(200, b"anything"), URL) is FINE


@pytest.mark.parametrize(
    ("reply", "patience", "said"),
    [
        (Silent("gone"), Patience.WAIT, "gone"),
        (listed(), Patience.WAIT, "no model yet"),
        (listed("b", "a"), Patience.FEW_UNUSABLE, "serves a, b, not m"),
        (listed(7, None), Patience.WAIT, "no model yet"),
        (Answered(401, b""), Patience.FEW_UNUSABLE, "SLUICEGATE_UPSTREAM_KEY"),
        (Answered(500, b"x"), Patience.FEW, "answers 500"),
        (Answered(200, b"<html>"), Patience.FEW, "does not list models: '<html>'"),
        (Answered(200, b"[1]"), Patience.FEW, "does not list models"),
    ],
)
def test_a_model_that_is_not_listed_is_a_problem(
    reply: Reply, patience: Patience, said: str
) -> None:
    verdict = judge_models(reply, URL, Protocol.OPENAI, "m")
    assert said in verdict.problem
    assert verdict.patience is patience


def test_a_listed_model_is_fine_among_others() -> None:
    assert judge_models(listed("a", "m"), URL, Protocol.OPENAI, "m") is FINE


def test_kserve_is_asked_for_the_model_itself() -> None:
    said = Answered(200, b'{"name": "m", "inputs": []}')
    assert judge_models(said, URL, Protocol.KSERVE, "m") is FINE
    other = judge_models(said, URL, Protocol.KSERVE, "other")
    assert "serves m, not other" in other.problem
    unknown = judge_models(Answered(404, b""), URL, Protocol.KSERVE, "m")
    assert unknown.patience is Patience.FEW_UNUSABLE


@pytest.mark.parametrize(
    ("route", "key"),
    [
        ("/v1/completions", "prompt"),
        ("/v1/chat/completions", "messages"),
        ("/v1/embeddings", "input"),
        ("/api/generate", "prompt"),
    ],
)
def test_the_smallest_request_of_each_route(route: str, key: str) -> None:
    question = text_question("http://h:1", route, "m", "Hello")
    assert question.document is not None
    assert {"model", key} <= question.document.keys()
    assert question.url == f"http://h:1{route}"


def test_tensors_are_zeros_of_the_shapes_that_are_told() -> None:
    told = {
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 2, 3]},
            {"name": "b", "datatype": "BOOL", "shape": []},
            {"name": "c", "datatype": "BYTES", "shape": [2]},
        ]
    }
    question = tensor_question("http://h:1", "m", orjson.dumps(told))
    assert question is not None
    assert question.url == "http://h:1/v2/models/m/infer"
    assert question.document is not None
    given = question.document["inputs"]
    assert [one["shape"] for one in given] == [[1, 2, 3], [], [2]]
    assert [one["data"] for one in given] == [[0] * 6, [False], ["", ""]]


@pytest.mark.parametrize(
    "told",
    [b"", b"[]", b'{"inputs": 3}', b'{"inputs": [4]}', b'{"inputs": [{"shape": ["x"]}]}',
     b'{"inputs": [{"name": "a", "datatype": "FP32", "shape": [1000000, 1000000]}]}'],
)  # fmt: skip
def test_tensors_that_are_not_told_or_are_too_many_are_not_asked_for(told: bytes) -> None:
    assert tensor_question("http://h:1", "m", told) is None


@pytest.mark.parametrize(
    ("reply", "patience"),
    [
        (Silent("late", slow=True), Patience.FEW),
        (Answered(500, b"boom"), Patience.FEW),
        (Answered(429, b""), Patience.FEW),
        (Answered(400, b""), Patience.FEW_UNUSABLE),
        (Answered(200, b"hello"), Patience.FEW),
        (Answered(200, b'{"choices": []}'), Patience.FEW),
    ],
)
def test_what_is_no_answer_to_a_real_request(reply: Reply, patience: Patience) -> None:
    verdict = judge_answer(reply, ASKED)
    assert verdict.problem
    assert verdict.patience is patience


@pytest.mark.parametrize(
    ("document", "is_one"),
    [
        ({"choices": [{"text": ""}]}, True),
        ({"choices": [{"message": {"content": "x"}}]}, True),
        ({"data": [{"embedding": [0.5]}]}, True),
        ({"outputs": [{"name": "o"}]}, True),
        ({"choices": [{"text": None}]}, False),
        ({"choices": "text"}, False),
        ({"outputs": []}, False),
        ({"error": {"message": "x"}}, False),
        ([], False),
        (None, False),
    ],
)
def test_which_documents_are_answers(document: object, is_one: bool) -> None:
    assert is_well_formed(document) is is_one

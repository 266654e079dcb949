from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.validation import samples
from gateway.validation.samples import Flaw, Sample

CHAT = {"messages": [{"role": "user", "content": "hello"}]}


def _one(document: Any, model: str = "m") -> Sample | Flaw:
    return samples.sample(1, orjson.dumps(document), model)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (CHAT, "/v1/chat/completions"),
        ({"prompt": "a"}, "/v1/completions"),
        ({"input": "a"}, "/v1/embeddings"),
        ({"path": "/v1/completions", "body": {"prompt": "a"}}, "/v1/completions"),
        ({"path": "/own/way?x=1", "body": {}}, "/own/way?x=1"),
    ],
)
def test_a_body_alone_says_where_it_goes(document: Any, path: str) -> None:
    found = _one(document)
    assert isinstance(found, Sample)
    assert (found.path, found.body["model"]) == (path, "m")


def test_every_sample_is_asked_under_the_models_name_or_under_its_own() -> None:
    named = {**CHAT, "model": "other"}
    assert _one(named) == Sample(1, "/v1/chat/completions", {**CHAT, "model": "m"})
    assert _one(named, "") == Sample(1, "/v1/chat/completions", named)


@pytest.mark.parametrize(
    ("path", "model", "asked"),
    [
        ("/v2/models/other/infer", "m", "/v2/models/m/infer"),
        ("/v2/models/m/versions/1/infer", "m", "/v2/models/m/infer"),
        ("/v2/models/m/versions/1/infer", "", "/v2/models/m/infer"),
        ("/v2/models/other/infer", "a/b", "/v2/models/a%2Fb/infer"),
        ("/v2/health/live", "m", "/v2/health/live"),
    ],
)
def test_kserve_samples_go_to_the_model_and_to_no_version_of_it(
    path: str, model: str, asked: str
) -> None:
    body: dict[str, Any] = {"inputs": []}
    assert _one({"path": path, "body": body}, model) == Sample(1, asked, body)


def test_tensors_alone_need_a_model() -> None:
    assert _one({"inputs": []}) == Sample(1, "/v2/models/m/infer", {"inputs": []})
    assert _one({"inputs": []}, "") == Flaw(1, "does not say which model it is for")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"path": "/v1/completions"}', "has a path, and no object as its body"),
        (b'{"path": 5, "body": {}}', "does not say where it goes"),
        (b'{"path": "v1", "body": {}}', "does not say where it goes"),
        (b'{"path": "/a HTTP/1.1\\r\\nX: y", "body": {}}', "does not say where it goes"),
        (b'{"question": "?"}', "does not say where it goes"),
        (b" " * (samples.LINE_MAX_BYTES + 1), "bytes, more than"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_line_that_is_no_sample_says_why(line: bytes, said: str) -> None:
    found = samples.sample(7, line, "m")
    assert isinstance(found, Flaw)
    assert found.line == 7
    assert said in found.text


def test_a_file_is_read_whole_past_its_flaws() -> None:
    good = orjson.dumps(CHAT)
    found, flaws = samples.read([good + b"\n", b"\n", b"nonsense\n", good], "m")
    assert [one.line for one in found] == [1, 4]
    assert [one.line for one in flaws] == [3]


def test_only_what_generates_is_made_greedy() -> None:
    hot = Sample(1, "/v1/completions", {"prompt": "a", "temperature": 1})
    assert samples.greedy(hot).body == {"prompt": "a", "temperature": 0}
    tensors = Sample(1, "/v2/models/m/infer", {"inputs": []})
    assert samples.greedy(tensors) == tensors


@given(st.integers(0, 60), st.integers(1, 40))
def test_of_many_some_are_chosen_evenly_and_none_twice(count: int, most: int) -> None:
    many = tuple(Sample(at, "/", {}) for at in range(count))
    found = samples.chosen(many, most)
    lines = [one.line for one in found]
    assert len(lines) == min(count, most)
    assert lines == sorted(set(lines))
    gaps = [after - before for before, after in pairwise(lines)]
    assert not gaps or max(gaps) - min(gaps) <= 1

"""Whatever is sent to the OpenAI API is answered, 200 or 400 with its place, and holds no slot."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends import hostile
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.hostile import JSON, SPELLINGS, Answer, Served, serving, spliced
from tests.backends.rig import ready_rig

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
    TEXT: {"model": "m", "prompt": "hi", "max_tokens": 3},
}
FIELDS = (
    *("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature"),
    *("top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "stop"),
    *("n", "best_of", "logprobs", "top_logprobs", "stream", "stream_options", "ignore_eos"),
    *("return_token_ids", "echo", "suffix", "response_format", "tools", "tool_choice"),
    *("functions", "function_call", "modalities", "audio", "web_search_options", "min_p"),
    *("repetition_penalty", "stop_token_ids", "guided_json", "user", "metadata"),
)
LENGTH = 64  # of the context: an answer that goes on to its end is short


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(lambda: ready_rig(ScriptedEngine(max_seq_len=LENGTH, rule=successor))) as made:
        yield made


def is_answered(answer: Answer, *, placed: bool = True) -> None:
    """`placed`: what was sent is a JSON object, so that a mistake in it has a place."""
    if answer.status == 200:
        if answer.body.startswith(b"data: "):
            assert answer.body.endswith(b"data: [DONE]\n\n")
            assert b'"error"' not in answer.body
        else:
            assert answer.document()["choices"]
        return
    error = answer.document()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 1000
    if answer.status == 404:
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        return
    assert answer.status == 400, answer
    assert error["code"] in (None, "context_length_exceeded")
    assert error["param"] or not placed, error
    assert not error["param"] or error["param"].split(".")[0] in FIELDS


@settings(max_examples=150)
@given(
    path=st.sampled_from([CHAT, TEXT]),
    wrong=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3),
)
def test_every_value_of_every_field_is_honoured_or_refused_with_its_place(
    served: Served, path: str, wrong: dict[str, Any]
) -> None:
    is_answered(served.post(path, orjson.dumps(BODIES[path] | wrong)))
    served.rests()


@settings(max_examples=50)
@given(path=st.sampled_from([CHAT, TEXT]), body=JSON)
def test_every_json_document_is_answered(served: Served, path: str, body: Any) -> None:
    is_answered(served.post(path, orjson.dumps(body)), placed=isinstance(body, dict))
    served.rests()


@settings(max_examples=50)
@given(path=st.sampled_from([CHAT, TEXT]), body=st.binary(max_size=60))
def test_every_run_of_bytes_is_answered(served: Served, path: str, body: bytes) -> None:
    is_answered(served.post(path, body), placed=False)


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_values_that_no_client_writes_are_honoured_or_refused(
    served: Served, path: str, spelling: bytes
) -> None:
    for field in FIELDS:
        is_answered(served.post(path, spliced(BODIES[path], field, spelling)), placed=False)
    message = b'[{"role":"user","content":%s}]' % spelling
    is_answered(served.post(CHAT, spliced(BODIES[CHAT], "messages", message)), placed=False)
    served.rests()


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [512]}, "prompt"),
        ({"prompt": [[1, -1]]}, "prompt.0.1"),
        ({"prompt": "a" * LENGTH}, "prompt"),
        ({"logit_bias": {"512": 1}}, "logit_bias.512"),
        ({"logit_bias": {"1": 100.5}}, "logit_bias.1"),
        ({"logit_bias": {str(id_): 0 for id_ in range(1025)}}, "logit_bias"),
        ({"n": 5}, "n"),
        ({"n": 129}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x", ""]}, "stop.1"),
        ({"stop": "a" * 1025}, "stop"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"seed": 2**64 + 1}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 1.0}, "seed"),
    ],
)
def test_what_lies_just_beyond_a_border_is_refused_there(
    served: Served, wrong: dict[str, Any], param: str
) -> None:
    answer = served.post(TEXT, json.dumps(BODIES[TEXT] | wrong).encode())
    assert (answer.status, answer.document()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "fine",
    [
        {"prompt": "a" * (LENGTH - 1)},
        {"prompt": [511]},
        {"logit_bias": {"511": 100, "0": -100}},
        {"logit_bias": {str(id_): -100 for id_ in range(512)}},  # whatever is drawn was banned
        {"n": 4, "seed": 2**64 - 1},
        {"seed": -(2**63)},
        {"stop": ["a" * 1024] * 4},
        {"temperature": 2, "top_p": 1e-320, "frequency_penalty": -2, "presence_penalty": 2},
        {"temperature": 1e-320},
        {"max_tokens": 2**31 - 1},
    ],
)
def test_what_lies_on_a_border_is_honoured(served: Served, fine: dict[str, Any]) -> None:
    answer = served.post(TEXT, orjson.dumps(BODIES[TEXT] | fine))
    assert answer.status == 200, answer
    served.rests()


BODY = orjson.dumps(BODIES[TEXT])


@pytest.mark.parametrize(
    "text",
    [
        hostile.request(TEXT, BODY, b"Content-Encoding: gzip"),
        hostile.request(TEXT, BODY, b"Content-Encoding: deflate"),
        hostile.request(TEXT, BODY, b"Content-Length: 3"),
        hostile.request(TEXT, BODY, b"Transfer-Encoding: chunked"),
        hostile.request(TEXT, BODY).replace(b"Content-Length: ", b"Content-Length: -"),
        hostile.request(TEXT, BODY).replace(b"Content-Length: ", b"Content-Length: 0x"),
        b"POST %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" % TEXT.encode(),
        b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n%s" % (TEXT.encode(), BODY),
    ],
    ids=[
        *("not gzip", "not deflate", "two lengths", "length and chunks"),
        *("negative length", "hexadecimal length", "no chunk", "length too small"),
    ],
)
def test_what_is_no_body_is_the_clients_mistake(served: Served, text: bytes) -> None:
    answer = served.say(text)
    assert answer.status == 400
    if b"ontent-Encoding" in text:
        assert answer.document()["error"]["message"].startswith("the body cannot be read: ")
    served.rests()


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("name", [b"x-request-id", b"x-model", b"Content-Type", b"x-other"])
def test_header_fields_may_hold_any_bytes(served: Served, path: str, name: bytes) -> None:
    for value in (b"\xff\xfe", b"", b"\xed\xa0\x80", b"a" * 5000, b'"\\\t'):
        answer = served.post(path, orjson.dumps(BODIES[path]), name + b": " + value)
        is_answered(answer)
        assert answer.status == 404 if name == b"x-model" and value else answer.status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_client_may_leave_at_any_byte(served: Served, path: str, stream: bool) -> None:
    text = hostile.request(path, orjson.dumps(BODIES[path] | {"stream": stream, "n": 2}))
    body_at = text.index(b"\r\n\r\n") + 4
    for end in (0, 5, body_at - 3, body_at, body_at + 1, len(text) - 1, len(text)):
        with served.dial() as line:
            line.sendall(text[:end])
    for received in (1, 20, 200):
        with served.dial() as line:
            line.sendall(text)
            line.recv(received)
    served.rests()
    is_answered(served.post(path, orjson.dumps(BODIES[path] | {"n": 4})))
    served.rests()

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.validation import answers
from gateway.validation.answers import Answer, Bad

JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"
CHAT = "/v1/chat/completions"
words = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=12).map(tuple)
numbers = st.lists(st.floats(-1e6, 1e6), max_size=12).map(tuple)


def _chat(*contents: str) -> bytes:
    choices = [{"index": at, "message": {"content": one}} for at, one in enumerate(contents)]
    return orjson.dumps({"id": "1", "created": 5, "choices": choices})


def _events(*documents: object, end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: " + orjson.dumps(one) + b"\n\n" for one in documents) + end


def _delta(text: str, index: int = 0) -> object:
    return {"choices": [{"index": index, "delta": {"content": text}}]}


@pytest.mark.parametrize(
    ("path", "media", "raw", "answer"),
    [
        (CHAT, JSON, _chat("Paris is  it."), Answer(("Paris", "is", "it."))),
        (CHAT, JSON, _chat("one", "two"), Answer(("one", "two"))),
        ("/v1/completions", JSON, b'{"choices": [{"text": "a b"}]}', Answer(("a", "b"))),
        (CHAT, SSE, _events(_delta("Par"), _delta("is ok")), Answer(("Paris", "ok"))),
        (CHAT, SSE, _events(_delta("x", 1), _delta("y", 0), _delta("z", 1)), Answer(("y", "xz"))),
        (CHAT, SSE, _events(_delta("a")).replace(b"\n", b"\r\n"), Answer(("a",))),
        ("/v1/embeddings", JSON, b'{"data": [{"index": 7, "embedding": [1, 2.5]}]}',
         Answer(numbers=(1.0, 2.5))),
        ("/v2/models/m/infer", JSON, b'{"outputs": [{"shape": [2], "data": [[1], [true]]}]}',
         Answer(numbers=(1.0, 1.0))),
        (CHAT, JSON, b"[]", Answer()),
        ("/other", "text/plain", b"hello", Answer()),
    ],
)  # fmt: skip
def test_an_answer_is_what_it_says_whichever_way_it_comes(
    path: str, media: str, raw: bytes, answer: Answer
) -> None:
    assert answers.read(path, media, raw) == answer


def test_a_call_of_a_tool_is_an_answer() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
    document = {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    assert answers.read(CHAT, JSON, orjson.dumps(document)) == Answer(('f{"a":', "1}"))


@pytest.mark.parametrize(
    ("media", "raw", "cause"),
    [
        (JSON, b" ", "an empty answer"),
        (JSON, b"{", "an answer that is not JSON"),
        (JSON, b'{"error": {"message": "broken"}}', "an error in a 200: broken"),
        (SSE, b"", "a stream without an event"),
        (SSE, b"data: [DONE]\n\n", "a stream without an event"),
        (SSE, _events(_delta("a"), end=b""), "a stream without its end"),
        (
            SSE,
            _events(_delta("a"), {"error": "out of memory"}),
            "an error event in the stream: out",
        ),
        (SSE, _events(_delta("a"), end=b"event: error\ndata: {}\n\n"), "an error event in the"),
        (SSE, b"data: {\n\n", "an event that is not JSON"),
    ],
)
def test_a_200_can_be_a_failure(media: str, raw: bytes, cause: str) -> None:
    found = answers.read(CHAT, media, raw)
    assert isinstance(found, Bad)
    assert found.cause.startswith(cause)


@given(words, words)
def test_likeness_of_texts_is_a_share_and_whole_only_for_equals(
    one: answers.Words, other: answers.Words
) -> None:
    found = answers.alike(Answer(one), Answer(other))
    assert 0 <= found <= 1
    assert (found == 1) == (one == other)


@given(words, words.filter(bool))
def test_a_text_that_goes_on_is_less_like_than_itself(
    one: answers.Words, more: answers.Words
) -> None:
    whole = (*one, *more)
    found = answers.alike(Answer(one), Answer(whole))
    assert found == pytest.approx(2 * len(one) / (len(one) + len(whole)))


@given(numbers, st.floats(0.995, 1.005))
def test_numbers_within_the_tolerance_are_the_same(one: answers.Numbers, factor: float) -> None:
    other = tuple(number * factor for number in one)
    assert answers.alike(Answer(numbers=one), Answer(numbers=other)) == 1


def test_numbers_apart_and_missing_numbers_count_against() -> None:
    one = Answer(numbers=(1.0, 2.0, 3.0, 4.0))
    assert answers.alike(one, Answer(numbers=(1.0, 2.0, 3.0, 5.0))) == 0.75
    assert answers.alike(one, Answer(numbers=(1.0, 2.0))) == 0.5
    assert answers.alike(one, Answer(words=("1",))) == 0


def test_a_long_text_is_compared_by_its_beginning_and_its_length() -> None:
    long = tuple("abc" for _ in range(answers.WORDS_MAX))
    assert answers.alike(Answer(long), Answer((*long, *long))) == 0.5
    assert answers.alike(Answer((*long, "x")), Answer((*long, "y"))) == 1.0


@pytest.mark.parametrize(
    ("one", "other", "can"),
    [
        (Answer(("a",)), Answer(("b",)), True),
        (Answer(numbers=(1.0,)), Answer(numbers=(2.0,)), True),
        (Answer(("a",)), Answer(), False),
        (Answer(), Answer(), False),
        (Answer(("a",)), Answer(numbers=(1.0,)), False),
    ],
)
def test_only_what_says_something_of_one_kind_can_be_compared(
    one: Answer, other: Answer, can: bool
) -> None:
    assert answers.comparable(one, other) == answers.comparable(other, one) == can

"""The scanner of passing event streams."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.wire.events import EventScanner
from tests.gateway.wire.crooked import CUTS, cut
from tests.gateway.wire.depth import looks

STREAMS: dict[bytes, tuple[bool, bool]] = {
    # stream: (answered, failed)
    b"": (False, False),
    b": ping\n\n": (False, False),
    b"data: [DONE]\n\n": (False, False),
    b"data: [DONE]\r\n\r\n": (False, False),
    b'data: {"choices": []}\n\ndata: [DONE]\n\n': (True, False),
    b'data: {"error": {"message": "boom"}}\n\n': (True, True),
    b'data:{ "error":{"message": "boom"}}\n\n': (True, True),
    b'data: {"error": null, "choices": []}\n\n': (True, False),
    b'data: {"object": "error", "message": "boom"}\n\n': (True, True),
    b"event: error\ndata: boom\n\n": (True, True),
    b"event: errors\ndata: x\n\n": (True, False),
    b'data: {"text": "data: {\\"error\\": 1}"}\n\n': (True, False),
    b'data: x data: {"error": 1}\n\n': (True, False),
    b"id: 1\r\nevent: error\r\ndata: x\r\n\r\n": (True, True),
    b'data: {"a": 1}\r\rdata: {"error": 1}\r\r': (True, True),
    b'data: {"error": 1}': (True, True),  # the stream ended inside the line
    b'data: {"a": "' + b"x" * 500 + b'"}\n\ndata: [DONE]\n\n': (True, False),
}


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: repr(stream[:40]))
def test_a_stream_is_judged(stream: bytes) -> None:
    scanner = EventScanner()
    scanner.feed(stream)
    scanner.finish()
    assert (scanner.answered, scanner.failed) == STREAMS[stream]


@given(st.sampled_from(list(STREAMS)), CUTS)
def test_the_judgement_does_not_depend_on_where_the_stream_was_cut(
    stream: bytes, cuts: list[int]
) -> None:
    assert judged(cut(stream, cuts)) == STREAMS[stream]


def judged(pieces: list[bytes]) -> tuple[bool, bool]:
    scanner = EventScanner()
    for piece in pieces:
        scanner.feed(piece)
    scanner.finish()
    return scanner.answered, scanner.failed


# --- streams made of events whose meaning is known ---

PLAIN = st.dictionaries(
    st.sampled_from(["id", "object", "choices", "text", "usage", "data: {"]),
    st.one_of(st.text('errodata:{}"\\\n\r[DONE] ', max_size=30), st.integers(), st.none()),
    max_size=3,
).filter(lambda event: next(iter(event.items()), None) != ("object", "error"))
FAULTS = st.sampled_from(
    [{"error": {"message": "x"}}, {"error": "x"}, {"error": 0}, {"object": "error", "code": 1}]
)
SPACED = st.sampled_from([(",", ":"), (", ", ": "), (" ,", "\t:  ")])


def dumped(event: dict[str, object], separators: tuple[str, str]) -> bytes:
    return b"data: " + json.dumps(event, separators=separators, ensure_ascii=False).encode()


# A line, whether it is an answer, whether it tells of an error.
SAID = st.one_of(
    st.builds(lambda event, gaps: (dumped(event, gaps), True, False), PLAIN, SPACED),
    st.builds(lambda event, gaps: (dumped(event, gaps), True, True), FAULTS, SPACED),
    st.just((b"event: error", False, True)),
    st.just((b'data: {"error": null}', True, False)),
    st.sampled_from([b"data: [DONE]", b"data:[DONE]", b": ping", b"id: 1", b"event: x", b""]).map(
        lambda line: (line, False, False)
    ),
)


AROUND = st.sampled_from([b"", b"\n", b"\r\n9\r\n", b"data: x\n"])


@looks(4)
@given(st.lists(SAID, max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]), CUTS, AROUND, AROUND)
@example(
    [(b"data: x", True, False), (b'data: {"error":1}', True, True)], b"\n", [18], b"", b""
)  # cut inside the word that is looked for
def test_a_stream_has_answered_and_failed_as_its_events_say(
    said: list[tuple[bytes, bool, bool]], end: bytes, cuts: list[int], before: bytes, after: bytes
) -> None:
    """As content of its own, or where it lies between other bytes of an input."""
    stream = b"".join(line + end for line, _, _ in said)
    pieces = cut(stream, cuts)
    expected = (any(answers for _, answers, _ in said), any(fails for _, _, fails in said))
    assert judged(pieces) == expected
    scanner = EventScanner()
    for piece in pieces:
        scanner.look(before + piece + after, len(before), len(before) + len(piece))
    scanner.finish()
    assert (scanner.answered, scanner.failed) == expected

"""The scanner of passing event streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.events import EventScanner

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


@given(st.sampled_from(list(STREAMS)), st.lists(st.integers(0, 600), max_size=6))
def test_the_judgement_does_not_depend_on_where_the_stream_was_cut(
    stream: bytes, cuts: list[int]
) -> None:
    at = sorted({min(cut, len(stream)) for cut in cuts})
    scanner = EventScanner()
    for start, end in zip([0, *at], [*at, len(stream)], strict=True):
        scanner.feed(stream[start:end])
    scanner.finish()
    assert (scanner.answered, scanner.failed) == STREAMS[stream]

"""The chunk reader: strict, indifferent to where TCP cut, and silent about trailers."""

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.errors import BadFraming
from gateway.wire.chunks import ChunkReader

SIZES = st.sampled_from([b"%x", b"%X", b"0%x", b'%x;a=b;c="d"', b"00%x;"])
PARTS = st.lists(st.tuples(SIZES, st.binary(min_size=1, max_size=40)), max_size=5)
TRAILERS = st.sampled_from([b"", b"X-T: 1\r\n", b"Content-Length: 9\r\nHost: evil\r\n"])
CUTS = st.lists(st.integers(0, 400), max_size=8)


def encoded(parts: list[tuple[bytes, bytes]], trailers: bytes) -> bytes:
    chunks = [size % len(data) + b"\r\n" + data + b"\r\n" for size, data in parts]
    return b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


def walked(pieces: list[bytes]) -> tuple[bytes, bytes, bytes, bool]:
    """What is passed on, the content, the bytes left over, and whether it ended."""
    reader = ChunkReader(True)
    passed = b""
    rest = b""
    for piece in pieces:
        if reader.done:
            rest += piece
            continue
        used = reader.feed(piece)
        passed += piece[: reader.kept]
        rest += piece[used:]
    if reader.done and reader.owes_end:
        passed += b"\r\n"
    assert reader.payload is not None
    return passed, b"".join(reader.payload), rest, reader.done


def split(whole: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({min(cut, len(whole)) for cut in cuts})
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


@settings(max_examples=120, deadline=None)
@given(PARTS, TRAILERS, CUTS, st.binary(max_size=10))
@example([(b"%x", b"hello")], b"", [1, 2, 3, 4, 5, 6, 7, 8], b"GET /")
def test_content_and_end_are_found_wherever_the_input_is_cut(
    parts: list[tuple[bytes, bytes]], trailers: bytes, cuts: list[int], after: bytes
) -> None:
    whole = encoded(parts, trailers)
    passed, content, rest, done = walked(split(whole + after, cuts))
    assert done
    assert content == b"".join(data for _, data in parts)
    assert rest == after
    assert passed == encoded(parts, b"")  # byte for byte, without the trailers


@settings(max_examples=120, deadline=None)
@given(PARTS, TRAILERS, CUTS)
def test_h11_reads_the_same_content_from_what_is_passed_on(
    parts: list[tuple[bytes, bytes]], trailers: bytes, cuts: list[int]
) -> None:
    passed, content, _, _ = walked(split(encoded(parts, trailers), cuts))
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + passed
    )
    theirs.next_event()
    read = b""
    while isinstance(event := theirs.next_event(), h11.Data):
        read += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    assert list(event.headers) == []
    assert read == content


BAD = [
    b"5;a\nb\r\nhello\r\n",
    b"5\nhello\r\n",
    b"0x5\r\nhello\r\n",
    b"+5\r\nhello\r\n",
    b"-5\r\nhello\r\n",
    b"0_5\r\nhello\r\n",
    b" 5\r\nhello\r\n",
    b"5 \r\nhello\r\n",
    b"\r\n",
    b"10000000000000005\r\n",
    b"5\r\nhelloXX0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5 junk\r\nhello\r\n",
    b"5;a\rb\r\nhello\r\n",
    b"5\rhello\r\n",
    b"0\r\nbad trailer\r\n\r\n",
    b"0\r\nX: 1\n\r\n",
    b"0\r\n X: 1\r\n\r\n",
    b"5;" + b"x" * 5000,
    b"0\r\n" + b"X: 1\r\n" * 4000,
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: repr(bad[:20]))
@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_bad_chunks_are_refused_however_they_are_cut(bad: bytes, step: int) -> None:
    with pytest.raises(BadFraming):
        walked([bad[at : at + step] for at in range(0, len(bad), step)])


@settings(max_examples=120, deadline=None)
@given(st.text('05aAgG;\r\n ="x', max_size=30).map(str.encode), CUTS)
def test_what_we_accept_h11_accepts(raw: bytes, cuts: list[int]) -> None:
    try:
        _, content, rest, done = walked(split(raw, cuts))
    except BadFraming:
        return
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + raw)
    theirs.next_event()
    read = b""
    while isinstance(event := theirs.next_event(), h11.Data):
        read += bytes(event.data)
    if done:
        assert read == content
        assert isinstance(event, h11.EndOfMessage)
        assert theirs.trailing_data[0] == rest

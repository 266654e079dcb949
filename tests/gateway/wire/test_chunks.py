"""The chunk reader: strict, indifferent to where TCP cut, and silent about trailers."""

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import BadFraming
from gateway.wire.chunks import ChunkReader
from tests.gateway.wire.chunk_differences import CHUNKED
from tests.gateway.wire.crooked import CHUNKED_BODIES, CUTS, cut
from tests.gateway.wire.depth import looks
from tests.gateway.wire.differences import (
    ACCEPT,
    H11,
    LLHTTP,
    READ_OTHERWISE,
    REFUSE,
    Difference,
    row_for,
    shown,
)
from tests.gateway.wire.references import SeenBody, h11_chunked, llhttp_chunked

SIZES = st.sampled_from([b"%x", b"%X", b"0%x", b'%x;a=b;c="d"', b"00%x;"])
PARTS = st.lists(st.tuples(SIZES, st.binary(min_size=1, max_size=40)), max_size=5)
TRAILERS = st.sampled_from([b"", b"X-T: 1\r\n", b"Content-Length: 9\r\nHost: evil\r\n"])


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


@looks(2)
@given(PARTS, TRAILERS, CUTS, st.binary(max_size=10))
@example([(b"%x", b"hello")], b"", [-1], b"GET /")
def test_content_and_end_are_found_wherever_the_input_is_cut(
    parts: list[tuple[bytes, bytes]], trailers: bytes, cuts: list[int], after: bytes
) -> None:
    whole = encoded(parts, trailers)
    passed, content, rest, done = walked(cut(whole + after, cuts))
    assert done
    assert content == b"".join(data for _, data in parts)
    assert rest == after
    assert passed == encoded(parts, b"")  # byte for byte, without the trailers


@looks(2)
@given(CHUNKED_BODIES, CUTS)
def test_what_is_passed_on_says_the_same_to_everyone_and_has_no_trailers(
    raw: bytes, cuts: list[int]
) -> None:
    try:
        passed, content, _, done = walked(cut(raw, cuts))
    except BadFraming:
        return
    if done:
        assert h11_chunked(passed) == SeenBody(content, b"")
        assert passed.endswith(b"\r\n\r\n")
        whole, _, rest, _ = walked([passed])
        assert (whole, rest) == (passed, b"")  # nothing is left to cut away


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


# --- differential ---

READS: Final[dict[str, Callable[[bytes], SeenBody | None]]] = {
    LLHTTP: llhttp_chunked,
    H11: h11_chunked,
}


def ours(raw: bytes, cuts: list[int]) -> SeenBody | None:
    """Content and what follows it, or None for a body that is refused or not whole."""
    try:
        _, content, rest, done = walked(cut(raw, cuts))
    except BadFraming:
        return None
    return SeenBody(content, rest) if done else None


def disagreement(mine: SeenBody | None, theirs: SeenBody | None) -> str:
    if mine is None or theirs is None:
        return "" if mine is theirs else REFUSE if mine is None else ACCEPT
    return "" if mine == theirs else READ_OTHERWISE


def explain(raw: bytes, cuts: list[int], reference: str) -> list[str]:
    """The known differences that have to be put right until both read the same body."""
    taken: list[str] = []
    while we := disagreement(ours(raw, cuts), READS[reference](raw)):
        row = row_for(CHUNKED, reference, we, raw)
        assert row is not None, f"we {we} this, and no row says why: {raw!r}"
        assert len(taken) < len(CHUNKED)
        raw = row.repair(raw)
        taken.append(row.name)
    return taken


@pytest.mark.parametrize("reference", READS)
@looks(3)
@given(raw=CHUNKED_BODIES, cuts=CUTS)
def test_a_chunked_body_is_read_alike_or_the_difference_is_known(
    reference: str, raw: bytes, cuts: list[int]
) -> None:
    explain(raw, cuts, reference)


@shown(CHUNKED)
def test_each_known_difference_of_chunks_is_one(row: Difference, reference: str) -> None:
    assert disagreement(ours(row.example, []), READS[reference](row.example)) == row.we
    assert explain(row.example, [], reference) == [row.name]

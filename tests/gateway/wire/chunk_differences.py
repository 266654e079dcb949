"""Where we and two other parsers disagree about a chunked body, each with its reason.

As `differences`, but what is put right is a part of the framing, never of the content.
"""

import re
from dataclasses import replace
from typing import Final

from tests.gateway.wire.differences import (
    ACCEPT,
    BOTH,
    H11,
    LLHTTP,
    REFUSE,
    Difference,
    Repair,
    each,
)

LINE: Final = re.compile(rb"[^\n]*\n?")
DIGITS: Final = re.compile(rb"[0-9A-Fa-f]+")


def parts(raw: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The body read as kindly as can be: size lines each with what follows them, and trailers."""
    chunks: list[tuple[bytes, bytes]] = []
    at = 0
    while line := LINE.match(raw, at):
        digits = DIGITS.search(line[0])
        size = int(digits[0], 16) if digits else 0
        if not size or line.end() == len(raw):
            return [*chunks, (line[0], b"")], raw[line.end() :]
        after = LINE.match(raw, line.end() + size)
        at = after.end() if after and not after[0].strip() else line.end() + size
        chunks.append((line[0], raw[line.end() : at]))
    return chunks, b""


def in_size_lines(pattern: bytes, instead: bytes) -> Repair:
    fix = each(pattern, instead)

    def repair(raw: bytes) -> bytes:
        chunks, trailers = parts(raw)
        return b"".join(fix(line) + content for line, content in chunks) + trailers

    return repair


def in_trailers(pattern: bytes, instead: bytes) -> Repair:
    fix = each(pattern, instead)

    def repair(raw: bytes) -> bytes:
        _, trailers = parts(raw)
        return raw[: len(raw) - len(trailers)] + fix(trailers)

    return repair


LF_IN_TRAILERS: Final = Difference(
    "LF alone behind the last chunk",
    REFUSE,
    (H11,),
    in_trailers(rb"(?<!\r)\n", rb"\r\n"),
    "a line ends with CRLF (RFC 9112 7.1.2)",
    b"0\r\n\n",
)
CHUNKED: Final = (
    # --- we refuse, they accept -------------------------------------------------------------------
    Difference(
        "blanks behind a size",
        REFUSE,
        (H11,),
        in_size_lines(rb"[ \t]+(?=\r\n)", b""),
        "a size is digits and nothing else (RFC 9112 7.1)",
        b"0 \r\n\r\n",
    ),
    Difference(
        "controls in an extension",
        REFUSE,
        (H11,),
        in_size_lines(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)", rb"."),
        "no token and no quoted string has them (RFC 9110 5.6)",
        b"0;a\rb\r\n\r\n",
    ),
    Difference(
        "size of many digits",
        REFUSE,
        BOTH,
        in_size_lines(rb"\A0+(?=[0-9a-f])", b""),
        "a recipient guards against overflow (RFC 9112 7.1): 15 digits are a petabyte",
        b"00000000000000001\r\na\r\n0\r\n\r\n",
    ),
    LF_IN_TRAILERS,
    replace(
        LF_IN_TRAILERS,
        name="folded trailer",
        repair=in_trailers(rb"\r\n[ \t]+", rb" "),
        why="is refused or unfolded (RFC 9112 5.2)",
        example=b"0\r\nx: a\r\n b\r\n\r\n",
    ),
    replace(
        LF_IN_TRAILERS,
        name="controls in a trailer",
        repair=in_trailers(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]", rb"."),
        why="no field value has them (RFC 9110 5.5)",
        example=b"0\r\nx: a\x7fb\r\n\r\n",
    ),
    # --- we accept, they refuse -------------------------------------------------------------------
    Difference(
        "extension",
        ACCEPT,
        (LLHTTP,),
        in_size_lines(rb";[^\r\n]*", b""),
        "a recipient ignores those that it does not know (RFC 9112 7.1.1)",
        b"0; a\r\n\r\n",
    ),
    Difference(
        "trailers that frame",
        ACCEPT,
        BOTH,
        in_trailers(rb"^(content-length|transfer-encoding):[^\r\n]*", rb"x:"),
        "trailers are dropped whatever they say (RFC 9110 6.5.1)",
        b"0\r\ncontent-length: x\r\n\r\n",
    ),
)

"""What one header line means to a proxy; lines seen before are not judged again.

Floor 1, pure but for the memo, which changes no answer.
A line is judged whole, as bytes: one dictionary lookup for a line that any client has sent before,
two and a look at its bytes for a known name with a new value. What is not a field line by RFC 9110
section 5.5 and RFC 9112 section 5 (folded lines, blanks before the colon, NUL, bare CR) is refused,
never repaired. Lines that may carry a credential are never remembered, only their names are.
"""

import re
from typing import Final

from gateway.errors import BadFraming

MEMO_LINES: Final = (
    4096  # some 1 MiB; a flood of unique values empties it, which costs a parse each
)
MEMO_LINE_BYTES: Final = 256  # longer lines are rarely the same twice
NAMES_MAX: Final = 1024  # remembered spellings of names; a client that invents names empties them
NAME_BYTES: Final = 64

TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
NAME: Final = re.compile(TOKEN + rb"++")
FIELD: Final = re.compile(NAME.pattern + rb":[^\x00-\x08\n-\x1f\x7f]*+")
NOT_IN_VALUES: Final = bytes([*range(9), *range(10, 32), 127])  # RFC 9110 5.5
HOST: Final = re.compile(
    rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?"  # RFC 3986 3.2.2
)
DIGITS: Final = re.compile(rb"[0-9]{1,15}")  # 15: a length that no machine holds, and no overflow
CODING: Final = re.compile(rb"(?:" + TOKEN + rb"+[ \t]*,[ \t]*)+chunked")

SPACE: Final = 32
TAB: Final = 9

# --- meanings -------------------------------------------------------------------------------------

UNKNOWN: Final = -1  # not in the memo
PASS: Final = 0
DROP: Final = 1
HOST_FIELD: Final = 2
CHUNKED: Final = 3
CONTINUE: Final = 4
EXPECT_OTHER: Final = 5
REQUEST_ID: Final = 6
MODEL: Final = 7
VERSION: Final = 8
SESSION: Final = 9
FORWARDED_FOR: Final = 10
TRACE: Final = 11  # passed on, and noted
ENCODED: Final = 12  # passed on, and noted
EVENTS: Final = 13  # passed on, and noted
DATE: Final = 14  # passed on, and noted
REFUSED: Final = 15
CANARY: Final = 16  # passed on, and noted
_RAW_EXPECT: Final = 17  # before its value is looked at
_RAW_TYPE: Final = 18
RAW_LENGTH: Final = 19
CONNECTION: Final = 24  # + the flags below
SAYS_CLOSE: Final = 1
SAYS_KEEP: Final = 2
NAMES_FIELDS: Final = 4
_WEIGHED: Final = frozenset(
    {HOST_FIELD, CHUNKED, ENCODED, CONNECTION, _RAW_EXPECT, _RAW_TYPE, RAW_LENGTH}
)
_REMEMBERED: Final = 1  # flags of a name: lines that begin with it may be remembered,
_WEIGHS: Final = 2  # and their meaning depends on the value
LENGTH: Final = 32  # + the length

# Hop-by-hop by RFC 9110 7.6.1 whatever Connection says; Upgrade offers are not taken (7.8).
_HOP_BY_HOP: Final = (
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"upgrade",
    b"http2-settings",
)
_BOTH: Final[dict[bytes, int]] = {
    **dict.fromkeys(_HOP_BY_HOP, DROP),
    b"connection": CONNECTION,
    b"content-length": RAW_LENGTH,
    b"transfer-encoding": CHUNKED,
    b"content-encoding": ENCODED,
    b"x-request-id": REQUEST_ID,
}
REQUEST_NAMES: Final[dict[bytes, int]] = {
    **_BOTH,
    # What we say ourselves of the client; from outside it would be a lie.
    **dict.fromkeys((b"forwarded", b"x-forwarded-proto", b"x-forwarded-host", b"x-real-ip"), DROP),
    b"proxy-authorization": DROP,
    b"x-sluicegate-refused": DROP,
    b"x-sluicegate-error": DROP,
    b"host": HOST_FIELD,
    b"expect": _RAW_EXPECT,
    b"x-model": MODEL,
    b"x-model-version": VERSION,
    b"x-session-id": SESSION,
    b"x-forwarded-for": FORWARDED_FOR,
    b"traceparent": TRACE,
    b"x-sluicegate-canary": CANARY,
}
RESPONSE_NAMES: Final[dict[bytes, int]] = {
    **_BOTH,
    b"proxy-authenticate": DROP,
    b"x-sluicegate-error": DROP,  # only answers of our own carry it
    b"x-model-version": DROP,  # ours takes their place
    b"x-instance-id": DROP,
    b"x-sluicegate-refused": REFUSED,
    b"content-type": _RAW_TYPE,
    b"date": DATE,
}
# A field that Connection names is removed, but never these: framing, routing, and what we add.
KEPT_THOUGH_NAMED: Final = frozenset(
    {
        b"close",
        b"connection",
        b"content-length",
        b"content-type",
        b"date",
        b"host",
        b"keep-alive",
        b"transfer-encoding",
        b"via",
    }
)
# Parts of names whose values may be secret, or are new every time.
_NEVER_REMEMBERED: Final = re.compile(
    rb"auth|cookie|key|token|secret|session|passw|credential|signature|jwt|x-request-id|trace"
)


class LineMemo:
    """The judge of one direction's header lines. Owner: one worker, shared by its connections.

    `seen`: meanings by line; hot loops look there themselves and call `judge` for the rest.
    """

    __slots__ = ("_meanings", "_names", "seen")

    def __init__(self, meanings: dict[bytes, int]) -> None:
        self._meanings = meanings
        self._names: dict[bytes, int] = {}  # by spelling: 4 * meaning + the two flags below
        self.seen: dict[bytes, int] = {}

    def meaning(self, line: bytes) -> int:
        """What the line means: one of the numbers above, or LENGTH + n.

        Raises: BadFraming.
        """
        meaning = self.seen.get(line, UNKNOWN)
        return meaning if meaning != UNKNOWN else self.judge(line)

    def judge(self, line: bytes) -> int:
        """As `meaning`, without looking into the memo first."""
        name = line[: max(line.find(b":"), 0)]
        known = self._names.get(name, UNKNOWN)
        if known == UNKNOWN:
            known = self._learn(name)
        if len(line.translate(None, NOT_IN_VALUES)) != len(line):
            raise BadFraming("a header line is not `name: value`", "bad_request")
        meaning = known >> 2
        if known & _WEIGHS:
            meaning = _weighed(meaning, value_of(line))
        if known & _REMEMBERED and len(line) <= MEMO_LINE_BYTES:
            if len(self.seen) >= MEMO_LINES:
                self.seen.clear()
            self.seen[line] = meaning
        return meaning

    def named(self, line: bytes) -> int:
        """What any line of this name means, before its value is looked at; UNKNOWN for a name that
        is not remembered."""
        return self._names.get(line[: max(line.find(b":"), 0)], UNKNOWN) >> 2  # -1 stays -1

    def _learn(self, name: bytes) -> int:
        if NAME.fullmatch(name) is None:
            raise BadFraming("a header line is not `name: value`", "bad_request")
        lowered = name.lower()
        meaning = self._meanings.get(lowered, PASS)
        if meaning == PASS and b"_" in name and lowered.replace(b"_", b"-") in self._meanings:
            meaning = DROP  # CGI-like servers fold both spellings into one (RFC 9110 17.10)
        known = 4 * meaning
        if meaning in _WEIGHED:
            known += _WEIGHS
        if _NEVER_REMEMBERED.search(lowered) is None:
            known += _REMEMBERED
        if len(name) <= NAME_BYTES:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._names[name] = known
        return known

    def __len__(self) -> int:
        return len(self.seen)


def _weighed(meaning: int, value: bytes) -> int:
    """The meaning of a field whose value matters."""
    if meaning == RAW_LENGTH:
        if not DIGITS.fullmatch(value):
            raise BadFraming("content-length is not a number")
        return LENGTH + int(value)
    if meaning == CHUNKED:
        coding = value.lower()
        if coding == b"chunked":
            return CHUNKED
        if CODING.fullmatch(coding) and coding.count(b"chunked") == 1:
            raise BadFraming("a transfer coding other than chunked", "coding_unknown")
        raise BadFraming("transfer-encoding does not end with chunked")
    if meaning == HOST_FIELD:
        if not HOST.fullmatch(value):
            raise BadFraming("host is not a host", "bad_request")
        return HOST_FIELD
    if meaning == CONNECTION:
        return CONNECTION + _connection_flags(value)
    if meaning == _RAW_EXPECT:
        return CONTINUE if value.lower() == b"100-continue" else EXPECT_OTHER
    if meaning == _RAW_TYPE:
        return EVENTS if value[:17].lower() == b"text/event-stream" else PASS
    if meaning == ENCODED:
        return PASS if value.lower() in (b"", b"identity") else ENCODED
    return meaning


def _connection_flags(value: bytes) -> int:
    flags = 0
    for option in names_in(value):
        if option == b"close":
            flags |= SAYS_CLOSE
        elif option == b"keep-alive":
            flags |= SAYS_KEEP
        elif option not in KEPT_THOUGH_NAMED:
            flags |= NAMES_FIELDS
    return flags


def stays(flags: int, minor: int) -> bool:
    """Whether a connection serves on, by all that its Connection fields say (RFC 9112 9.3)."""
    if flags & SAYS_CLOSE:
        return False
    return minor == 1 or flags & SAYS_KEEP != 0


def names_in(value: bytes) -> list[bytes]:
    """The lower-cased members of a comma-separated list."""
    return [part.strip(b" \t").lower() for part in value.split(b",")]


def value_of(line: bytes) -> bytes:
    """The value of a line that has been judged."""
    at = line.find(b":") + 1
    end = len(line)
    while at < end and (line[at] == SPACE or line[at] == TAB):
        at += 1
    while end > at and (line[end - 1] == SPACE or line[end - 1] == TAB):
        end -= 1
    return line[at:end]


def without_named(lines: list[bytes], named: list[bytes]) -> list[bytes]:
    """The lines whose names no Connection field listed (RFC 9110 7.6.1)."""
    gone = frozenset(named) - KEPT_THOUGH_NAMED
    return [line for line in lines if line[: line.find(b":")].lower() not in gone]

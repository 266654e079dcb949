"""Heads of one connection that differ in a few values only: what is the same is not read again.

Floor 1, pure.   Flow: accept -> [parse] -> match
Most clients send one head again and again, but for the values of some lines: a trace, an id, a
length. Two heads in a row show where; from the third on all else is compared at once, and those
lines are put in the place of their predecessors. A head that does not fit is read line by line.
What is learned belongs to the connection: values that are new each time fill no shared memo, and
whoever makes each head differ elsewhere pays with one more split of his own.
"""

from typing import Final

from gateway.wire.lines import (
    DATE,
    DROP,
    FORWARDED_FOR,
    NOT_IN_VALUES,
    PASS,
    RAW_LENGTH,
    REQUEST_ID,
    TRACE,
    UNKNOWN,
    LineMemo,
)

REPEATED_BYTES: Final = 4096  # of the last head, kept to know it again while the connection lasts
PLACES_MAX: Final = 16  # tracing, ids and lengths behind three proxies are some eight
LENGTH_DIGITS: Final = 15  # as lines.DIGITS
# Lines whose meaning is their name's alone. The others' values decide about the whole head.
_KEPT: Final = (PASS, TRACE, DATE)
_ONCE: Final = (REQUEST_ID, FORWARDED_FOR)  # several of them make one value


class Repeats:
    """What heads of requests and responses have in common: their lines, and a memory of the last.

    Shape: a place is (line of `_tail`, its name with the colon, meaning, index in `kept` or -1).
    """

    __slots__ = (
        "_first",
        "_fixed",
        "_memo",
        "_places",
        "_read",
        "_tail",
        "framing",
        "kept",
        "length",
    )

    def __init__(self, memo: LineMemo) -> None:
        self._memo = memo
        self._read = b""  # the head that this holds
        self._fixed = b""  # its beginning, up to the first line that differs; b"": nothing learned
        self._tail: list[bytes] = []  # the lines from there on
        self._first = 0  # how many stand before them
        self._places: list[tuple[int, bytes, int, int]] = []
        self.kept: list[bytes] = []
        self.length = -1
        self.framing = b""

    def forget_lines(self) -> None:
        """Hold no lines any more."""
        self._read = self._fixed = b""
        self._tail = []
        self._places = []
        self.kept = []

    def said(self, meaning: int, value: bytes) -> None:
        """Take this value of a line that is not passed on as it is."""

    def renewed(self, head: bytes) -> bool:
        """Whether the head differs from the one before at known places only; then it is read.

        Where not, what this holds is of no use until another head has been read.
        Cost: a comparison, and some steps for each place.
        """
        fixed, before = self._fixed, self._tail
        if not head.startswith(fixed) or len(head) > REPEATED_BYTES:
            return False
        tail = head[len(fixed) :]
        lines = tail.split(b"\r\n")
        count = len(lines)
        if count != len(before):
            return False
        # All values at once: CR and LF stand between the lines, and nowhere else.
        if len(tail) - len(tail.translate(None, NOT_IN_VALUES)) != 2 * (count - 1):
            return False
        kept = self.kept
        for at, name, meaning, place in self._places:
            line = lines[at]
            if not line.startswith(name):
                return False
            before[at] = line
            if place >= 0:
                kept[place] = line
            elif meaning == RAW_LENGTH:
                digits = line[len(name) :].strip(b" \t")
                if len(digits) > LENGTH_DIGITS or not digits.isdigit():
                    return False
                self.length = int(digits)
                self.framing = line
            elif meaning != DROP:
                self.said(meaning, line[len(name) :].strip(b" \t"))
        if lines != before:
            return False
        self._read = head
        return True

    def learn(self, before: bytes, head: bytes, lines: list[bytes]) -> None:
        """Remember a head that was read line by line, and where it differs from the one before.

        Cost: as much again as reading it, where both have as many lines and begin alike.
        """
        if len(head) > REPEATED_BYTES:
            return
        self._read = head
        old = before.split(b"\r\n")
        count = len(lines)
        if len(old) != count or old[0] != lines[0]:
            return
        differed = {self._first + place[0] for place in self._places}  # before it
        differ = [at for at in range(1, count) if lines[at] != old[at] or at in differed]
        if len(differ) > PLACES_MAX:
            return
        meanings = [self._memo.named(line) for line in lines]
        places: list[tuple[int, bytes, int, int]] = []
        for at in differ:
            line, meaning = lines[at], meanings[at]
            kept = -1
            if meaning in _KEPT and self.kept.count(line) == 1:
                kept = self.kept.index(line)
            elif meaning in _ONCE:
                if meanings.count(meaning) > 1 or UNKNOWN in meanings[1:]:
                    continue
            elif meaning != DROP and meaning != RAW_LENGTH:
                continue  # another value could mean something else
            places.append((at, line[: line.find(b":") + 1], meaning, kept))
        if places:
            self._first = first = places[0][0]
            self._places = [(at - first, name, means, kept) for at, name, means, kept in places]
            self._fixed = b"\r\n".join(lines[:first]) + b"\r\n"
            self._tail = lines[first:]

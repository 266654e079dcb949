"""A stub instance whose every answer can be told from every other: it is computed from a number.

Floor 5.
The real process of an instance with a scripted engine, as in `tests.live.scripted_instance`. A
request says `n=NUMBER` at the end of its prompt; character `i` of the answer follows from NUMBER
and `i` alone. So a client sees at once that an answer was cut short, mended, doubled, or another's.
"""

from typing import Final

import backends.engines.families as families
from backends.commands import instance
from backends.engines.base import Sampling
from backends.engines.families import Parts
from backends.settings import Settings
from backends.snapshots.repository import Snapshot
from tests.backends.rig import ByteText, PlainScanner
from tests.live.scripted_instance import COMMAND as SCRIPTED
from tests.live.scripted_instance import PROMPT_END, PacedEngine, printable

STEP_S: Final = 0.04  # 25 tokens a second: a stream of 200 lasts eight
SLOTS: Final = 16
LOAD_S: Final = 0.2
LETTERS: Final = 89  # from "!" on; a prime, so that each stride visits all of them
COMMAND: Final = tuple("tests.chaos.stub" if one.startswith("tests.") else one for one in SCRIPTED)


def letter(number: int, at: int) -> int:
    """Answers to two numbers less than 7,832 apart differ in their first two letters."""
    start, stride = number % LETTERS, 1 + number // LETTERS % (LETTERS - 1)
    return ord("!") + (start + at * stride) % LETTERS


def answer(number: int, length: int) -> str:
    """What an instance says to the number."""
    return "".join(chr(letter(number, at)) for at in range(length))


def numbered(ids: tuple[int, ...]) -> int:
    """The next letter; a prompt without a number (a warm-up) gets something readable."""
    end = ids.index(PROMPT_END) if PROMPT_END in ids else 0
    _, sign, digits = "".join(map(chr, ids[max(0, end - 16) : end])).rpartition("n=")
    if not sign or not digits.isdigit():
        return printable(ids)
    return letter(int(digits), len(ids) - end - 1)


class NumberedFamily:
    def require(self) -> None:
        pass

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts:
        engine = PacedEngine(LOAD_S, SLOTS, numbered, STEP_S)
        return Parts(engine, ByteText(), PlainScanner, Sampling(temperature=0.0))


if __name__ == "__main__":
    families.FAMILIES = {"llm": NumberedFamily()}  # type: ignore[misc]  # this process has no other
    instance()

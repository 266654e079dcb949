"""A word of a vocabulary -> the bytes that it adds to a text.

Floor 1, pure.
Two ways of writing bytes as words are in use. Byte-level BPE writes each byte as one letter; the
others write text as it is, with a mark for a blank, and single bytes by their number.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

BLANK: Final = "\u2581"  # a lower block: how SentencePiece shows a blank
BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")


def _letters() -> dict[str, int]:
    """Letter -> byte. Bytes that print stand for themselves, the others for U+0100 and on.

    Source: the published GPT-2 encoder, which every byte-level tokenizer follows.
    """
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


LETTERS: Final[Mapping[str, int]] = MappingProxyType(_letters())


def spell(word: str, byte_level: bool) -> bytes:
    if byte_level:
        if all(letter in LETTERS for letter in word):
            return bytes(LETTERS[letter] for letter in word)
        return word.encode()
    found = BYTE.fullmatch(word)
    return bytes.fromhex(found[1]) if found else word.replace(BLANK, " ").encode()

"""Words of vocabularies as the bytes they add to a text."""

import pytest
from tokenizers import pre_tokenizers

from backends.engines.llm.spelling import LETTERS, spell


def test_the_letters_are_those_of_the_library() -> None:
    assert set(LETTERS) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(LETTERS.values()) == list(range(256))
    whole = bytes(range(128)).decode()  # each stands for itself in a text, and has a letter
    ((written, _),) = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(whole)
    assert spell(written, byte_level=True) == whole.encode()


@pytest.mark.parametrize(
    ("word", "byte_level", "spelt"),
    [
        ("Ġthe", True, b" the"),
        ("Ċ", True, b"\n"),
        ("Ã©", True, "é".encode()),
        ("Ã", True, b"\xc3"),
        ("中", True, "中".encode()),  # no letter of it: an added token, as it is
        ("▁the", False, b" the"),
        ("<0x0A>", False, b"\n"),
        ("<0xC3>", False, b"\xc3"),
        ("é", False, "é".encode()),
        ("Ġthe", False, "Ġthe".encode()),
    ],
)
def test_words_are_spelt_as_their_vocabulary_writes_them(
    word: str, byte_level: bool, spelt: bytes
) -> None:
    assert spell(word, byte_level) == spelt

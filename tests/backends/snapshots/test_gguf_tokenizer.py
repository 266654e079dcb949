import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from backends.snapshots.gguf_tokenizer import tokenizer_json
from backends.snapshots.source import ImportFailed
from tests.tiny import SPECIALS, VOCAB, tiny_tokenizer

MODEL = json.loads(tiny_tokenizer().to_str())["model"]
FIELDS: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": sorted(MODEL["vocab"], key=MODEL["vocab"].__getitem__),
    "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (VOCAB - len(SPECIALS)),
    "tokenizer.ggml.merges": [" ".join(pair) for pair in MODEL["merges"]],
    "tokenizer.ggml.bos_token_id": 1,
}


def _build(**changes: Any) -> Tokenizer:
    fields = FIELDS | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return Tokenizer.from_str(tokenizer_json(fields, "x.gguf"))


def _pieces(pre: str, text: str) -> list[str]:
    cut = _build(pre=pre).pre_tokenizer.pre_tokenize_str(text)
    return [text[begin:end] for _, (begin, end) in cut]


@given(st.text())
def test_the_tiny_tokenizer_comes_back_whole(text: str) -> None:
    ours, theirs = _build(), tiny_tokenizer()
    assert ours.encode(text).ids == theirs.encode(text).ids


@given(st.text(), st.sampled_from(["gpt-2", "smollm", "llama-bpe"]))
def test_decoding_gives_the_text_back(text: str, pre: str) -> None:
    tokenizer = _build(pre=pre)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["I", "'m", " in", " 2024", "!!", "\n\n ", " x", "'", "S"]),
        ("smollm", ["I", "'m", " in", " ", "2", "0", "2", "4", "!!", "\n\n ", " x", "'", "S"]),
        ("llama-bpe", ["I", "'m", " in", " ", "202", "4", "!!\n\n", " ", " x", "'S"]),
        ("qwen2", ["I", "'m", " in", " ", "2", "0", "2", "4", "!!\n\n", " ", " x", "'S"]),
    ],
)
def test_each_family_cuts_numbers_line_ends_and_apostrophes_its_own_way(
    pre: str, pieces: list[str]
) -> None:
    assert _pieces(pre, "I'm in 2024!!\n\n  x'S") == pieces


def test_qwen_composes_characters_first() -> None:
    assert _build(pre="qwen2").encode("e\u0301").ids == _build(pre="qwen2").encode("\u00e9").ids
    assert _build(pre="smollm").encode("e\u0301").ids != _build(pre="smollm").encode("\u00e9").ids


def test_llama_takes_a_whole_word_that_no_merge_makes() -> None:
    words = [*FIELDS["tokenizer.ggml.tokens"], "zq"]
    assert _build(pre="llama-bpe", tokens=words).encode("zq").ids == [1, VOCAB]
    assert len(_build(pre="smollm", tokens=words).encode("zq").ids) == 2


def test_control_tokens_are_special_and_user_defined_ones_are_whole() -> None:
    words = [*FIELDS["tokenizer.ggml.tokens"], "<tool>"]
    types = [*FIELDS["tokenizer.ggml.token_type"], 4]
    tokenizer = _build(tokens=words, token_type=types)
    assert tokenizer.encode("<|im_end|><tool>").ids == [2, VOCAB]
    assert tokenizer.decode([2, VOCAB]) == "<tool>"


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"pre": "gpt-2"}, None),
        ({"pre": "gpt-2", "add_bos_token": True}, 1),
        ({"pre": "llama-bpe"}, 1),
        ({"pre": "llama-bpe", "add_bos_token": False}, None),
        ({"pre": "llama-bpe", "bos_token_id": None}, None),
    ],
)
def test_a_begin_token_is_put_where_the_model_wants_one(
    changes: dict[str, Any], first: int | None
) -> None:
    tokenizer = _build(**changes)
    plain = tokenizer.encode("hello", add_special_tokens=False).ids
    assert tokenizer.encode("hello").ids == ([] if first is None else [first]) + plain


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": "llama"}, "a tokenizer of kind 'llama'; byte-level BPE"),
        ({"model": None}, "a tokenizer of kind None"),
        ({"pre": "default"}, "the pre-tokenizer 'default'; known are gpt-2, smollm"),
        ({"pre": None}, "the pre-tokenizer 'None'"),
        ({"tokens": []}, "words or merges are missing"),
        ({"merges": []}, "words or merges are missing"),
        ({"tokens": ["a", "a"]}, "the same word twice"),
        ({"merges": ["q q"]}, "merges 'q q', which is not in its vocabulary"),
        ({"merges": ["alone"]}, "merges 'alone', which is not in its vocabulary"),
    ],
)
def test_nothing_is_guessed(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ImportFailed, match=problem):
        _build(**changes)

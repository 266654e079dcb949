"""tokenizer.json from the metadata of a GGUF file.

Floor 1, pure.
A GGUF holds the words and merges but of the pre-tokenizer (what cuts a text into pieces before any
merge) only a name. A wrong one gives other ids for numbers, apostrophes or line ends: the model
goes on answering, a little worse, and nobody can say why. So names not in this table are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from backends.snapshots.source import ImportFailed

_CONTROL: Final = 3  # token types of the format: never text, whatever a user writes
_USER_DEFINED: Final = 4  # whole words that no merge may cut

# One alternation of contractions, words, numbers of 1..{n} digits, marks, line ends, blanks.
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _Cut:
    """How one family of tokenizers cuts a text. Each is the family's own published tokenizer."""

    digits: int  # most digits in a piece; 0: no limit
    words: bool  # by _WORDS, otherwise by the pattern that ByteLevel brings along
    nfc: bool = False
    whole_words: bool = False  # a piece that is in the vocabulary is one token, merges or not
    bos: bool = False  # a text begins with the begin token unless the metadata says otherwise


_CUTS: Final[Mapping[str, _Cut]] = {
    "gpt-2": _Cut(digits=0, words=False),
    "smollm": _Cut(digits=1, words=False),
    "llama-bpe": _Cut(digits=3, words=True, whole_words=True, bos=True),
    "qwen2": _Cut(digits=1, words=True, nfc=True),
}


def tokenizer_json(fields: Mapping[str, Any], file_name: str) -> str:
    """The text of tokenizer.json.

    Raises: ImportFailed, when it would have to guess.
    """
    kind, pre = fields.get("tokenizer.ggml.model"), str(fields.get("tokenizer.ggml.pre"))
    if kind != "gpt2":
        raise ImportFailed(
            f"{file_name} has a tokenizer of kind {kind!r}; byte-level BPE ('gpt2') is read. "
            "Import the model's Hugging Face folder instead"
        )
    if pre not in _CUTS:
        raise ImportFailed(
            f"{file_name} has the pre-tokenizer {pre!r}; known are {', '.join(_CUTS)}. "
            "Import the model's Hugging Face folder instead: guessing would change its answers"
        )
    words = fields.get("tokenizer.ggml.tokens", [])
    merges = [tuple(merge.split(" ", 1)) for merge in fields.get("tokenizer.ggml.merges", [])]
    vocab = {word: i for i, word in enumerate(words)}
    problem = _problem(words, vocab, merges)
    if problem:
        raise ImportFailed(f"{file_name}: {problem}")
    cut = _CUTS[pre]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=cut.whole_words))
    if cut.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(cut)
    tokenizer.decoder = decoders.ByteLevel()
    bos = fields.get("tokenizer.ggml.bos_token_id")
    if fields.get("tokenizer.ggml.add_bos_token", cut.bos) and bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{words[bos]} $A", special_tokens=[(words[bos], bos)]
        )
    types = fields.get("tokenizer.ggml.token_type", [])
    for word, kind in zip(words, types, strict=False):
        if kind == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(word, normalized=False)])
    return str(tokenizer.to_str())


def _pre_tokenizer(cut: _Cut) -> pre_tokenizers.PreTokenizer:
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cut.words)
    if cut.words:
        words = Regex(_WORDS % cut.digits)
        return pre_tokenizers.Sequence([pre_tokenizers.Split(words, "isolated"), bytes_only])
    if cut.digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, bytes_only])
    return bytes_only


def _problem(
    words: Sequence[str], vocab: Mapping[str, int], merges: Sequence[tuple[str, ...]]
) -> str | None:
    if not words or not merges:
        return "the tokenizer's words or merges are missing"
    if len(vocab) != len(words):
        return "the tokenizer has the same word twice"
    for merge in merges:
        if len(merge) != 2 or not all(part in vocab for part in (*merge, "".join(merge))):
            return f"the tokenizer merges {' '.join(merge)!r}, which is not in its vocabulary"
    return None

"""How likely the tokens of an answer were, in OpenAI's two shapes.

Floor 1, pure.
What is shown covers the text that was sent: no token that ended the answer, none of a stop string.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that stood somewhere, or could have."""

    spelling: bytes  # may be a part of a character
    logprob: float

    @property
    def name(self) -> str:
        """The token as a string; a part of a character by its bytes, as OpenAI writes it."""
        try:
            return self.spelling.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.spelling)


@dataclass(frozen=True, slots=True)
class Scored:
    """A token of the answer."""

    drawn: Candidate
    likeliest: tuple[Candidate, ...]  # likeliest first; the drawn one need not be among them
    offset: int  # characters of the answer before it


def chat_document(tokens: Sequence[Scored]) -> dict[str, object]:
    content = [
        _entry(token.drawn) | {"top_logprobs": [_entry(each) for each in token.likeliest]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def text_document(tokens: Sequence[Scored]) -> dict[str, object]:
    return {
        "tokens": [token.drawn.name for token in tokens],
        "token_logprobs": [token.drawn.logprob for token in tokens],
        "top_logprobs": [_by_name(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _by_name(token: Scored) -> dict[str, float]:
    """The likeliest and the drawn one. Of two tokens with one name the likelier is shown."""
    named: dict[str, float] = {}
    for each in (*token.likeliest, token.drawn):
        named.setdefault(each.name, each.logprob)
    return named


def _entry(candidate: Candidate) -> dict[str, object]:
    return {
        "token": candidate.name,
        "logprob": candidate.logprob,
        "bytes": list(candidate.spelling),
    }

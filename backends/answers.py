"""Tokens -> text as it can be sent, and the OpenAI documents that carry it.

Floor 1, pure (`Assembly` is the mutable state of one answer; owner: the request that made it).
Flow: token > detokenise > look for stop strings > [piece] > document.
`token_ids` and `prompt_token_ids` stand where vLLM puts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.engines.base import Finish, Token
from backends.openai import Kind
from backends.text import HoldsBack, PushesText


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token, or several, added to an answer."""

    text: str
    ids: tuple[int, ...]
    finish: Finish | None


class Assembly:
    """One answer, token by token."""

    def __init__(
        self, detokenizer: PushesText, scanner: HoldsBack, stop_ids: frozenset[int]
    ) -> None:
        self._detokenizer = detokenizer
        self._scanner = scanner
        self._stop_ids = stop_ids
        self.completion_tokens = 0  # all that were generated, the one that ended it included

    def push(self, token: Token) -> Piece:
        """The text that may be sent now; nothing may be pushed after a piece with a finish."""
        self.completion_tokens += 1
        # The id that ends an answer is a token and is counted, but it is no text.
        text = "" if token.id in self._stop_ids else self._detokenizer.push(token.id)
        if token.finish is not None:
            text += self._detokenizer.flush()
        sendable, hit = self._scanner.push(text)
        if hit:
            return Piece(sendable, (token.id,), Finish.STOP)
        if token.finish is not None:
            sendable += self._scanner.flush()
        return Piece(sendable, (token.id,), token.finish)


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int

    def document(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Heading:
    """What every document of one answer begins with."""

    kind: Kind
    id: str
    created: int
    model: str
    version: str


_OBJECTS: Final = {
    Kind.CHAT: ("chat.completion", "chat.completion.chunk"),
    Kind.TEXT: ("text_completion", "text_completion"),
}


def whole(
    heading: Heading, piece: Piece, usage: Usage, prompt_ids: tuple[int, ...] | None
) -> dict[str, object]:
    """A complete answer; with the ids if `prompt_ids` is given."""
    choice = _choice(piece)
    document = _begin(heading, _OBJECTS[heading.kind][0]) | {"choices": [choice]}
    if heading.kind is Kind.CHAT:
        choice["message"] = {"role": "assistant", "content": piece.text}
    else:
        choice["text"] = piece.text
    if prompt_ids is not None:
        choice["token_ids"] = piece.ids
        (document if heading.kind is Kind.CHAT else choice)["prompt_token_ids"] = prompt_ids
    return document | {"usage": usage.document()}


@dataclass(frozen=True, slots=True)
class Chunks:
    """The documents of one streamed answer, in the order of its methods."""

    heading: Heading
    include_usage: bool
    prompt_ids: tuple[int, ...] | None  # given if the client asked for ids

    def opening(self) -> dict[str, object] | None:
        """Who speaks; completions have no such thing."""
        if self.heading.kind is Kind.TEXT:
            return None
        choice = _choice(None) | {"delta": {"role": "assistant", "content": ""}}
        document = self._chunk([choice])
        if self.prompt_ids is not None:
            document["prompt_token_ids"] = self.prompt_ids
        return document

    def piece(self, piece: Piece, first: bool) -> dict[str, object]:
        choice = _choice(piece)
        if self.heading.kind is Kind.CHAT:
            choice["delta"] = {"content": piece.text} if piece.text else {}
        else:
            choice["text"] = piece.text
            if first and self.prompt_ids is not None:
                choice["prompt_token_ids"] = self.prompt_ids
        if self.prompt_ids is not None:
            choice["token_ids"] = piece.ids
        return self._chunk([choice])

    def closing(self, usage: Usage) -> dict[str, object] | None:
        """The counts, if they were asked for."""
        return self._chunk([]) | {"usage": usage.document()} if self.include_usage else None

    def _chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        document = _begin(self.heading, _OBJECTS[self.heading.kind][1]) | {"choices": choices}
        # OpenAI: with include_usage every chunk has the field, null but in the last.
        return document | {"usage": None} if self.include_usage else document


def model_card(
    model: str, version: str, created: int, max_seq_len: int | None
) -> dict[str, object]:
    """One row of `GET /v1/models`."""
    return {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "sluicegate",
        "version": version,
        "max_model_len": max_seq_len,  # spelt as in vLLM
    }


def error(
    message: str, kind: str, param: str | None, code: str | None, more: Mapping[str, object]
) -> dict[str, object]:
    """OpenAI's shape of an error; `more` stands beside its four fields."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}


def _begin(heading: Heading, name: str) -> dict[str, object]:
    return {
        "id": heading.id,
        "object": name,
        "created": heading.created,
        "model": heading.model,
        "system_fingerprint": heading.version,  # OpenAI: changes when answers may change
    }


def _choice(piece: Piece | None) -> dict[str, object]:
    finish = piece.finish if piece is not None else None
    return {
        "index": 0,
        "logprobs": None,
        "finish_reason": finish.value if finish is not None else None,
    }

"""Tokens -> text as it can be sent, and the OpenAI documents that carry it.

Floor 1, pure (`Assembly` is the mutable state of one answer; owner: the request that made it).
Flow: token > detokenise > look for stop strings > [piece] > document.
`token_ids` and `prompt_token_ids` stand where vLLM puts them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.engines.base import Finish, Token
from backends.logprobs import Candidate, Scored, chat_document, text_document
from backends.openai.requests import Kind
from backends.text import HoldsBack, PushesText


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token, or several, added to an answer."""

    text: str
    ids: tuple[int, ...]
    finish: Finish | None
    scored: tuple[Scored, ...] = ()  # of the tokens of its text, if that was asked for
    index: int = 0  # of the answer among those to one prompt


class Assembly:
    """One answer, token by token."""

    def __init__(
        self,
        detokenizer: PushesText,
        scanner: HoldsBack,
        stop_ids: frozenset[int],
        spell: Callable[[int], bytes],
        index: int = 0,
    ) -> None:
        self._detokenizer = detokenizer
        self._scanner = scanner
        self._stop_ids = stop_ids
        self._spell = spell
        self._index = index
        self._read = 0  # characters that the tokens gave
        self._sent = 0  # characters of those that were sent
        self._scored: list[Scored] = []  # of tokens whose text is not sent yet
        self.completion_tokens = 0  # all that were generated, the one that ended it included
        self.finish: Finish | None = None

    def push(self, token: Token) -> Piece:
        """The text that may be sent now; nothing may be pushed after a piece with a finish."""
        self.completion_tokens += 1
        text = ""
        # The id that ends an answer is a token and is counted, but it is no text.
        if token.id not in self._stop_ids:
            self._note(token)
            text = self._detokenizer.push(token.id)
        if token.finish is not None:
            text += self._detokenizer.flush()
        self._read += len(text)
        sendable, hit = self._scanner.push(text)
        if token.finish is not None and not hit:
            sendable += self._scanner.flush()
        self._sent += len(sendable)
        self.finish = finish = Finish.STOP if hit else token.finish
        is_whole = finish is not None and not hit
        return Piece(sendable, (token.id,), finish, self._take_scored(is_whole), self._index)

    def _note(self, token: Token) -> None:
        if token.scores is None:
            return
        likeliest = (Candidate(self._spell(id_), share) for id_, share in token.scores.likeliest)
        drawn = Candidate(self._spell(token.id), token.scores.drawn)
        self._scored.append(Scored(drawn, tuple(likeliest), self._read))

    def _take_scored(self, is_whole: bool) -> tuple[Scored, ...]:
        """Those whose text has begun to be sent; all, when no text is held back any more."""
        count = sum(is_whole or scored.offset < self._sent for scored in self._scored)
        taken, self._scored = tuple(self._scored[:count]), self._scored[count:]
        return taken


def joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces of one answer as one."""
    return Piece(
        text="".join(piece.text for piece in pieces),
        ids=tuple(id_ for piece in pieces for id_ in piece.ids),
        finish=pieces[-1].finish,
        scored=tuple(scored for piece in pieces for scored in piece.scored),
        index=pieces[-1].index,
    )


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompt, not computed anew

    def document(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
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
    heading: Heading,
    answers: Sequence[Piece],
    usage: Usage,
    prompt_ids: tuple[int, ...] | None,
    logprobs: bool,
) -> dict[str, object]:
    """Complete answers to one prompt; with the ids if `prompt_ids` is given."""
    choices = []
    for piece in answers:
        choice = _choice(heading.kind, piece.index, piece, logprobs)
        if heading.kind is Kind.CHAT:
            choice["message"] = {"role": "assistant", "content": piece.text}
        else:
            choice["text"] = piece.text
        if prompt_ids is not None:
            choice["token_ids"] = piece.ids
            if heading.kind is Kind.TEXT:
                choice["prompt_token_ids"] = prompt_ids
        choices.append(choice)
    document = _begin(heading, _OBJECTS[heading.kind][0]) | {"choices": choices}
    if prompt_ids is not None and heading.kind is Kind.CHAT:
        document["prompt_token_ids"] = prompt_ids
    return document | {"usage": usage.document()}


@dataclass(frozen=True, slots=True)
class Chunks:
    """The documents of streamed answers to one prompt: of each, in the order of the methods."""

    heading: Heading
    include_usage: bool
    prompt_ids: tuple[int, ...] | None  # given if the client asked for ids
    logprobs: bool

    def opening(self, index: int) -> dict[str, object] | None:
        """Who speaks; completions have no such thing."""
        if self.heading.kind is Kind.TEXT:
            return None
        choice = _choice(Kind.CHAT, index, None, False)
        document = self._chunk([choice | {"delta": {"role": "assistant", "content": ""}}])
        if self.prompt_ids is not None:
            document["prompt_token_ids"] = self.prompt_ids
        return document

    def piece(self, piece: Piece, first: bool) -> dict[str, object]:
        """`first`: of its answer."""
        choice = _choice(self.heading.kind, piece.index, piece, self.logprobs)
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


def _begin(heading: Heading, name: str) -> dict[str, object]:
    return {
        "id": heading.id,
        "object": name,
        "created": heading.created,
        "model": heading.model,
        "system_fingerprint": heading.version,  # OpenAI: changes when answers may change
    }


def _choice(kind: Kind, index: int, piece: Piece | None, logprobs: bool) -> dict[str, object]:
    shape = chat_document if kind is Kind.CHAT else text_document
    finish = piece.finish if piece is not None else None
    return {
        "index": index,
        "logprobs": shape(piece.scored) if logprobs and piece is not None else None,
        "finish_reason": finish.value if finish is not None else None,
    }

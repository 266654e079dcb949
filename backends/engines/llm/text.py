"""Text -> token ids, and token ids -> text that can be sent at once.

Floor 3, I/O (reads once); afterwards nothing here changes but a Detokenizer and a StopScanner, of
which each answer has its own.
Flow: prompt > [encode] > engine > [detokenise > scan for stops] > client.
Tokens are neither characters nor words: one may end inside a UTF-8 sequence, and a stop string may
begin in one and end three later. So both hold back what cannot be judged yet, and nothing more.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import tokenizers

from backends.engines.llm.chat_template import ChatTemplate
from backends.engines.llm.spelling import spell
from backends.errors import RequestInvalid, SnapshotInvalid

BROKEN: Final = "\ufffd"  # what a decoder puts where bytes are no UTF-8, or not yet
# Most of them that can still become one character: a sequence has four bytes, so three are begun.
BEGUN_MAX: Final = 3


class Tokenizer:
    """The tokenizer and chat template of one snapshot."""

    def __init__(
        self, library: Any, template: ChatTemplate | None, stop_ids: frozenset[int]
    ) -> None:
        self._library = library
        self._template = template
        self.stop_ids = stop_ids  # any of them ends an answer
        self._added: Mapping[int, Any] = library.get_added_tokens_decoder()
        self._is_byte_level = _is_byte_level(json.loads(library.to_str())["decoder"])

    @classmethod
    def read(cls, folder: Path, now: Callable[[], datetime] = datetime.now) -> "Tokenizer":
        """Raises: SnapshotInvalid naming the file."""
        path = folder / "tokenizer.json"
        try:
            library = tokenizers.Tokenizer.from_str(path.read_text("utf-8"))
        except OSError as exc:
            raise SnapshotInvalid(f"{path}: cannot be read: {exc.strerror}") from exc
        except Exception as exc:
            # A house rule broken (broad excepts): the library raises this very class, no narrower.
            raise SnapshotInvalid(f"{path}: {exc}; import it again") from exc
        bos, eos = _special_ids(folder)
        specials = {"bos_token": _word(library, bos[:1]), "eos_token": _word(library, eos[:1])}
        template = folder / "chat_template.jinja"
        if not template.exists():
            return cls(library, None, frozenset(eos))
        source = template.read_text("utf-8")
        return cls(library, ChatTemplate(source, specials, now), frozenset(eos))

    def encode(self, text: str, special: bool) -> list[int]:
        """`special`: with what the model expects around a text, a first token for example."""
        ids: list[int] = self._library.encode(text, add_special_tokens=special).ids
        return ids

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Raises: RequestInvalid when the template refuses, or there is none."""
        if self._template is None:
            raise RequestInvalid("messages", "this model has no chat template: use /v1/completions")
        # The template writes the special tokens itself.
        return self.encode(self._template.render(messages), special=False)

    def detokenizer(self) -> "Detokenizer":
        return Detokenizer(self._decode)

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text; special ones by their name, unknown ones empty."""
        if token_id in self._added:
            return str(self._added[token_id].content).encode()
        word = self._library.id_to_token(token_id)
        return b"" if word is None else spell(word, self._is_byte_level)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._library.decode(ids, skip_special_tokens=True)
        return text


class Detokenizer:
    """The text of one answer, as far as it is certain.

    What has been returned is the text of all ids but the `_ids` after `_context`, and `_sent`
    characters of those. The context is there because some decoders write a token differently when
    it is the first.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._ids: list[int] = []
        self._sent = 0

    def push(self, token_id: int, /) -> str:
        """What is certain now and was not before; never a part of a UTF-8 sequence."""
        self._ids.append(token_id)
        text = self._text()
        broken = len(text) - len(text.rstrip(BROKEN))
        certain = text[self._sent : len(text) - min(broken, BEGUN_MAX)]
        self._sent += len(certain)
        if text and not broken:
            self._context, self._ids, self._sent = self._ids, [], 0
        return certain

    def flush(self) -> str:
        """The rest, when no id will follow: an unfinished sequence shows as what it is."""
        rest = self._text()[self._sent :]
        self._sent += len(rest)
        return rest

    def _text(self) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + self._ids)[len(before) :]


class StopScanner:
    """Finds the first stop string to be complete, wherever tokens end."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._hit = False

    def push(self, text: str, /) -> tuple[str, bool]:
        """What can be sent, and whether a stop string was found; after it nothing is sent.

        Held back is the longest end that some stop string begins with. Cost: O(stops * length).
        """
        if self._hit:
            return "", True
        text = self._held + text
        found = [
            (text.find(stop) + len(stop), text.find(stop)) for stop in self._stops if stop in text
        ]
        if found:
            self._hit = True
            self._held = ""
            _, begin = min(found)  # the first to end; of those, the longest
            return text[:begin], True
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back, when no text will follow."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with, itself left out."""
    lengths = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


def _special_ids(folder: Path) -> tuple[list[int], list[int]]:
    """Ids that begin a text, and ids that end one; generation_config.json before config.json."""
    bos: list[int] = []
    eos: list[int] = []
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        try:
            config = json.loads(path.read_bytes()) if path.exists() else {}
            bos = bos or _ids(config.get("bos_token_id"))
            eos = eos or _ids(config.get("eos_token_id"))
        except (OSError, ValueError, AttributeError, TypeError) as exc:
            raise SnapshotInvalid(f"{path}: {exc}; import it again") from exc
    return bos, eos


def _ids(value: Any) -> list[int]:
    """None, one id or a list of them: all three are in use."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(id_, int) for id_ in listed):
        raise TypeError(f"token ids must be whole numbers, not {value!r}")
    return listed


def _is_byte_level(decoder: Any) -> bool:
    """Whether a tokenizer.json says that words are written as letters that stand for bytes."""
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == "ByteLevel" or any(
        _is_byte_level(inner) for inner in decoder.get("decoders", ())
    )


def _word(library: Any, ids: list[int]) -> str:
    """The token as templates write it; empty when the model has none."""
    return (library.id_to_token(ids[0]) or "") if ids else ""

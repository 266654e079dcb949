"""What an instance answered: whether it is one, what it says, and how alike two of them are.

Floor 1, pure.
Failure is one set, as for every purpose of the gateway: an empty 200 is in it, and a stream with an
error event or without its end. Texts are alike by the share of words that two have in common in
the same order (2 * matches / words of both, difflib's ratio); tensors and embeddings by the share
of numbers that agree within TOLERANCE of the larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import orjson

TOLERANCE: Final = 0.01  # relative; of numbers that differ by the order of a sum, thousandths
NOTHING: Final = 1e-6  # numbers below it are the same
WORDS_MAX: Final = (
    500  # difflib takes quadratic time, at worst 0.2 s for these: then the beginning counts
)

Words = tuple[str, ...]
Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What it says: words, numbers, or nothing that can be compared."""

    words: Words = ()
    numbers: Numbers = ()


@dataclass(frozen=True, slots=True)
class Bad:
    """A 2xx that is a failure, and why."""

    cause: str


def read(path: str, media: str, raw: bytes) -> Answer | Bad:
    """The answer in a whole body of a 2xx."""
    if media.startswith("text/event-stream"):
        return _streamed(raw)
    if not raw.strip():
        return Bad("an empty answer")
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return Answer() if not media.endswith("json") else Bad("an answer that is not JSON")
    if not isinstance(document, dict):
        return Answer()
    if document.get("error"):
        return Bad(f"an error in a 200: {_short(document['error'])}")
    if path.startswith("/v2/"):
        return Answer(numbers=_numbers(document.get("outputs")))
    if path == "/v1/embeddings":
        return Answer(numbers=_numbers(document.get("data")))
    return Answer(words=_words([document]))


def _streamed(raw: bytes) -> Answer | Bad:
    documents: list[Any] = []
    is_over = False
    for line in raw.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"event: error"):
            return Bad("an error event in the stream")
        if not line.startswith(b"data:"):
            continue
        value = line[5:].strip()
        if value == b"[DONE]":
            is_over = True
            continue
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError:
            return Bad("an event that is not JSON")
        if isinstance(document, dict) and document.get("error"):
            return Bad(f"an error event in the stream: {_short(document['error'])}")
        documents.append(document)
    if not documents:
        return Bad("a stream without an event")
    if not is_over:
        return Bad("a stream without its end")
    return Answer(words=_words(documents))


def _short(value: Any) -> str:
    text = value.get("message", value) if isinstance(value, dict) else value
    return str(text)[:120]


def _words(documents: Sequence[Any]) -> Words:
    """Of all choices, each by itself, in their order."""
    texts: dict[int, list[str]] = {}
    for document in documents:
        choices = document.get("choices") if isinstance(document, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                texts.setdefault(int(choice.get("index") or 0), []).append(_said(choice))
    return tuple(word for _, parts in sorted(texts.items()) for word in "".join(parts).split())


def _said(choice: dict[str, Any]) -> str:
    """Text, and calls of tools: what they are called with is an answer too."""
    if isinstance(choice.get("text"), str):
        return str(choice["text"])
    message = choice.get("message") or choice.get("delta")
    if not isinstance(message, dict):
        return ""
    found = [message.get("reasoning_content"), message.get("content")]
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            found += [function.get("name"), function.get("arguments")]
    return "".join(one for one in found if isinstance(one, str))


def _numbers(value: Any) -> Numbers:
    """Every number inside, in order, but those that only count."""
    found: list[float] = []
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += [inner for key, inner in reversed(one.items()) if key not in {"index", "shape"}]
        elif isinstance(one, list):
            rest += reversed(one)
        elif isinstance(one, int | float):  # truths too: they are 1 and 0
            found.append(float(one))
    return tuple(found)


# --- two of them ---------------------------------------------------------------------------------


def comparable(one: Answer, other: Answer) -> bool:
    return bool((one.words and other.words) or (one.numbers and other.numbers))


def alike(one: Answer, other: Answer) -> float:
    """From 0 to 1; 1 when they are the same."""
    if one == other:
        return 1.0
    if one.numbers or other.numbers:
        return _agreeing(one.numbers, other.numbers)
    return _in_common(one.words, other.words)


def _in_common(one: Words, other: Words) -> float:
    longest = max(len(one), len(other))
    shown = one[:WORDS_MAX], other[:WORDS_MAX]
    ratio = SequenceMatcher(None, *shown, autojunk=False).ratio()
    if longest <= WORDS_MAX or len(one) == len(other):
        return ratio
    return ratio * min(len(one), len(other)) / longest


def _agreeing(one: Numbers, other: Numbers) -> float:
    longest = max(len(one), len(other))
    pairs = zip(one, other, strict=False)
    return sum(_close(left, right) for left, right in pairs) / longest if longest else 0.0


def _close(left: float, right: float) -> bool:
    if left == right:
        return True
    largest = max(abs(left), abs(right))
    return abs(left - right) <= max(NOTHING, TOLERANCE * largest)

"""A request's JSON body, read for its model without building what makes it long.

Floor 1, pure.   Flow: parse -> [match] -> pick
A body is long because of a few prompts, pictures or lists of numbers. They are cut down to their
beginnings, and what is left goes to orjson: duplicates, escapes, nesting and mistakes are judged
there, never here. A document that is right says the same as before, but for the ends that are cut.
Those are not looked at: a mistake inside of one (a bad escape, bytes that are no UTF-8) is left to
the instance, which refuses it. Nothing can hide in it: a text ends where any reader ends it.
"""

import gc
from typing import Any, Final

import orjson

from gateway.errors import GatewayError

# Measured against `orjson.loads`, interpreted: a body of one prompt costs the same either way here.
SHORTEN_FROM: Final = 32_768
LONG: Final = 8192  # texts and lists longer than this are cut: half of it is saved, for one joining
PREFIX_BYTES: Final = 512  # for affinity: a system prompt's beginning tells them apart
HEAD: Final = 4096  # what stays: more than PREFIX_BYTES characters of six bytes each (\u0061)
UNCUT_CHARS: Final = 256  # less than any cut text has left
PREFIX_IDS: Final = 256  # token ids that fill the prefix, as each has a digit and a comma
STEPS: Final = 16  # texts looked at before the first long one; enough for a picture in a message
STEP_BYTES: Final = 2048  # cut away pay for one more: a look costs what orjson needs for half of it
# Building these takes a third of a second: the longest that a worker may stand still for one body.
CONTAINERS_MAX: Final = 1_000_000
RUN_MAX: Final = 64  # backslashes in a row: nobody writes more, and counting them costs
PAIR_BYTES: Final = 12  # \ud83d\ude00: the longest spelling of a character

BACKSLASH: Final = 0x5C
LETTER_U: Final = 0x75
LOW_SURROGATES: Final = frozenset({b"dc", b"dd", b"de", b"df"})


def read_document(body: bytes) -> dict[str, Any]:
    """The JSON object that the body is, with long texts and lists cut down to their beginnings.

    Raises: GatewayError.
    """
    if len(body) < SHORTEN_FROM:
        return _object(body)
    short = shortened(body)
    if short.count(b"[") + short.count(b"{") > CONTAINERS_MAX:
        text = f"more than {CONTAINERS_MAX} lists and objects are not searched: name it in x-model"
        raise GatewayError("bad_request", text)
    collects = gc.isenabled()
    gc.disable()  # it would look at a growing document again and again, and it holds no cycle
    try:
        if short is not body:
            try:
                document = orjson.loads(short)
            except orjson.JSONDecodeError:
                pass  # the whole body knows better where the mistake is
            else:
                if isinstance(document, dict) and not _may_be_cut(document.get("model")):
                    return document
        return _object(body)
    finally:
        if collects:
            gc.enable()


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise GatewayError("bad_request", f"the body is not JSON: {exc}") from None
    if not isinstance(document, dict):
        raise GatewayError("bad_request", "the body is not a JSON object")
    return document


def model_named(document: dict[str, Any]) -> str:
    """The document's `model`, "" when there is none.

    Raises: GatewayError.
    """
    model = document.get("model", "")
    if not isinstance(model, str):
        raise GatewayError("bad_request", "`model` is not a string")
    return model


def prompt_prefix(document: dict[str, Any]) -> bytes:
    """The beginning of a prompt, b"" where none is found: requests that share it share a cache."""
    prompt = document.get("prompt") or document.get("messages") or document.get("input")
    if not prompt:
        return b""
    first = prompt
    if isinstance(prompt, list):
        first = prompt[0]
        if isinstance(first, int):
            first = prompt[:PREFIX_IDS]
    try:
        return orjson.dumps(first)[:PREFIX_BYTES]
    except orjson.JSONEncodeError:  # nested deeper than it writes: nothing that a cache would hold
        return b""


def _may_be_cut(model: Any) -> bool:
    return isinstance(model, str) and len(model) >= UNCUT_CHARS


# --- shortening ----------------------------------------------------------------------------------


def shortened(body: bytes) -> bytes:
    """The same document with long texts and lists of numbers cut; the body itself where that is
    not worth it, or where it is no JSON.

    Cost: memchr over the body, and some steps for each text: few, or paid for by what was cut.
    """
    cuts = _Cuts(body)
    at = 0  # outside of any text
    while cuts.room >= 0:
        opening = body.find(b'"', at)
        until = opening if opening >= 0 else len(body)
        if until - at > LONG:
            cuts.cut_lists(at, until)
        if opening < 0:
            return cuts.joined()
        closing = cuts.text_end(opening)
        if closing < 0:
            return body
        if closing - opening > LONG:
            place = _between(body, opening + HEAD)
            if place < 0:
                return body
            cuts.cut(place, closing)
        at = closing + 1
        cuts.room -= 1
    return body


class _Cuts:
    """`parts` is what stays of body[:kept]; `room`: steps that may still be taken."""

    __slots__ = ("body", "kept", "parts", "room")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.parts: list[bytes] = []
        self.kept = 0
        self.room = STEPS

    def cut(self, first: int, until: int) -> None:
        """Leave out body[first:until]."""
        self.parts.append(self.body[self.kept : first])
        self.kept = until
        self.room += (until - first) // STEP_BYTES

    def joined(self) -> bytes:
        if not self.parts or self.room < 0:
            return self.body
        self.parts.append(self.body[self.kept :])
        return b"".join(self.parts)

    def text_end(self, opening: int) -> int:
        """Where the text that begins at `opening` has its closing quote; -1 for nowhere, or where
        quotes are too many to look at."""
        body = self.body
        closing = body.find(b'"', opening + 1)
        while closing > 0 and body[closing - 1] == BACKSLASH:
            run = _backslashes(body, closing)
            if run == RUN_MAX:
                return -1
            if run % 2 == 0:
                break
            self.room -= 1
            if self.room + (closing - opening) // STEP_BYTES < 0:
                return -1
            closing = body.find(b'"', closing + 1)
        return closing

    def cut_lists(self, at: int, until: int) -> None:
        """Cut what is long in a stretch without texts: where a bracket closes, and the last one
        before it opened, stand numbers and commas between."""
        body = self.body
        while until - at > LONG and self.room >= 0:
            right = body.find(b"]", at, until)
            if right < 0:
                return
            left = body.rfind(b"[", at, right)
            if left >= 0 and right - left > LONG:
                flat = body.find(b"{", left, right) < 0 and body.find(b"}", left, right) < 0
                comma = body.rfind(b",", left, left + HEAD)
                if flat and comma >= 0:
                    self.cut(comma, right)
            at = right + 1
            self.room -= 1


def _backslashes(body: bytes, end: int) -> int:
    """How many stand directly before `end`, inside a text; RUN_MAX for that many or more."""
    run = 0
    while run < RUN_MAX and body[end - 1 - run] == BACKSLASH:
        run += 1
    return run


def _between(body: bytes, near: int) -> int:
    """A place between two characters of a text that goes on for long, near `near`; -1 where that
    cannot be told."""
    last = body.rfind(b"\\", near - PAIR_BYTES, near)
    if last < 0:
        for place in range(near, near - 3, -1):
            if body[place] & 0xC0 != 0x80:  # else it goes on with a character of UTF-8
                return place
        return near - 3
    run = _backslashes(body, last + 1)
    if run == RUN_MAX:
        return -1
    place = last + 1 - run  # the first backslash of a run begins a character, or half of a pair
    if body[place + 1] == LETTER_U and body[place + 2 : place + 4].lower() in LOW_SURROGATES:
        return place + 6  # behind the second half
    return place

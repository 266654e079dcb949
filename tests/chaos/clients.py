"""Clients of every kind, each checking every answer to the last letter.

Floor 3, I/O.
Requests go one after the other on kept connections; nothing is asked twice. What a client does not
like is written down and not raised: the audit judges.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import orjson

from tests.chaos.audit import Asked, End
from tests.chaos.fleet import TINY, VOLUME
from tests.chaos.stub import STEP_S, answer
from tests.chaos.wire import Broken, Connection, Head

PATH: Final = "/v1/chat/completions"
UPLOAD_PARTS: Final = 10
PART_BYTES: Final = 40_000
MINDSPORE: Final = "mindspore"  # the kind of client
REPEATED: Final = 5  # different questions to the MindSpore model: the same one has one answer


class Left(Exception):
    """The client has heard enough."""


@dataclass(slots=True)
class Book:
    """Everything that was asked; `address` is where the gateway is."""

    address: str
    seed: int
    asked: list[Asked] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)  # by question, of the MindSpore model
    leaving: bool = False  # no new requests

    def new(self, kind: str) -> tuple[Asked, int]:
        number = len(self.asked)
        one = Asked(f"chaos-{self.seed}-{number}", kind, time.monotonic())
        self.asked.append(one)
        return one, number


@dataclass(frozen=True, slots=True)
class Question:
    """`parts`: the body is sent in so many, with pauses; `in_head`: the model is named there.
    `leaves_after`: pieces of the answer after which the client goes away; -1: never."""

    model: str
    tokens: int
    stream: bool
    padding: int = 0
    parts: int = 1
    in_head: bool = False
    leaves_after: int = -1


async def client(book: Book, kind: str, ask: Callable[[Random], Question], rng: Random) -> None:
    """Asks until the book is closed, with a short pause now and then."""
    connection: Connection | None = None
    while not book.leaving:
        question = ask(rng)
        if connection is None or connection.ended:
            connection = await _connect(book, connection)
            if connection is None:
                one, _ = book.new(kind)
                one.end, one.why, one.ended = End.BROKEN, "no connection", time.monotonic()
                await asyncio.sleep(0.2)
                continue
        keep = await _exchange(book, kind, question, connection, rng)
        if not keep:
            connection.close()
            connection = None
        await asyncio.sleep(rng.uniform(0.0, 0.2))
    if connection is not None:
        connection.close()


async def _connect(book: Book, old: Connection | None) -> Connection | None:
    if old is not None:
        old.close()
    try:
        return await Connection.open(book.address)
    except Broken:
        return None


async def _exchange(
    book: Book, kind: str, question: Question, connection: Connection, rng: Random
) -> bool:
    """One request with its answer; whether the connection can be kept."""
    one, number = book.new(kind)
    one.port = connection.port
    keep = False
    try:
        with suppress(Broken):  # who does not let us finish may have answered before
            await _send(connection, question, one.name, number, rng)
        if question.leaves_after == 0:
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            raise Left
        head = await connection.head()
        one.begun = True
        one.instance = head.fields.get("x-instance-id", "")
        one.code = head.fields.get("x-sluicegate-error", "")
        text = await _read(connection, head, question)
        one.end = _judged(book, question, number, one, head, text)
        keep = head.keeps
    except Broken as exc:
        one.end, one.why = End.BROKEN, str(exc)
    except Left:
        one.end = End.LEFT
    except (AssertionError, ValueError, KeyError, IndexError) as exc:
        one.end, one.why = End.WRONG, f"{type(exc).__name__}: {exc}"
    one.ended = time.monotonic()
    return keep


async def _send(
    connection: Connection, question: Question, name: str, number: int, rng: Random
) -> None:
    content = f"n={number}" if question.model == VOLUME else f"tell me {number % REPEATED}"
    body = orjson.dumps(
        {
            "model": question.model,
            "user": "x" * question.padding,
            "max_tokens": question.tokens,
            "temperature": 0,
            "stream": question.stream,
            "messages": [{"role": "user", "content": content}],
        }
    )
    aimed = f"x-model: {question.model}\r\n" if question.in_head else ""
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: gateway\r\nx-request-id: {name}\r\n{aimed}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    if question.parts == 1:
        await connection.send(head + body)
        return
    await connection.send(head)
    size = -(-len(body) // question.parts)
    for at in range(0, len(body), size):
        await connection.send(body[at : at + size])
        await asyncio.sleep(rng.uniform(0.02, 0.3))


async def _read(connection: Connection, head: Head, question: Question) -> str:
    """The text of the answer, to its proper end.

    Raises: Broken, Left.
    """
    pieces = connection.pieces(head)
    if head.status != 200 or not question.stream:
        whole = b"".join([piece async for piece in pieces])
        if head.status != 200:
            return whole.decode()
        text: str = orjson.loads(whole)["choices"][0]["message"]["content"]
        return text
    said, count, done = [], 0, False
    async for event in _events(pieces):
        assert not done, "an event after the last one"
        count += 1
        if count == question.leaves_after:
            raise Left
        if event == b"[DONE]":
            done = True
            continue
        document: dict[str, Any] = orjson.loads(event)
        said += [one["delta"].get("content") or "" for one in document["choices"]]
    assert done, "a stream that ends properly without its last event"
    return "".join(said)


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            yield event.removeprefix(b"data: ")
    assert not rest, "half an event at the end"


def _judged(book: Book, question: Question, number: int, one: Asked, head: Head, text: str) -> End:
    if head.fields.get("x-request-id") != one.name:
        one.why = f"the answer to {head.fields.get('x-request-id')}"
        return End.WRONG
    if one.code:
        one.why = text
        return End.REFUSED
    if head.status != 200:
        one.why = f"{head.status}: {text[:200]}"
        return End.WRONG
    if question.model == VOLUME:
        expected = answer(number, question.tokens)
    else:
        key = f"{number % REPEATED} {question.tokens}"
        expected = book.said.setdefault(key, text)
    if text != expected:
        one.why = (
            f"said {text[:40]!r}... of {len(text)}, not {expected[:40]!r}... of {len(expected)}"
        )
        return End.WRONG
    return End.WHOLE


# --- kinds ---------------------------------------------------------------------------------------


def short(rng: Random) -> Question:
    return Question(VOLUME, rng.randint(1, 5), stream=rng.random() < 0.3)


def long_stream(rng: Random) -> Question:
    return Question(VOLUME, round(rng.uniform(2.0, 9.0) / STEP_S), stream=True)


def upload(rng: Random) -> Question:
    """Many parts, slowly: streamed when the head names the model, held when the body does."""
    padding = UPLOAD_PARTS * PART_BYTES
    return Question(VOLUME, 20, False, padding, UPLOAD_PARTS, in_head=rng.random() < 0.5)


def leaver(rng: Random) -> Question:
    return Question(VOLUME, 200, stream=True, leaves_after=rng.choice([0, 1, 5, 40]))


def tiny_stream(rng: Random) -> Question:
    return Question(TINY, rng.choice([20, 60, 90]), stream=rng.random() < 0.8)


CROWD: Final[dict[str, tuple[int, Callable[[Random], Question]]]] = {
    "short": (6, short),
    "stream": (18, long_stream),
    "upload": (3, upload),
    "leaver": (3, leaver),
    MINDSPORE: (3, tiny_stream),
}

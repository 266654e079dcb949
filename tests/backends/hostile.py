"""An instance in a thread of its own, asked over raw sockets by tests that wait for its answers."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from random import Random
from typing import Any, Final, TypeVar

import orjson
from hypothesis import strategies as st

from backends.http_api import HttpApi
from backends.http_server import HttpServer
from tests.backends.graphs import GraphRig
from tests.backends.rig import Rig

T = TypeVar("T")
PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def document(self) -> Any:
        return orjson.loads(self.body)


class Served:
    """`made` and its port; `loop` runs in another thread."""

    def __init__(self, made: Rig | GraphRig, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.made = made
        self.port = port
        self._loop = loop

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def say(self, text: bytes) -> Answer:
        """The answer to one request, as it was written."""
        with self.dial() as line:
            line.sendall(text)
            response = HTTPResponse(line, method="POST")
            response.begin()
            return Answer(response.status, response.read())

    def post(self, path: str, body: bytes, *fields: bytes) -> Answer:
        return self.say(request(path, body, *fields))

    def wait(self, awaited: Coroutine[Any, Any, T]) -> T:
        """What it comes to, on the loop of the instance."""
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(PATIENCE_S)

    def rests(self) -> None:
        """Returns when nothing is held any more, neither at the gate nor of a slot."""
        self.wait(self.made.gate.holds(0))


def request(path: str, body: bytes, *fields: bytes) -> bytes:
    head = [b"POST %s HTTP/1.1" % path.encode(), b"Host: h", b"Connection: close"]
    head += [b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


@contextmanager
def serving(ready: Callable[[], AbstractAsyncContextManager[Rig | GraphRig]]) -> Iterator[Served]:
    """Over a READY instance that `ready` makes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="instance")
    thread.start()

    @asynccontextmanager
    async def listening() -> AsyncIterator[Served]:
        async with ready() as made:
            app = HttpApi(made.facts, Random(7), lambda: 1_700_000_000.5).app()
            server = HttpServer(app, "127.0.0.1", 0)
            await server.start()
            yield Served(made, server.port, loop)
            await server.close()

    def run(awaited: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(awaited, loop).result(PATIENCE_S)

    life = listening()
    try:
        yield run(life.__aenter__())
        run(life.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# --- what no sensible client writes ---------------------------------------------------------------

NUMBERS = st.sampled_from(
    [0, -1, 1, 2, 5, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63), 0.5, -0.0, 1e308, 1e-320]
)
TEXTS = st.sampled_from(["", "x", "m", "text", "user", "auto", "\0", "é\U0001f600", "a" * 2000])
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | st.integers(-10, 600)
KEYS = st.sampled_from(["", "role", "content", "type", "text", "include_usage", "0", "65", "-1"])
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DEEP: Final = 1010  # levels: JSON as deep as this is still read

# As they stand in a body: some are no JSON, and some no Python object could be made to spell.
SPELLINGS: Final = {
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "too large": b"1e999",
    "hundreds of digits": b"9" * 400,
    "negative with hundreds of digits": b"-" + b"9" * 400,
    "tiny": b"1e-999",
    "lone surrogate": b'"\\ud800"',
    "surrogates in the wrong order": b'"\\udc00\\ud800"',
    "no UTF-8": b'"\xff\xfe"',
    "control character": b'"\x01"',
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deeper lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "lists without an end": b"[" * 1000,
    "names twice": b'{"role":"user","role":7,"content":"a","content":[]}',
    "nothing": b"",
    "leading zero": b"01",
    "trailing comma": b"[1,]",
    "comment": b"1/**/",
    "long text": b'"' + b"a" * 100_000 + b'"',
    "many strings, one of them long": b'["' + b"a" * 10_000 + b'"' + b',""' * 20_000 + b"]",
}


def spliced(document: dict[str, Any], name: str, spelling: bytes) -> bytes:
    """The document with the value of that name spelt so, whether it has one or not."""
    mark = "\u2603"
    text = orjson.dumps({**document, name: mark})
    return text.replace(orjson.dumps(mark), spelling)

"""A worker's share in the recorder: requests chosen by chance, made harmless, and told to control.

Floor 3, I/O: the link.   Flow: relay -> [sampler] -> control -> a file
Choosing costs a draw; the rest is done a moment later, between requests, and for a few of them at
most. Nobody waits for a sample: where control does not read, or more are chosen than are wanted,
they are lost.
"""

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

import orjson

from gateway.messages import Sampled
from gateway.records import Sampling
from gateway.samples import BODY_MAX_BYTES, Filler, bucket_of, characters_of, redacted

PAUSE_S: Final = 0.05  # between two lots: of at most
LOT: Final = 4  # samples, each a millisecond of this worker's time when it is a long one


class Sampler:
    """`say` tells whether control reads what is said."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: Random, say: Callable[[Sampled], bool]
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._say = say
        self._rules = Sampling(0, True)
        self._waiting: list[tuple[str, bytes, bytes]] = []  # model, path, body

    def use(self, rules: Sampling) -> bool:
        """Whether anything is sampled from now on."""
        self._rules = rules
        return rules.ratio > 0

    def chooses(self, body_bytes: int) -> bool:
        """Whether a request that came just now is to be sampled, if it is served."""
        return body_bytes <= BODY_MAX_BYTES and self._rng.random() < self._rules.ratio

    def take(self, model: str, path: bytes, body: bytes) -> None:
        """It was served."""
        if len(self._waiting) >= LOT:
            return
        self._waiting.append((model, path, body))
        if len(self._waiting) == 1:
            self._loop.call_later(PAUSE_S, self._tell)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for model, path, body in waiting:
            try:
                told = self._say(self._sampled(model, path, body))
            except (orjson.JSONDecodeError, orjson.JSONEncodeError):
                continue  # a mistake where routing does not look, or nested too deep to be written
            if not told:
                return

    def _sampled(self, model: str, path: bytes, body: bytes) -> Sampled:
        document: dict[str, Any] = orjson.loads(body)  # it was read before, to be routed
        bucket = bucket_of(characters_of(document))
        is_redacted = self._rules.redact
        if is_redacted:
            document = redacted(document, model, Filler(self._rng.getrandbits(16)))
        return Sampled(time.time(), model, path.decode("latin-1"), bucket, document, is_redacted)

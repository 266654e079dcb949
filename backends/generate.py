"""One generating request, from its body to its last byte.

Floor 3, I/O.
Flow: body > admit > parse > encode > submit > [tokens] > pieces > last byte > give back.
Nothing is sent before the first token is there, so until then any refusal is a whole answer. After
that the only honest end of a failure is a visible one: an error event and a body that is not
terminated. Whatever ends the request, its slot is free at the next step: the handler is cancelled
when the client goes away (`handler_cancellation` of the runner), and `finally` does the rest.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import orjson
from aiohttp import web

from backends import answers, openai
from backends.answers import Assembly, Chunks, Heading, Piece, Usage
from backends.engines.base import Generation
from backends.errors import EngineFailed, PromptTooLong, RequestInvalid, UnknownModel
from backends.facts import Facts, Loaded
from backends.openai import Chat, Kind, Prompt, Request
from backends.stream import Stream

log = logging.getLogger(__name__)

REQUEST_ID_MAX: Final = 128  # characters of a client's own that are logged
# Encoding takes about a microsecond a character: a longer text would stop the loop for too long.
ENCODE_ON_LOOP_MAX: Final = 8192
SSE_HEAD: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx buffers proxied answers unless told
}
DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class _Job:
    """A request that has been submitted."""

    request: Request
    heading: Heading
    prompt_ids: tuple[int, ...]
    stream: Stream
    assembly: Assembly

    def usage(self) -> Usage:
        return Usage(len(self.prompt_ids), self.assembly.completion_tokens)

    @property
    def shown_ids(self) -> tuple[int, ...] | None:
        return self.prompt_ids if self.request.return_token_ids else None


class Generator:
    """Answers `/v1/chat/completions` and `/v1/completions`."""

    def __init__(self, facts: Facts, rng: Random, wall_s: Callable[[], float]) -> None:
        self._facts = facts
        self._rng = rng
        self._wall_s = wall_s

    async def chat(self, http: web.Request) -> web.StreamResponse:
        return await self._run(http, Kind.CHAT)

    async def completions(self, http: web.Request) -> web.StreamResponse:
        return await self._run(http, Kind.TEXT)

    async def _run(self, http: web.Request, kind: Kind) -> web.StreamResponse:
        """Raises: InstanceError, with nothing sent and nothing held."""
        body = await _json(http)
        self._check_model(http, body)
        name = f"{kind.value}-{self._rng.getrandbits(96):024x}"
        request_id = http.headers.get("x-request-id", name)[:REQUEST_ID_MAX]
        admitted = self._facts.gate.admit(self._facts.life.standing, request_id)
        try:
            loaded = self._facts.text_model()
            request = openai.parse(kind, body, loaded.defaults)
            job = await self._submit(loaded, request, name, request_id)
            try:
                return await (self._stream if request.stream else _whole)(http, job)
            finally:
                job.stream.cancel()
        except EngineFailed:
            self._blame_engine()
            raise
        finally:
            admitted.give_back()

    def _check_model(self, http: web.Request, body: object) -> None:
        # A gateway may route by field instead of body; then the field is what the client asked for.
        name = http.headers.get("x-model") or openai.model_of(body)
        if name != self._facts.identity.model:
            raise UnknownModel(
                f"this instance serves {self._facts.identity.model}, not {name[:100]!r}"
            )

    async def _stream(self, http: web.Request, job: _Job) -> web.StreamResponse:
        pieces = _pieces(job)
        first = await anext(pieces)  # a failure up to here is a whole answer with a status
        response = web.StreamResponse(headers=SSE_HEAD)
        await response.prepare(http)
        try:
            await _write_events(response, job, first, pieces)
            await response.write_eof()
        except EngineFailed as exc:
            self._blame_engine()
            await _cut(http, response, job, str(exc))
        return response

    def _blame_engine(self) -> None:
        self._facts.blame_engine(asyncio.get_running_loop().time())

    async def _submit(self, loaded: Loaded, request: Request, name: str, request_id: str) -> _Job:
        prompt_ids = await _encode(loaded, request.prompt)
        room = loaded.max_seq_len - len(prompt_ids)
        if room < 1:
            raise PromptTooLong(
                "messages" if request.kind is Kind.CHAT else "prompt",
                f"{len(prompt_ids)} tokens leave no room for an answer: the context of "
                f"{self._facts.identity.model} is {loaded.max_seq_len} tokens",
            )
        stop_ids = frozenset[int]() if request.ignore_eos else loaded.text.stop_ids
        generation = Generation(
            request_id=request_id,
            prompt_ids=prompt_ids,
            # More than fits is no mistake: the answer ends with `length`, as it would anyway.
            max_tokens=min(request.max_tokens or room, room),
            sampling=request.sampling,
            stop_ids=stop_ids,
        )
        identity = self._facts.identity
        return _Job(
            request=request,
            heading=Heading(
                request.kind, name, int(self._wall_s()), identity.model, identity.version
            ),
            prompt_ids=prompt_ids,
            stream=loaded.executor.submit(generation),
            assembly=Assembly(loaded.text.detokenizer(), loaded.scan(request.stops), stop_ids),
        )


async def _cut(http: web.Request, response: web.StreamResponse, job: _Job, why: str) -> None:
    """End an answer that has begun so that nobody can take it for whole."""
    log.error("answer cut", extra={"request": job.heading.id, "reason": why})
    await response.write(_event(answers.error(why, "server_error", None, "engine_failed", {})))
    if http.transport is not None:
        http.transport.close()  # what is written goes out, the last chunk never does


async def _json(http: web.Request) -> object:
    text = await http.read()
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid("", f"the body must be JSON: {exc}") from None


async def _encode(loaded: Loaded, prompt: Prompt) -> tuple[int, ...]:
    """The prompt as token ids.

    Raises: RequestInvalid if the chat template refuses, or nothing is left.
    """
    if _length(prompt) > ENCODE_ON_LOOP_MAX:
        # A house rule broken (one thread): tokenizers lets go of the GIL, and a poll must not wait
        # for a long prompt. Nothing is shared: the tokenizer never changes.
        ids = await asyncio.to_thread(_ids, loaded, prompt)
    else:
        ids = _ids(loaded, prompt)
    if not ids:
        raise RequestInvalid("prompt", "must hold at least one token")
    return ids


def _length(prompt: Prompt) -> int:
    """Characters to encode."""
    match prompt:
        case Chat(messages):
            return sum(len(message.content) for message in messages)
        case str():
            return len(prompt)
        case _:
            return 0


def _ids(loaded: Loaded, prompt: Prompt) -> tuple[int, ...]:
    match prompt:
        case Chat(messages):
            turns = [{"role": each.role, "content": each.content} for each in messages]
            return tuple(loaded.text.chat(turns))
        case str():
            return tuple(loaded.text.encode(prompt, special=True))
        case _:
            return prompt


async def _pieces(job: _Job) -> AsyncIterator[Piece]:
    """Every piece up to and with the one that has a finish.

    Raises: EngineFailed.
    """
    async for token in job.stream:
        piece = job.assembly.push(token)
        if piece.finish is not None:
            job.stream.stop()  # after a stop string the model would go on
        yield piece
        if piece.finish is not None:
            return
    raise EngineFailed("the generation ended without a last token")


async def _whole(http: web.Request, job: _Job) -> web.StreamResponse:
    pieces = [piece async for piece in _pieces(job)]
    piece = Piece(
        text="".join(each.text for each in pieces),
        ids=tuple(id_ for each in pieces for id_ in each.ids),
        finish=pieces[-1].finish,
    )
    document = answers.whole(job.heading, piece, job.usage(), job.shown_ids)
    response = web.Response(body=orjson.dumps(document), content_type="application/json")
    # Sent here and not by the server after we return: the request is held until its last byte.
    await response.prepare(http)
    await response.write_eof()
    return response


async def _write_events(
    response: web.StreamResponse, job: _Job, first: Piece, rest: AsyncIterator[Piece]
) -> None:
    """One write an event, so that no event waits for the next one."""
    chunks = Chunks(job.heading, job.request.include_usage, job.shown_ids)
    opening = chunks.opening()
    if opening is not None:
        await response.write(_event(opening))
    piece: Piece | None = first
    while piece is not None:
        # A token may add no text yet: half a character, or what may become a stop string.
        if piece.text or piece.finish is not None or job.request.return_token_ids:
            await response.write(_event(chunks.piece(piece, first=piece is first)))
        piece = await anext(rest, None)
    closing = chunks.closing(job.usage())
    if closing is not None:
        await response.write(_event(closing))
    await response.write(DONE)


def _event(document: object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"

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
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import orjson
from aiohttp import web

from backends import answers
from backends.answers import Assembly, Chunks, Heading, Piece, Usage
from backends.encoding import encode
from backends.engines.base import Generation, Sampling
from backends.errors import EngineFailed, PromptTooLong, RequestInvalid, UnknownModel
from backends.facts import Facts, Loaded
from backends.openai.requests import Kind, Request, choices_of, model_of, parse
from backends.readings import MS_NS
from backends.refusals import openai_error
from backends.stream import Stream, merged

log = logging.getLogger(__name__)

REQUEST_ID_MAX: Final = 128  # characters of a client's own that are logged
SSE_HEAD: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx buffers proxied answers unless told
}
DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class _Job:
    """A request that has been submitted: a stream and an assembly for each of its answers."""

    request: Request
    heading: Heading
    prompt_ids: tuple[int, ...]
    streams: tuple[Stream, ...]
    assemblies: tuple[Assembly, ...]

    def usage(self) -> Usage:
        """The prompt counts once, however many answers it has: as the first of them read it."""
        completion = sum(each.completion_tokens for each in self.assemblies)
        return Usage(len(self.prompt_ids), completion, self.streams[0].reused)

    @property
    def shown_ids(self) -> tuple[int, ...] | None:
        return self.prompt_ids if self.request.return_token_ids else None

    @property
    def shows_logprobs(self) -> bool:
        return self.request.logprobs is not None

    def cancel(self) -> None:
        for stream in self.streams:
            stream.cancel()


def _tell(job: _Job, request_id: str, now_ns: int) -> None:
    """One line of the log for each request that was taken up, however it ended."""
    began_ns = min(stream.submitted_ns for stream in job.streams)
    first_ns = min((stream.first_ns for stream in job.streams if stream.first_ns), default=None)
    usage = job.usage()
    log.info(
        "request ended",
        extra={
            "request_id": request_id,
            "answer": job.heading.id,
            "finish": [each.finish and each.finish.value for each in job.assemblies],
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "queue_wait_ms": round(max(stream.queue_wait_ms for stream in job.streams), 3),
            "first_token_ms": None if first_ns is None else round((first_ns - began_ns) / MS_NS, 3),
            "duration_ms": round((now_ns - began_ns) / MS_NS, 3),
        },
    )


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
        choices = choices_of(body)
        self._check_room(choices)
        admitted = self._facts.gate.admit(self._facts.life.standing, request_id, choices)
        try:
            loaded = self._facts.text_model()
            request = parse(kind, body, loaded.defaults)
            job = await self._submit(loaded, request, name, request_id)
            try:
                return await (self._stream if request.stream else _whole)(http, job)
            finally:
                job.cancel()
                _tell(job, request_id, loaded.executor.now_ns())
        except EngineFailed:
            self._blame_engine()
            raise
        finally:
            admitted.give_back()

    def _check_model(self, http: web.Request, body: object) -> None:
        # A gateway may route by field instead of body; then the field is what the client asked for.
        name = http.headers.get("x-model") or model_of(body)
        if name != self._facts.identity.model:
            raise UnknownModel(
                f"this instance serves {self._facts.identity.model}, not {name[:100]!r}"
            )

    def _check_room(self, choices: int) -> None:
        # What can never be admitted must not be told to come back.
        room = self._facts.gate.room
        if choices > room > 0:  # 0: still loading, which admission says
            raise RequestInvalid("n", f"must be at most {room}, all that fit here, not {choices}")

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
        prompt_ids = await encode(loaded.text, request.prompt)
        room = loaded.max_seq_len - len(prompt_ids)
        if room < 1:
            raise PromptTooLong(
                "messages" if request.kind is Kind.CHAT else "prompt",
                f"{len(prompt_ids)} tokens leave no room for an answer: the context of "
                f"{self._facts.identity.model} is {loaded.max_seq_len} tokens",
            )
        stop_ids = frozenset[int]() if request.ignore_eos else loaded.text.stop_ids
        first = Generation(
            request_id=request_id,
            prompt_ids=prompt_ids,
            # More than fits is no mistake: the answer ends with `length`, as it would anyway.
            max_tokens=min(request.max_tokens or room, room),
            sampling=request.sampling,
            stop_ids=stop_ids,
            logprobs=request.logprobs,
        )
        indices = range(request.choices)
        identity = self._facts.identity
        return _Job(
            request=request,
            heading=Heading(
                request.kind, name, int(self._wall_s()), identity.model, identity.version
            ),
            prompt_ids=prompt_ids,
            streams=loaded.executor.submit_all(
                [replace(first, sampling=_seeded(first.sampling, index)) for index in indices]
            ),
            assemblies=tuple(_assembly(loaded, request, stop_ids, index) for index in indices),
        )


def _seeded(sampling: Sampling, index: int) -> Sampling:
    """For one of several answers: what a seed gives is the first of them, and each differs."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=sampling.seed + index)


def _assembly(loaded: Loaded, request: Request, stop_ids: frozenset[int], index: int) -> Assembly:
    text = loaded.text
    return Assembly(
        text.detokenizer(), loaded.scan(request.stops), stop_ids, text.token_bytes, index
    )


async def _cut(http: web.Request, response: web.StreamResponse, job: _Job, why: str) -> None:
    """End an answer that has begun so that nobody can take it for whole."""
    log.error("answer cut", extra={"answer": job.heading.id, "reason": why})
    await response.write(_event(openai_error(why, "server_error", None, "engine_failed", {})))
    if http.transport is not None:
        http.transport.close()  # what is written goes out, the last chunk never does


async def _json(http: web.Request) -> object:
    text = await http.read()
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid("", f"the body must be JSON: {exc}") from None


async def _pieces(job: _Job) -> AsyncIterator[Piece]:
    """Every piece of every answer, up to and with the ones that have a finish.

    Raises: EngineFailed.
    """
    going = len(job.streams)
    async for index, token in merged(job.streams):
        piece = job.assemblies[index].push(token)
        if piece.finish is not None:
            job.streams[index].stop()  # after a stop string the model would go on
            going -= 1
        yield piece
    if going:
        raise EngineFailed("a generation ended without a last token")


async def _whole(http: web.Request, job: _Job) -> web.StreamResponse:
    pieces: list[list[Piece]] = [[] for _ in job.streams]
    async for piece in _pieces(job):
        pieces[piece.index].append(piece)
    finished = [answers.joined(each) for each in pieces]
    document = answers.whole(job.heading, finished, job.usage(), job.shown_ids, job.shows_logprobs)
    response = web.Response(body=orjson.dumps(document), content_type="application/json")
    # Sent here and not by the server after we return: the request is held until its last byte.
    await response.prepare(http)
    await response.write_eof()
    return response


async def _write_events(
    response: web.StreamResponse, job: _Job, first: Piece, rest: AsyncIterator[Piece]
) -> None:
    """One write an event, so that no event waits for the next one."""
    chunks = Chunks(job.heading, job.request.include_usage, job.shown_ids, job.shows_logprobs)
    for index in range(len(job.streams)):
        opening = chunks.opening(index)
        if opening is not None:
            await response.write(_event(opening))
    begun: set[int] = set()
    piece: Piece | None = first
    while piece is not None:
        # A token may add no text yet: half a character, or what may become a stop string.
        if piece.text or piece.finish is not None or job.request.return_token_ids:
            await response.write(_event(chunks.piece(piece, piece.index not in begun)))
            begun.add(piece.index)
        piece = await anext(rest, None)
    closing = chunks.closing(job.usage())
    if closing is not None:
        await response.write(_event(closing))
    await response.write(DONE)


def _event(document: object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"

"""A JSON body of the OpenAI API -> a request, or the place and the nature of the mistake.

Floor 1, pure.
Strict where a wrong reading would change the answer, tolerant of everything else: fields that we
do not know are ignored, and what we know but cannot honour is refused (`unoffered.py`).
Extensions: `return_token_ids`, `ignore_eos` and `top_k`, spelt as in vLLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from backends.engines.base import Sampling
from backends.errors import RequestInvalid
from backends.openai import unoffered
from backends.openai.drawing import parse_sampling
from backends.openai.prompts import Prompt, parse_chat, parse_prompt
from backends.openai.values import as_object, flag, refuse, whole

STOPS_MAX: Final = 4  # source: OpenAI API reference, `stop`
STOP_LENGTH_MAX: Final = 1024  # each is looked for in the tail of every piece of text
TOKENS_MAX: Final = 2**31 - 1  # positions are int32
TOKENS_DEFAULT: Final = 16  # of completions; source: OpenAI API reference, `max_tokens`
CHOICES_MAX: Final = 128  # source: OpenAI API reference, `n`
LOGPROBS_MAX: Final = 20  # source: OpenAI API reference, `top_logprobs`


class Kind(Enum):
    """Which of the two generating calls it is; the value is how its ids begin."""

    CHAT = "chatcmpl"
    TEXT = "cmpl"


@dataclass(frozen=True, slots=True)
class Request:
    kind: Kind
    prompt: Prompt
    max_tokens: int | None  # None: as many as the context has room for
    choices: int  # answers to the one prompt
    sampling: Sampling
    logprobs: int | None  # likeliest tokens to show at each place, beside the one drawn; None: none
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool  # a last chunk with the counts
    return_token_ids: bool
    ignore_eos: bool  # go on to max_tokens: for benchmarks


def model_of(body: object) -> str:
    """The model that a body names.

    Raises: RequestInvalid.
    """
    name = as_object(body).get("model")
    if not isinstance(name, str) or not name:
        refuse("model", "must be the name of a model", name)
    return name


def choices_of(body: object) -> int:
    """How many answers a body asks for; known before it is parsed, as admission needs it.

    Raises: RequestInvalid.
    """
    fields = as_object(body)
    choices = whole(fields, "n", 1, CHOICES_MAX, 1)
    # Of more than are returned the best would have to be chosen.
    if whole(fields, "best_of", 1, CHOICES_MAX, choices) != choices:
        raise RequestInvalid(
            "best_of", f"must be n ({choices}): more is not offered by this server"
        )
    return choices


def parse(kind: Kind, body: object, defaults: Sampling) -> Request:
    """The request in a body; `defaults` holds where the body says nothing.

    Raises: RequestInvalid with the dotted path of the first mistake.
    """
    fields = as_object(body)
    unoffered.check(fields)
    stream = flag(fields, "stream")
    return Request(
        kind=kind,
        prompt=parse_chat(fields) if kind is Kind.CHAT else parse_prompt(fields),
        max_tokens=_max_tokens(kind, fields),
        choices=choices_of(fields),
        sampling=parse_sampling(fields, defaults),
        logprobs=(_chat_logprobs if kind is Kind.CHAT else _text_logprobs)(fields),
        stops=_stops(fields),
        stream=stream,
        include_usage=_include_usage(fields, stream),
        return_token_ids=flag(fields, "return_token_ids"),
        ignore_eos=flag(fields, "ignore_eos"),
    )


def _max_tokens(kind: Kind, fields: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):  # the newer name wins
        if fields.get(name) is not None:
            return whole(fields, name, 1, TOKENS_MAX, 1)
    return None if kind is Kind.CHAT else TOKENS_DEFAULT


def _chat_logprobs(fields: Mapping[str, object]) -> int | None:
    count = whole(fields, "top_logprobs", 0, LOGPROBS_MAX, 0)
    if flag(fields, "logprobs"):
        return count
    if count:
        raise RequestInvalid("top_logprobs", "needs logprobs: true")
    return None


def _text_logprobs(fields: Mapping[str, object]) -> int | None:
    if fields.get("logprobs") is None:
        return None
    return whole(fields, "logprobs", 0, LOGPROBS_MAX, 0)


def _stops(fields: Mapping[str, object]) -> tuple[str, ...]:
    stop = fields.get("stop")
    if stop is None:
        return ()
    listed = [stop] if isinstance(stop, str) else stop
    if not isinstance(listed, list) or len(listed) > STOPS_MAX:
        refuse("stop", f"must be a string or a list of up to {STOPS_MAX}", stop)
    for i, each in enumerate(listed):
        if not isinstance(each, str) or not 0 < len(each) <= STOP_LENGTH_MAX:
            path = "stop" if isinstance(stop, str) else f"stop.{i}"
            refuse(path, f"must be a string of 1 to {STOP_LENGTH_MAX} characters", each)
    return tuple(listed)


def _include_usage(fields: Mapping[str, object], stream: bool) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, Mapping):
        refuse("stream_options", "must be an object", options)
    if not stream:
        raise RequestInvalid("stream_options", "needs stream: true")
    return flag(options, "include_usage", "stream_options.")

"""A JSON body of the OpenAI API -> a request, or the place and the nature of the mistake.

Floor 1, pure.
Strict where a wrong reading would change the answer, tolerant of everything else: fields that we
do not know are ignored, as OpenAI's own servers do. What we know but cannot honour is refused if
the answer would have another shape than the client expects (`_UNOFFERED`), else ignored as well.
Extensions: `return_token_ids`, `ignore_eos` and `top_k`, spelt as in vLLM.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NoReturn

from backends.engines.base import Sampling
from backends.errors import RequestInvalid

STOPS_MAX: Final = 4  # source: OpenAI API reference, `stop`
STOP_LENGTH_MAX: Final = 1024  # each is looked for in the tail of every piece of text
TEMPERATURE_MAX: Final = 2.0  # source: OpenAI API reference, `temperature`
TOKENS_MAX: Final = 2**31 - 1  # positions are int32
TOKENS_DEFAULT: Final = 16  # of completions; source: OpenAI API reference, `max_tokens`
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Kind(Enum):
    """Which of the two generating calls it is; the value is how its ids begin."""

    CHAT = "chatcmpl"
    TEXT = "cmpl"


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    messages: tuple[Message, ...]


# A chat, a text, or token ids.
Prompt = Chat | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    kind: Kind
    prompt: Prompt
    max_tokens: int | None  # None: as many as the context has room for
    sampling: Sampling
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool  # a last chunk with the counts
    return_token_ids: bool
    ignore_eos: bool  # go on to max_tokens: for benchmarks


def _is_nothing(value: object) -> bool:
    return not value


def _is_text(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "text"


def _leaves_it_to_the_model(value: object) -> bool:
    return value in ("auto", "none")


# Field -> what of it we can honour. Asking for the rest changes the shape of the answer.
_UNOFFERED: Final[Mapping[str, Callable[[object], bool]]] = MappingProxyType(
    {
        "n": lambda value: value == 1 and not isinstance(value, bool),
        "best_of": lambda value: value == 1,
        "logprobs": lambda value: value is False,  # 0 asks completions for the chosen token's
        "top_logprobs": _is_nothing,
        "prompt_logprobs": _is_nothing,
        "echo": _is_nothing,
        "suffix": _is_nothing,
        "response_format": _is_text,
        "tool_choice": _leaves_it_to_the_model,
        "function_call": _leaves_it_to_the_model,
        "modalities": lambda value: value == ["text"],
        "audio": _is_nothing,
    }
)


def model_of(body: object) -> str:
    """The model that a body names.

    Raises: RequestInvalid.
    """
    name = _object(body).get("model")
    if not isinstance(name, str) or not name:
        _refuse("model", "must be the name of a model", name)
    return name


def parse(kind: Kind, body: object, defaults: Sampling) -> Request:
    """The request in a body; `defaults` holds where the body says nothing.

    Raises: RequestInvalid with the dotted path of the first mistake.
    """
    fields = _object(body)
    for name, can_honour in _UNOFFERED.items():
        value = fields.get(name)
        if value is not None and not can_honour(value):
            raise RequestInvalid(name, f"{_shown(value)} is not offered by this server")
    stream = _flag(fields, "stream")
    return Request(
        kind=kind,
        prompt=_chat(fields) if kind is Kind.CHAT else _prompt(fields),
        max_tokens=_max_tokens(kind, fields),
        sampling=_sampling(fields, defaults),
        stops=_stops(fields),
        stream=stream,
        include_usage=_include_usage(fields, stream),
        return_token_ids=_flag(fields, "return_token_ids"),
        ignore_eos=_flag(fields, "ignore_eos"),
    )


def parse_defaults(generation_config: object) -> Sampling:
    """The sampling that a snapshot asks for where a request says nothing.

    Temperature 1 is OpenAI's default. `do_sample` is not read: it is a default of the library
    that wrote the file more often than a wish of the model's makers (vLLM does the same).

    Raises: RequestInvalid if the file holds a value that no request could.
    """
    return _sampling(_object(generation_config), Sampling(temperature=1.0))


# --- what to answer -----------------------------------------------------------------------------


def _chat(fields: Mapping[str, object]) -> Chat:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        _refuse("messages", "must be a list of at least one message", messages)
    return Chat(tuple(_message(f"messages.{i}", each) for i, each in enumerate(messages)))


def _message(path: str, message: object) -> Message:
    if not isinstance(message, Mapping):
        _refuse(path, "must be an object", message)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        _refuse(f"{path}.role", f"must be one of {', '.join(sorted(ROLES))}", role)
    # `developer` is OpenAI's newer name of the same thing; no chat template knows it.
    role = "system" if role == "developer" else role
    content = message.get("content")
    if content is None and role == "assistant":  # a turn that only called tools
        return Message(role, "")
    if isinstance(content, list):
        parts = [_part(f"{path}.content.{i}", part) for i, part in enumerate(content)]
        return Message(role, "\n".join(parts))  # joined as vLLM does
    if not isinstance(content, str):
        _refuse(f"{path}.content", "must be a string or a list of text parts", content)
    return Message(role, content)


def _part(path: str, part: object) -> str:
    if not isinstance(part, Mapping):
        _refuse(path, "must be an object", part)
    if part.get("type") != "text":
        _refuse(f"{path}.type", "must be text: this model reads nothing else", part.get("type"))
    text = part.get("text")
    if not isinstance(text, str):
        _refuse(f"{path}.text", "must be a string", text)
    return text


def _prompt(fields: Mapping[str, object]) -> str | tuple[int, ...]:
    prompt, path = fields.get("prompt"), "prompt"
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise RequestInvalid("prompt", f"one prompt a request, not {len(prompt)}")
        prompt, path = prompt[0], "prompt.0"
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not prompt:
        _refuse(path, "must be a string or a list of at least one token id", prompt)
    for i, each in enumerate(prompt):
        if not _is_whole(each) or not 0 <= each <= TOKENS_MAX:
            _refuse(f"{path}.{i}", "must be a token id", each)
    return tuple(prompt)


# --- how to answer ------------------------------------------------------------------------------


def _max_tokens(kind: Kind, fields: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):  # the newer name wins
        if fields.get(name) is not None:
            return _whole(fields, name, 1, TOKENS_MAX)
    return None if kind is Kind.CHAT else TOKENS_DEFAULT


def _sampling(fields: Mapping[str, object], defaults: Sampling) -> Sampling:
    seed = defaults.seed
    if fields.get("seed") is not None:
        # Clients send signed numbers; a generator wants its seed without a sign.
        seed = _whole(fields, "seed", -(2**63), 2**64 - 1) % 2**64
    top_p = _number(fields, "top_p", 0.0, 1.0, defaults.top_p)
    if top_p == 0.0:
        _refuse("top_p", "must be above 0 and at most 1", top_p)
    top_k = defaults.top_k
    if fields.get("top_k") is not None:
        top_k = max(_whole(fields, "top_k", -1, TOKENS_MAX), 0)  # -1 also means all
    return Sampling(
        temperature=_number(fields, "temperature", 0.0, TEMPERATURE_MAX, defaults.temperature),
        top_p=top_p,
        top_k=top_k,
        seed=seed,
    )


def _stops(fields: Mapping[str, object]) -> tuple[str, ...]:
    stop = fields.get("stop")
    if stop is None:
        return ()
    listed = [stop] if isinstance(stop, str) else stop
    if not isinstance(listed, list) or len(listed) > STOPS_MAX:
        _refuse("stop", f"must be a string or a list of up to {STOPS_MAX}", stop)
    for i, each in enumerate(listed):
        if not isinstance(each, str) or not 0 < len(each) <= STOP_LENGTH_MAX:
            path = "stop" if isinstance(stop, str) else f"stop.{i}"
            _refuse(path, f"must be a string of 1 to {STOP_LENGTH_MAX} characters", each)
    return tuple(listed)


def _include_usage(fields: Mapping[str, object], stream: bool) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, Mapping):
        _refuse("stream_options", "must be an object", options)
    if not stream:
        raise RequestInvalid("stream_options", "needs stream: true")
    return _flag(options, "include_usage", "stream_options.")


# --- single values ------------------------------------------------------------------------------


def _object(body: object) -> Mapping[str, object]:
    if not isinstance(body, Mapping):
        raise RequestInvalid("", f"the body must be a JSON object, not {_shown(body)}")
    return body


def _flag(fields: Mapping[str, object], name: str, under: str = "") -> bool:
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        _refuse(under + name, "must be true or false", value)
    return value


def _whole(fields: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = fields[name]
    if not _is_whole(value) or not isinstance(value, int) or not low <= value <= high:
        _refuse(name, f"must be a whole number from {low} to {high}", value)
    return value


def _number(
    fields: Mapping[str, object], name: str, low: float, high: float, default: float
) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        _refuse(name, f"must be a number from {low:g} to {high:g}", value)
    return float(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # JSON's true is not a number


def _refuse(path: str, rule: str, value: object) -> NoReturn:
    raise RequestInvalid(path, f"{rule}, not {_shown(value)}")


def _shown(value: object) -> str:
    """The value as the client wrote it, or its type where that would be long."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "an object"
        case list():
            return "a list" if value else "an empty list"
        case str():
            return f"{value[:40]!r}" if len(value) <= 40 else f"{value[:40]!r}..."
        case _:
            return repr(value)[:40]

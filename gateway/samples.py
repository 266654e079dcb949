"""Samples of requests: how long one is, what of it may be kept, and which make room for others.

Floor 1, pure but for the reservoir, which is its owner's.   Flow: worker -> control -> a file
What warms and validates new instances should look like what clients send: its roles, its
parameters, its lengths. What it says is nobody's business: unless the operator wants it otherwise,
each text is replaced by filler of the same length, and whatever is not known to be harmless is left
out. The list of what stays is short on purpose: a field that a client invents may hold anything.
"""

import re
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

BODY_MAX_BYTES: Final = 262_144  # longer ones are not sampled: some 65,000 tokens
BUCKETS: Final = (("<100", 100), ("<500", 500), ("<2000", 2000))  # tokens of the prompt
LONGEST: Final = "longer"
BUCKET_NAMES: Final = (*(name for name, _ in BUCKETS), LONGEST)
TOKEN_CHARACTERS: Final = 4  # of English, on average; who replays a sample counts anew

ROLES: Final = frozenset({"assistant", "developer", "function", "system", "tool", "user"})
WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
WORDS: Final = frozenset({"encoding_format", "reasoning_effort", "tool_choice"})
SWITCHES: Final = frozenset({"chat_template_kwargs", "stream_options"})
# Parameters that are a number, a truth or nothing. Any other may be an account or a telephone.
PLAIN: Final = frozenset(
    {
        "add_generation_prompt",
        "add_special_tokens",
        "best_of",
        "continue_final_message",
        "dimensions",
        "echo",
        "enable_thinking",
        "frequency_penalty",
        "ignore_eos",
        "include_usage",
        "length_penalty",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_logprobs",
        "repetition_penalty",
        "return_token_ids",
        "seed",
        "skip_special_tokens",
        "stream",
        "temperature",
        "thinking",
        "top_k",
        "top_logprobs",
        "top_p",
        "use_beam_search",
    }
)
NO_TEXT: Final = frozenset({"id", "image_url", "input_audio", "role", "tool_call_id", "type"})
WIDE: Final = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")  # about a token each
ENGLISH: Final = (
    "The harbour was quiet when the first boats came home. Nets were hung along the wall to dry, "
    "and somebody counted the baskets twice. By noon the market had sold nearly all of it; what "
    "remained went to the kitchen behind the square, where soup is made every day of the year. "
)
CHINESE: Final = "清晨的港口很安静第一批渔船回来了人们把网挂在墙边晾干又把篮子数了两遍"
IDS: Final = range(10, 100)  # of tokens that every vocabulary has


def bucket_of(characters: int) -> str:
    """The bucket of a request with so much text, by an estimate of its tokens."""
    tokens = characters / TOKEN_CHARACTERS
    return next((name for name, below in BUCKETS if tokens < below), LONGEST)


# --- text ----------------------------------------------------------------------------------------


def characters_of(document: dict[str, Any]) -> int:
    """How much text its prompt is; a token id counts as the characters of a token."""
    prompt = [document.get(key) for key in ("prompt", "input", "suffix", "messages", "tools")]
    return _characters(prompt)


def _characters(value: Any) -> int:
    total, rest = 0, [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, list):
            rest += one
        elif isinstance(one, dict):
            rest += [inner for key, inner in one.items() if key not in NO_TEXT]
        elif isinstance(one, int) and not isinstance(one, bool):
            total += TOKEN_CHARACTERS
    return total


class Filler:
    """Text that says nothing, in the place of texts that do. It begins elsewhere for each sample:
    instances keep what prompts have in common."""

    def __init__(self, start: int) -> None:
        self._start = start

    def text(self, said: str) -> str:
        """As long as what was said, and as much of it in wide characters."""
        wide = len(WIDE.findall(said))
        return _cycled(ENGLISH, self._start, len(said) - wide) + _cycled(CHINESE, self._start, wide)

    def name(self, said: str) -> str:
        """Of a function: the same for the same length, so that who refers to it still does."""
        return "x" * len(said)

    def ids(self, count: int) -> list[int]:
        return [IDS[(self._start + at) % len(IDS)] for at in range(count)]


def _cycled(text: str, start: int, length: int) -> str:
    start %= len(text)
    times = (start + length) // len(text) + 1
    return (text * times)[start : start + length]


# --- redaction -----------------------------------------------------------------------------------


def redacted(document: dict[str, Any], model: str, filler: Filler) -> dict[str, Any]:
    """The request without what it says: see the module."""
    kept: dict[str, Any] = {}
    for key, value in document.items():
        if key == "model":
            kept[key] = model
        elif key == "messages" and isinstance(value, list):
            kept[key] = [_message(one, filler) for one in value if isinstance(one, dict)]
        elif key in {"prompt", "input"}:
            kept[key] = _prompt(value, filler)
        elif key == "suffix" and isinstance(value, str):
            kept[key] = filler.text(value)
        elif key == "tools" and isinstance(value, list):
            kept[key] = [_tool(one, filler) for one in value if isinstance(one, dict)]
        elif key == "tool_choice" and isinstance(value, dict):
            kept[key] = _tool(value, filler)
        elif key == "response_format" and isinstance(value, dict):
            kept |= _response_format(value, filler)
        elif key in SWITCHES and isinstance(value, dict):
            kept[key] = {k: v for k, v in value.items() if _harmless(k, v)}
        elif (key in WORDS and _is_word(value)) or _harmless(key, value):
            kept[key] = value
    return kept


def _harmless(key: str, value: Any) -> bool:
    return key in PLAIN and (value is None or isinstance(value, bool | int | float))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and WORD.fullmatch(value) is not None


def _message(message: dict[str, Any], filler: Filler) -> dict[str, Any]:
    role = message.get("role")
    kept: dict[str, Any] = {"role": role if isinstance(role, str) and role in ROLES else "user"}
    if "content" in message:
        kept["content"] = _content(message["content"], filler)
    for key in ("name", "tool_call_id"):
        if isinstance(message.get(key), str):
            kept[key] = filler.name(message[key])
    if isinstance(message.get("reasoning_content"), str):
        kept["reasoning_content"] = filler.text(message["reasoning_content"])
    if isinstance(message.get("tool_calls"), list):
        calls = message["tool_calls"]
        kept["tool_calls"] = [_tool(call, filler) for call in calls if isinstance(call, dict)]
    return kept


def _content(content: Any, filler: Filler) -> Any:
    """A text, or parts; of those the texts only: a picture of filler is none."""
    if isinstance(content, str):
        return filler.text(content)
    if not isinstance(content, list):
        return None
    texts = (part.get("text") for part in content if isinstance(part, dict))
    kept = [{"type": "text", "text": filler.text(one)} for one in texts if isinstance(one, str)]
    return kept or ""


def _prompt(prompt: Any, filler: Filler) -> Any:
    """A text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return filler.text(prompt)
    if not isinstance(prompt, list):
        return ""
    if all(isinstance(one, int) for one in prompt):
        return filler.ids(len(prompt))
    several = [one for one in prompt if isinstance(one, str | list)]
    return [filler.text(one) if isinstance(one, str) else filler.ids(len(one)) for one in several]


def _tool(tool: dict[str, Any], filler: Filler) -> dict[str, Any]:
    """A tool, or a call of one: names that still fit, and a schema as long as its own."""
    kept: dict[str, Any] = {}
    if isinstance(tool.get("id"), str):
        kept["id"] = filler.name(tool["id"])
    kept["type"] = "function"
    function = tool.get("function")
    if isinstance(function, dict):
        kept["function"] = _function(function, filler)
    return kept


def _function(function: dict[str, Any], filler: Filler) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    if isinstance(function.get("name"), str):
        kept["name"] = filler.name(function["name"])
    if isinstance(function.get("description"), str):
        kept["description"] = filler.text(function["description"])
    if isinstance(function.get("parameters"), dict):
        kept["parameters"] = _schema(function["parameters"], filler)
    arguments = function.get("arguments")
    if isinstance(arguments, str):  # JSON, as models write it
        kept["arguments"] = orjson.dumps({"text": filler.text(arguments)}).decode()
    return kept


def _response_format(wanted: dict[str, Any], filler: Filler) -> dict[str, Any]:
    """The field, or none: a grammar of filler would be refused."""
    kind = wanted.get("type")
    if kind == "text" or kind == "json_object":
        return {"response_format": {"type": kind}}
    if kind != "json_schema":
        return {}
    inner = wanted.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    plain = _schema(schema, filler) if isinstance(schema, dict) else {"type": "object"}
    return {"response_format": {"type": kind, "json_schema": {"name": "sample", "schema": plain}}}


def _schema(schema: dict[str, Any], filler: Filler) -> dict[str, Any]:
    return {"type": "object", "description": filler.text("x" * _characters(schema))}


# --- the reservoir -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """One sample, as its line in the file. `number` grows with each that comes."""

    number: int
    bucket: str
    line: bytes  # with its end
    redacted: bool = False


class Reservoir:
    """The samples of one model. A new one takes the place of any older one of its bucket, so each
    is as likely to go, and the older the likelier it has gone."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._kept: dict[str, list[Kept]] = {name: [] for name in BUCKET_NAMES}
        self._next = 0

    def add(
        self, bucket: str, line: bytes, per_bucket: int, max_bytes: int, redacted: bool = False
    ) -> bool:
        """Whether it is kept; what has to make room is gone then, also for bounds that shrank."""
        if len(line) > max_bytes or bucket not in self._kept:
            return False
        one = Kept(self._next, bucket, line, redacted)
        self._next += 1
        for held in self._kept.values():
            while len(held) > per_bucket - (held is self._kept[bucket]):
                held.pop(self._rng.randrange(len(held)))
        self._kept[bucket].append(one)
        while self.size() > max_bytes:  # the bucket that takes most gives its oldest, not the new
            heaviest = max(self._kept.values(), key=lambda many: _weight(many, one))
            heaviest.remove(min(heaviest, key=lambda other: other.number))
        return True

    def drop_words(self) -> bool:
        """Keep only what was redacted; whether anything had to go."""
        before = self.size()
        for bucket, held in self._kept.items():
            self._kept[bucket] = [one for one in held if one.redacted]
        return self.size() < before

    def size(self) -> int:
        return sum(len(one.line) for many in self._kept.values() for one in many)

    def file(self) -> bytes:
        """All of them, oldest first."""
        everyone = [one for many in self._kept.values() for one in many]
        return b"".join(one.line for one in sorted(everyone, key=lambda one: one.number))


def _weight(many: list[Kept], new: Kept) -> int:
    return sum(len(one.line) for one in many if one is not new)

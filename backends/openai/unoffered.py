"""What we know of the OpenAI API, and of its dialects, and cannot honour.

Floor 1, pure.
Ignored in silence each of these would give another answer than the client asked for, in its shape
or in its content. Values that ask for nothing are fine: many clients send every field they know.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from backends.errors import RequestInvalid
from backends.openai.values import shown


def _is_nothing(value: object) -> bool:
    return not value


def _is_one(value: object) -> bool:
    return value == 1 and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "text"


def _leaves_it_to_the_model(value: object) -> bool:
    return value in ("auto", "none")


# Field -> whether a value asks for no more than what every answer is.
UNOFFERED: Final[Mapping[str, Callable[[object], bool]]] = MappingProxyType(
    {
        # OpenAI
        "echo": _is_nothing,
        "suffix": _is_nothing,
        "response_format": _is_text,
        "tools": _is_nothing,
        "tool_choice": _leaves_it_to_the_model,
        "functions": _is_nothing,
        "function_call": _leaves_it_to_the_model,
        "modalities": lambda value: value == ["text"],
        "audio": _is_nothing,
        "web_search_options": lambda value: False,  # an empty object already asks for a search
        # vLLM
        "prompt_logprobs": _is_nothing,
        "min_p": _is_nothing,
        "min_tokens": _is_nothing,
        "repetition_penalty": _is_one,
        "stop_token_ids": _is_nothing,
        "use_beam_search": _is_nothing,
        "structured_outputs": _is_nothing,
        "guided_json": _is_nothing,
        "guided_regex": _is_nothing,
        "guided_choice": _is_nothing,
        "guided_grammar": _is_nothing,
    }
)


def check(fields: Mapping[str, object]) -> None:
    """Raises: RequestInvalid for the first that cannot be honoured."""
    for name, can_honour in UNOFFERED.items():
        value = fields.get(name)
        if value is not None and not can_honour(value):
            raise RequestInvalid(name, f"{shown(value)} is not offered by this server")

"""Fields that cannot be honoured are refused by name, unless they ask for nothing."""

import pytest

from backends.errors import RequestInvalid
from backends.openai.unoffered import UNOFFERED, check

ASKS: dict[str, list[object]] = {
    "echo": [True, 1],
    "suffix": ["end"],
    "response_format": [{"type": "json_object"}, {"type": "json_schema"}, "text", {}],
    "tools": [[{"type": "function"}]],
    "tool_choice": ["required", {"type": "function"}],
    "functions": [[{"name": "f"}]],
    "function_call": [{"name": "f"}],
    "modalities": [["text", "audio"], []],
    "audio": [{"voice": "x"}],
    "web_search_options": [{}],
    "prompt_logprobs": [1],
    "min_p": [0.1],
    "min_tokens": [3],
    "repetition_penalty": [1.1, True],
    "stop_token_ids": [[7]],
    "use_beam_search": [True],
    "structured_outputs": [{"regex": "a"}],
    "guided_json": [{"type": "object"}],
    "guided_regex": ["a+"],
    "guided_choice": [["a"]],
    "guided_grammar": ["root"],
}
ASKS_NOTHING: dict[str, list[object]] = {
    "echo": [False],
    "suffix": [""],
    "response_format": [{"type": "text"}],
    "tools": [[]],
    "tool_choice": ["auto", "none"],
    "function_call": ["auto"],
    "modalities": [["text"]],
    "min_p": [0, 0.0],
    "repetition_penalty": [1, 1.0],
    "stop_token_ids": [[]],
}


def test_every_row_has_a_value_that_is_refused() -> None:
    assert ASKS.keys() == UNOFFERED.keys()


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, all_ in ASKS.items() for v in all_])
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RequestInvalid, match=rf"^{name}: .* is not offered by this server") as it:
        check({name: value})
    assert it.value.path == name


@pytest.mark.parametrize(
    ("name", "value"), [(n, v) for n, all_ in ASKS_NOTHING.items() for v in all_]
)
def test_what_asks_for_nothing_is_no_mistake(name: str, value: object) -> None:
    check({name: value})

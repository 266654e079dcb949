"""docs/openai.md names every field that is read or refused, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest

from backends.engines.base import Sampling
from backends.openai.requests import Kind, model_of, parse
from backends.openai.unoffered import UNOFFERED

TEXT = (Path(__file__).parents[3] / "docs" / "openai.md").read_text("utf-8")
TABLE, _, REST = TEXT.partition("Null is the same")
REFUSED = REST.partition("Refused with their name")[2].partition("\n## ")[0]
ROWS = [line.split("|") for line in TABLE.splitlines() if line.startswith("| `")]


class Asked(dict[str, Any]):
    """A body that remembers which of its fields were looked at."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.parametrize(("kind", "column"), [(Kind.CHAT, 2), (Kind.TEXT, 3)])
def test_every_field_that_is_read_is_documented(kind: Kind, column: int) -> None:
    messages = [{"role": "user", "content": "x"}]
    # best_of is a field of completions; in a chat it is read only to be refused.
    body = Asked({"model": "m", "messages": messages, "prompt": "x", "logprobs": None})
    model_of(body)
    parse(kind, body, Sampling())
    documented = {
        name.partition(".")[0]
        for row in ROWS
        if row[column].strip()
        for name in re.findall(r"`([\w.]+)`", row[1])
    }
    read = body.names - UNOFFERED.keys() - ({"best_of"} if kind is Kind.CHAT else set())
    assert documented == read


def test_every_field_that_is_refused_is_documented() -> None:
    assert set(re.findall(r"`(\w+)`", REFUSED)) == UNOFFERED.keys()

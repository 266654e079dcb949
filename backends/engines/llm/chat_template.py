"""A conversation -> the text that the model was trained to continue.

Floor 1, pure (the clock comes in as a function).
A template is code that came with the weights, so it runs in Jinja's sandbox: it can change nothing
and call nothing but what is named here. The names and settings are those that chat templates on
the usual hubs are written for (Source: transformers documentation, "Writing a chat template").
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from backends.errors import RequestInvalid, SnapshotInvalid

# What Python itself raises in a template that a message does not fit: `None + "x"`, a missing key.
MISFITS = (TemplateError, TypeError, ValueError, LookupError, ArithmeticError)


class ChatTemplate:
    """One model's template, compiled."""

    def __init__(
        self, source: str, specials: Mapping[str, str], now: Callable[[], datetime]
    ) -> None:
        """`specials`: bos_token and eos_token. Raises: SnapshotInvalid."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as exc:
            raise SnapshotInvalid(f"chat_template.jinja, line {exc.lineno}: {exc.message}") from exc
        self._specials = specials

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text, ending where the answer begins. Raises: RequestInvalid."""
        try:
            return self._template.render(
                messages=messages, tools=None, add_generation_prompt=True, **self._specials
            )
        except MISFITS as exc:
            raise RequestInvalid("messages", f"the model's chat template refuses: {exc}") from exc


class _Generation(Extension):
    """`{% generation %}` marks what a model is trained on; to us it is its content."""

    tags = {"generation"}  # noqa: RUF012  # the library's own way of declaring it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(words: str) -> None:
    raise TemplateError(words)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    # Not Jinja's own filter: that one escapes for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

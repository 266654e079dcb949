"""Templates as models ship them, and templates that must not get anywhere."""

from datetime import datetime

import pytest

from backends.engines.llm.chat_template import ChatTemplate
from backends.errors import RequestInvalid, SnapshotInvalid

HELLO = [{"role": "user", "content": "hi"}]


def render(source: str, messages: list[dict[str, object]] | None = None) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"}, lambda: datetime(2031, 5, 6))
    return template.render(HELLO if messages is None else messages)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s>hi"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{% if tools is none %}none{% endif %}", "none"),
        ("{{ strftime_now('%d %b %Y') }}", "06 May 2031"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "hi"}'),
        ("{{ {'a': '<é>'} | tojson(indent=1) }}", '{\n "a": "<é>"\n}'),
        ("  {% for m in messages %}\n{{ m.role }}\n{% endfor %}", "user\n"),
        ("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}", "1"),
        ("{% generation %}kept{% endgeneration %}", "kept"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}", "3"),
    ],
)
def test_what_templates_are_written_for_is_there(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "messages", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", None, "roles must alternate"),
        ("{{ 'x' + messages[0].content }}", [{"content": None}], "str"),
        ("{{ messages[0].content.parts.first }}", [{}], "no attribute"),
        ("{{ messages[5]['content'] + 'x' }}", None, "no element 5"),
        ("{{ ''.__class__.__mro__ }}", None, "unsafe"),
        ("{{ messages.append(1) }}", None, "unsafe|not safely"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", None, "too big"),
        ("{{ 1 // 0 }}", None, "zero"),
    ],
)
def test_a_template_that_cannot_go_on_refuses_the_messages(
    source: str, messages: list[dict[str, object]] | None, words: str
) -> None:
    with pytest.raises(RequestInvalid, match=words) as caught:
        render(source, messages)
    assert caught.value.path == "messages"


def test_a_template_that_is_no_template_is_named_with_its_line() -> None:
    with pytest.raises(SnapshotInvalid, match=r"chat_template\.jinja, line 2"):
        render("fine\n{% for %}")

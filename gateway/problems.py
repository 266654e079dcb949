"""What is wrong with an input, as sentences with the path of their place.

Floor 0, pure.
pydantic finds the mistakes of a config; how they are said is decided here, so that whatever library
finds them, a person reads `dotted.path: must be RULE, not VALUE`.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import ErrorDetails


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a config; `path` is dotted, with indices for lists of tables."""

    path: str
    message: str
    line: int = field(default=0, compare=False)  # of config.toml; 0: it is of nothing with lines

    def __str__(self) -> str:
        told = f"{self.path}: {self.message}" if self.path else self.message
        return f"{told} (line {self.line})" if self.line else told


BOUNDS: Final = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
KINDS: Final = {
    "string_type": "a string in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list in brackets",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
}


def named(error: ErrorDetails) -> list[Problem]:
    """The problems that one error of pydantic stands for."""
    context = error.get("ctx", {})
    if error["type"] == "crossed":
        return list(context["problems"])
    place = [part for part in error["loc"] if part != "[key]"]
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
    return [Problem(path, _sentence(error["type"], context, error["input"]))]


def _sentence(kind: str, context: dict[str, Any], given: Any) -> str:
    """`must be RULE, not VALUE`, from pydantic's own classification."""
    value = "" if isinstance(given, dict | tuple) else f", not {_spelled(given)}"
    if kind == "extra_forbidden":
        return "is not a key that config.toml knows (a typing error, or of another version?)"
    if kind == "missing":
        return "is missing and has no default"
    if kind in BOUNDS:
        key, words = BOUNDS[kind]
        return f"must be {words} {context[key]}{value}"
    if kind == "rule":
        return f"must be {context['rule']}{value}"
    if kind == "literal_error":
        return f"must be {context['expected']}{value}"
    if kind == "too_short":
        return f"must have at least {context['min_length']} entry"
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries"
    return f"must be {KINDS.get(kind, kind)}{value}"


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)

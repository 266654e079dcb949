"""The keys of a JSON object, taken one by one: what each must be, and everything that is not so.

Floor 1, pure.
Keys that nobody took are problems too: a misspelt `forse` must not become a drain without it.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from gateway.control import Problem

TEXT_MAX: Final = 4096  # characters: longer than any name or address

Problems = tuple[Problem, ...]


@dataclass(slots=True)
class Fields:
    """The keys of one JSON object, taken one by one; what is wrong with them is collected."""

    rest: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)
    path: str = ""  # of the object in the body, with a dot behind it

    def wrong(self, key: str, rule: str, value: Any) -> None:
        self._say(key, f"must be {rule}, not {spelled(value)}")

    def _say(self, key: str, message: str) -> None:
        self.problems.append(Problem(f"{self.path}{key}", message))

    def gives(self, key: str) -> bool:
        """Whether the key has a value; null is none, and is taken away."""
        if self.rest.get(key) is None:
            self.rest.pop(key, None)
        return key in self.rest

    def text(self, key: str, length_max: int = TEXT_MAX, length_min: int = 1) -> str:
        if key not in self.rest:
            self._say(key, "is missing")
            return ""
        value = self.rest.pop(key)
        if not isinstance(value, str) or not length_min <= len(value) <= length_max:
            self.wrong(key, f"a string of {length_min} to {length_max} characters", value)
            return ""
        return value

    def switch(self, key: str) -> bool:
        value = self.rest.pop(key, False)
        if not isinstance(value, bool):
            self.wrong(key, "true or false", value)
            return False
        return value

    def number(self, key: str, most: float) -> float:
        if key not in self.rest:
            self._say(key, "is missing")
            return 0.0
        value = self.rest.pop(key)
        # bool is an int to Python; NaN fails every comparison.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            self.wrong(key, f"a number from 0 to {most}", value)
            return 0.0
        return float(value)

    def count(self, key: str, most: int) -> int:
        value = self.rest.pop(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            self.wrong(key, f"a whole number from 0 to {most}", value)
            return 0
        return value

    def inner(self, key: str, most: int) -> list["Fields"]:
        """The objects of a list, each to be finished by itself."""
        value = self.rest.pop(key)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            self.wrong(key, f"a list of 1 to {most} objects", value)
            return []
        return [fields_of(one, f"{self.path}{key}[{at}]") for at, one in enumerate(value)]

    def finish(self) -> Problems:
        """All problems; keys that nobody took are among them."""
        for key in self.rest:
            self._say(key, "is not a key that this request knows")
        self.rest = {}
        return tuple(self.problems)


def fields_of(body: Any, path: str = "") -> Fields:
    prefix = f"{path}." if path else ""
    if isinstance(body, dict):
        return Fields(dict(body), path=prefix)
    wrong = Problem(path, f"must be a JSON object, not {spelled(body)}")
    return Fields({}, [wrong], prefix)


def spelled(value: Any) -> str:
    """The value as JSON would spell it, short enough for a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value[:40]}..."' if len(value) > 40 else f'"{value}"'
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return str(value)

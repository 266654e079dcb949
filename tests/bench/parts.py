"""Marked parts of a document: each is written by a command of its own, and kept by all others.

Floor 1, pure.
A part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
"""

import re

PART = re.compile(r"<!-- begin: (?P<name>[\w-]+) -->\n.*?<!-- end: (?P=name) -->\n", re.DOTALL)


def part(name: str, body: str) -> str:
    return f"<!-- begin: {name} -->\n{body.rstrip()}\n<!-- end: {name} -->\n"


def with_part(text: str, name: str, body: str) -> str:
    """The text with this part as it is now: in its old place, or at the end."""
    for found in PART.finditer(text):
        if found["name"] == name:
            return text[: found.start()] + part(name, body) + text[found.end() :]
    return f"{text.rstrip()}\n\n{part(name, body)}" if text.strip() else part(name, body)


def keeping_parts(old: str, new: str) -> str:
    """The new text, with the parts of the old one that it does not have itself."""
    has = {found["name"] for found in PART.finditer(new)}
    for found in PART.finditer(old):
        if found["name"] not in has:
            new = f"{new.rstrip()}\n\n{found[0]}"
    return new

"""Sample requests: lines of a file to what is sent to an instance, or what is wrong with a line.

Floor 1, pure.   Flow: file -> [samples] -> replay -> judge
A line is `{"path": ..., "body": {...}}`, as the recorder writes it, or the body of a request alone:
what it asks for says where it goes. A version in a KServe path is taken out, since the same sample
goes to two of them; `model` becomes the name that both are served under.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson

LINE_MAX_BYTES: Final = 16 << 20
PINNED: Final = re.compile(r"^/v2/models/[^/]+(?:/versions/[^/]+)?/")
PATHS: Final = {  # of a body alone, by the key that tells
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "input": "/v1/embeddings",
    "inputs": "/v2/models/{model}/infer",
}
GENERATING: Final = frozenset({"/v1/chat/completions", "/v1/completions"})


@dataclass(frozen=True, slots=True)
class Sample:
    line: int  # of the file, from 1
    path: str
    body: Mapping[str, Any]

    @property
    def generates(self) -> bool:
        return self.path in GENERATING


@dataclass(frozen=True, slots=True)
class Flaw:
    """A line that is no sample, and why."""

    line: int
    text: str


def read(lines: Iterable[bytes], model: str) -> tuple[tuple[Sample, ...], tuple[Flaw, ...]]:
    """The samples of a file, and its lines that are none. Empty lines are neither."""
    samples: list[Sample] = []
    flaws: list[Flaw] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = sample(number, line, model)
        if isinstance(found, Sample):
            samples.append(found)
        else:
            flaws.append(found)
    return tuple(samples), tuple(flaws)


def sample(number: int, line: bytes, model: str) -> Sample | Flaw:
    """`model`: its public name; "": as each sample says itself."""
    if len(line) > LINE_MAX_BYTES:
        return Flaw(number, f"has {len(line)} bytes, more than {LINE_MAX_BYTES}")
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        return Flaw(number, f"is not JSON: {exc}")
    if not isinstance(document, dict):
        return Flaw(number, "is not a JSON object")
    path = document.get("path")
    body = document.get("body") if path is not None else document
    if not isinstance(body, dict):
        return Flaw(number, "has a path, and no object as its body")
    if path is None:
        path = next((PATHS[key] for key in PATHS if key in body), None)
    if not isinstance(path, str) or not _is_path(path):
        keys = ", ".join(PATHS)
        return Flaw(number, f"does not say where it goes: it has no path, and none of {keys}")
    return _addressed(number, path, body, model)


def _is_path(path: str) -> bool:
    """Of this server, and nothing that could end the request line early."""
    return path.startswith("/") and path.isascii() and path.isprintable() and " " not in path


def _addressed(number: int, path: str, body: dict[str, Any], model: str) -> Sample | Flaw:
    if path.startswith("/v2/"):
        name = quote(model, safe="")
        if not name and "{model}" in path:
            return Flaw(number, "does not say which model it is for")
        path = path.replace("{model}", name)
        own = PINNED.match(path)
        if own is not None:
            kept = name or path.split("/")[3]
            path = f"/v2/models/{kept}/{path[own.end() :]}"
        return Sample(number, path, body)
    if model:
        body = {**body, "model": model}
    return Sample(number, path, body)


def greedy(one: Sample) -> Sample:
    """The same, so that two runs of one version give one answer."""
    return Sample(one.line, one.path, {**one.body, "temperature": 0}) if one.generates else one


def chosen(samples: tuple[Sample, ...], most: int) -> tuple[Sample, ...]:
    """At most so many, evenly from all of them: files are in order of time, or of length."""
    if len(samples) <= most:
        return samples
    return tuple(samples[at * len(samples) // most] for at in range(most))

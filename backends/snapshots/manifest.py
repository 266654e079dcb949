"""What one snapshot promises and holds, and its TOML form.

Floor 1, pure.
Weights never travel without the promises made for them: context, batch, dtype, memory. A manifest
is written once, beside the files it names, and every name in it is a single path component, so
nothing read from one can point outside its folder.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from backends.errors import SnapshotInvalid
from backends.signature import ANY, DATATYPES, Signature, TensorSpec

FILE_NAME: Final = "manifest.toml"
FORMAT: Final = 1  # grows when an older Sluicegate could misread the file

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")
DTYPES: Final[Mapping[str, int]] = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a value
ENGINES: Final = ("llm", "mindir")
KV_POLICIES: Final = ("preallocated",)
DELAY_MAX_MS: Final = 60_000  # who waits longer for company waits for nothing

NAME_RULE: Final = "1 to 128 letters, digits, '.', '_', '-', first a letter or digit, without '..'"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # a path component holds 255 bytes
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a snapshot as it was when it was written."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a launcher and an operator must know before a snapshot is read."""

    model: str
    version: str
    engine: str
    memory_needed_bytes: int  # all that it takes to serve it, and an allowance
    source: str  # what it was made from, with a checksum of it
    created: str  # ISO 8601, UTC
    files: tuple[FileEntry, ...]

    @property
    def digest(self) -> str:
        """Identity of the files: equal for two snapshots exactly when they hold the same bytes."""
        return digest_of({entry.name: entry.sha256 for entry in self.files})


@dataclass(frozen=True, slots=True)
class LlmManifest(Manifest):
    """What a text model promises."""

    architecture: str
    dtype: str
    max_seq_len: int  # prompt and completion together
    slots: int  # sequences served at once
    kv_policy: str


@dataclass(frozen=True, slots=True)
class MindirManifest(Manifest):
    """What a graph promises; where `max_batch` is not 0, dimension 0 of every tensor is rows."""

    max_batch: int  # most rows in a run; 0: requests are not joined
    max_delay_ms: float  # that a request waits for others to join it
    graph_rows: int  # the only number of rows the graph can be run with; 0: it takes any
    inputs: tuple[TensorSpec, ...]  # in the order of the graph
    outputs: tuple[TensorSpec, ...]

    @property
    def signature(self) -> Signature:
        return Signature(self.inputs, self.outputs, self.max_batch)


class ManifestInvalid(SnapshotInvalid):
    """`problems` holds every one of them, each as `dotted.path: must be RULE, not VALUE`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def digest_of(checksums: Mapping[str, str]) -> str:
    """One number for a set of files, by name, in whatever order they are given."""
    lines = sorted(f"{sha256}  {name}\n" for name, sha256 in checksums.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_name(text: str) -> bool:
    """Whether `text` may name a model, a version or a file: one path component, never hidden."""
    return _NAME.fullmatch(text) is not None and ".." not in text


# --- rules: what a value must be, in words, and the test for it ---


@dataclass(frozen=True, slots=True)
class _Rule:
    words: str
    holds: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_utc_time(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        offset = datetime.fromisoformat(value).utcoffset()
    except ValueError:
        return False
    return offset is not None and not offset


def _one_of(words: Sequence[str]) -> _Rule:
    return _Rule(" or ".join(f'"{word}"' for word in words), lambda value: value in words)


_TEXT: Final = _Rule("a text that is not empty", lambda v: isinstance(v, str) and v != "")
_NAMED: Final = _Rule(NAME_RULE, lambda v: isinstance(v, str) and is_name(v))
_COUNT: Final = _Rule("a whole number of at least 1", lambda v: _is_whole(v) and v >= 1)
_FROM_0: Final = _Rule("a whole number of at least 0", lambda v: _is_whole(v) and v >= 0)
_TABLES: Final = _Rule("a list of at least one table", lambda v: isinstance(v, list) and len(v) > 0)

_TOP: Final[Mapping[str, _Rule]] = {
    "format": _Rule(
        f"{FORMAT}, the format this Sluicegate reads", lambda v: _is_whole(v) and v == FORMAT
    ),
    "model": _NAMED,
    "version": _NAMED,
    "engine": _one_of(ENGINES),
    "memory_needed_bytes": _COUNT,
    "source": _TEXT,
    "created": _Rule("a time in ISO 8601 with the offset of UTC", _is_utc_time),
    "files": _TABLES,
}

_OF_ENGINE: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "llm": {
        "architecture": _one_of(ARCHITECTURES),
        "dtype": _one_of(tuple(DTYPES)),
        "max_seq_len": _COUNT,
        "slots": _COUNT,
        "kv_policy": _one_of(KV_POLICIES),
    },
    "mindir": {
        "max_batch": _FROM_0,
        "max_delay_ms": _Rule(
            f"a number from 0 to {DELAY_MAX_MS}",
            lambda v: (_is_whole(v) or isinstance(v, float)) and 0 <= v <= DELAY_MAX_MS,
        ),
        "graph_rows": _FROM_0,
        "inputs": _TABLES,
        "outputs": _TABLES,
    },
}

# What an operator may say of a graph that is imported.
GRAPH_KEYS: Final = ("max_batch", "max_delay_ms", "inputs", "outputs")

_TENSOR: Final[Mapping[str, _Rule]] = {
    "name": _TEXT,
    "datatype": _one_of(tuple(DATATYPES)),
    "shape": _Rule(
        "a list of sizes, -1 for any size",
        lambda v: isinstance(v, list) and all(_is_whole(one) and one >= ANY for one in v),
    ),
}

_FILE: Final[Mapping[str, _Rule]] = {
    "name": _NAMED,
    "bytes": _FROM_0,
    "sha256": _Rule(
        "64 lower-case hexadecimal digits",
        lambda v: isinstance(v, str) and _SHA256.fullmatch(v) is not None,
    ),
}


def _check(table: Any, rules: Mapping[str, _Rule], prefix: str) -> Iterator[str]:
    if not isinstance(table, dict):
        yield f"{prefix.rstrip('.')}: must be a table, not {table!r}"
        return
    for key, rule in rules.items():
        if key not in table:
            yield f"{prefix}{key}: is missing, must be {rule.words}"
        elif not rule.holds(table[key]):
            yield f"{prefix}{key}: must be {rule.words}, not {table[key]!r}"
    for key in table:
        if key not in rules:
            yield f"{prefix}{key}: is not a key of a manifest"


def _check_files(entries: Any) -> Iterator[str]:
    seen: set[str] = set()
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        yield from _check(entry, _FILE, f"files[{i}].")
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen or name == FILE_NAME:
            yield f"files[{i}].name: must be a name of its own, not {name!r} again"
        seen.add(name)


def parse(text: str) -> Manifest:
    """The manifest that `text` spells.

    Raises: ManifestInvalid, with every problem.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ManifestInvalid([f"{FILE_NAME}: must be TOML: {exc}"]) from exc
    # Without an engine that is known, the other keys are judged as those of the first.
    engine = "mindir" if table.get("engine") == "mindir" else "llm"
    rules = {**_TOP, **_OF_ENGINE[engine]}
    problems = [*_check(table, rules, ""), *_check_files(table.get("files"))]
    if engine == "mindir":
        problems += check_tensors(table)
    if problems:
        raise ManifestInvalid(problems)
    del table["format"]
    table["files"] = tuple(FileEntry(**entry) for entry in table["files"])
    if engine == "llm":
        return LlmManifest(**table)
    for key in ("inputs", "outputs"):
        table[key] = tensors_of(table[key])
    return MindirManifest(**table)


def check_graph(table: Mapping[str, Any]) -> Iterator[str]:
    """The problems of a table that may hold some of a graph's promises, as an operator wrote it."""
    rules = {key: _OF_ENGINE["mindir"][key] for key in GRAPH_KEYS if key in table}
    yield from _check(table, rules, "")
    yield from check_tensors(table)


def check_tensors(table: Mapping[str, Any]) -> Iterator[str]:
    """The problems of a graph's `inputs` and `outputs`, those of them that are there."""
    for key in ("inputs", "outputs"):
        seen: set[str] = set()
        entries = table.get(key)
        for i, entry in enumerate(entries if isinstance(entries, list) else ()):
            problems = list(_check(entry, _TENSOR, f"{key}[{i}]."))
            yield from problems
            if problems:
                continue
            if entry["name"] in seen:
                yield f"{key}[{i}].name: must be a name of its own, not {entry['name']!r} again"
            seen.add(entry["name"])
            if table.get("max_batch", 0) != 0 and entry["shape"][:1] != [ANY]:
                yield (
                    f"{key}[{i}].shape: must begin with -1, the rows of a batch, "
                    f"not {entry['shape']!r}, unless max_batch is 0"
                )


def tensors_of(tables: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Of tables without problems."""
    return tuple(TensorSpec(one["name"], one["datatype"], tuple(one["shape"])) for one in tables)


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def render(manifest: Manifest) -> str:
    """The TOML that `parse` reads back to an equal manifest."""
    lines = [
        "# Written by `sluicegate models import`. A version never changes: import another one.",
        f"format = {FORMAT}",
        f"model = {_quoted(manifest.model)}",
        f"version = {_quoted(manifest.version)}",
        f"engine = {_quoted(manifest.engine)}",
    ]
    match manifest:
        case LlmManifest():
            lines += [
                f"architecture = {_quoted(manifest.architecture)}",
                f"dtype = {_quoted(manifest.dtype)}",
                f"max_seq_len = {manifest.max_seq_len}",
                f"slots = {manifest.slots}",
                f"kv_policy = {_quoted(manifest.kv_policy)}",
            ]
        case MindirManifest():
            lines += [
                f"max_batch = {manifest.max_batch}",
                f"max_delay_ms = {manifest.max_delay_ms}",
                f"graph_rows = {manifest.graph_rows}",
            ]
    lines += [
        f"memory_needed_bytes = {manifest.memory_needed_bytes}",
        f"source = {_quoted(manifest.source)}",
        f"created = {_quoted(manifest.created)}",
    ]
    if isinstance(manifest, MindirManifest):
        lines += _tensor_lines("inputs", manifest.inputs)
        lines += _tensor_lines("outputs", manifest.outputs)
    for entry in manifest.files:
        lines += [
            "",
            "[[files]]",
            f"name = {_quoted(entry.name)}",
            f"bytes = {entry.bytes}",
            f"sha256 = {_quoted(entry.sha256)}",
        ]
    return "\n".join(lines) + "\n"


def _tensor_lines(key: str, specs: Sequence[TensorSpec]) -> Iterator[str]:
    for spec in specs:
        yield from (
            "",
            f"[[{key}]]",
            f"name = {_quoted(spec.name)}",
            f"datatype = {_quoted(spec.datatype)}",
            f"shape = {list(spec.shape)}",
        )

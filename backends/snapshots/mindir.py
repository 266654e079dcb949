"""From an exported MindSpore graph to a snapshot in the repository.

Floor 3, I/O.
The signature is what the file declares; a TOML file of the same name beside it may say otherwise,
and options go before both. Whether rows may be joined is never guessed from a fixed shape: only a
graph that leaves its first dimension open says so by itself.
"""

import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from backends.engines.mindir_file import FILE_NAME, declared
from backends.signature import ANY, TensorSpec
from backends.snapshots.checksum import file_sha256
from backends.snapshots.importing import Imported, Versions
from backends.snapshots.manifest import (
    FileEntry,
    Manifest,
    MindirManifest,
    check_graph,
    check_tensors,
    tensors_of,
)
from backends.snapshots.repository import AlreadyExists, Snapshot
from backends.snapshots.source import ImportFailed, origin_text, same_content, some
from backends.snapshots.steps import Steps
from backends.snapshots.wanted import WantedGraph

MAX_BATCH: Final = 8
MAX_DELAY_MS: Final = 2.0  # a fraction of what a run of most graphs takes on a CPU
# MindSpore itself (0.44 GB with a small graph; measured, 2.10 on CPU), and room for a run's values.
ALLOWANCE_BYTES: Final = 1 << 30


def import_graph(
    repository: Versions, path: Path, wanted: WantedGraph, created: str, steps: Steps
) -> Imported:
    """The snapshot that is wanted, unless it is there already.

    Raises: ImportFailed, DependencyMissing, SnapshotInvalid when what is there is damaged, OSError.
    """
    with steps("checksum", path.stat().st_size) as on_bytes:
        origin = origin_text("mindir", path.name, file_sha256(path, on_bytes))
    promises = _promises(path, wanted)
    manifest = MindirManifest(
        model=wanted.model,
        version=wanted.version,
        engine="mindir",
        # The file's bytes, and the parameters that are made of them.
        memory_needed_bytes=2 * path.stat().st_size + ALLOWANCE_BYTES,
        source=origin,
        created=created,
        files=(),
        **promises,
    )
    if repository.holds(wanted.model, wanted.version):
        return _unchanged(repository.locate(wanted.model, wanted.version), manifest)

    def fill(folder: Path) -> None:
        shutil.copyfile(path, folder / FILE_NAME)

    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return replace(manifest, files=files)

    try:
        snapshot = repository.write(wanted.model, wanted.version, fill, describe, steps)
    except AlreadyExists as exc:
        return _unchanged(exc.snapshot, manifest)
    return Imported(snapshot, was_there=False)


def _promises(path: Path, wanted: WantedGraph) -> dict[str, Any]:
    """Everything of the manifest that is about the graph."""
    try:
        inputs, outputs = declared(path)
    except ValueError as exc:
        raise ImportFailed(str(exc)) from exc
    beside = _beside(path.with_suffix(".toml"))
    said_in = tensors_of(beside["inputs"]) if "inputs" in beside else inputs
    said_out = tensors_of(beside["outputs"]) if "outputs" in beside else outputs
    for what, said, there in (("inputs", said_in, inputs), ("outputs", said_out, outputs)):
        if len(said) != len(there):
            raise ImportFailed(f"{what}: must be the {len(there)} of the graph, not {len(said)}")
    firsts = {spec.shape[:1] for spec in (*inputs, *outputs)}
    max_batch = _first(wanted.max_batch, beside.get("max_batch"))
    if max_batch is None:
        max_batch = MAX_BATCH if firsts == {(ANY,)} else 0
    graph_rows = 0
    if max_batch:
        graph_rows = _graph_rows(inputs, max_batch)
        said_in, said_out = _open(said_in), _open(said_out)
    promises = {
        "max_batch": max_batch,
        "max_delay_ms": _first(wanted.max_delay_ms, beside.get("max_delay_ms"), MAX_DELAY_MS),
        "graph_rows": graph_rows,
        "inputs": said_in,
        "outputs": said_out,
    }
    problems = list(check_tensors({"max_batch": max_batch, **_tables(said_in, said_out)}))
    if problems:
        raise ImportFailed(
            f"the signature cannot be served: {some(problems)}; say what is right in "
            f"{path.with_suffix('.toml').name} beside it"
        )
    return promises


def _graph_rows(inputs: Sequence[TensorSpec], max_batch: int) -> int:
    """The number of rows the graph was exported for; 0: any."""
    firsts = {spec.shape[:1] for spec in inputs}
    if firsts == {(ANY,)}:
        return 0
    if len(firsts) != 1 or firsts == {()}:
        raise ImportFailed(
            f"max_batch: must be 0, not {max_batch}: the first dimensions of the inputs differ, "
            "so they are no rows of a batch"
        )
    rows = firsts.pop()[0]
    if max_batch > rows:
        raise ImportFailed(
            f"max_batch: must be at most {rows}, the rows this graph was exported for, "
            f"not {max_batch}"
        )
    return rows


def _open(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """With a first dimension of any size."""
    return tuple(replace(spec, shape=(ANY, *spec.shape[1:])) for spec in specs)


def _beside(path: Path) -> Mapping[str, Any]:
    """What the file beside the graph says; nothing if there is none."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ImportFailed(f"{path.name}: must be TOML: {exc}") from exc
    problems = list(check_graph(table))
    if problems:
        raise ImportFailed(f"{path.name}: {some(problems)}")
    return table


def _tables(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> dict[str, Any]:
    return {
        key: [{"name": s.name, "datatype": s.datatype, "shape": list(s.shape)} for s in specs]
        for key, specs in (("inputs", inputs), ("outputs", outputs))
    }


def _first(*choices: Any) -> Any:
    return next((choice for choice in choices if choice is not None), None)


def _unchanged(there: Snapshot, wanted: MindirManifest) -> Imported:
    """Raises: ImportFailed unless `there` is what would be imported."""
    found = []
    if not same_content(there.manifest.source, wanted.source):
        found.append(f"it was made from {there.manifest.source}, this is {wanted.source}")
    for name in ("max_batch", "max_delay_ms", "inputs", "outputs"):
        ours, theirs = getattr(wanted, name), getattr(there.manifest, name, None)
        if ours != theirs:
            found.append(f"it has {name} {_words(theirs)}, not {_words(ours)}")
    if found:
        raise ImportFailed(
            f"{wanted.model} {wanted.version} exists and a version never changes, but "
            f"{'; '.join(found)}: import it under another version"
        )
    return Imported(there, was_there=True)


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{spec.name} {spec}" for spec in value)
    return str(value)

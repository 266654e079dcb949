"""Steps of an import as people see them: a bar on a terminal, a line each elsewhere.

Floor 3, I/O.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from backends.snapshots.steps import OnBytes, Steps


def shown_on(console: Console) -> Steps:
    """Steps for this console: moving when it is a terminal, plain lines when it is not."""
    if console.is_terminal:
        return lambda what, total_bytes: _bar(console, what, total_bytes)
    return lambda what, total_bytes: _line(console.file.write, what, total_bytes)


@contextmanager
def _bar(console: Console, what: str, total_bytes: int) -> Iterator[OnBytes]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total_bytes or None)  # None: the length is not known
        yield lambda count: progress.advance(task, count)


@contextmanager
def _line(write: Callable[[str], object], what: str, total_bytes: int) -> Iterator[OnBytes]:
    size = f" ({total_bytes / 1e6:.1f} MB)" if total_bytes else ""
    write(f"{what}{size} ...\n")
    yield lambda count: None

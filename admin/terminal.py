"""What every verb shares: which gateway, how to print, and which exit code a refusal becomes.

Floor 3, I/O.
A table is coloured and fits the window on a terminal; elsewhere it is plain and as wide as its
content, so that `grep` and `awk` see whole lines.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import orjson
from click.core import ParameterSource
from rich.console import Console, RenderableType

from admin import whereabouts
from admin.calls import How, Unanswered
from admin.client import Client
from gateway.control import Receipt

EXIT_REFUSED: Final = 1
EXIT_NO_GATEWAY: Final = 3
PLAIN_WIDTH: Final = 4096  # no line of a table is cut or folded outside a terminal

Command = Callable[..., Any]


NOBODY: Final = frozenset({"no_gateway", "not_ours"})


class Failed(click.ClickException):
    """The gateway refused; ends the verb with the gateway's own words."""

    exit_code = EXIT_REFUSED

    def __init__(self, exc: Unanswered) -> None:
        unsaid = [str(one) for one in exc.problems if str(one) not in exc.message]
        if unsaid:
            super().__init__("\n".join([exc.message, *(f"  {one}" for one in unsaid)]))
        elif len(exc.problems) > 1:
            lines = [f"{len(exc.problems)} problems", *(f"  {one}" for one in exc.problems)]
            super().__init__("\n".join(lines))
        else:
            super().__init__(exc.message)


class NoGateway(Failed):
    """Nobody answered, or somebody who is no gateway."""

    exit_code = EXIT_NO_GATEWAY


@dataclass(frozen=True, slots=True)
class Terminal:
    """The gateway that is spoken to, and where answers are shown."""

    client: Client
    console: Console
    notes: Console  # beside the answer: standard error when the answer is JSON
    as_json: bool

    def show(self, *what: RenderableType) -> None:
        for one in what:
            self.console.print(one)

    def dump(self, document: dict[str, Any]) -> None:
        """The document as the API gave it."""
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))

    def line(self, document: dict[str, Any]) -> None:
        """One document of many, on a line of its own."""
        click.echo(orjson.dumps(document))

    def tell(self, receipt: Receipt, how: How) -> None:
        """What a change did, or would do."""
        if self.as_json:
            self.dump(
                {
                    "generation": receipt.generation,
                    "revision": receipt.revision,
                    "changes": list(receipt.changes),
                    "dry_run": how.dry_run,
                }
            )
            return
        for change in receipt.changes or ("nothing to change",):
            self.show(f"would: {change}" if how.dry_run else change)


def speaks(command: Command) -> Command:
    """Gives a command the options that name the gateway, and a Terminal as first argument."""

    @click.option(
        "--admin",
        metavar="HOST:PORT",
        envvar="SLUICEGATE_ADMIN",
        help="The gateway's admin address.  [default: admin.listen of the config]",
    )
    @click.option(
        "--config",
        "config_path",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Where to read the admin address.  [default: config.toml]",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
    @functools.wraps(command)
    def spoken(
        *arguments: Any, admin: str | None, config_path: Path | None, as_json: bool, **rest: Any
    ) -> Any:
        terminal = _chosen(admin, config_path, as_json)
        try:
            return command(terminal, *arguments, **rest)
        except Unanswered as exc:
            raise (NoGateway if exc.code in NOBODY else Failed)(exc) from None

    return spoken


def _chosen(admin: str | None, config_path: Path | None, as_json: bool) -> Terminal:
    """The terminal that the options name; without any, that of the verb above this one."""
    context = click.get_current_context()
    above = context.find_object(Terminal)
    typed = context.get_parameter_source("admin") is ParameterSource.COMMANDLINE
    if above is not None and config_path is None and not typed:
        return replace(above, as_json=above.as_json or as_json)
    try:
        if admin is not None:
            address = whereabouts.check_address(admin)
        else:
            path = config_path or Path("config.toml")
            address = whereabouts.find(path, required=config_path is not None)
    except whereabouts.Unclear as exc:
        raise click.UsageError(str(exc)) from None
    return Terminal(Client(address), console(), console(to_stderr=as_json), as_json)


def how_options(command: Command) -> Command:
    """Gives a command that changes something `how`: waits for the workers, unless told not to."""

    @click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
    @click.option("--no-wait", is_flag=True, help="Do not wait until every worker serves it.")
    @click.option(
        "--if-revision", type=click.IntRange(0), help="Only if nothing has changed since."
    )
    @functools.wraps(command)
    def asked(
        *arguments: Any, dry_run: bool, no_wait: bool, if_revision: int | None, **rest: Any
    ) -> Any:
        how = How(wait=not no_wait, dry_run=dry_run, revision=if_revision)
        return command(*arguments, how=how, **rest)

    return asked


def console(to_stderr: bool = False) -> Console:
    """On the standard streams of now: tests and pagers exchange them."""
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)

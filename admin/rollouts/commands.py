"""`sluicegate rollout`: a version takes a model over step by step, or is taken back.

Floor 5.
Exit codes as of every verb: 0 done, 1 refused, failed or rolled back, 2 a mistake on the command
line, 3 no gateway answers.
"""

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from admin import views
from admin.calls import How, Unanswered
from admin.rollouts import steps as typed
from admin.rollouts import tables, watching
from admin.terminal import EXIT_REFUSED, Command, Terminal, how_options, speaks
from gateway.control import Receipt, RolloutView, StartRollout


@click.group()
def rollout() -> None:
    """Roll a new version of a model out, step by step, and back.

    The new group is started beside the running one, has to become READY and to pass its validation,
    and then gets a growing share of new requests. It is rolled back at once when it fails, by
    proof; the old group stays whole until the last step has been held.
    """


Make = Callable[[How], Receipt]


@dataclass(frozen=True, slots=True)
class Wish:
    """How a rollout is to be begun."""

    yes: bool
    wait: bool
    dry_run: bool
    revision: int | None


def begin_options(command: Command) -> Command:
    """Gives a command that begins a rollout its `wish`."""

    @click.option("--yes", is_flag=True, help="Do not ask: for scripts.")
    @click.option("--wait", is_flag=True, help="Stay to the end; 1 if it is rolled back.")
    @click.option("--dry-run", is_flag=True, help="Print the plan, and start nothing.")
    @click.option(
        "--if-revision", type=click.IntRange(0), help="Only if nothing has changed since."
    )
    @functools.wraps(command)
    def asked(
        *arguments: Any, yes: bool, wait: bool, dry_run: bool, if_revision: int | None, **rest: Any
    ) -> Any:
        return command(*arguments, wish=Wish(yes, wait, dry_run, if_revision), **rest)

    return asked


# --- begin ---------------------------------------------------------------------------------------


@rollout.command()
@click.argument("model")
@click.argument("version")
@click.option("--replicas", type=click.IntRange(1), help="Of the new group.  [as the old one has]")
@click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="WEIGHT[:HOLD[:REQUESTS[:gate]]]",
    help="Percent, how long (600, 90s, 10m, 2h), how many requests it has to answer; once a step.",
)
@click.option("--gate", is_flag=True, help="Every --step waits for `rollout promote` at its end.")
@click.option(
    "--samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Requests to validate with, a JSON object a line.",
)
@click.option("--no-validation", is_flag=True, help="No requests before the first step.")
@click.option("--force", is_flag=True, help="Although memory falls short by the figures.")
@begin_options
@speaks
def start(
    terminal: Terminal,
    model: str,
    version: str,
    replicas: int | None,
    steps: tuple[str, ...],
    gate: bool,
    samples: Path | None,
    no_validation: bool,
    force: bool,
    wish: Wish,
) -> None:
    """Print the plan, ask, and begin to roll VERSION out.

    What is not said here is what [model.rollout] in config.toml says.

    \b
    Example: sluicegate rollout start smollm2-135m-instruct 2
             sluicegate rollout start smollm2-135m-instruct 2 --step 5:10m --step 50:10m:200:gate
    """
    if samples is not None and no_validation:
        raise click.UsageError("--samples names what --no-validation leaves out")
    ask = StartRollout(
        model,
        version,
        replicas,
        _steps(steps, gate),
        "" if no_validation else str(samples.absolute()) if samples is not None else None,
        force,
    )
    _begin(terminal, model, wish, _starting(terminal, ask))


def _starting(terminal: Terminal, ask: StartRollout) -> Make:
    return lambda how: terminal.client.rollouts.start(ask, how)


def _steps(given: tuple[str, ...], gate: bool) -> tuple[dict[str, Any], ...] | None:
    """Raises: UsageError."""
    if gate and not given:
        raise click.UsageError("--gate is said of steps: name them with --step")
    try:
        return tuple(typed.step(one, gate) for one in given) or None
    except ValueError as exc:
        raise click.UsageError(str(exc)) from None


def _begin(terminal: Terminal, model: str, wish: Wish, make: Make) -> None:
    """The plan; then, when that is what the operator wants, the same without a dry run."""
    how = How(dry_run=True, revision=wish.revision)
    plan = make(how)
    if wish.dry_run and terminal.as_json:
        terminal.tell(plan, how)
        return
    if wish.dry_run:
        terminal.show(*plan.changes, "nothing was started: this is the plan")
        return
    if not wish.yes:
        _ask(terminal, model, plan)
        how = replace(how, revision=plan.revision)  # to this plan he said yes, not to another
    elif not terminal.as_json:
        terminal.show(*plan.changes)
    how = replace(how, dry_run=False)
    receipt = make(how)
    if wish.wait:
        _follow(terminal, terminal.client.rollouts.latest(model))
    elif terminal.as_json:
        terminal.tell(receipt, how)
    elif receipt.changes:
        terminal.show(f"it has begun: `sluicegate rollout status {model} --watch` follows it")
    else:
        terminal.show("nothing to change: it runs already")


def _ask(terminal: Terminal, model: str, plan: Receipt) -> None:
    """Raises: UsageError where nobody can be asked; Exit when he says no."""
    if terminal.as_json or not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask here: say --yes, or --dry-run for the plan")
    terminal.show(*plan.changes)
    if plan.changes and not click.confirm(f"roll it out to {model}?"):
        raise click.exceptions.Exit(EXIT_REFUSED)


# --- look ----------------------------------------------------------------------------------------


@rollout.command()
@click.argument("model", required=False)
@click.option("--watch", "--wait", is_flag=True, help="Stay to the end; 1 if it is rolled back.")
@speaks
def status(terminal: Terminal, model: str | None, watch: bool) -> None:
    """Show the rollout that runs, or that ended last; without MODEL, of every model.

    \b
    Example: sluicegate rollout status smollm2-135m-instruct --watch
             sluicegate rollout status
    """
    view = _meant(terminal, model, watch)
    if view is None:
        _list(terminal, _latest(terminal.client.rollouts.every()), "no rollout runs or has ended")
    elif watch:
        _follow(terminal, view)
    elif terminal.as_json:
        terminal.dump(views.rollout(view))
    else:
        terminal.show(tables.rollout(view))


def _meant(terminal: Terminal, model: str | None, watch: bool) -> RolloutView | None:
    """The one that the operator means; None: all of them."""
    if model is not None:
        return terminal.client.rollouts.latest(model)
    if not watch:
        return None
    running = [one for one in terminal.client.rollouts.every() if one.ended is None]
    if len(running) == 1:
        return running[0]
    names = ", ".join(one.model for one in running)
    raise click.UsageError(f"say which MODEL: {names}" if running else "no rollout runs")


def _latest(every: tuple[RolloutView, ...]) -> list[RolloutView]:
    """Of each model the newest."""
    found: dict[str, RolloutView] = {}
    for one in every:
        found.setdefault(one.model, one)
    return list(found.values())


@rollout.command()
@click.argument("model", required=False)
@speaks
def history(terminal: Terminal, model: str | None) -> None:
    """List rollouts, newest first, with how each ended and why.

    Example: sluicegate rollout history smollm2-135m-instruct
    """
    calls = terminal.client.rollouts
    found = calls.every() if model is None else calls.of(model)
    _list(terminal, list(found), "nothing was rolled out so far")


def _list(terminal: Terminal, found: list[RolloutView], nothing: str) -> None:
    if terminal.as_json:
        terminal.dump({"rollouts": [views.rollout(one) for one in found]})
    else:
        terminal.show(tables.rollouts(found) if found else nothing)


def _follow(terminal: Terminal, view: RolloutView) -> None:
    """To its end; ends the program with 1 when that is not the new version's success."""

    def again() -> RolloutView:
        found = (one for one in terminal.client.rollouts.of(view.model) if one.id == view.id)
        if (now := next(found, None)) is None:
            raise Unanswered("unknown_rollout", f"{view.id} is not remembered any more")
        return now

    try:
        ended = watching.watch(again, terminal.notes, time.sleep)
    except KeyboardInterrupt:
        way = f"`sluicegate rollout abort {view.model}` rolls it back"
        terminal.notes.print(f"{view.id} goes on; {way}")
        raise click.exceptions.Exit(EXIT_REFUSED) from None
    if terminal.as_json:
        terminal.dump(views.rollout(ended))
    else:
        terminal.show(tables.ended(ended))
    if ended.phase != "done":
        raise click.exceptions.Exit(EXIT_REFUSED)


# --- steer ---------------------------------------------------------------------------------------


@rollout.command()
@click.argument("model")
@click.option("--full", is_flag=True, help="To all traffic at once, past every step.")
@how_options
@speaks
def promote(terminal: Terminal, model: str, full: bool, how: How) -> None:
    """Go to the next step now, past its hold and its gate.

    A step that ends by itself at the same moment is not followed by a second one.

    Example: sluicegate rollout promote smollm2-135m-instruct
    """
    calls = terminal.client.rollouts
    step = None if full else calls.latest(model).step
    terminal.tell(calls.promote(model, full, how, step), how)


@rollout.command()
@click.argument("model")
@how_options
@speaks
def pause(terminal: Terminal, model: str, how: How) -> None:
    """Stay at this weight; it is still rolled back when it fails.

    Example: sluicegate rollout pause smollm2-135m-instruct
    """
    terminal.tell(terminal.client.rollouts.pause(model, how), how)


@rollout.command()
@click.argument("model")
@how_options
@speaks
def resume(terminal: Terminal, model: str, how: How) -> None:
    """Go on with a paused rollout.

    Example: sluicegate rollout resume smollm2-135m-instruct
    """
    terminal.tell(terminal.client.rollouts.resume(model, how), how)


@rollout.command()
@click.argument("model")
@click.option("--reason", default="", help="For the history.")
@how_options
@speaks
def abort(terminal: Terminal, model: str, reason: str, how: How) -> None:
    """Roll back: no new request goes to the new version. Also while the old group is still kept.

    Example: sluicegate rollout abort smollm2-135m-instruct --reason "answers are odd"
    """
    terminal.tell(terminal.client.rollouts.abort(model, reason, how), how)


@rollout.command()
@click.argument("model")
@click.option("--force", is_flag=True, help="Although memory falls short by the figures.")
@begin_options
@speaks
def retry(
    terminal: Terminal,
    model: str,
    force: bool,
    wish: Wish,
) -> None:
    """Begin again, as it was asked for, the rollout that was rolled back.

    Example: sluicegate rollout retry smollm2-135m-instruct
    """

    def make(how: How) -> Receipt:
        return terminal.client.rollouts.retry(model, force, how)

    _begin(terminal, model, wish, make)

"""The operator's verbs: to look, to shift weight, to drain and stop and start, to reload.

Floor 5.
Each is a call or two to the admin API and a table. Exit codes: 0 done, 1 refused or failed (also: a
drain lost requests), 2 a mistake on the command line, 3 no gateway answers.
"""

import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import click

from admin import following, tables, views
from admin.calls import How
from admin.rollouts import tables as rolling
from admin.terminal import EXIT_REFUSED, Terminal, how_options, speaks
from gateway.control import Receipt


@click.command()
@speaks
def status(terminal: Terminal) -> None:
    """Show what runs, what is ready and what is wrong.

    Example: sluicegate status
    """
    if terminal.as_json:
        terminal.dump(terminal.client.calls.call("GET", "/status"))
    else:
        running = [one for one in terminal.client.rollouts.every() if one.ended is None]
        terminal.show(tables.status(terminal.client.read.status(), time.time()))
        terminal.show(*(f"rollout {rolling.line(one)}" for one in running))


@click.command()
@click.argument("instance", required=False)
@speaks
def instances(terminal: Terminal, instance: str | None) -> None:
    """List every instance, or show all that is known of one.

    Example: sluicegate instances smollm2-135m-instruct-1-0
    """
    path = "/instances" if instance is None else f"/instances/{quote(instance, safe='')}"
    if terminal.as_json:
        terminal.dump(terminal.client.calls.call("GET", path))
    elif instance is not None:
        terminal.show(tables.instance(views.instance(terminal.client.read.instance(instance))))
    elif found := terminal.client.read.instances():
        terminal.show(tables.instances(found))
    else:
        terminal.show("no instances: config.toml asks for none, and none has registered")


# --- weights -------------------------------------------------------------------------------------


@click.command()
@click.argument("name", metavar="MODEL|INSTANCE")
@click.argument("weights", metavar="[VERSION=WEIGHT]...|[WEIGHT]", nargs=-1)
@click.option("--reset", is_flag=True, help="Back to what config.toml says.")
@click.option("--instance", "of_instance", is_flag=True, help="Of an instance in its group.")
@click.option("--override", is_flag=True, help="Although a rollout owns the weights.")
@how_options
@speaks
def weight(
    terminal: Terminal,
    name: str,
    weights: tuple[str, ...],
    reset: bool,
    of_instance: bool,
    override: bool,
    how: How,
) -> None:
    """Set all weights of a model at once; a version that is not named gets 0. With --instance, the
    weight of one instance among those of its version.

    Weights are relative: 95 and 5 share like 19 and 1. They take effect with the next request and
    survive restarts, until reset or until config.toml itself changes them.

    \b
    Example: sluicegate weight smollm2-135m-instruct 1=95 2=5
             sluicegate weight smollm2-135m-instruct --reset
             sluicegate weight --instance smollm2-135m-instruct-1-0 0.5
    """
    if reset == bool(weights):
        raise click.UsageError("give either weights or --reset")
    change = terminal.client.change
    if of_instance and reset:
        receipt = change.reset_instance_weight(name, how)
    elif of_instance:
        receipt = change.set_instance_weight(name, _one_weight(weights), how)
    elif reset:
        receipt = change.reset_weights(name, how)
    else:
        receipt = change.set_weights(name, _weights(weights), how, override=override)
    terminal.tell(receipt, how)


def _one_weight(given: tuple[str, ...]) -> float:
    """Raises: UsageError."""
    try:
        (number,) = map(float, given)
    except ValueError:
        raise click.UsageError(f"{' '.join(given)} is not one number, as in 0.5") from None
    return number


def _weights(pairs: tuple[str, ...]) -> dict[str, float]:
    """Weight by version. Raises: UsageError."""
    weights: dict[str, float] = {}
    for pair in pairs:
        version, _, number = pair.rpartition("=")
        if not version:
            raise click.UsageError(f"{pair} is not VERSION=WEIGHT, as in 2=5")
        if version in weights:
            raise click.UsageError(f"version {version} is named twice")
        try:
            weights[version] = float(number)
        except ValueError:
            raise click.UsageError(f"{pair}: {number or 'nothing'} is not a number") from None
    return weights


# --- drains --------------------------------------------------------------------------------------


@click.command()
@click.argument("instance")
@click.option("--grace", "grace_s", type=click.FloatRange(0), metavar="SECONDS", help="Cut then.")
@click.option("--stop", is_flag=True, help="End the instance when it is empty.")
@click.option("--force", is_flag=True, help="Even if it is the last routable one of its model.")
@click.option("--wait", is_flag=True, help="Stay until it has ended; exit 1 if requests were lost.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@speaks
def drain(
    terminal: Terminal,
    instance: str,
    grace_s: float | None,
    stop: bool,
    force: bool,
    wait: bool,
    dry_run: bool,
) -> None:
    """Take an instance out of traffic and let it finish what it holds.

    It then stays loaded and is sent nothing until `sluicegate undrain`, or ends with --stop.

    Example: sluicegate drain smollm2-135m-instruct-1-0 --grace 60 --wait
    """
    how = How(dry_run=dry_run)
    receipt = terminal.client.change.drain(instance, grace_s, stop=stop, force=force, how=how)
    _begun(terminal, instance, receipt, how, wait)


def _begun(terminal: Terminal, instance: str, receipt: Receipt, how: How, wait: bool) -> None:
    """Say what was begun; follow it if that is wanted."""
    if how.dry_run or not (wait and terminal.as_json):
        terminal.tell(receipt, how)  # one document only in JSON: the end, when it is waited for
    if wait and not how.dry_run:
        _follow(terminal, instance)


def _follow(terminal: Terminal, instance: str) -> None:
    """To the drain's end; ends the program with 1 when it lost requests or was called off."""
    read = partial(terminal.client.read.drain, instance)
    try:
        ended = following.follow(read, terminal.notes, time.sleep)
    except KeyboardInterrupt:
        terminal.notes.print(
            f"the drain of {instance} goes on; `sluicegate undrain {instance}` calls it off"
        )
        raise click.exceptions.Exit(EXIT_REFUSED) from None
    if terminal.as_json:
        terminal.dump(views.drain(ended))
    elif ended.lost:
        count = "1 request was" if len(ended.lost) == 1 else f"{len(ended.lost)} requests were"
        terminal.show(f"{count} lost:", tables.lost(ended.lost))
    elif ended.phase == "undrained":
        terminal.show("somebody gave the instance back before it was empty")
    else:
        terminal.show("nothing was lost")
    if ended.lost or ended.phase == "undrained":
        raise click.exceptions.Exit(EXIT_REFUSED)


@click.command()
@click.argument("instance")
@how_options
@speaks
def undrain(terminal: Terminal, instance: str, how: How) -> None:
    """Give a drained or draining instance back to traffic.

    Example: sluicegate undrain smollm2-135m-instruct-1-0
    """
    terminal.tell(terminal.client.change.undrain(instance, how), how)


@click.command()
@click.argument("instance")
@click.option("--grace", "grace_s", type=click.FloatRange(0), metavar="SECONDS", help="Cut then.")
@click.option("--force", is_flag=True, help="Wait for nothing: cut what it holds, and kill it.")
@click.option("--wait", is_flag=True, help="Stay until it is gone; exit 1 if requests were lost.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@speaks
def stop(
    terminal: Terminal, instance: str, grace_s: float | None, force: bool, wait: bool, dry_run: bool
) -> None:
    """Drain an instance, then end it; it stays down until `sluicegate start`.

    With --force for one that does not answer any more: it is out of traffic at once, every request
    that it held is named, and its device is free when its process is gone.

    \b
    Example: sluicegate stop smollm2-135m-instruct-1-0 --wait
             sluicegate stop smollm2-135m-instruct-1-0 --force --wait
    """
    if force and grace_s is not None:
        raise click.UsageError("--force waits for nothing: leave --grace out")
    how = How(dry_run=dry_run)
    receipt = terminal.client.change.stop(instance, grace_s, force=force, how=how)
    _begun(terminal, instance, receipt, how, wait)


@click.command()
@click.argument("instance")
@how_options
@speaks
def start(terminal: Terminal, instance: str, how: How) -> None:
    """Start a launched instance again that was stopped, has failed, or dies again and again.

    Its back-off and the count of its deaths begin anew.

    Example: sluicegate start smollm2-135m-instruct-1-0
    """
    terminal.tell(terminal.client.change.start(instance, how), how)


# --- leases --------------------------------------------------------------------------------------


@click.group(invoke_without_command=True)
@click.option("--instance", help="Only of this instance.")
@click.option("--model", help="Only of this model.")
@click.pass_context
@speaks
def leases(
    terminal: Terminal, context: click.Context, instance: str | None, model: str | None
) -> None:
    """List the requests in flight, one by one, or cancel one.

    \b
    Example: sluicegate leases --model smollm2-135m-instruct
             sluicegate leases cancel 00000000000000ff
    """
    context.obj = terminal
    if context.invoked_subcommand is not None:
        return
    if instance is not None:
        terminal.client.read.instance(instance)  # refused when there is none: no empty list
    if terminal.as_json:
        given = {"instance": instance, "model": model}
        query = urlencode({key: value for key, value in given.items() if value is not None})
        terminal.dump(terminal.client.calls.call("GET", f"/leases?{query}" if query else "/leases"))
    elif found := terminal.client.read.leases(instance, model):
        terminal.show(tables.leases(found))
    else:
        terminal.show("no requests in flight")


@leases.command()
@click.argument("request_id")
@how_options
@speaks
def cancel(terminal: Terminal, request_id: str, how: How) -> None:
    """End one request now; its client sees a cut answer.

    Example: sluicegate leases cancel 00000000000000ff
    """
    terminal.tell(terminal.client.change.cancel(request_id, how), how)


# --- history -------------------------------------------------------------------------------------


@click.command()
@click.argument("subject", required=False)
@speaks
def history(terminal: Terminal, subject: str | None) -> None:
    """Show who changed what and when, and how drains ended; kept over restarts.

    SUBJECT is a model, an instance, a request, or config.toml. The last thousand are kept.

    \b
    Example: sluicegate history
             sluicegate history smollm2-135m-instruct-1-0
    """
    found = terminal.client.read.history()
    wanted = [one for one in found if subject in {None, one.subject}]
    if terminal.as_json:
        terminal.dump({"history": [views.change(one) for one in wanted]})
    elif wanted:
        terminal.show(tables.history(wanted))
    else:
        terminal.show("nothing was changed so far" if subject is None else f"nothing of {subject}")


# --- events --------------------------------------------------------------------------------------


@click.command()
@click.option("--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option("--after", type=click.IntRange(0), default=0, help="Only those behind this number.")
@speaks
def events(terminal: Terminal, follow: bool, after: int) -> None:
    """Show what has happened, as far as the gateway remembers.

    With --json, one event a line.

    Example: sluicegate events --follow
    """
    try:
        for happened in terminal.client.read.events(after, follow):
            if terminal.as_json:
                terminal.line(views.event(happened))
            else:
                clock = datetime.fromtimestamp(happened.at).strftime("%H:%M:%S")
                terminal.show(tables.event(happened, clock))
    except KeyboardInterrupt:
        return


# --- config --------------------------------------------------------------------------------------


@click.command()
@how_options
@speaks
def reload(terminal: Terminal, how: How) -> None:
    """Make the gateway read config.toml again: whole, or, with any problem in it, not at all.

    Example: sluicegate reload --dry-run
    """
    terminal.tell(terminal.client.change.reload(how), how)


@click.group()
def config() -> None:
    """Show the config in force, or check a candidate against the running gateway."""


@config.command()
@click.argument("prefix", default="")
@click.option("--origin", is_flag=True, help="Also say where each value comes from.")
@speaks
def show(terminal: Terminal, prefix: str, origin: bool) -> None:
    """Show every key in force, or those that begin with PREFIX.

    Example: sluicegate config show gateway. --origin
    """

    def chosen(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {key: entry for key, entry in found.items() if key.startswith(prefix)}

    if terminal.as_json:
        document = terminal.client.calls.call("GET", "/config")
        terminal.dump({**document, "config": chosen(document["config"])})
        return
    entries = chosen(terminal.client.read.config())
    terminal.show(tables.config(entries, origin) if entries else f"no key begins with {prefix}")


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@speaks
def check(terminal: Terminal, file: Path) -> None:
    """List everything wrong with a candidate config, what cannot change live among it.

    Asks the running gateway; `sluicegate check` needs none.

    Example: sluicegate config check new.toml
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"{file} cannot be read: {exc}") from None
    problems = terminal.client.read.check(text)
    if terminal.as_json:
        terminal.dump(views.checked(problems))
    else:
        terminal.show(*([str(one) for one in problems] or [f"{file}: fine"]))
    if problems:
        raise click.exceptions.Exit(EXIT_REFUSED)

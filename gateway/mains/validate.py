"""Samples tried on instances: `sluicegate validate` for people, and the child of a rollout.

Floor 5, I/O.
The child is the supervisor's, as every process that touches traffic: it ends with it, is polite to
those that serve (nice), and leaves its report in a file, whole or not at all.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Final, get_args

import click
from rich.console import Console
from rich.table import Table

from gateway.mains.life import end_with
from gateway.telemetry.log import configure
from gateway.validation.judging import Comparison, Report, Rules, Side
from gateway.validation.orders import Order, Way, decode_order, encode_report
from gateway.validation.replay import carry_out

NICE: Final = 10  # behind workers and instances on the same machine
EXIT_FAILED: Final = 1
PLAIN_WIDTH: Final = 4096  # no line is cut or folded outside a terminal


@click.command()
@click.option(
    "--samples",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='A JSON object a line: {"path": ..., "body": {...}}, or a body alone.',
)
@click.option("--against", "new", multiple=True, required=True, help="URL of what is tried.")
@click.option("--baseline", "old", multiple=True, help="URL of what it is compared with.")
@click.option("--model", default="", help="Say this model's name in every sample.")
@click.option(
    "--error-ratio-max",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of them that may fail, or what the baseline has.",
)
@click.option(
    "--latency-ratio-max",
    type=click.FloatRange(0),
    default=2.0,
    show_default=True,
    help="Of its median to the baseline's; 0: not looked at.",
)
@click.option(
    "--answers",
    type=click.Choice(get_args(Comparison)),
    default="off",
    show_default=True,
    help="Compare them with the baseline's; asks for temperature 0.",
)
@click.option("--similarity", type=click.FloatRange(0, 1), default=0.9, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--request-timeout", type=click.FloatRange(0.001), default=120.0, show_default=True)
@click.option("--timeout", type=click.FloatRange(0.001), default=600.0, show_default=True)
@click.option("--samples-max", type=click.IntRange(1), default=200, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def validate(
    samples: Path,
    new: tuple[str, ...],
    old: tuple[str, ...],
    model: str,
    error_ratio_max: float,
    latency_ratio_max: float,
    answers: Comparison,
    similarity: float,
    concurrency: int,
    request_timeout: float,
    timeout: float,
    samples_max: int,
    as_json: bool,
) -> None:
    """Try sample requests on an instance, or on anything that speaks its API, and judge it.

    Exits 0 when it passed, 1 when not.

    \b
    Example: sluicegate validate --samples samples.jsonl --against http://127.0.0.1:8001
             sluicegate validate --samples samples.jsonl --against http://127.0.0.1:8001 \\
                 --baseline http://127.0.0.1:8000 --answers similar
    """
    rules = Rules(error_ratio_max, latency_ratio_max, answers, similarity)
    way = Way(concurrency, request_timeout, timeout, samples_max)
    order = Order(str(samples), model, _urls(new), _urls(old), rules, way)
    report = asyncio.run(carry_out(order))
    if as_json:
        click.echo(encode_report(report))
    else:
        _show(report)
    if not report.passed:
        raise click.exceptions.Exit(EXIT_FAILED)


def _urls(given: tuple[str, ...]) -> tuple[str, ...]:
    """Raises: UsageError."""
    for one in given:
        if not one.startswith(("http://", "https://")):
            raise click.UsageError(f"{one} is no URL, as in http://127.0.0.1:8000")
    return given


# --- shown ---------------------------------------------------------------------------------------


def _show(report: Report) -> None:
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    console.print(_sides(report))
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("CHECK", "PASSED", "REASON"):
        table.add_column(column)
    for one in report.checks:
        table.add_row(one.name, "yes" if one.passed else "no", one.text)
    console.print(table)
    if report.named:
        console.print()
    for line in report.named:
        console.print(line)
    console.print()
    console.print(f"{'passed' if report.passed else 'failed'}: {report.reason}")


def _sides(report: Report) -> Table:
    numbers = ("TRIED", "SERVED", "FAILED", "DENIED", "NO ROOM", "P50", "P95", "FIRST BYTE P95")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", *numbers):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, side in (("against", report.new), ("baseline", report.old)):
        if side is not None:
            table.add_row(name, *_row(side))
    return table


def _row(side: Side) -> tuple[str, ...]:
    counts = (side.tried, side.served, side.failed, side.denied, side.refused)
    times = (side.p50_s, side.p95_s, side.first_byte_p95_s)
    return (*map(str, counts), *("-" if one is None else f"{one * 1000:.0f} ms" for one in times))


# --- the child -----------------------------------------------------------------------------------


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gateway.mains.validate", description="one validation")
    parser.add_argument("--order", type=decode_order, required=True, help="JSON")
    parser.add_argument("--report", type=Path, required=True, help="where the report goes")
    parser.add_argument("--life-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="pid that it must not outlive")
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    parser.add_argument("--log-level", default="info")
    return parser.parse_args(given)


def main() -> None:
    given = arguments()
    end_with(given.life_fd, given.parent)
    configure(given.log_format, given.log_level, process="validate")
    os.nice(NICE)
    report = asyncio.run(carry_out(given.order))
    fresh = given.report.with_suffix(".new")
    fresh.write_bytes(encode_report(report))
    fresh.replace(given.report)


if __name__ == "__main__":
    main()

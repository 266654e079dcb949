"""Requests that wait for a graph -> the run it does next, or how long it waits for more.

Floor 1, pure.
A run takes requests in the order they came in, as many rows as fit. It begins when it is full, when
what comes next cannot join it, or when its oldest request has waited `max_delay_s`. While a run is
under way the queue fills by itself, so under load no request waits for the delay.
"""

from collections.abc import Iterable
from dataclasses import dataclass

Shapes = tuple[tuple[int, ...], ...]  # of one row, input by input


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue."""

    rows: int
    shapes: Shapes  # only equal ones can be joined
    since: float
    alone: bool = False  # it was in a run that failed: it must not fail others again


@dataclass(frozen=True, slots=True)
class Run:
    """Run the first `count` of the queue together."""

    count: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Ask again at loop time `at`, or when another request has come."""

    at: float


def plan(
    queue: Iterable[Waiting], now: float, max_batch: int, max_delay_s: float
) -> Run | WaitUntil | None:
    """What an idle graph does; None: nothing waits. `max_batch` 0: every request is a run.

    Cost: looks at no more than `max_batch` + 1 requests.
    """
    waiting = iter(queue)
    head = next(waiting, None)
    if head is None:
        return None
    if head.alone or not max_batch:
        return Run(1)
    count, rows = 1, head.rows
    for other in waiting:
        if other.alone or other.shapes != head.shapes or rows + other.rows > max_batch:
            return Run(count)
        count, rows = count + 1, rows + other.rows
    due = head.since + max_delay_s
    return Run(count) if rows >= max_batch or now >= due else WaitUntil(due)


def sizes(max_batch: int, graph_rows: int) -> tuple[int, ...]:
    """The numbers of rows that the graph is ever run with, ascending; every one is warmed up.

    `graph_rows`: the only number it can be run with, 0: it takes any. Then powers of two, so that
    padding at most doubles a run and there are few shapes to compile.
    """
    if graph_rows:
        return (graph_rows,)
    powers = [1 << power for power in range(max(0, max_batch - 1).bit_length())]
    return (*powers, max_batch) if max_batch else ()

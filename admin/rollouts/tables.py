"""Rollouts as people see them: one whole, many in a table, an end in a sentence.

Floor 1, pure.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from admin.tables import amount_of, span, table
from gateway.control import CheckView, RolloutView, SideView, StepView, TransitionView

BAR: Final = 24  # characters
SHOWN: Final = 8  # of the last transitions: all of it fits a window of 24 lines
STYLES: Final = {
    "done": "green",
    "promoting": "green",
    "paused": "yellow",
    "rolling_back": "red",
    "rolled_back": "red",
}


def rollout(view: RolloutView, transitions_max: int = SHOWN) -> RenderableType:
    """Where one stands, whole."""
    parts: list[RenderableType] = [
        Text(f"{view.id}: version {view.version} in place of {view.stable}, {_where(view)}"),
        Text(view.reason, style=STYLES.get(view.phase, "")),
        Text(),
        _steps(view),
        Text(),
        _sides((view.canary, view.baseline)),
    ]
    if view.checks:
        parts += [Text(), checks(view.checks)]
    if view.transitions:
        parts += [Text(), transitions(view.transitions[-transitions_max:])]
    if view.verbs:
        parts += [Text(), Text(f"can be asked of it: {', '.join(view.verbs)}")]
    return Group(*parts)


def _where(view: RolloutView) -> str:
    """Phase, step, and what is waited for."""
    if view.ended is not None:
        return f"{view.phase} after {span(view.ended - view.began)}"
    phase = f"step {view.step} of {len(view.steps)}" if view.phase == "step" else view.phase
    left = waits_for(view)
    return f"{phase}, {left}" if left else phase


def waits_for(view: RolloutView) -> str:
    """What has to come before it goes on; "" when that is nobody's to say."""
    parts = [f"{span(view.hold_left_s)} left"] if view.hold_left_s > 0 else []
    if view.requests_left:
        parts.append(f"{amount_of(view.requests_left, 'request')} to come")
    if not parts and view.phase == "step" and view.steps[view.step - 1].gate:
        return f"waits for `sluicegate rollout promote {view.model}`"
    return ", ".join(parts)


def line(view: RolloutView) -> str:
    """One rollout on one line."""
    return f"{view.id}: version {view.version}, {_where(view)}: {view.reason}"


def ended(view: RolloutView) -> str:
    """How it ended, and why."""
    took = span((view.ended or view.since) - view.began)
    if view.phase == "done":
        return f"{view.id}: version {view.version} serves {view.model} after {took}"
    return f"{view.id}: version {view.version} {view.phase} after {took}: {view.reason}"


# --- parts ---------------------------------------------------------------------------------------


def _steps(view: RolloutView) -> Table:
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for at, one in enumerate(view.steps, 1):
        grid.add_row(f"{one.weight:g} %", _bar(view, at, one), _step(view, at, one))
    return grid


def _bar(view: RolloutView, at: int, one: StepView) -> RenderableType:
    if one.ended is not None or (view.step == at and view.phase in {"promoting", "done"}):
        share = 1.0
    elif view.step != at or one.hold_s <= 0:
        share = 0.0
    else:
        share = max(0.0, 1 - view.hold_left_s / one.hold_s)
    style = "red" if view.phase in {"rolling_back", "rolled_back"} else "green"
    return ProgressBar(1.0, share, width=BAR, complete_style=style, finished_style=style)


def _step(view: RolloutView, at: int, one: StepView) -> str:
    if one.ended is not None and one.began is not None:
        return f"held {span(one.ended - one.began)}"
    if view.step == at and view.ended is None:
        return waits_for(view)
    asked = [span(one.hold_s)] if one.hold_s else []
    if one.requests_min:
        asked.append(amount_of(one.requests_min, "request"))
    text = " and ".join(asked)
    if one.gate:
        text = f"{text}, then promote" if text else "until promote"
    return text


def _sides(sides: Sequence[SideView]) -> Table:
    numbers = ("REQUESTS", "FAILED", "RATIO", "P95", "FIRST BYTE P95", "RESTARTS", "READY")
    found = table("", "VERSION", *numbers, right=numbers)
    for name, one in zip(("canary", "baseline"), sides, strict=True):
        found.add_row(
            name,
            one.version,
            str(one.requests),
            str(one.failures),
            f"{one.failure_ratio:.1%}" if one.requests else "-",
            _latency(one.latency_p95_s),
            _latency(one.ttft_p95_s),
            str(one.restarts),
            f"{one.ready}/{one.instances}",
        )
    return found


def _latency(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def checks(views: Sequence[CheckView]) -> Table:
    found = table("CHECK", "PASSED", "REASON")
    for one in views:
        word = Text("yes", style="green") if one.passed else Text("no", style="red")
        found.add_row(one.name, word, one.text)
    return found


def transitions(views: Sequence[TransitionView]) -> Table:
    found = table("WHEN", "PHASE", "STEP", "BY", "REASON")
    for one in views:
        found.add_row(
            datetime.fromtimestamp(one.at).strftime("%H:%M:%S"),
            Text(one.phase, style=STYLES.get(one.phase, "")),
            str(one.step or "-"),
            one.by,
            one.reason,
        )
    return found


def transition(view: TransitionView) -> str:
    """One on one line, for who follows without a terminal."""
    clock = datetime.fromtimestamp(view.at).strftime("%H:%M:%S")
    step = f" {view.step}" if view.phase == "step" else ""
    return f"{clock}  {view.phase}{step}: {view.reason} ({view.by})"


# --- many ----------------------------------------------------------------------------------------


def rollouts(views: Sequence[RolloutView]) -> Table:
    found = table("ROLLOUT", "VERSION", "STABLE", "PHASE", "STEP", "BEGAN", "TOOK", "REASON")
    for one in views:
        found.add_row(
            one.id,
            one.version,
            one.stable,
            Text(one.phase, style=STYLES.get(one.phase, "")),
            f"{one.step}/{len(one.steps)}",
            datetime.fromtimestamp(one.began).strftime("%Y-%m-%d %H:%M:%S"),
            "-" if one.ended is None else span(one.ended - one.began),
            one.reason,
        )
    return found

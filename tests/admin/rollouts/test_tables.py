from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from admin.rollouts import tables
from gateway.control import RolloutView, StepView
from tests.admin.fakes import ROLLED_BACK, ROLLOUT


def drawn(what: RenderableType) -> list[str]:
    console = Console(width=200, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(what)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_running_rollout_is_told_whole() -> None:
    lines = drawn(tables.rollout(ROLLOUT))
    left = "5 min left, 12 requests to come"
    assert lines[0] == f"m/2: version 2 in place of 1, step 1 of 3, {left}"
    assert lines[1] == ROLLOUT.reason
    assert any(line.startswith("5 %") and line.endswith(left) for line in lines)
    assert any(
        line.startswith("25 %") and "10 min and 100 requests, then" in line for line in lines
    )
    assert "canary 2 88 1 1.1% 840 ms 120 ms 0 1/1" in lines
    assert "baseline 1 1672 9 0.5% 800 ms - 0 2/2" in lines
    assert "errors yes 0 of 20 requests failed" in lines
    assert lines[-1] == "can be asked of it: promote, pause, abort"


def test_a_step_that_only_waits_for_somebody_says_what_to_type() -> None:
    gated = (replace(ROLLOUT.steps[0], gate=True), *ROLLOUT.steps[1:])
    view = replace(ROLLOUT, steps=gated, hold_left_s=0.0, requests_left=0)
    assert tables.waits_for(view) == "waits for `sluicegate rollout promote m`"
    assert tables.waits_for(replace(view, phase="promoting")) == ""


@pytest.mark.parametrize(("left_s", "held"), [(600.0, 0.0), (300.0, 0.5), (0.0, 1.0), (900.0, 0.0)])
def test_the_bar_of_the_running_step_is_the_share_of_its_hold(left_s: float, held: float) -> None:
    bar = tables._bar(replace(ROLLOUT, hold_left_s=left_s), 1, ROLLOUT.steps[0])
    assert bar.completed == held  # type: ignore[union-attr]  # a ProgressBar
    later = tables._bar(ROLLOUT, 2, ROLLOUT.steps[1])
    assert later.completed == 0  # type: ignore[union-attr]


def _until(step: StepView) -> RolloutView:
    return replace(ROLLOUT, steps=(step,), step=0, phase="validating", hold_left_s=0)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (StepView(5, 0, 0, True, None, None), "until promote"),
        (StepView(5, 60, 0, True, None, None), "60 s, then promote"),
        (StepView(5, 0, 1, False, None, None), "1 request"),
        (StepView(5, 600, 0, False, 1.0, 61.0), "held 60 s"),
        (StepView(5, 0, 0, False, None, None), ""),
    ],
)
def test_each_step_says_what_it_needs_or_took(step: StepView, said: str) -> None:
    (line,) = [one for one in drawn(tables.rollout(_until(step))) if one.startswith("5 %")]
    assert line.endswith(said)


def test_only_the_last_transitions_are_shown_on_the_page() -> None:
    many = tuple(replace(ROLLOUT.transitions[0], reason=f"reason {n}.") for n in range(20))
    text = "\n".join(drawn(tables.rollout(replace(ROLLOUT, transitions=many))))
    assert "reason 12." in text
    assert "reason 11." not in text


def test_an_end_is_a_sentence_with_its_reason() -> None:
    assert tables.ended(ROLLED_BACK) == (
        f"m/1: version 2 rolled_back after 10 min: {ROLLED_BACK.reason}"
    )
    done = replace(ROLLED_BACK, phase="done")
    assert tables.ended(done) == "m/1: version 2 serves m after 10 min"


def test_many_are_a_line_each() -> None:
    lines = drawn(tables.rollouts((ROLLOUT, ROLLED_BACK)))
    assert len(lines) == 3
    assert lines[1].startswith("m/2 2 1 step 1/3 ")
    assert lines[2].startswith("m/1 2 1 rolled_back 1/3 ")
    assert lines[2].endswith(ROLLED_BACK.reason)

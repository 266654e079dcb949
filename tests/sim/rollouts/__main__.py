"""Simulates rollouts and writes what came of it into docs/: `make rollout-sim`.

Ends with one line of figures. The same seeds give the same bytes.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np

from gateway.rollout.opening import chance
from tests.sim.rollouts import studies
from tests.sim.rollouts.judges import THUMBS
from tests.sim.rollouts.plot import Line, chart
from tests.sim.rollouts.studies import BAD, BESIDE, EQUAL, NEVER, OURS, Fate, Soon

DOCS: Final = Path(__file__).parents[3] / "docs"
PLOT: Final = DOCS / "rollouts-detection.svg"
BEGIN, END = "<!-- begin: simulation -->\n", "<!-- end: simulation -->"
SHARES: Final = (0.1, 0.2, 0.5, 1.0)
PER_CANARY: Final = {"5 %": 19, "25 %": 3, "50 %": 1, "100 %": 0}  # stable's requests per canary's
SPREADS: Final = (0.4, 0.8, 1.2)
TIMES: Final = (2.0, 3.0)
LATE: Final = 10_000  # good requests before the break
CURVES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(slots=True)
class Asked:
    """Studies under way, by name."""

    pool: ProcessPoolExecutor
    asked: dict[Any, Future[Any]] = field(default_factory=dict)

    def ask(self, name: Any, study: Callable[..., Any], *given: Any, **named: Any) -> None:
        self.asked[name] = self.pool.submit(study, *given, **named)

    def answers(self) -> dict[Any, Any]:
        return {name: one.result() for name, one in self.asked.items()}


def ask_all(asked: Asked, rollouts: int) -> None:
    each = rollouts // len(EQUAL)
    for at, (name, world) in enumerate(EQUAL.items()):
        asked.ask(("equal", name), studies.judged, world, each, seed=100 + at)
    for at, (name, world) in enumerate(BESIDE.items()):
        asked.ask(("beside", name), studies.judged, world, each, seed=200 + at)
    for at, (name, world) in enumerate(BAD.items()):
        asked.ask(("bad", name), studies.judged, world, 200, seed=300 + at)
    for share in SHARES:
        many = 2000 if share < 0.2 else 10_000  # the fewer requests, the more hangs on one
        for weight, beside in PER_CANARY.items():
            asked.ask(("soon", weight, share), studies.failing, share, beside, rollouts=many)
        asked.ask(("soon", "plain", share), studies.failing_plain, share, rollouts=many)
        late = {"good_before": LATE, "rollouts": 400, "requests_max": 1500}
        asked.ask(("late", share), studies.failing, share, 19, **late)
    for share in (0.5, 1.0):
        asked.ask(("never", share), studies.failing, share, 19, held_back=1e-300, **late)
    for share in CURVES:
        asked.ask(("curve", share), curve, share)
    for spread in SPREADS:
        for times in TIMES:
            for weight in ("5 %", "25 %"):
                asked.ask(
                    ("slow", weight, spread, times), studies.slow, times, PER_CANARY[weight], spread
                )


# --- what is written -----------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def told(soon: Soon) -> str:
    return "-" if soon.median == NEVER else f"{soon.median:,}"


def false_alarms(answers: dict[Any, Any]) -> tuple[str, float, int]:
    """The table, our share of false alarms, of how many rollouts."""
    judges = [OURS, *THUMBS]
    rows, rolled, of = [], dict.fromkeys(judges, 0), 0
    for name in EQUAL:
        fates: dict[str, Fate] = answers["equal", name]
        of += len(fates[OURS].tick)
        for judge in judges:
            rolled[judge] += int(fates[judge].rolled.sum())
        rows.append([name, *(f"{fates[judge].rolled.mean():.2%}" for judge in judges)])
    rows.append(["**all**", *(f"**{rolled[judge] / of:.2%}**" for judge in judges)])
    for name in BESIDE:
        fates = answers["beside", name]
        rows.append([name, *(f"{fates[judge].rolled.mean():.2%}" for judge in judges)])
    return table(["both versions", *judges], rows), rolled[OURS] / of, of


def soon_table(answers: dict[Any, Any]) -> str:
    rows = []
    for weight in PER_CANARY:
        row = [told(answers["soon", weight, share]) for share in SHARES]
        rows.append([f"at {weight} of the traffic", *row])
    rows.append(["textbook test at 1 %", *(told(answers["soon", "plain", one]) for one in SHARES)])
    late = [told(answers["late", share]) for share in SHARES]
    rows.append([f"broken after {LATE:,} good requests, at 5 %", *late])
    never = [told(answers["never", one]) if one >= 0.5 else "" for one in SHARES]
    rows.append(["the same, had nothing been held back", *never])
    return table(["canary fails", *(f"{share:.0%}" for share in SHARES)], rows)


def slow_table(answers: dict[Any, Any]) -> str:
    rows = []
    for weight in ("5 %", "25 %"):
        for times in TIMES:
            row = [told(answers["slow", weight, spread, times]) for spread in SPREADS]
            rows.append([f"{times:g} times as long, at {weight}", *row])
    names = {0.4: "even", 0.8: "mixed", 1.2: "very mixed"}
    return table(["canary takes", *(f"{names[one]} ({one:g})" for one in SPREADS)], rows)


def bad_table(answers: dict[Any, Any]) -> str:
    rows = []
    for name, world in BAD.items():
        for judge, fate in answers["bad", name].items():
            rows.append(
                [
                    name,
                    judge,
                    f"{fate.rolled.mean():.0%}",
                    f"{studies.minutes_until(fate, world):.1f}",
                    f"{np.median(fate.failed):,.0f}",
                    f"{np.quantile(fate.failed, 0.95):,.0f}",
                ]
            )
    head = [
        "canary",
        "judge",
        "rolled back",
        "minutes until then",
        "requests failed",
        "p95 of them",
    ]
    return table(head, rows)


def curve(share: float) -> Line:
    """A line of the plot."""
    soon = studies.failing(share, 19, rollouts=2000, requests_max=1000, enough=1.0, seed=3)
    requests = sorted({round(1.06**k) for k in range(119)})
    return Line(f"fails {share:.0%}", tuple((n, soon.share_within(n)) for n in requests))


def document(answers: dict[Any, Any]) -> tuple[str, float]:
    alarms, share, of = false_alarms(answers)
    half: Soon = answers["soon", "5 %", 0.5]
    five, six = half.share_within(5), half.share_within(6)
    text = f"""\
Of {of:,} rollouts of versions as good as stable these were rolled back:

{alarms}

Requests of the canary until half of the rollouts were rolled back, stable failing 1 %:

{soon_table(answers)}

Of canaries that fail half of their requests {five:.1%} are out within five requests, {six:.1%}
within six. Three failures are the least that rolls back. Five requests hold three with even chances
({chance(3, 5, 0.5):.1%}), six in {chance(3, 6, 0.5):.1%} of rollouts: no test with this floor is
sooner. What is missing to that is where stable failed in the same moments as well.

![Share of rollouts rolled back by requests of the canary](rollouts-detection.svg)

The same for slow canaries, `latency_ratio_max = 1.5`; in brackets the spread of latencies (standard
deviation of their logarithm), and every fiftieth request takes ten times as long:

{slow_table(answers)}

Bad canaries beside rules of thumb, on the same traffic; stable fails 1 %:

{bad_table(answers)}
"""
    return text, share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rollouts", type=int, default=10_000, help="of versions as good as stable"
    )
    parser.add_argument("--dry", action="store_true", help="write nothing")
    given = parser.parse_args()
    began = monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        asked = Asked(pool)
        ask_all(asked, given.rollouts)
        answers = asked.answers()
    text, share = document(answers)
    print(text)
    if not given.dry:
        PLOT.write_text(chart([answers["curve", share] for share in CURVES]))
        page = DOCS / "rollouts.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")
    medians = " ".join(
        f"median_requests_{one * 100:.0f}={told(answers['soon', '5 %', one])}" for one in SHARES
    )
    print(f"false_rollback={share:.4f} {medians} seconds={monotonic() - began:.0f}")


if __name__ == "__main__":
    main()

"""What a run prints, and what the gateway's own counters have to say to it.

Floor 1, pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.chaos.audit import Account, Asked, End, Kill, kept_promise
from tests.chaos.fleet import counted
from tests.chaos.operations import Operator


def counters(metrics: str, account: Account, whole: bool = True) -> list[str]:
    """Where the gateway's metrics say something else than its clients; a sentence each.

    `whole`: they begin with the run; after a take-over they begin with the successor.
    """
    problems = []
    for name, label in (("sluicegate_in_flight", "instance"), ("sluicegate_queue_depth", "model")):
        held = {key: n for key, n in counted(metrics, name, label).items() if n}
        if held:
            problems.append(f"{name} is not 0 when all is over: {held}")
    if not whole:
        return problems
    outcomes = counted(metrics, "sluicegate_requests_total", "outcome")
    refused = counted(metrics, "sluicegate_requests_refused_total", "code")
    seen = outcomes.total() + refused.total()
    asked = account.sent + account.left - account.uncounted
    if seen != asked:
        problems.append(f"the gateway counted {seen} requests, clients {asked}: {outcomes}")
    served, answered = outcomes["served"], account.answered - len(account.false)
    if not answered <= served <= answered + account.left:
        problems.append(f"the gateway counted {served} as served, clients {answered}")
    return problems


def table(
    account: Account,
    asked: Sequence[Asked],
    kills: Sequence[Kill],
    named: Mapping[str, str],
    operator: Operator,
) -> str:
    by_kind: dict[str, Counter[str]] = {}
    for one in asked:
        row = by_kind.setdefault(one.kind, Counter())
        row["sent"] += 1
        row["unended" if one.end is None else one.end.value] += 1
    columns = ("sent", *(end.value for end in End))
    lines = ["", _row("requests", *columns)]
    lines += [_row(kind, *(str(row[name]) for name in columns)) for kind, row in by_kind.items()]
    lines += ["", _row("lost by cause", "requests")]
    lines += [_row(cause, str(n)) for cause, n in account.lost.most_common()]
    lines += [_row("nobody named it", str(len(account.unnamed)))]
    lines += [_unnamed(one, kills) for one in account.unnamed[:20]]
    if kills:
        names = {one.name: one for one in asked}
        lines += ["", _row("killed", "held", "lost", "answered", "left", "unnamed")]
        for kill in kills:
            became = kept_promise(kill, names, named)
            held = ("lost", "answered", "left", "unnamed")
            count = "?" if kill.held is None else str(len(kill.held))
            lines.append(_row(kill.what, count, *(str(became[w]) for w in held)))
    lines += ["", _row("operations", "done", "disturbed")]
    for name in sorted(operator.done | operator.disturbed):
        lines.append(_row(name, str(operator.done[name]), str(operator.disturbed[name])))
    return "\n".join(lines)


def _row(first: str, *others: str) -> str:
    return f"{first:<24}" + "".join(f"{one:>10}" for one in others)


def _unnamed(one: Asked, kills: Sequence[Kill]) -> str:
    """Everything that is known of it, for who looks for the fault."""
    deaths = [
        f"{kill.what} died {kill.at - one.began:+.3f} s from its begin"
        + (f" with its connection, unread={kill.ports[one.port]}" if one.port in kill.ports else "")
        for kill in kills
        if one.began - 5 < kill.at < one.ended + 5
    ]
    took = f"{one.ended - one.began:.3f} s"
    return "; ".join([f"  {one.name} {one.kind} {one.why} {one.code}", took, *deaths])

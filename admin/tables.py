"""Views as tables for people.

Floor 1, pure.
A column is for what an operator acts on; the rest is in --json. Words are those of the API, so that
what is read here can be typed there.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.control import (
    ChangeView,
    DrainView,
    Event,
    InstanceView,
    LeaseView,
    LostView,
    ModelView,
    StatusView,
    WorkerView,
)

STYLES: Final = {
    "READY": "green",
    "good": "green",
    "INITIALIZING": "yellow",
    "DRAINING": "yellow",
    "drain": "yellow",
    "suspect": "yellow",
    "ERROR": "red",
    "STOPPED": "red",
    "stop": "red",
    "unhealthy": "red",
    "lost": "red",
    "crash_loop": "red",
    "failed": "red",
}


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        wraps = column in {"REASON", "CHANGE"}  # a sentence
        found.add_column(column, justify="right" if column in right else "left", no_wrap=not wraps)
    return found


def _word(word: str) -> Text:
    return Text(word or "-", style=STYLES.get(word, ""))


def span(seconds: float) -> str:
    """A duration as a person says it: 0.4 s, 12 s, 3 min, 5 h, 2 d."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            count = seconds / size
            return f"{count:.1f} {unit}" if count < 10 and unit == "s" else f"{count:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def amount_of(count: int, what: str) -> str:
    """1 request, 2 requests."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def amount(count: int) -> str:
    """Bytes as a person says them."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


# --- status --------------------------------------------------------------------------------------


def status(view: StatusView, now: float) -> RenderableType:
    word = "closing" if view.closing else "serving" if view.serving else "not serving yet"
    behind = [one for one in view.workers if one.generation < view.generation]
    served = f"not yet served by {_indices(behind)}" if behind else "served by every worker"
    lines = [
        f"Sluicegate {view.version}, pid {view.pid}: {word} on {', '.join(view.listen) or '-'} "
        f"for {span(max(now - view.started, 0))}",
        f"generation {view.generation}, {served}; revision {view.revision}",
        f"{view.routable} of {view.instances} instances routable, {view.in_flight} in flight",
        f"data plane: {_data_plane(view)}",
    ]
    parts: list[RenderableType] = [Text("\n".join(lines)), Text()]
    if view.models:
        parts.append(models(view.models))
    for problem in view.problems:
        parts.append(Text(f"! {problem}", style="red"))
    return Group(*parts)


def _data_plane(view: StatusView) -> str:
    if view.data_plane != "mixed":
        return view.data_plane
    return f"interpreted in {_indices([one for one in view.workers if one.compiled is False])}"


def _indices(workers: Iterable[WorkerView]) -> str:
    return "worker " + ", ".join(str(one.index) for one in workers)


def models(views: Sequence[ModelView]) -> Table:
    numbers = ("WEIGHT", "SHARE", "LATELY", "READY", "ROUTABLE", "WAITING")
    found = table("MODEL", "VERSION", *numbers, "NOTE", right=numbers)
    for model in views:
        for version in model.versions:
            notes = ["blocked"] if version.blocked else []
            if version.file_weight is not None:
                notes.append(f"file says {version.file_weight:g}")
            found.add_row(
                model.name,
                version.version,
                f"{version.weight:g}",
                f"{version.effective:.0%}",
                f"{version.observed:.0%}",
                f"{version.ready}/{max(version.instances, version.replicas)}",
                str(version.routable),
                str(model.waiting),
                ", ".join(notes),
            )
    return found


# --- instances -----------------------------------------------------------------------------------


def instances(views: Sequence[InstanceView]) -> Table:
    numbers = ("WEIGHT", "HELD")
    found = table(
        *("INSTANCE", "MODEL", "VERSION", "STATE", "PHASE", "INTENT", "HEALTH"),
        *numbers,
        *("ADDRESS", "REASON"),
        right=numbers,
    )
    for one in views:
        done = one.progress >= 100
        found.add_row(
            one.id,
            one.model,
            one.version,
            _word(one.state),
            _word(one.phase) if done or not one.progress else f"{one.phase} {one.progress:.0f}%",
            _word(one.intent),
            _word(one.health),
            f"{one.weight:g}",
            f"{one.in_flight}/{one.limit}",
            one.http or "-",
            one.reason,
        )
    return found


def instance(document: dict[str, Any]) -> Table:
    """Every field of one, a line each."""
    found = table("FIELD", "VALUE")
    for key, value in document.items():
        if isinstance(value, dict):
            for inner, one in value.items():
                said = amount(one) if inner.endswith("_bytes") else _said(one)
                found.add_row(f"{key}.{inner}", said)
        else:
            found.add_row(key, _field(key, value))
    return found


def _field(key: str, value: Any) -> Text | str:
    """One field of an instance, as a person reads it; exact numbers are in --json."""
    if key in {"state", "intent", "health"}:
        return _word(value)
    if key == "since":
        return moment(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else _said(value)


def moment(at: float) -> str:
    """A time as a person's clock says it, in ISO 8601, to the second."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def _said(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- requests and events -------------------------------------------------------------------------


REQUEST: Final = ("REQUEST", "CLIENT'S ID", "INSTANCE", "VERSION", "STAGE", "AGE", "BYTES")


def leases(views: Sequence[LeaseView]) -> Table:
    found = table(*REQUEST, right=("AGE", "BYTES"))
    for one in views:
        found.add_row(*_request(one))
    return found


def lost(views: Sequence[LostView]) -> Table:
    found = table(*REQUEST, "CAUSE", right=("AGE", "BYTES"))
    for one in views:
        found.add_row(*_request(one), one.cause)
    return found


def _request(one: LeaseView | LostView) -> tuple[str, ...]:
    client_id = one.client_request_id or "-"
    size = amount(one.bytes)
    return one.request_id, client_id, one.instance, one.version, one.stage, span(one.age_s), size


def drain(view: DrainView) -> str:
    """One line on where a drain stands."""
    held = max(view.held, view.active_requests)
    requests = amount_of(held, "request")
    if view.ended is not None:
        return f"{view.instance}: {view.phase} after {span(view.ended - view.began)}"
    return f"{view.instance}: {view.phase}, {requests} held, {span(view.remaining_s)} left"


def history(views: Sequence[ChangeView]) -> Table:
    found = table("WHEN", "BY", "KIND", "SUBJECT", "CHANGE", "REVISION", right=("REVISION",))
    for one in views:
        clock = datetime.fromtimestamp(one.at).strftime("%Y-%m-%d %H:%M:%S")
        found.add_row(clock, one.by, one.kind, one.subject, one.text, str(one.revision))
    return found


def event(happened: Event, clock: str) -> str:
    return f"{clock}  {happened.kind:<8}  {happened.subject}: {happened.text}"


def config(entries: dict[str, dict[str, Any]], with_origin: bool) -> Table:
    found = table("KEY", "VALUE", *(["ORIGIN"] if with_origin else []))
    for key, entry in entries.items():
        row = [key, _said(entry["value"])]
        found.add_row(*row, *([str(entry["origin"])] if with_origin else []))
    return found

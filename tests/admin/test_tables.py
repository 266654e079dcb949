from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType

from admin import tables, views
from tests.admin.fakes import (
    CONFIG,
    DRAIN,
    ENDED,
    EVENTS,
    INSTANCE,
    LEASE,
    LOADING,
    LOST,
    MODEL,
    STATUS,
)


def _text(table: RenderableType) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.42, "0.4 s"),
        (12, "12 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7200, "2 h"),
        (172_800, "2 d"),
    ],
)
def test_a_duration_is_said_in_its_own_unit(seconds: float, said: str) -> None:
    assert tables.span(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (2048, "2 kB"), (7_000_000, "7 MB"), (16e9, "16.0 GB")]
)
def test_bytes_are_said_in_their_own_unit(count: float, said: str) -> None:
    assert tables.amount(int(count)) == said


def test_status_shows_both_numbers_and_every_problem() -> None:
    text = _text(tables.status(STATUS, STATUS.started + 180))
    assert "Sluicegate 0.1.0, pid 4000: serving on 127.0.0.1:8080 for 3 min" in text
    assert "generation 7, served by every worker; revision 12" in text
    assert "1 of 2 instances routable, 3 in flight" in text
    assert "! m-2-0 is not READY yet" in text


def test_status_names_workers_that_are_behind() -> None:
    behind = replace(STATUS.workers[0], index=1, generation=6)
    text = _text(tables.status(replace(STATUS, workers=(*STATUS.workers, behind)), 0))
    assert "generation 7, not yet served by worker 1" in text


def test_status_says_whether_the_data_plane_is_compiled() -> None:
    assert "\ndata plane: compiled\n" in _text(tables.status(STATUS, 0))
    slow = replace(STATUS.workers[0], index=1, compiled=False)
    mixed = replace(STATUS, workers=(*STATUS.workers, slow), data_plane="mixed")
    assert "\ndata plane: interpreted in worker 1\n" in _text(tables.status(mixed, 0))


@pytest.mark.parametrize(
    ("changed", "word"),
    [({"closing": True}, "closing on"), ({"serving": False}, "not serving yet on")],
)
def test_status_says_when_it_does_not_serve(changed: dict[str, bool], word: str) -> None:
    assert word in _text(tables.status(replace(STATUS, **changed), 0))  # type: ignore[arg-type]


def test_models_show_set_effective_and_observed_shares_apart() -> None:
    lines = _text(tables.models([MODEL])).splitlines()
    assert lines[1].split() == [
        "m",
        "1",
        "95",
        "100%",
        "97%",
        "1/1",
        "1",
        "2",
        "file",
        "says",
        "100",
    ]
    assert lines[2].split() == ["m", "2", "5", "0%", "3%", "0/1", "0", "2"]


def test_instances_show_state_intent_and_health_apart() -> None:
    lines = _text(tables.instances([INSTANCE, LOADING])).splitlines()
    assert lines[1].split() == (
        ["m-1-0", "m", "1", "READY", "serving", "active", "good", "1", "3/4", "127.0.0.1:7001"]
    )
    assert "INITIALIZING  compiling 55%  active  unknown" in lines[2]
    assert lines[2].rstrip().endswith("compiling bucket 3 of 5")


def test_one_that_is_down_shows_where_it_stands_with_its_launcher_and_no_progress() -> None:
    looping = replace(LOADING, phase="crash_loop", progress=0.0, reason="crash loop: 5 deaths")
    line = _text(tables.instances([looping])).splitlines()[1]
    assert "crash_loop  active" in line
    assert line.rstrip().endswith("crash loop: 5 deaths")


def test_one_instance_shows_every_field() -> None:
    text = _text(tables.instance(views.instance(INSTANCE)))
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert rows["device.memory_used_bytes"].strip() == "6 kB"
    assert rows["ready_in_s"].strip() == "-"
    assert rows["routable"].strip() == "true"
    assert set(views.instance(INSTANCE)) - {"device"} <= set(rows)


def test_one_instance_shows_times_by_the_clock_and_numbers_that_can_be_read() -> None:
    rough = replace(INSTANCE, since=1_700_000_000.04, load_ms=319.99999, tokens_per_s=0.333333)
    text = _text(tables.instance(views.instance(rough)))
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    since = datetime.fromisoformat(rows["since"].strip())
    assert since == datetime.fromtimestamp(1_700_000_000, UTC)
    shown = [rows[key].strip() for key in ("load_ms", "tokens_per_s", "limit")]
    assert shown == ["320", "0.33", "4"]


def test_leases_and_lost_requests_name_the_request() -> None:
    assert _text(tables.leases([LEASE])).splitlines()[1].split() == (
        ["00000000000000ff", "c-1", "m-1-0", "1", "streaming", "2.5", "s", "2", "kB"]
    )
    assert _text(tables.lost([LOST])).splitlines()[1].endswith("drain deadline")


def test_a_drain_is_one_line() -> None:
    assert tables.drain(DRAIN) == "m-1-0: waiting, 3 requests held, 29 s left"
    one = replace(DRAIN, held=0, active_requests=1)
    assert tables.drain(one) == "m-1-0: waiting, 1 request held, 29 s left"
    assert tables.drain(ENDED) == "m-1-0: done after 4.0 s"


def test_an_event_is_one_line() -> None:
    assert tables.event(EVENTS[0], "12:00:00") == "12:00:00  drain     m-1-0: step 1"


def test_origins_are_shown_when_asked_for() -> None:
    assert "run-time" in _text(tables.config(CONFIG, True))
    assert "run-time" not in _text(tables.config(CONFIG, False))

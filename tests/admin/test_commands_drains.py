"""Drains and stops as they are typed, waited for and interrupted."""

import time
from dataclasses import replace

import pytest

from gateway.control import DrainInstance, StartInstance, StopInstance, UndrainInstance
from tests.admin.conftest import Served
from tests.admin.fakes import DRAIN, ENDED, LOST, Asked
from tests.admin.typed import Run, document_of


def test_a_drain_begins_and_is_not_waited_for(run: Run, served: Served) -> None:
    result = run("drain", "m-1-0", "--grace", "60", "--stop", "--force")
    assert result.exit_code == 0
    assert served.control.asked == [
        Asked(DrainInstance("m-1-0", 60.0, True, True), False, False, None)
    ]


def test_a_drain_that_loses_nothing_ends_with_0(run: Run, served: Served) -> None:
    served.control.draining = [ENDED]
    result = run("drain", "m-1-0", "--wait")
    assert result.exit_code == 0
    assert result.output.splitlines()[1:] == ["m-1-0: done after 4.0 s", "nothing was lost"]


def test_a_drain_that_loses_requests_names_them_and_ends_with_1(run: Run, served: Served) -> None:
    served.control.draining = [replace(ENDED, phase="cut", lost=(LOST,))]
    result = run("drain", "m-1-0", "--wait")
    assert result.exit_code == 1
    assert "1 request was lost:" in result.output
    assert LOST.request_id in result.output


def test_a_drain_that_was_called_off_ends_with_1(run: Run, served: Served) -> None:
    served.control.draining = [replace(ENDED, phase="undrained")]
    result = run("drain", "m-1-0", "--wait")
    assert result.exit_code == 1
    assert "gave the instance back" in result.output


def test_a_drain_in_json_is_onedocument_of(run: Run, served: Served) -> None:
    assert document_of(run("drain", "m-1-0", "--json"))["generation"] == 8
    served.control.draining = [ENDED]
    result = run("drain", "m-1-0", "--wait", "--json")
    assert document_of(result)["phase"] == "done"
    assert result.stderr == "m-1-0: done after 4.0 s\n"


def test_a_stop_is_a_drain_with_an_end_or_with_force_none(run: Run, served: Served) -> None:
    assert run("stop", "m-1-0", "--grace", "5").exit_code == 0
    assert run("stop", "m-1-0", "--force").exit_code == 0
    assert [one.ask for one in served.control.asked] == [
        StopInstance("m-1-0", False, 5.0),
        StopInstance("m-1-0", True),
    ]


def test_a_forced_stop_has_no_grace(run: Run, served: Served) -> None:
    result = run("stop", "m-1-0", "--force", "--grace", "5")
    assert (result.exit_code, served.control.asked) == (2, [])
    assert "leave --grace out" in result.stderr


def test_a_stop_that_is_waited_for_names_what_was_lost_and_ends_with_1(
    run: Run, served: Served
) -> None:
    served.control.draining = [replace(ENDED, phase="cut", lost=(LOST,))]
    result = run("stop", "m-1-0", "--force", "--wait")
    assert result.exit_code == 1
    assert LOST.request_id in result.output


def test_a_dry_stop_is_not_waited_for(run: Run, served: Served) -> None:
    served.control.draining = [DRAIN]
    result = run("stop", "m-1-0", "--wait", "--dry-run")
    assert (result.exit_code, result.output.startswith("would: ")) == (0, True)


def test_start_asks_for_a_start(run: Run, served: Served) -> None:
    assert run("start", "m-1-0").exit_code == 0
    assert served.control.asked == [Asked(StartInstance("m-1-0"), True, False, None)]


def test_a_dry_drain_is_not_waited_for(run: Run, served: Served) -> None:
    served.control.draining = [DRAIN]
    result = run("drain", "m-1-0", "--wait", "--dry-run")
    assert result.exit_code == 0
    assert result.output.startswith("would: ")


def test_ctrl_c_leaves_the_drain_running_and_says_so(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    served.control.draining = [DRAIN]
    result = run("drain", "m-1-0", "--wait")
    assert result.exit_code == 1
    assert "the drain of m-1-0 goes on; `sluicegate undrain m-1-0` calls it off" in result.output
    assert UndrainInstance("m-1-0") not in [one.ask for one in served.control.asked]

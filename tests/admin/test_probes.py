from dataclasses import replace

import pytest

from admin import probes
from gateway.control import StatusView
from tests.admin.fakes import MODEL, STATUS

DARK = replace(MODEL, name="n", versions=(replace(MODEL.versions[1]),))


@pytest.mark.parametrize(
    ("status", "ok", "reason"),
    [
        (STATUS, True, "1 of 2 instances are routable"),
        (replace(STATUS, closing=True), False, "the gateway is closing"),
        (replace(STATUS, serving=False), False, "not every worker serves a table, or none answers"),
        (replace(STATUS, routable=0), False, "no instance is routable: 0 of 2"),
        (
            replace(STATUS, models=(MODEL, DARK)),
            True,
            "1 of 2 instances are routable; no routable instance of n",
        ),
    ],
    ids=["serving", "closing", "no table", "nothing routable", "a model without"],
)
def test_ready_means_that_a_request_can_be_served(
    status: StatusView, ok: bool, reason: str
) -> None:
    assert probes.ready(status) == probes.Probe(ok, reason)


def test_started_means_that_every_worker_holds_a_table() -> None:
    waiting = replace(STATUS, workers=(replace(STATUS.workers[0], generation=0),))
    assert probes.started(STATUS).ok
    assert probes.started(waiting) == probes.Probe(False, "workers without a table: 0")
    assert probes.started(replace(STATUS, workers=())).reason == "no worker runs yet"


def test_a_closing_gateway_does_not_start_again() -> None:
    emptied = replace(STATUS, closing=True, workers=(replace(STATUS.workers[0], generation=0),))
    assert probes.started(emptied).ok


def test_alive_is_whoever_answers() -> None:
    assert probes.alive(replace(STATUS, serving=False, closing=True)).ok

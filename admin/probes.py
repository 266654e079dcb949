"""What the probes of the gateway itself answer, and why.

Floor 1, pure.
Alive: the control process answers. Started: every worker holds a table. Ready: a request sent now
can be served; the first thing that fails at shutdown, before any listener closes.
"""

from dataclasses import dataclass

from gateway.control import StatusView


@dataclass(frozen=True, slots=True)
class Probe:
    ok: bool
    reason: str  # a sentence


def alive(status: StatusView) -> Probe:
    return Probe(True, f"the control process of gateway {status.pid} answers")


def started(status: StatusView) -> Probe:
    missing = [worker.index for worker in status.workers if worker.generation == 0]
    if missing and not status.closing:
        return Probe(False, f"workers without a table: {', '.join(map(str, missing))}")
    if not status.workers:
        return Probe(False, "no worker runs yet")
    return Probe(True, f"every worker holds a table; {status.generation} was published last")


def ready(status: StatusView) -> Probe:
    if status.closing:
        return Probe(False, "the gateway is closing")
    if not status.serving:
        return Probe(False, "not every worker serves a table, or none answers")
    if status.routable == 0:
        return Probe(False, f"no instance is routable: 0 of {status.instances}")
    dark = [
        model.name
        for model in status.models
        if not any(version.routable for version in model.versions)
    ]
    rest = f"; no routable instance of {', '.join(dark)}" if dark else ""
    return Probe(True, f"{status.routable} of {status.instances} instances are routable{rest}")

"""The gateway's own end: readiness first, then workers, then instances.

Floor 1, pure.   Flow: SIGTERM -> delay -> workers -> instances -> Exit
Streams finish before the instances that serve them are stopped. A second signal cuts what is left.
"""

from dataclasses import replace
from math import inf
from typing import Final

from gateway.fleet.commands import Supervise, Tell
from gateway.fleet.events import StopAsked
from gateway.fleet.launches import CHILD, SIGKILL, SIGTERM
from gateway.fleet.snapshot import Closing
from gateway.fleet.turn import Turn
from gateway.messages import Close, Exit, Kill

CUT_S: Final = 1.0  # for workers to say what they cut: a round trip, not a wait for streams


def asked(turn: Turn, event: StopAsked) -> None:
    closing = turn.fleet.closing
    if closing is None:
        delay_s = turn.fleet.settings.gateway.shutdown_delay_s
        turn.change(closing=Closing(event.count, "delay", turn.now + delay_s), serving=False)
        text = f"closing: readiness fails, new requests are taken for {delay_s:g} s more"
        turn.record("gateway", "gateway", text, delay_s=delay_s)
        if event.count < 2:
            return
    elif event.count <= closing.count:
        return  # a control that was started meanwhile is told again
    turn.record("gateway", "gateway", "asked twice: what is left is cut", warn=True)
    if closing is not None and closing.step == "instances":
        _kill_instances(turn, SIGKILL)
        turn.change(closing=Closing(event.count, "instances", inf))
        return
    close_workers(turn, 0.0)
    turn.change(closing=Closing(event.count, "workers", turn.now + CUT_S))


def carry_on(turn: Turn) -> None:
    """As far as it goes now."""
    closing = turn.fleet.closing
    if closing is None:
        return
    due = turn.now >= closing.due_at
    if closing.step == "delay" and due:
        grace_s = turn.fleet.settings.drain.grace_s
        close_workers(turn, grace_s)
        patience_s = grace_s + turn.fleet.settings.gateway.worker_stuck_s
        closing = replace(closing, step="workers", due_at=turn.now + patience_s)
        turn.record("gateway", "gateway", f"closing: streams have {grace_s:g} s", grace_s=grace_s)
    elif closing.step == "workers" and due:
        for worker in turn.fleet.workers.values():
            turn.order(Supervise(Kill(worker.name, SIGKILL)))
        closing = replace(closing, due_at=inf)
    alone = not turn.fleet.workers and not turn.fleet.settling
    if closing.count < 2 and closing.due_at < inf:  # a predecessor's streams are of our instances
        alone = alone and not turn.fleet.left_elsewhere
    if closing.step == "workers" and alone and turn.fleet.frozen:  # instances are a successor's
        closing = _over(turn, closing)
    elif closing.step == "workers" and alone:
        closing = _stop_instances(turn, closing)
    elif closing.step == "instances" and due:
        _kill_instances(turn, SIGKILL)
        closing = replace(closing, due_at=inf)
    running = any(one.pid for one in turn.fleet.launches.values())
    if closing.step == "instances" and not running:
        closing = _over(turn, closing)
    turn.change(closing=closing)


def _over(turn: Turn, closing: Closing) -> Closing:
    turn.record("gateway", "gateway", "closed")
    turn.order(Supervise(Exit(0)))
    return replace(closing, step="over", due_at=inf)


def _stop_instances(turn: Turn, closing: Closing) -> Closing:
    kill_s = turn.fleet.settings.drain.kill_after_s
    if closing.count > 1:
        _kill_instances(turn, SIGKILL)
        return replace(closing, step="instances", due_at=inf)
    _kill_instances(turn, SIGTERM)
    return replace(closing, step="instances", due_at=turn.now + kill_s)


def close_workers(turn: Turn, grace_s: float) -> None:
    """Let them finish what they hold, for at most the grace."""
    for worker in turn.fleet.workers.values():
        if worker.linked:
            turn.order(Tell(worker.row, Close(grace_s)))
        else:  # it never connected: it holds nothing, and nobody can ask it
            turn.order(Supervise(Kill(worker.name, SIGKILL)))


def _kill_instances(turn: Turn, number: int) -> None:
    for launched in turn.fleet.launches.values():
        if launched.pid:
            turn.order(Supervise(Kill(f"{CHILD}{launched.name}", number)))

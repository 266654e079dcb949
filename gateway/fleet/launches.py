"""Instances that config.toml asks us to run: which, where, when, and again after a death.

Floor 1, pure.   Flow: settings -> [launches] -> Launch -> ChildExited -> [launches]
Ids are `<model>-<version>-<ordinal>` and stable over restarts. What runs already when a control
process begins is adopted: never started twice, never restarted for our sake.
"""

from dataclasses import replace
from math import inf
from typing import Final

from gateway.fleet import drains
from gateway.fleet.capacity import known, needs, rooms
from gateway.fleet.commands import Count, Launch, ReadNeeds, Supervise, Unfollow
from gateway.fleet.drain import REPLACED, RETIRED, ROLLED_BACK
from gateway.fleet.events import ChildrenSeen, LaunchOrdered, NeedsRead
from gateway.fleet.placement import choose
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.restart import Verdict, ended, judge
from gateway.fleet.rollout import Rollout
from gateway.fleet.snapshot import FleetSnapshot, Launched, Stage
from gateway.fleet.turn import Turn
from gateway.fleet.workers import note
from gateway.messages import Kill
from gateway.records import Health, Intent
from gateway.rollout.machine import Phase as Rolling
from sluicegate.v1.states import Phase, State

CHILD: Final = "instance."  # prefix of the children's names
SIGTERM: Final = 15
SIGKILL: Final = 9


def desired(fleet: FleetSnapshot) -> dict[str, Launched]:
    """What the file and rollouts ask for, in the order in which it is started."""
    return {
        name: Launched(name, model.name, version, model.device)
        for model in fleet.settings.model
        for version, count in fleet.replicas(model.name).items()
        for name in (f"{model.name}-{version}-{ordinal}" for ordinal in range(count))
    }


def pairs(fleet: FleetSnapshot) -> frozenset[tuple[str, str]]:
    """The snapshots whose needs have to be known."""
    wanted = {(one.model, one.version) for one in desired(fleet).values()}
    last = (many[-1] for many in fleet.rollouts.values())
    return frozenset(wanted | {(one.model, one.version) for one in last if one.active})


def label(token: str, device: str) -> str:
    """What the supervisor keeps of a launch. Shape: "hash-of-the-token device"."""
    return f"{token} {device}"


def begin(turn: Turn, event: ChildrenSeen) -> None:
    """Adopt what runs; queue what does not."""
    labels = {name.removeprefix(CHILD): said for name, said in event.labels.items()}
    running = {
        name.removeprefix(CHILD): pid for name, pid in event.pids.items() if name.startswith(CHILD)
    }
    wanted = desired(turn.fleet)
    for name, launched in wanted.items():
        pid = running.get(name, 0)
        token, _, device = labels.get(name, "").partition(" ")
        stage = Stage.STARTING if pid else Stage.QUEUED
        stopped = turn.fleet.drains.get(name)
        if not pid and stopped is not None and stopped.stop:
            stage = Stage.STOPPED
        where = device or _device_of(turn.fleet, launched) if pid else ""
        fresh = replace(launched, device=where, stage=stage, pid=pid, started_at=turn.now)
        turn.put_launch(fresh)
        if pid:
            turn.record("instance", name, f"{name} adopted, pid {pid}", pid=pid)
        _know(turn, name)
        if pid and token:
            _as_labelled(turn, name, token, device)
        _miss(turn, fresh)
    for name in running.keys() - wanted.keys():  # taken out of the file while nobody looked
        _adopt_unwanted(turn, name, running[name])
    for name, seen in tuple(turn.fleet.instances.items()):
        if seen.origin is Origin.LAUNCHED and name not in turn.fleet.launches:
            turn.forget(name, "its process is gone, and config.toml does not ask for it")
    turn.order(ReadNeeds(pairs(turn.fleet)))


def _as_labelled(turn: Turn, name: str, token: str, device: str) -> None:
    """The store knows only its last life, if the control that ordered this one died at once."""
    seen = turn.fleet.instances[name]
    if (seen.token, seen.device) != (token, device):
        turn.put(replace(seen, token=token, device=device))
        turn.keep_instance(turn.fleet.instances[name])


def _miss(turn: Turn, launched: Launched) -> None:
    """Count its death if it died while no control was there: once, by what was read of it last."""
    watch = turn.fleet.watches.get(launched.model)
    if watch is None or launched.name not in watch.lives:
        return
    if launched.stage is Stage.STOPPED:  # as it was told to
        turn.forget_life(launched.name, launched.model)
        return
    same = turn.fleet.instances[launched.name].incarnation == watch.lives[launched.name]
    if not launched.pid or not same:
        turn.count_death(launched.name, launched.model, launched.version)


def _device_of(fleet: FleetSnapshot, launched: Launched) -> str:
    """Where an adopted one was started."""
    seen = fleet.instances.get(launched.name)
    devices = fleet.settings.device
    known = seen.device if seen is not None else ""
    return known or launched.wish or (devices[0].name if devices else "")


def _know(turn: Turn, name: str) -> None:
    """Show a launched instance from the moment it is asked for, not from its first word on."""
    launched = turn.fleet.launches[name]
    seen = turn.fleet.instances.get(name)
    if seen is None or seen.origin is not Origin.LAUNCHED:
        turn.put(Seen(name, launched.model, launched.version, Origin.LAUNCHED, since=turn.now))
    elif not launched.pid:
        _dead(turn, seen, "its process is gone")


def _adopt_unwanted(turn: Turn, name: str, pid: int) -> None:
    seen = turn.fleet.instances.get(name)
    if seen is None:  # never registered, so nobody was ever sent there
        turn.order(Supervise(Kill(f"{CHILD}{name}", SIGTERM)))
        return
    unwanted = Launched(name, seen.model, seen.version, "", seen.device, Stage.STARTING, pid=pid)
    turn.put_launch(replace(unwanted, started_at=turn.now))  # it may be loading, for all we know
    last = turn.fleet.rollout(seen.model)
    back = last is not None and last.version == seen.version and last.phase is Rolling.ROLLING_BACK
    drains.retire(turn, seen, farewell(turn.fleet, last) if last is not None and back else None)


# --- from settings -------------------------------------------------------------------------------


def farewell(fleet: FleetSnapshot, rollout: Rollout) -> drains.Order:
    """How instances leave that the rollout takes away: as it was stored with the move, so a control
    that begins in the middle of it goes on in the same way."""
    back = rollout.phase is Rolling.ROLLING_BACK
    grace_s = 0.0 if back and rollout.cut else fleet.settings.drain.grace_s
    return drains.Order(grace_s, True, False, ROLLED_BACK if back else REPLACED)


def adopt(turn: Turn, how: drains.Order | None = None) -> None:
    """Replicas added and taken away by a new file or by a rollout; the highest ordinals go first by
    their names. `how` they are drained; None: as what is taken out of the file."""
    wanted = desired(turn.fleet)
    for name, launched in wanted.items():
        old = turn.fleet.launches.get(name)
        if old is None:
            turn.put_launch(launched)
            _know(turn, name)
        else:
            turn.put_launch(replace(old, wish=launched.wish))  # its process stays where it is
            seen = turn.fleet.instances[name]
            if seen.retired:
                drains.restore(turn, seen)
    for name in turn.fleet.launches.keys() - wanted.keys():
        seen = turn.fleet.instances[name]
        if seen.retired:
            continue
        if turn.fleet.launches[name].pid:
            drains.retire(turn, seen, how)
        else:
            turn.forget(name, how.reason if how else RETIRED)
    turn.order(ReadNeeds(pairs(turn.fleet)))


def needs_read(turn: Turn, event: NeedsRead) -> None:
    missing = (turn.fleet.missing - event.bytes.keys()) | event.missing
    turn.change(needs={**turn.fleet.needs, **event.bytes}, missing=missing)


# --- starting ------------------------------------------------------------------------------------


def carry_on(turn: Turn) -> None:
    """Start what may be started now; say of the others what they wait for."""
    if not turn.fleet.begun or turn.fleet.closing is not None:
        return
    for launched in tuple(turn.fleet.launches.values()):
        if turn.fleet.instances[launched.name].intent is Intent.STOP:
            if not launched.pid and launched.stage is not Stage.STOPPED:
                turn.put_launch(replace(launched, stage=Stage.STOPPED, reason="stopped"))
            continue
        due = launched.retries and turn.now >= launched.retry_at
        if launched.stage is not Stage.QUEUED and not due:
            continue
        device, waits = _place(turn.fleet, launched)
        if not device:
            if waits and waits != launched.reason:
                text = f"{launched.name} {waits}"
                turn.record("instance", launched.name, text, device=launched.wish)
            turn.put_launch(replace(launched, stage=Stage.QUEUED, reason=waits))
            continue
        starting = replace(launched, device=device, stage=Stage.STARTING, reason="", pid=-1)
        turn.put_launch(replace(starting, started_at=turn.now))
        turn.order(Launch(launched.name, launched.model, launched.version, device))


def _place(fleet: FleetSnapshot, launched: Launched) -> tuple[str, str]:
    """The device to start it on; or "", and what it waits for."""
    there = rooms(fleet, launched.wish)
    if not there:
        wish = launched.wish or "(none)"
        return "", f"waits for device {wish}: config.toml does not name it"
    if not known(fleet, launched.model, launched.version):
        return "", ""  # its manifest is being read
    rollout = fleet.rollout(launched.model)
    forced = rollout is not None and rollout.force and rollout.version == launched.version
    return choose(there, 0 if forced else needs(fleet, launched.model, launched.version))


def ordered(turn: Turn, event: LaunchOrdered) -> None:
    """It is being started; only who has its token may register under its name."""
    launched = turn.fleet.launches.get(event.name)
    seen = turn.fleet.instances.get(event.name)
    if launched is None or seen is None:
        return
    seen = replace(seen, token=event.token, device=launched.device)
    turn.put(seen)
    turn.keep_instance(seen)
    text = f"{event.name} starting on {launched.device}"
    turn.record("instance", event.name, text, device=launched.device, restarts=launched.restarts)
    note(turn, at_once=True)


# --- its state -----------------------------------------------------------------------------------


def observed(turn: Turn, seen: Seen) -> None:
    """READY ends the loading; so does ERROR, though the memory is free only after the exit."""
    launched = turn.fleet.launches.get(seen.name)
    if launched is None or not launched.pid:
        return
    _miss(turn, launched)
    if launched.stage is not Stage.STARTING:
        return
    if seen.state in {State.READY, State.DRAINING}:
        turn.put_launch(replace(launched, stage=Stage.RUNNING))
        turn.order(Count("loads", "ready"))
    elif seen.state is State.ERROR:
        turn.put_launch(replace(launched, stage=Stage.RUNNING))
        turn.order(Count("loads", "failed"))


def spawned(turn: Turn, name: str, pid: int) -> None:
    launched = turn.fleet.launches.get(name)
    if launched is not None and launched.pid:
        turn.put_launch(replace(launched, pid=pid))


def spawn_failed(turn: Turn, name: str, reason: str) -> None:
    launched = turn.fleet.launches.get(name)
    if launched is not None:
        verdict = _judged(turn, launched, None, 0.0, False)
        _after_death(turn, launched, None, verdict, f"could not be started: {reason}")


def exited(turn: Turn, name: str, status: int | None, oom: bool) -> None:
    """Its process is gone: nothing is sent there, its device is free, and what comes next."""
    launched = turn.fleet.launches.get(name)
    if launched is None:
        return
    if launched.loading:
        turn.order(Count("loads", "failed"))
    seen = turn.fleet.instances[name]
    ready_for_s = turn.now - seen.ready_since if seen.ready_since else 0.0
    _dead(turn, seen, f"its process ended by {ended(status, oom)}")
    verdict = _judged(turn, launched, status, ready_for_s, oom)
    why = ""
    if launched.terminated_at is not None:  # by us
        limit_s = turn.fleet.settings.launch.load_timeout_s
        why = f"not READY after {limit_s:g} s, and stopped: {verdict.reason}"
    _after_death(turn, launched, status, verdict, why)


def _dead(turn: Turn, seen: Seen, why: str) -> None:
    """A crash is READY to STOPPED; an ERROR keeps its reason for people to read."""
    status = seen.status
    if status is not None and status.state is not State.ERROR:
        status = replace(
            status, state=State.STOPPED, phase=Phase.RELEASING, reason=why, active_requests=0
        )
    opinion = replace(seen.opinion, health=Health.LOST, reason=why, stuck=False)
    turn.order(Unfollow(seen.name))
    # The address belongs to nobody now; forgetting it makes the next registration follow anew.
    # So does the time since it was READY: the next life begins with none.
    turn.put(
        replace(
            seen,
            status=status,
            opinion=opinion,
            since=turn.now,
            http="",
            grpc="",
            ready_since=0.0,
        )
    )


def _judged(
    turn: Turn, launched: Launched, status: int | None, ready_for_s: float, oom: bool
) -> Verdict:
    rules = turn.fleet.settings.launch
    shortest, longest = rules.restart_min_s, rules.restart_max_s
    return judge(status, launched.deaths, ready_for_s, shortest, longest, oom)


def _after_death(
    turn: Turn, launched: Launched, status: int | None, verdict: Verdict, why: str
) -> None:
    gone = replace(launched, pid=0, terminated_at=None)
    seen = turn.fleet.instances[launched.name]
    if seen.intent is Intent.STOP or turn.fleet.closing is not None:
        turn.put_launch(replace(gone, stage=Stage.STOPPED, reason="stopped"))
        turn.record("instance", launched.name, f"{launched.name} ended by {ended(status)}")
        turn.forget_life(launched.name, launched.model)
        return
    reason = why or verdict.reason
    failed = verdict.wait_s is None
    waiting = Stage.CRASH_LOOP if verdict.loops else Stage.BACKING_OFF
    retry_at = turn.now + (verdict.wait_s or 0.0)
    turn.put_launch(
        replace(
            gone,
            stage=Stage.FAILED if failed else waiting,
            reason=reason if failed else f"{reason}, next try in {verdict.wait_s:g} s",
            retry_at=retry_at,
            deaths=verdict.deaths,
            restarts=launched.restarts + (not failed),
        )
    )
    follows = "not started again" if failed else f"next try in {verdict.wait_s:g} s"
    turn.look_again(launched.model, launched.version)
    turn.count_death(launched.name, launched.model, launched.version)
    text = f"{launched.name} ended: {reason}" + ("" if failed else f", {follows}")
    fields = {"status": status, "deaths": verdict.deaths, "follows": follows}
    turn.record("instance", launched.name, text, warn=True, **fields)
    note(turn, at_once=True)


def ticked(turn: Turn) -> None:
    """End a load that takes too long: SIGTERM, and SIGKILL if that is not heard."""
    limit_s = turn.fleet.settings.launch.load_timeout_s
    kill_s = turn.fleet.settings.drain.kill_after_s
    for launched in tuple(turn.fleet.launches.values()):
        if not launched.pid or not launched.loading or turn.now < launched.started_at + limit_s:
            continue
        child = f"{CHILD}{launched.name}"
        if launched.terminated_at is None:
            turn.put_launch(replace(launched, terminated_at=turn.now))
            turn.order(Supervise(Kill(child, SIGTERM)))
            text = f"{launched.name} is not READY after {limit_s:g} s and is stopped"
            turn.record("instance", launched.name, text, warn=True)
        elif turn.now >= launched.terminated_at + kill_s:
            turn.order(Supervise(Kill(child, SIGKILL)))
            turn.put_launch(replace(launched, terminated_at=inf))


def deadlines(fleet: FleetSnapshot) -> list[float]:
    found = []
    for launched in fleet.launches.values():
        if launched.retries:
            if fleet.closing is None:  # else nobody is started any more, and it never comes
                found.append(launched.retry_at)
        elif launched.loading and launched.terminated_at is None:
            found.append(launched.started_at + fleet.settings.launch.load_timeout_s)
        elif launched.loading and launched.terminated_at is not None:
            found.append(launched.terminated_at + fleet.settings.drain.kill_after_s)
    return found

"""What operators, clients and misfortune do to a gateway, step by step, drawn from one number.

Each step draws from a source of its own, so one that is left out changes no other: a schedule that
fails is shortened by leaving out steps for as long as it still fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from gateway.control import (
    AddInstance,
    CancelLease,
    DrainInstance,
    RemoveInstance,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StopInstance,
    UndrainInstance,
)
from gateway.records import Intent
from tests.sim.instance import SIGKILL, SimInstance
from tests.sim.world import BEAT_LOST_S, World

STEPS = 24
LAUNCHED = ("m-1-0", "m-1-1", "m-2-0")
STATIC = {"s-0": 5000, "s-1": 5001}
ADDED = {"a-0": 5100}
REGISTERED = {"r-0": "1", "r-1": "2"}
OTHERS = (*STATIC, *ADDED, *REGISTERED)
NAMES = (*LAUNCHED, *OTHERS)


@dataclass(frozen=True, slots=True)
class File:
    """A config.toml."""

    ones: int = 2
    twos: int = 0
    weight: int = 10
    grace_s: int = 3
    statics: tuple[str, ...] = ("s-0",)
    policy: str = "least_loaded"

    def text(self) -> str:
        rows = "".join(
            f'[[instance]]\nid = "{name}"\nmodel = "n"\nversion = "1"\n'
            f'http = "127.0.0.1:{STATIC[name]}"\ngrpc = "127.0.0.1:{STATIC[name] + 30_000}"\n'
            for name in self.statics
        )
        return f"""
[gateway]
workers = 2
worker_stuck_s = 1.5
[registry]
ttl_s = 4
beat_s = 1.5
[poll]
interval_s = 1.0
timeout_s = 0.5
failures = 2
successes = 2
stuck_s = 4
[drain]
grace_s = {self.grace_s}
kill_after_s = 1.5
[launch]
restart_min_s = 0.5
restart_max_s = 2
load_timeout_s = 6
[[device]]
name = "d0"
memory_gb = 4
[[device]]
name = "d1"
memory_gb = 4
[[model]]
name = "m"
weights = {{ "1" = 100, "2" = {self.weight} }}
limit = 3
queue_max = 4
queue_timeout_s = 2
pinnable = true
policy = "{self.policy}"
replicas = {{ "1" = {self.ones}, "2" = {self.twos} }}
[[model]]
name = "n"
weights = {{ "1" = 1 }}
limit = 3
queue_max = 2
queue_timeout_s = 1
{rows}"""


@dataclass(frozen=True, slots=True)
class Step:
    deed: str
    seed: int
    pause_s: float


class Deeds:
    """What a step can do. Each takes the world as it is; what is not there is left alone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = Random(0)
        self.requests: list[object] = []

    def do(self, step: Step) -> None:
        self.rng = Random(step.seed)
        deed: Callable[[], None] = getattr(self, step.deed)
        deed()

    def settle(self) -> None:
        """What somebody does again and again in the time of quiet at the end."""

    # -- helpers of the deeds

    def _later(self, delay_s: float, then: Callable[[], None]) -> None:
        self.world.agenda.later(delay_s, then)

    def _instance(self) -> SimInstance | None:
        alive = sorted(name for name, one in self.world.running.items() if one.alive)
        return self.world.running[self.rng.choice(alive)] if alive else None

    def _name(self) -> str:
        control = self.world.control
        known = sorted(control.fleet.instances) if control is not None else []
        return self.rng.choice(known or list(NAMES))

    # -- clients

    def clients(self) -> None:
        for _ in range(self.rng.randrange(1, 7)):
            request = self.world.request(
                self.rng.choice(("m", "m", "n", "m", "unknown")),
                self.rng.choice(("", "", "", "1", "2")),
                self.rng.getrandbits(60) if self.rng.random() < 0.3 else -1,
                self.rng.choice((0.01, 0.1, 0.5, 2.0, 6.0)),
                self.rng.random() < 0.5,
            )
            if request is not None and self.rng.random() < 0.15:
                leaves = self.rng.choice((0.0, 0.001, 0.01, 0.3))
                request.worker.later(leaves, request.leave)

    def own_road(self) -> None:
        one = self._instance()
        if one is not None:
            one.does(lambda: one.own_road(self.rng.choice((0.1, 1.0, 5.0))))

    # -- operators

    def drain(self) -> None:
        grace_s = self.rng.choice((None, 0.0, 0.5, 5.0))
        stop, force = self.rng.random() < 0.3, self.rng.random() < 0.6
        self.world.ask(DrainInstance(self._name(), grace_s, stop, force))

    def undrain(self) -> None:
        control = self.world.control
        held = [
            name
            for name, seen in sorted(control.fleet.instances.items() if control else ())
            if seen.intent is not Intent.ACTIVE
        ]
        self.world.ask(UndrainInstance(self.rng.choice(held) if held else self._name()))

    def drain_and_undrain(self) -> None:
        name = self._name()
        self.world.ask(DrainInstance(name, 5.0, False, True))
        again = self.rng.choice((0.0, 0.0005, 0.002, 0.005, 0.02, 0.2, 1.0))
        self._later(again, lambda: self.world.ask(UndrainInstance(name)))

    def stop(self) -> None:
        self.world.ask(StopInstance(self._name(), self.rng.random() < 0.4))

    def weights(self) -> None:
        one, two = self.rng.choice(((1.0, 0.0), (50.0, 50.0), (0.0, 5.0), (7.0, 1.0)))
        self.world.ask(SetWeights("m", {"1": one, "2": two}))

    def reset_weights(self) -> None:
        self.world.ask(ResetWeights("m"))

    def instance_weight(self) -> None:
        self.world.ask(SetInstanceWeight(self._name(), self.rng.choice((0.0, 0.5, 2.0))))

    def add(self) -> None:
        port = ADDED["a-0"]
        address = f"127.0.0.1:{port}"
        self.world.ask(AddInstance("a-0", "n", "1", address, f"127.0.0.1:{port + 30_000}"))

    def remove(self) -> None:
        self.world.ask(RemoveInstance(self.rng.choice(OTHERS)))

    def cancel(self) -> None:
        held = [number for one in self.world.workers.values() for number in one.requests]
        if held:
            self.world.ask(CancelLease(f"{self.rng.choice(held):016x}"))

    def reload(self) -> None:
        rng = self.rng
        file = File(
            ones=rng.choice((1, 2, 2)),
            twos=rng.choice((0, 1)),
            weight=rng.choice((0, 10, 40)),
            grace_s=rng.choice((1, 3)),
            statics=rng.choice(((), ("s-0",), ("s-0", "s-1"))),
            policy=rng.choice(("least_loaded", "round_robin", "affinity", "random")),
        )
        self.world.file_text = file.text()
        self.world.reload()
        if rng.random() < 0.3:
            self._later(0.01, self.world.reload)

    def broken_file(self) -> None:
        good = self.world.file_text
        self.world.file_text = self.rng.choice(
            ("[gateway", good.replace("workers = 2", "workers = 3"))
        )
        self.world.reload()
        self._later(0.5, lambda: self._mended(good))

    def _mended(self, good: str) -> None:
        self.world.file_text = good
        self.world.reload()

    # -- instances that misbehave

    def kill_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.end(self.rng.choice((-SIGKILL, -11, 0, 1, 78)))

    def crash_loop(self) -> None:
        name = self.rng.choice(LAUNCHED)
        fates = ("error", "crash", "bad", "slow")
        self.world.fates[name] = [self.rng.choice(fates) for _ in range(self.rng.randrange(1, 7))]
        if name in self.world.running:
            self.world.running[name].end(1)

    def fail_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.does(one.fail)

    def terminate_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.does(lambda: one.stop(2.0, "SIGTERM"))

    def freeze_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.freeze()
            self._later(self.rng.choice((0.05, 0.7, 3.0, 8.0)), one.thaw)

    def _until(self, choices: Sequence[float]) -> float:
        return self.world.agenda.now + self.rng.choice(choices)

    def slow_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.slow_until = self._until((0.6, 2.5, 6.0))

    def garbled_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.garbled_until = self._until((0.2, 2.5))

    def deaf_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.deaf_until = self._until((0.2, 2.5, 6.0))

    def stuck_instance(self) -> None:
        one = self._instance()
        if one is not None:
            one.stuck_until = self._until((2.0, 8.0))

    def break_watch(self) -> None:
        one = self._instance()
        if one is not None:
            for follower in tuple(one.watchers):
                follower.stream_broke()

    # -- instances that others start

    def other(self) -> None:
        """Somebody starts one, or starts it anew."""
        self.start_other(self.rng.choice(OTHERS), self.rng.random() < 0.3)

    def start_other(self, name: str, clash: bool = False) -> None:
        world = self.world
        old = world.running.get(name)
        fixed = {**STATIC, **ADDED}
        if old is not None and old.alive and (not clash or name in fixed):
            old.end(-SIGKILL)
        port = fixed.get(name) or 6000 + next(world.numbers)
        if name in REGISTERED and old is not None and self.rng.random() < 0.3 and not old.alive:
            port = int(old.http.rpartition(":")[2])  # the same place again
        model, version = ("n", "1") if name in fixed else ("m", REGISTERED[name])
        one = SimInstance(
            world,
            name,
            model,
            version,
            port,
            self.rng.choice((0.05, 0.5)),
            registers=name not in fixed,
        )
        world.at_port[one.http], world.at_grpc_port[one.grpc] = one, one
        if not (clash and old is not None and old.alive):
            world.running[name] = one
        else:
            world.clashed.add(name)
            self._later(1.5, lambda: one.end(-SIGKILL))

    # -- our own processes

    def freeze_worker(self) -> None:
        alive = sorted(self.world.workers)
        if alive:
            worker = self.world.workers[self.rng.choice(alive)]
            worker.freeze()
            self._later(BEAT_LOST_S, self.world.look_at_beats)
            thaws = self.rng.choice((0.01, 0.3, 1.0, 5.0, 1000.0))
            self._later(thaws, worker.thaw)
            self._later(thaws + 0.1, self.world.look_at_beats)

    def kill_worker(self) -> None:
        alive = sorted(self.world.workers)
        if alive:
            self.world.workers[self.rng.choice(alive)].die(-SIGKILL)

    def break_link(self) -> None:
        alive = sorted(self.world.workers)
        if alive:
            self.world.break_link(self.world.workers[self.rng.choice(alive)])

    def kill_control(self) -> None:
        """Now, or in the middle of what comes next."""
        if self.world.control is not None:
            self.world.control.crash_in = self.rng.choice((0, *range(1, 12), 20, 60))

    def drain_and_kill_control(self) -> None:
        self.drain()
        self.kill_control()

    def kill_both(self) -> None:
        self.kill_control()
        self.kill_worker()

    def break_store(self) -> None:
        self.world.store.broken_until = self.world.agenda.now + self.rng.choice((0.01, 0.3, 2.0))

    def step_clock(self) -> None:
        self.world.wall_s += self.rng.choice((-86_400.0, -5.0, 5.0, 86_400.0))

    def shut_down(self) -> None:
        self.world.signals += 1
        self.world._tell_control(lambda: self.world._stop_asked(self.world.signals))


ORDERLY = {
    "clients": 30, "own_road": 2, "drain": 6, "undrain": 5, "drain_and_undrain": 3, "stop": 3,
    "weights": 2, "reset_weights": 1, "instance_weight": 2, "add": 2, "remove": 2, "cancel": 2,
    "reload": 4, "broken_file": 1, "other": 3,
}  # fmt: skip
TROUBLE = {
    "kill_instance": 4, "crash_loop": 2, "fail_instance": 2, "terminate_instance": 2,
    "freeze_instance": 4, "slow_instance": 2, "garbled_instance": 1, "deaf_instance": 3,
    "stuck_instance": 1, "break_watch": 2, "freeze_worker": 4, "kill_worker": 4, "break_link": 3,
    "kill_control": 6, "drain_and_kill_control": 3, "kill_both": 2, "break_store": 2,
    "step_clock": 1,
}  # fmt: skip


def draw(seed: int) -> tuple[Step, ...]:
    """The schedule of a number. Each fourth has no misfortune, each seventh a SIGTERM."""
    rng = Random(seed)
    deeds = ORDERLY if seed % 4 == 0 else {**ORDERLY, **TROUBLE}
    names = rng.choices(list(deeds), list(deeds.values()), k=STEPS)
    if seed % 7 == 6:
        names[-3] = "shut_down"
        names[-1] = rng.choice(("shut_down", "clients", "clients"))
    pauses = (0.0, 0.0005, 0.003, 0.02, 0.2, 1.2)
    return tuple(Step(name, rng.getrandbits(48), rng.choice(pauses)) for name in names)

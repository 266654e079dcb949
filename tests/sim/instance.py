"""An instance on paper: the real gate and the real life of one, and everything that can befall it.

What is made up is the process, its addresses, how long it loads, and its misbehaviour. What it says
and which orders it obeys is `backends/`: an instance told to drain refuses by its own gate.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from backends.errors import Draining, NotReady, QueueFull
from backends.gate import Gate, Pass
from backends.life import Life, OrderRefused, asked_or
from gateway.fleet import events as e
from gateway.fleet.commands import BeatAnswer, RegisterAnswer
from gateway.fleet.status import Status
from sluicegate.v1.states import Phase, State
from tests.sim.agenda import Then, hop_s

if TYPE_CHECKING:
    from tests.sim.caller import Request
    from tests.sim.follower import Follower
    from tests.sim.world import World

GRACE_S = 3.0
LINGER_S = 1.0  # an instance in ERROR answers that long
RETRY_S = 0.5
CALL_S = 3.0  # an answer of the gateway that comes later is none
ROOM = 8
EXIT_UNUSABLE = 78
EXIT_FAILED = 1
SIGKILL = 9
LOADING = (Phase.LOADING_MODEL, Phase.WARMING_UP)


class SimInstance:
    """One process. `fate`: ready | error | crash | bad (exit 78) | slow (never ready)."""

    def __init__(
        self,
        world: "World",
        name: str,
        model: str,
        version: str,
        port: int,
        load_s: float,
        fate: str = "ready",
        token: str = "",
        device: str = "",
        registers: bool = True,
    ) -> None:
        self.world, self.name, self.model, self.version = world, name, model, version
        self.number = next(world.numbers)
        self.incarnation = f"{name}#{self.number}"
        self.http, self.grpc = f"127.0.0.1:{port}", f"127.0.0.1:{port + 30_000}"
        self.token, self.device, self.registers = token, device, registers
        self.gate = Gate()
        self.gate.widen(ROOM, 0)
        self.life = Life(name, self.gate)
        self.alive = True
        self.frozen = False
        self.slow_until = self.garbled_until = self.deaf_until = self.stuck_until = 0.0
        self.backlog: list[Then] = []
        self.holds: dict[int, tuple[Request, Pass]] = {}
        self.connected: dict[Request, None] = {}
        self.watchers: list[Follower] = []
        self.steps = 0
        self.told_to_drain = False  # by this gateway, and not resumed since
        self._registered = False
        self._beats = 0
        self._said: object = None
        self.life.watch(self._changed)
        share = 1.0 / (len(LOADING) + 1)
        for index, phase in enumerate(LOADING):
            self._soon(load_s * share * (index + 1), lambda phase=phase: self._progress(phase))  # type: ignore[misc]
        self._soon(load_s, lambda: self._loaded(fate))
        if registers:
            self._soon(hop_s(world.rng), self.beat)

    # -- time passes for it only while it runs

    def _soon(self, delay_s: float, then: Then) -> None:
        self.world.agenda.later(delay_s, lambda: self.does(then))

    def does(self, then: Then) -> None:
        """Now; when it is thawed; or never, if it is dead."""
        if not self.alive:
            return
        if self.frozen:
            self.backlog.append(then)
        else:
            then()

    def freeze(self) -> None:
        self.frozen = self.alive

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        for then in backlog:
            self.does(then)

    # -- its life

    @property
    def state(self) -> State:
        return self.life.standing.state

    def _progress(self, phase: Phase) -> None:
        if not self.life.is_stopping:
            self.life.progress(phase, 0.5, "loading", self.world.agenda.now)

    def _loaded(self, fate: str) -> None:
        now = self.world.agenda.now
        if self.life.is_stopping or self.state is not State.INITIALIZING or fate == "slow":
            return
        if fate == "crash":
            self.end(-11)
        elif fate in {"error", "bad"}:
            self.life.fail("the load failed", now)
            code = EXIT_UNUSABLE if fate == "bad" else EXIT_FAILED
            self._soon(LINGER_S, lambda: self.end(code))
        else:
            self.life.verified(now)

    def fail(self) -> None:
        """In the middle of its work."""
        if self.state not in {State.ERROR, State.STOPPED}:
            self.life.fail("the device is gone", self.world.agenda.now)
            self._soon(LINGER_S, lambda: self.end(EXIT_FAILED))

    def stop(self, grace_s: float, reason: str) -> None:
        """As SIGTERM and Stop do it: finish what is held, at the latest when the grace is over."""
        self.life.stop(grace_s, reason, self.world.agenda.now)
        if self.state in {State.INITIALIZING, State.ERROR}:
            self._stopped()
            return
        self.gate.when_empty(self._stopped)
        self._soon(max(0.0, (self.life.stop_at or 0.0) - self.world.agenda.now), self._stopped)

    def _stopped(self) -> None:
        if not self.alive or self.state is State.STOPPED:
            return
        self.life.stopped("stopped", self.world.agenda.now)
        if self.registers:
            self.world.farewell(self)
        self._soon(hop_s(self.world.rng), lambda: self.end(0))

    def end(self, status: int) -> None:
        """The process is gone; whoever holds a connection to it sees that."""
        if not self.alive:
            return
        self.alive = False
        self.holds.clear()
        for request in tuple(self.connected):
            request.broken(self)
        for follower in tuple(self.watchers):
            follower.stream_broke()
        self.watchers.clear()
        self.world.instance_ended(self, status)

    # -- requests

    def admit(self, request: "Request") -> bool:
        """False when it did nothing, and said so."""
        if self.told_to_drain and self.state is not State.ERROR:
            self.world.reached_after_drain(self, request)
        try:
            admitted = self.gate.admit(self.life.standing, str(request.number))
        except (NotReady, Draining, QueueFull):
            return False
        self.holds[request.number] = (request, admitted)
        return True

    def give_back(self, number: int) -> None:
        held = self.holds.pop(number, None)
        if held is not None:
            held[1].give_back()
            self.steps += 1
            self._push()

    def own_road(self, seconds: float) -> None:
        """A request that did not come through this gateway."""
        try:
            admitted = self.gate.admit(self.life.standing, "own")
        except (NotReady, Draining, QueueFull):
            return
        self._soon(seconds, admitted.give_back)

    # -- what it says

    def status(self) -> Status:
        standing = self.life.standing
        return Status(
            instance_id=self.name,
            incarnation=self.incarnation,
            sequence=standing.sequence,
            model=self.model,
            version=self.version,
            http=self.http,
            grpc=self.grpc,
            state=standing.state,
            phase=standing.phase,
            progress=standing.progress,
            reason=standing.reason,
            active_requests=self.gate.in_flight,
            progress_total=self.steps,
        )

    def _changed(self) -> None:
        self._push()
        standing = self.life.standing
        news = (standing.state, standing.phase)
        if self.registers and news != self._said and self._registered:
            self._said = news
            self._soon(0.0, self.beat)

    def _push(self) -> None:
        if self.alive and not self.frozen:
            for follower in self.watchers:
                follower.hear(self.status())

    # -- the Registry

    def beat(self) -> None:
        """Register, or beat; again after the answer, or after a silence."""
        self._beats += 1
        number = self._beats

        def silence() -> None:
            if number == self._beats:
                self.beat()

        status = self.status()
        world = self.world
        sent = False
        if world.agenda.now >= self.deaf_until:
            if self._registered:
                event: Callable[[int], e.Event] = lambda ticket: e.Beaten(  # noqa: E731
                    ticket, status, *world.sample(status.instance_id), world.agenda.now
                )
            else:
                event = lambda ticket: e.Registered(  # noqa: E731
                    ticket, status, self.token, 0.0, 0, world.agenda.now
                )
            sent = world.call_registry(
                event, lambda said: self.does(lambda: self._answered(number, said))
            )
        self._soon(CALL_S if sent else RETRY_S * (1 + world.rng.random()), silence)

    def _answered(self, number: int, said: object) -> None:
        if number != self._beats:
            return
        if isinstance(said, RegisterAnswer):
            self._registered = not said.refusal
            wait_s = (
                said.interval_s if self._registered else RETRY_S * (1 + self.world.rng.random())
            )
        else:
            assert isinstance(said, BeatAnswer), said
            wait_s = said.interval_s
            self._obey(said)
            if said.order == "REGISTER":
                self._registered = False
                wait_s = 0.0
        self._beats += 1
        number = self._beats
        self._soon(wait_s, lambda: self.beat() if number == self._beats else None)

    def _obey(self, said: BeatAnswer) -> None:
        if said.order == "DRAIN":
            self.drain(said.grace_s, "ordered with a beat")
        elif said.order == "RESUME":
            self.resume()
        elif said.order == "STOP":
            self.stop(asked_or(said.grace_s, GRACE_S), "ordered with a beat")

    # -- Lifecycle calls; False when they are refused

    def drain(self, grace_s: float, reason: str) -> bool:
        try:
            self.life.drain(asked_or(grace_s, GRACE_S), reason, self.world.agenda.now)
        except OrderRefused:
            return False
        self.told_to_drain = True
        return True

    def resume(self) -> bool:
        try:
            self.life.resume(self.world.agenda.now)
        except OrderRefused:
            return False
        self.told_to_drain = False
        return True

    def ordered_to_stop(self, grace_s: float, force: bool) -> bool:
        self.told_to_drain = True
        self.stop(0.0 if force else asked_or(grace_s, GRACE_S), "stop asked for")
        return True

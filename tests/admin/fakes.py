"""A Control without a gateway: views as given, asks recorded as values, events on demand."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway.control import (
    Ask,
    ChangeView,
    Denied,
    DeviceView,
    DrainView,
    Event,
    InstanceView,
    LeaseView,
    LostView,
    ModelView,
    Problem,
    Receipt,
    StatusView,
    VersionView,
    WorkerView,
)
from gateway.rollouts import CheckView, RolloutView, SideView, StepView, TransitionView

INSTANCE: Final = InstanceView(
    id="m-1-0",
    incarnation="a1",
    model="m",
    version="1",
    http="127.0.0.1:7001",
    grpc="127.0.0.1:7002",
    state="READY",
    phase="serving",
    progress=100.0,
    reason="",
    intent="active",
    health="good",
    weight=1.0,
    limit=4,
    in_flight=3,
    active_requests=3,
    queue_depth=0,
    tokens_per_s=31.5,
    batch_utilisation_ratio=0.75,
    routable=True,
    device=DeviceView("cpu", "0", 16_000, 6_000, 500, 9_500, 7_000),
    origin="launched",
    since=1_700_000_000.0,
    ready_in_s=-1.0,
    restarts=0,
    pid=4242,
    load_ms=1500.0,
    compile_ms=2500.0,
    warmup_ms=500.0,
)
LOADING: Final = replace(
    INSTANCE,
    id="m-2-0",
    version="2",
    state="INITIALIZING",
    phase="compiling",
    progress=55.0,
    reason="compiling bucket 3 of 5",
    health="unknown",
    in_flight=0,
    active_requests=0,
    routable=False,
    device=None,
    origin="config",
    ready_in_s=12.0,
    pid=0,
    load_ms=0.0,
    compile_ms=0.0,
    warmup_ms=0.0,
)
MODEL: Final = ModelView(
    name="m",
    policy="least_loaded",
    limit=4,
    waiting=2,
    queue_max=64,
    versions=(
        VersionView("1", 95.0, "run-time", 100.0, 1.0, 0.97, False, 1, 1, 1, 1),
        VersionView("2", 5.0, "file", None, 0.0, 0.03, False, 1, 1, 0, 0),
    ),
)
STATUS: Final = StatusView(
    version="0.1.0",
    pid=4000,
    started=1_700_000_000.0,
    generation=7,
    revision=12,
    serving=True,
    closing=False,
    listen=("127.0.0.1:8080",),
    workers=(WorkerView(0, 4001, 7, 5, 3, 0.1, True),),
    data_plane="compiled",
    models=(MODEL,),
    instances=2,
    routable=1,
    in_flight=3,
    problems=("m-2-0 is not READY yet",),
)
LOST: Final = LostView(
    "00000000000000ff", "c-1", "m", "1", "m-1-0", "streaming", 31.0, 4096, "drain deadline"
)
DRAIN: Final = DrainView("m-1-0", "waiting", False, 3, 3, 1.7e9, 1.7e9 + 30, 29.0, None, ())
ENDED: Final = replace(
    DRAIN, phase="done", held=0, active_requests=0, remaining_s=0.0, ended=1.7e9 + 4
)
LEASE: Final = LeaseView(
    "00000000000000ff", "c-1", "m", "1", "m-1-0", "a1", 51234, "streaming", 2.5, 2048, 4001
)
EVENTS: Final = tuple(
    Event(number, 1.7e9 + number, "drain", "m-1-0", f"step {number}", {"held": 3 - number})
    for number in (1, 2, 3)
)
RECEIPT: Final = Receipt(8, 13, ("m: version 2 from weight 0 to 5",))
CONFIG: Final = {
    "gateway.workers": {"value": 1, "origin": "default"},
    "model.m.weights.1": {"value": 95.0, "origin": "run-time"},
}

ROLLOUT: Final = RolloutView(
    id="m/2",
    model="m",
    version="2",
    stable="1",
    phase="step",
    step=1,
    steps=(
        StepView(5.0, 600.0, 100, False, 1.7e9 + 60, None),
        StepView(25.0, 600.0, 100, True, None, None),
        StepView(100.0, 0.0, 0, False, None, None),
    ),
    replicas=1,
    reason="step 1 of 3: 5 % of new requests go to version 2",
    began=1.7e9,
    since=1.7e9 + 60,
    hold_left_s=312.0,
    requests_left=12,
    ended=None,
    canary=SideView("2", 88, 1, 1 / 88, 0.84, 0.12, 0, 1, 1),
    baseline=SideView("1", 1672, 9, 9 / 1672, 0.8, None, 0, 2, 2),
    checks=(CheckView("errors", True, "0 of 20 requests failed"),),
    transitions=(
        TransitionView(1.7e9, "pending", 0, "asked for", "ada at 127.0.0.1"),
        TransitionView(1.7e9 + 60, "step", 1, "validated", "gateway"),
    ),
    verbs=("promote", "pause", "abort"),
)
ROLLED_BACK: Final = replace(
    ROLLOUT,
    id="m/1",
    phase="rolled_back",
    reason="7 of 12 requests failed at version 2, of version 1 in the same time 0 of 230",
    hold_left_s=0.0,
    requests_left=0,
    began=1.7e9 - 900,
    ended=1.7e9 - 300,
    checks=(),
    verbs=("retry",),
)


@dataclass(frozen=True, slots=True)
class Asked:
    ask: Ask
    wait: bool
    dry_run: bool
    revision: int | None


CHANGES = (
    ChangeView(1, 1_700_000_000.0, "ada at 127.0.0.1", "weights", "m", "weight of m: 1 to 2", 11),
    ChangeView(2, 1_700_000_060.0, "the gateway", "drain", "m-1-0", "drain of m-1-0 ended", 12),
)


@dataclass(slots=True)
class FakeControl:
    """Answers what its fields hold; `denial` is raised by every ask."""

    current: StatusView = STATUS
    fleet: tuple[InstanceView, ...] = (INSTANCE, LOADING)
    draining: list[DrainView] = field(default_factory=lambda: [DRAIN])  # the last one stays
    held: tuple[LeaseView, ...] = (LEASE,)
    found: tuple[Problem, ...] = ()
    rolling: tuple[RolloutView, ...] = (ROLLOUT, ROLLED_BACK)
    denial: Denied | None = None
    receipt: Receipt = RECEIPT
    callers: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    filters: list[tuple[str | None, str | None]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    remembered: tuple[Event, ...] = EVENTS
    coming: "asyncio.Queue[Event | None]" = field(default_factory=asyncio.Queue)  # None: the end
    streams: int = 0

    def status(self) -> StatusView:
        return self.current

    def instances(self) -> tuple[InstanceView, ...]:
        return self.fleet

    def models(self) -> tuple[ModelView, ...]:
        return self.current.models

    def drains(self) -> tuple[DrainView, ...]:
        """The next one of those to come, each time that somebody looks."""
        if not self.draining:
            return ()
        return (self.draining.pop(0) if len(self.draining) > 1 else self.draining[0],)

    def leases(self, instance: str | None, model: str | None) -> tuple[LeaseView, ...]:
        self.filters.append((instance, model))
        return self.held

    def history(self) -> tuple[ChangeView, ...]:
        return CHANGES

    def rollouts(self, model: str | None) -> tuple[RolloutView, ...]:
        return tuple(one for one in self.rolling if model in {None, one.model})

    def config(self) -> dict[str, Any]:
        return CONFIG

    def check(self, text: str) -> tuple[Problem, ...]:
        self.texts.append(text)
        return self.found

    async def ask(
        self, ask: Ask, *, wait: bool, dry_run: bool, revision: int | None, by: str = "an operator"
    ) -> Receipt:
        self.callers.append(by)
        self.asked.append(Asked(ask, wait, dry_run, revision))
        if self.denial is not None:
            raise self.denial
        return self.receipt

    async def events(self, after: int | None) -> AsyncIterator[Event]:
        self.streams += 1
        try:
            for event in self.remembered:
                if after is not None and event.id > after:
                    yield event
            while (coming := await self.coming.get()) is not None:
                yield coming
        finally:
            self.streams -= 1

    def metrics(self) -> bytes:
        return b"sluicegate_in_flight 3\n"

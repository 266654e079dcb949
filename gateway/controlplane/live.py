"""The control facade, live: reads from the snapshot and the segment, asks through the loop.

Floor 4, no I/O of its own.   Owner: the control process's event loop.
Implements `gateway.control.Control`. A change is an event like any other; its receipt names the
generation whose table contains it, and `wait` is over when every worker serves that one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import Any, Final

from gateway.config import ConfigInvalid, Problem, parse, placed, unchangeable
from gateway.control import (
    Ask,
    CancelLease,
    ChangeView,
    Denied,
    DrainView,
    Event,
    InstanceView,
    LeaseView,
    ModelView,
    Receipt,
    StatusView,
)
from gateway.controlplane import rollout_views, views
from gateway.controlplane.folds import Folds
from gateway.controlplane.journal import Journal
from gateway.controlplane.loop import ControlLoop
from gateway.controlplane.origins import origins
from gateway.controlplane.tickets import Tickets
from gateway.fleet import events
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollouts import RolloutView
from gateway.state.shared import ACCEPTED, Segment
from gateway.telemetry.metrics import Owner, Readings, Retained, exposition
from gateway.telemetry.tally import Tally

ASK_S: Final = 30.0  # for the store, behind every ask before it
WAIT_S: Final = 45.0  # for workers: a stuck one is killed after 5 s, a new one has 30 s to come
SAMPLE_S: Final = 10.0
SAMPLES: Final = 7  # the observed share is that of the last minute

Totals = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class About:
    """What does not change in a gateway's life."""

    pid: int  # of the supervisor
    started: float
    listen: tuple[str, ...]


class LiveControl:
    """`Control` over a running control process."""

    def __init__(
        self,
        loop: ControlLoop[FleetSnapshot, events.Event],
        segment: Segment,
        folds: Folds,
        tickets: Tickets,
        journal: Journal,
        tally: Tally,
        about: About,
    ) -> None:
        self._loop = loop
        self._segment = segment
        self._folds = folds
        self._tickets = tickets
        self._journal = journal
        self._tally = tally
        self._about = about
        self.ailing: Callable[[], tuple[str, ...]] = tuple  # what shells beside us say of theirs
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # generation: who waits
        self._samples: deque[Totals] = deque(maxlen=SAMPLES)
        self._tokens: dict[tuple[str, str], tuple[int, int]] = {}  # instance, incarnation: so far
        loop.after.append(self._decided)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- reading

    def status(self) -> StatusView:
        fleet, now = self._loop.state, self._now()
        seen = fleet.instances.values()
        return StatusView(
            version=installed("sluicegate"),
            pid=self._about.pid,
            started=self._about.started,
            generation=fleet.generation,
            revision=fleet.revision,
            serving=fleet.serving and fleet.closing is None and fleet.beats(),
            closing=fleet.closing is not None,
            listen=self._about.listen,
            workers=views.workers(fleet, self._segment, now),
            data_plane=views.data_plane(fleet),
            models=self.models(),
            instances=len(fleet.instances),
            routable=sum(fleet.routable(one) for one in seen),
            in_flight=sum(self._segment.in_flight(slot) for slot in fleet.book.holders),
            problems=(*views.problems(fleet), *self.ailing()),
        )

    def instances(self) -> tuple[InstanceView, ...]:
        fleet, now = self._loop.state, self._now()
        return tuple(
            views.instance(fleet, seen, self._segment, now) for seen in fleet.instances.values()
        )

    def models(self) -> tuple[ModelView, ...]:
        return views.models(self._loop.state, self._segment, self._observed())

    def drains(self) -> tuple[DrainView, ...]:
        fleet, now = self._loop.state, self._now()
        return tuple(views.drain(fleet, one, self._segment, now) for one in fleet.drains.values())

    def leases(self, instance: str | None, model: str | None) -> tuple[LeaseView, ...]:
        found = views.leases(self._loop.state, self._segment, self._now())
        return tuple(
            lease
            for lease in found
            if instance in {None, lease.instance} and model in {None, lease.model}
        )

    def history(self) -> tuple[ChangeView, ...]:
        return tuple(views.change(one) for one in self._loop.state.history)

    def rollouts(self, model: str | None) -> tuple[RolloutView, ...]:
        return rollout_views.rollouts(self._loop.state, model, self._now())

    def config(self) -> dict[str, Any]:
        return origins(self._loop.state)

    def check(self, text: str) -> tuple[Problem, ...]:
        try:
            settings = parse(text)
        except ConfigInvalid as exc:
            return exc.problems
        return placed(unchangeable(self._loop.state.settings, settings), text)

    # -- asking

    async def ask(
        self, ask: Ask, *, wait: bool, dry_run: bool, revision: int | None, by: str = "an operator"
    ) -> Receipt:
        if isinstance(ask, CancelLease):
            self._check_lease(ask.request_id)
        ticket, answer = self._tickets.draw()
        self._loop.post(events.Asked(ticket, ask, dry_run, revision, self._now(), by))
        try:
            async with asyncio.timeout(ASK_S):
                receipt: Receipt = await answer
        except TimeoutError:
            text = f"no answer from the store for {ASK_S:g} s: it may still be carried out"
            raise Denied("store_failed", text) from None
        if wait and not dry_run:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._served(receipt.generation)
            except TimeoutError:
                text = f"it is made, but after {WAIT_S:g} s not every worker serves it: see status"
                raise Denied("not_served", text) from None
        return receipt

    def _check_lease(self, request: str) -> None:
        """Which requests are in flight is written in the segment, not in the snapshot."""
        held = views.leases(self._loop.state, self._segment, self._now())
        if not any(lease.request_id == request for lease in held):
            raise Denied("unknown_lease", f"no request {request} is in flight")

    async def _served(self, generation: int) -> None:
        """Until every worker serves it. One that does not acknowledge is killed and replaced."""
        if _contained(self._loop.state, generation):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((generation, future))
        await future

    def _decided(self, fleet: FleetSnapshot) -> None:
        if not self._waiting:
            return
        for generation, future in self._waiting:
            if _contained(fleet, generation) and not future.done():
                future.set_result(None)
        self._waiting = [(due, future) for due, future in self._waiting if not future.done()]

    # -- following

    def events(self, after: int | None) -> AsyncIterator[Event]:
        return self._journal.events(after)

    def metrics(self) -> bytes:
        fleet = self._loop.state
        self._count_tokens(fleet)
        owners = tuple(
            Owner(slot, holder.model, holder.version, holder.instance)
            for slot, holder in fleet.book.holders.items()
        )
        retained = tuple(Retained(*key, cells) for key, cells in self._folds.retained.items())
        readings = Readings(
            owners,
            retained,
            fleet.book.sections,
            self.status(),
            self.instances(),
            self._tally,
            {model: many[-1].phase.value for model, many in fleet.rollouts.items() if many},
        )
        return exposition(self._segment, readings)

    # -- by the clock

    async def sample(self, pause: Callable[[float], Any] = asyncio.sleep) -> None:
        """Look at totals now and then: what was accepted lately, and what instances computed."""
        while True:
            self._samples.append(self._accepted())
            self._count_tokens(self._loop.state)
            await pause(SAMPLE_S)

    def _accepted(self) -> Totals:
        totals: Totals = {key: cells[ACCEPTED] for key, cells in self._folds.retained.items()}
        rows = range(self._segment.layout.rows)
        for slot, holder in self._loop.state.book.holders.items():
            key = (holder.model, holder.version)
            starts = (self._segment.slot_base(row, slot) + ACCEPTED for row in rows)
            totals[key] = totals.get(key, 0) + sum(self._segment.cells[at] for at in starts)
        return totals

    def _observed(self) -> dict[tuple[str, str], float]:
        """Shares of the requests accepted since the oldest sample."""
        if not self._samples:
            return {}
        before, after = self._samples[0], self._accepted()
        grown = {key: max(0, count - before.get(key, 0)) for key, count in after.items()}
        whole: dict[str, int] = {}
        for (model, _), count in grown.items():
            whole[model] = whole.get(model, 0) + count
        return {key: count / whole[key[0]] for key, count in grown.items() if whole[key[0]]}

    def _count_tokens(self, fleet: FleetSnapshot) -> None:
        """Instances count per incarnation; the tally only grows."""
        for seen in fleet.instances.values():
            if seen.status is None:
                continue
            key = (seen.name, seen.incarnation)
            now = (seen.status.prompt_tokens_total, seen.status.completion_tokens_total)
            before = self._tokens.get(key, (0, 0))
            self._tokens[key] = now
            for kind, was, count in zip(("prompt", "completion"), before, now, strict=True):
                grown = max(0, count - was)
                self._tally.tokens[seen.model, seen.version, kind] += grown
        alive = {(seen.name, seen.incarnation) for seen in fleet.instances.values()}
        self._tokens = {key: so_far for key, so_far in self._tokens.items() if key in alive}


def _contained(fleet: FleetSnapshot, generation: int) -> bool:
    """Whether every worker serves what a receipt with this generation stands for.

    The generation may never come: a change that takes another one back leaves the table as it is.
    """
    if fleet.unpublished and generation > fleet.generation:
        return False
    return fleet.served() >= min(generation, fleet.generation)

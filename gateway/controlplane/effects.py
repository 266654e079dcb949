"""How each command is carried out.

Floor 3, I/O.   Flow: decide -> commands -> [effects] -> the world -> events
One method a command and nothing that decides. What takes time is awaited, and ends as an event.
"""

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.config import Settings
from gateway.controlplane.channels import Channels, Garbled, Unreachable, calling, reading
from gateway.controlplane.folds import Folds
from gateway.controlplane.journal import Journal
from gateway.controlplane.link import WorkerLinks
from gateway.controlplane.orders import SupervisorLink
from gateway.controlplane.poll import Poller
from gateway.controlplane.reload import SettingsFile
from gateway.controlplane.tickets import Tickets
from gateway.controlplane.validating import Validating
from gateway.fleet.commands import (
    Answer,
    CallDrain,
    CallResume,
    CallStop,
    ClaimStore,
    CloseFront,
    Confirm,
    Count,
    CountDrain,
    CountRollback,
    FoldSlot,
    Follow,
    FreeRow,
    KeepText,
    Launch,
    LookUp,
    OpenFront,
    PollNow,
    ReadCounts,
    ReadNeeds,
    ReadSettings,
    ReclaimStore,
    Record,
    SettleRow,
    SettleWrites,
    StartWorker,
    Supervise,
    Tell,
    Unfollow,
    Validate,
    WakeAt,
    Write,
)
from gateway.fleet.events import (
    CallFailed,
    Event,
    FactKept,
    LaunchOrdered,
    NeedsRead,
    Observed,
    RowSettled,
    SettingsRead,
    SlotFolded,
    Source,
    Ticked,
    WriteFailed,
)
from gateway.fleet.handing import (
    ClaimFailed,
    StoreClaimed,
    WritesSettled,
)
from gateway.fleet.registry import hashed
from gateway.fleet.rollout_events import CountsRead, Validated
from gateway.launch.base import Launcher
from gateway.launch.needs import absent, read_needs, where
from gateway.launch.repository import stocked
from gateway.messages import Spawn
from gateway.state.settle import losses, settle_row
from gateway.state.shared import Segment
from gateway.store.base import Store, StoreFailed
from gateway.telemetry.tally import Tally
from sluicegate.v1.lifecycle_pb2 import (
    DrainRequest,
    GetStatusRequest,
    ResumeRequest,
    StopRequest,
)

CONFIRM_S: Final = 2.0  # less than an instance waits for the answer to its registration
CALL_S: Final = 3.0  # Drain, Resume, Stop answer at once; a busy loop may take a second


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """What every worker is started with."""

    door: str
    listens: int  # addresses in gateway.listen
    parent: int
    log_format: str
    log_level: str


@dataclass(frozen=True, slots=True)
class Shells:
    """Everything that effects act through; made in the main, one of each."""

    segment: Segment
    store: Store
    links: WorkerLinks
    orders: SupervisorLink
    poller: Poller
    channels: Channels
    launcher: Launcher
    file: SettingsFile
    folds: Folds
    tickets: Tickets
    journal: Journal
    tally: Tally
    worker: WorkerCommand
    settings: Callable[[], Settings]
    open_front: Callable[[], Awaitable[None]]
    close_front: Callable[[], Awaitable[None]]
    post: Callable[[Event], None]
    validating: Validating


class Effects:
    """Owner of the one timer; everything else belongs to the shells it is given."""

    def __init__(self, shells: Shells) -> None:
        self._at = shells
        self._timer: asyncio.TimerHandle | None = None

    def by_command(self) -> dict[type, Callable[[Any], Any]]:
        return {
            Tell: lambda command: self._at.links.tell(command.row, command.message),
            Supervise: lambda command: self._at.orders.order(command.message),
            StartWorker: self._start_worker,
            Launch: self._launch,
            SettleRow: self._settle_row,
            FreeRow: lambda command: settle_row(self._at.segment, command.row),
            FoldSlot: self._fold_slot,
            Follow: lambda command: self._at.poller.follow(command.name, command.grpc),
            Unfollow: lambda command: self._at.poller.unfollow(command.name),
            PollNow: lambda command: self._at.poller.poll_now(command.name),
            Confirm: self._confirm,
            CallDrain: self._call_drain,
            CallResume: self._call_resume,
            CallStop: self._call_stop,
            Write: self._write,
            SettleWrites: self._settle_writes,
            ClaimStore: self._claim_store,
            ReclaimStore: self._reclaim_store,
            ReadSettings: self._read_settings,
            KeepText: lambda command: self._at.file.keep(command.text),
            LookUp: self._look_up,
            ReadNeeds: self._read_needs,
            ReadCounts: self._read_counts,
            Validate: self._validate,
            OpenFront: lambda command: self._at.open_front(),
            CloseFront: lambda command: self._at.close_front(),
            Answer: lambda command: self._at.tickets.answer(command.ticket, command.value),
            Record: self._record,
            Count: self._count,
            CountDrain: self._count_drain,
            CountRollback: lambda command: self._at.tally.rolled_back(command.duration_s),
            WakeAt: self._wake_at,
        }

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- processes

    def _start_worker(self, command: StartWorker) -> None:
        given = self._at.worker
        held = {
            f"listen{index}.{k}": f"listen{index}.{k}"
            for index in range(command.workers)
            for k in range(given.listens)
        }
        fds = ",".join(f"{name[6:].partition('.')[0]}:{{{name}}}" for name in held)
        bells = [f"bell{row}" for row in range(self._at.segment.layout.rows)]
        line = (
            *(sys.executable, "-P", "-m", "gateway.mains.worker"),  # -P: our code, not the folder's
            *("--index", str(command.index), "--row", str(command.row)),
            *("--control", given.door, "--segment-fd", "{segment}", "--life-fd", "{life}"),
            *("--listen-fds", fds, "--bell-fds", ",".join(f"{{{bell}}}" for bell in bells)),
            *("--parent", str(given.parent)),
            *("--log-format", given.log_format, "--log-level", given.log_level),
            *(("--wait",) if command.waits else ()),
        )
        descriptors = {"segment": "segment", "life": "life", **held, **{b: b for b in bells}}
        name = f"worker{command.index}.{command.row}"
        self._at.orders.order(Spawn(name, line, descriptors, {}, False))

    def _launch(self, command: Launch) -> LaunchOrdered:
        token = secrets.token_urlsafe(24)
        self._at.launcher.launch(command, self._at.settings(), token)
        return LaunchOrdered(command.name, hashed(token), self._now())

    def _settle_row(self, command: SettleRow) -> RowSettled:
        now = self._now()
        lost = losses(self._at.segment, command.row, int(now * 1_000_000_000))
        return RowSettled(command.row, lost, now)

    async def _fold_slot(self, command: FoldSlot) -> SlotFolded | None:
        folded = await self._at.folds.fold(command.slot, command.model, command.version)
        return SlotFolded(command.slot, self._now()) if folded else None

    # -- instances

    async def _confirm(self, command: Confirm) -> Event:
        """What is said at the address takes the place of what was claimed of it."""
        event, claimed = command.event, command.event.status
        try:
            with calling("GetStatus"):
                stub = self._at.channels.stub(claimed.grpc)
                call = stub.GetStatus(GetStatusRequest(), timeout=CONFIRM_S, wait_for_ready=True)
                message = await call
            status = reading(message)
        except (Unreachable, Garbled) as exc:
            doubt = f"{claimed.instance_id} is not found at {claimed.grpc}: {exc}"
            return replace(event, doubt=doubt, now=self._now())
        if (status.instance_id, status.incarnation) != (claimed.instance_id, claimed.incarnation):
            doubt = f"another incarnation of {claimed.instance_id} answers at {claimed.grpc}"
            return replace(event, doubt=doubt, now=self._now())
        return replace(event, status=status, asked=True, now=self._now())

    async def _call_drain(self, command: CallDrain) -> Event:
        request = DrainRequest(grace_s=command.grace_s, reason=command.reason)
        return await self._call(command, "Drain", request)

    async def _call_resume(self, command: CallResume) -> Event:
        return await self._call(command, "Resume", ResumeRequest())

    async def _call_stop(self, command: CallStop) -> Event:
        request = StopRequest(grace_s=command.grace_s, force=command.force)
        return await self._call(command, "Stop", request)

    async def _call(
        self, command: CallDrain | CallResume | CallStop, call: str, request: object
    ) -> Event:
        """What the instance answers. Whether it heeds what it was told, its next polls say."""
        try:
            with calling(call):
                method = getattr(self._at.channels.stub(command.grpc), call)
                reply = await method(request, timeout=CALL_S)
            status = reading(reply.status)
        except Unreachable as exc:
            return CallFailed(command.name, call, exc.reason, self._now())
        except Garbled as exc:
            return CallFailed(command.name, call, str(exc), self._now())
        received, held = self._at.folds.sample(command.name)
        now = self._now()
        return Observed(command.name, Source.REPLY, command.grpc, "", status, received, held, now)

    # -- store and files

    async def _write(self, command: Write) -> Event:
        try:
            await self._at.store.write(command.changes)
        except StoreFailed as exc:
            return WriteFailed(command.then, str(exc), self._now())
        return replace(command.then, now=self._now())

    async def _settle_writes(self, command: SettleWrites) -> Event:
        await self._at.store.settled()
        return WritesSettled(self._now())

    async def _claim_store(self, command: ClaimStore) -> Event:
        try:
            await self._at.store.claim()
        except StoreFailed as exc:
            return ClaimFailed(str(exc), self._now())
        return StoreClaimed(self._now())

    async def _reclaim_store(self, command: ReclaimStore) -> Event:
        kept = FactKept(self._now())
        try:
            await self._at.store.reclaim(command.changes)
        except StoreFailed as exc:
            return WriteFailed(kept, str(exc), self._now())
        return kept

    def _read_settings(self, command: ReadSettings) -> SettingsRead:
        text, settings, problems = self._at.file.read()
        return SettingsRead(
            command.ticket,
            command.why,
            command.dry_run,
            command.revision,
            text,
            settings,
            problems,
            self._now(),
        )

    def _read_counts(self, command: ReadCounts) -> CountsRead:
        canary, stable = (
            self._at.folds.drawn(command.model, version)
            for version in (command.version, command.stable)
        )
        return CountsRead(command.model, command.version, canary, stable, self._now())

    async def _validate(self, command: Validate) -> Validated:
        report = await self._at.validating.run(command, self._at.settings())
        told = (report.passed, report.reason, report.checks)
        return Validated(command.model, command.rollout, *told, self._now())

    async def _look_up(self, command: LookUp) -> Event:
        root = self._at.settings().repository.root
        stock = await stocked(root, command.model, command.version)
        return replace(command.event, stock=stock, now=self._now())

    def _read_needs(self, command: ReadNeeds) -> NeedsRead:
        settings = self._at.settings()
        kinds = {device.kind for device in settings.device}
        root = where(settings.repository.root, settings.repository.cache)
        missing = absent(settings.repository.root, root, command.pairs)
        return NeedsRead(read_needs(root, command.pairs, kinds), self._now(), missing)

    # -- people and the clock

    def _record(self, command: Record) -> None:
        self._at.journal.record(
            command.kind, command.subject, command.text, command.fields, command.warn
        )

    def _count(self, command: Count) -> None:
        getattr(self._at.tally, command.family)[command.key] += 1

    def _count_drain(self, command: CountDrain) -> None:
        self._at.tally.drain_ended(command.outcome, command.duration_s)

    def _wake_at(self, command: WakeAt) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(command.when, lambda: self._at.post(Ticked(loop.time())))

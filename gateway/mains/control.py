"""The control process: wiring.

Floor 5.
It holds nothing that its death would take along: intent is in the store, counters are in the
segment, sockets and children are the supervisor's. It ends with the supervisor, in every way in
which that can end. One that stands by for a predecessor does all of it but its front: nobody
reaches it, and nothing that the predecessor reads is written, until the gateway is ours.
"""

import argparse
import asyncio
import logging
import os
import random
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from aiohttp import web

from admin.api import create_app, served
from gateway.config import ConfigInvalid, Settings
from gateway.controlplane.channels import Channels
from gateway.controlplane.effects import Effects, Shells, WorkerCommand
from gateway.controlplane.enrol import Enrolment
from gateway.controlplane.enrol import serve as serve_registry
from gateway.controlplane.folds import Folds
from gateway.controlplane.journal import Journal
from gateway.controlplane.leftover import report
from gateway.controlplane.link import WorkerLinks, watch_beats
from gateway.controlplane.live import About, LiveControl
from gateway.controlplane.loop import ControlLoop
from gateway.controlplane.orders import SupervisorLink
from gateway.controlplane.outcomes import watch_outcomes
from gateway.controlplane.poll import Poller
from gateway.controlplane.recorder import Recorder
from gateway.controlplane.reload import SettingsFile
from gateway.controlplane.tickets import Tickets
from gateway.controlplane.validating import Validating
from gateway.controlplane.webhooks import Webhooks
from gateway.fleet.decide import decide
from gateway.fleet.durable import GENERATIONS, counter_change
from gateway.fleet.events import EffectFailed, Event
from gateway.fleet.restore import Life, restore
from gateway.fleet.snapshot import FleetSnapshot
from gateway.launch.local import LocalLauncher
from gateway.mains.life import end_with
from gateway.state.shared import GENERATION, IDENTITY, Segment
from gateway.store.base import Store, StoreUnusable
from gateway.store.hold import hold
from gateway.store.sqlite import SqliteStore
from gateway.telemetry.log import configure
from gateway.telemetry.tally import Tally
from sluicegate.processes import EXIT_ORPHANED

log = logging.getLogger(__name__)

EXIT_UNUSABLE: Final = 78  # EX_CONFIG: starting again would change nothing
ADMIN_BACKLOG: Final = 128
FAREWELL_S: Final = 1.0  # for calls under way when the front closes


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gateway.mains.control", description="the control side")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    for name in ("segment", "life", "supervisor", "door", "admin"):
        parser.add_argument(f"--{name}-fd", type=int, required=True)
    parser.add_argument("--registry", required=True, help="host:port of the Registry service")
    parser.add_argument("--parent", type=int, required=True, help="pid that it must not outlive")
    parser.add_argument("--stand-by", action="store_true", help="a predecessor still runs")
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    parser.add_argument("--log-level", default="info")
    return parser.parse_args(given)


class ControlProcess:
    """Everything that one control process is made of, in the order in which it is made."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._segment = Segment(given.segment_fd)
        self._file = SettingsFile(given.config, given.run_dir / "accepted.toml")
        self._settings = self._file.begin(
            again=bool(self._segment.cells[IDENTITY]), stands_by=given.stand_by
        )
        self._tickets = Tickets()
        self._tally = Tally()
        self._channels = Channels()
        self._journal = Journal(time.time, int(time.time()) * 1000)
        self._links = WorkerLinks(self._post)
        self._orders = SupervisorLink(self._segment, self._heard, _orphaned)
        log = (given.log_format, given.log_level)
        self._validating = Validating(self._orders.order, given.run_dir, given.parent, log)
        self._rng = random.Random()

    def _post(self, event: Event) -> None:
        self._loop.post(event)

    def _heard(self, event: Event) -> None:
        """From the supervisor."""
        sifted = self._validating.sifted(event)
        if sifted is not None:
            self._post(sifted)

    def _fleet(self) -> FleetSnapshot:
        return self._loop.state

    async def run(self) -> None:
        """Until the supervisor ends it."""
        store = await self._open_store()
        number = self._identity()
        folds = Folds(self._segment, store, number, self._fleet)
        fleet = await self._restore(store, folds, number)
        poller = Poller(
            self._channels,
            self._post,
            lambda: self._fleet().settings.poll,
            folds.sample,
            lambda name: self._static_http(name),
            self._rng,
        )
        effects = self._effects(store, folds, poller)
        self._loop = ControlLoop[FleetSnapshot, Event](
            fleet, decide, effects.by_command(), self._broken
        )
        self._loop.after.append(self._validating.look)
        live = self._live(folds)
        recorder = Recorder(lambda: self._fleet().settings, self._tally, self._rng)
        self._links.on_sampled = recorder.heard
        self._loop.after.append(lambda _: recorder.look())
        self._folds, self._live_control = folds, live
        self._webhooks = self._hooks(store)
        live.ailing = self._webhooks.problems
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._open()
            tasks.create_task(self._loop.run())
            tasks.create_task(live.sample())
            tasks.create_task(recorder.run())
            tasks.create_task(watch_outcomes(self._segment, self._fleet, self._post))
            tasks.create_task(
                watch_beats(self._segment, lambda: self._fleet().holding(), self._post)
            )

    def _hooks(self, store: Store) -> Webhooks:
        hooks = Webhooks(self._fleet, store, self._tally, self._rng, time.time, os.environ)
        hooks.restore(self._documents)
        self._loop.after.append(hooks.look)
        return hooks

    async def _open_store(self) -> Store:
        path = Path(self._settings.store.url.removeprefix("sqlite:"))
        self._held = hold(path, self._given.run_dir)
        return await SqliteStore.open(path, self._given.stand_by)

    def _identity(self) -> int:
        """The segment's number; the first control gives it one."""
        if not self._segment.cells[IDENTITY]:
            self._segment.cells[IDENTITY] = self._rng.getrandbits(62) | 1  # never 0
        return self._segment.cells[IDENTITY]

    async def _restore(self, store: Store, folds: Folds, number: int) -> FleetSnapshot:
        """What the last control left, and a reserve of generations before anything is published."""
        documents = await store.read()
        self._documents = documents
        unread = folds.restore(documents)
        layout = self._segment.layout
        served = max(
            self._segment.cells[self._segment.base(row) + GENERATION] for row in range(layout.rows)
        )
        now = asyncio.get_running_loop().time()
        wall = time.time() - now
        life = Life(layout, number, served, now, wall, self._given.stand_by)
        fleet = restore(self._settings, documents, life)
        fleet = replace(fleet, unread=(*fleet.unread, *unread))
        await store.write((counter_change("generation", fleet.ceiling + GENERATIONS),))
        folds.clear_free(frozenset(fleet.book.holders))
        return fleet

    def _effects(self, store: Store, folds: Folds, poller: Poller) -> Effects:
        given = self._given
        door = socket.socket(fileno=os.dup(given.door_fd))
        command = WorkerCommand(
            door=door.getsockname(),
            listens=len(self._settings.gateway.listen),
            parent=given.parent,
            log_format=given.log_format,
            log_level=given.log_level,
        )
        door.close()
        return Effects(
            Shells(
                segment=self._segment,
                store=store,
                links=self._links,
                orders=self._orders,
                poller=poller,
                channels=self._channels,
                launcher=LocalLauncher(self._orders.order, given.registry),
                file=self._file,
                folds=folds,
                tickets=self._tickets,
                journal=self._journal,
                tally=self._tally,
                worker=command,
                settings=lambda: self._fleet().settings,
                open_front=self._open_front,
                close_front=self._close_front,
                post=self._post,
                validating=self._validating,
            )
        )

    def _live(self, folds: Folds) -> LiveControl:
        return LiveControl(
            self._loop,
            self._segment,
            folds,
            self._tickets,
            self._journal,
            self._tally,
            _about(self._given, self._settings),
        )

    async def _open(self) -> None:
        """Every road on which something can happen; the supervisor's last: it starts the loop."""
        running = asyncio.get_running_loop()
        if not self._given.stand_by:
            await self._serve_front()
        door = socket.socket(fileno=self._given.door_fd)
        self._door = await running.create_unix_server(self._links.connection, sock=door)
        sock = socket.socket(fileno=self._given.supervisor_fd)
        sock.setblocking(False)
        await running.create_unix_connection(lambda: self._orders, sock=sock)

    async def _serve_front(self) -> None:
        """Where operators and instances reach us."""
        enrolment = Enrolment(self._post, self._tickets, self._folds.sample)
        self._registry = await serve_registry(enrolment, self._given.registry)
        app = create_app(self._live_control)
        self._runner = served(app, FAREWELL_S)
        await self._runner.setup()
        admin = socket.socket(fileno=self._given.admin_fd)
        self._site = web.SockSite(self._runner, admin, backlog=ADMIN_BACKLOG)
        await self._site.start()
        self._tasks.create_task(self._file.watch(self._post))
        self._telling = self._tasks.create_task(self._webhooks.run())

    async def _open_front(self) -> None:
        """The gateway is ours."""
        try:
            self._file.keep_last()
        except OSError as exc:  # a full disk: whoever runs the gateway has to reach us all the more
            log.error("the settings in force are not kept", extra={"reason": str(exc)})
        await self._serve_front()

    async def _close_front(self) -> None:
        """A successor is there. gRPC cannot adopt a socket, so it binds the Registry's port anew,
        as we can both (SO_REUSEPORT); instances whose calls fall between the two call again.
        """
        self._telling.cancel()  # the successor goes on from the same place
        self._tasks.create_task(report(self._segment, self._fleet, self._orders.order))
        await self._site.stop()
        await self._registry.stop(FAREWELL_S)
        await self._runner.cleanup()

    def _static_http(self, name: str) -> str:
        """The HTTP address that the file gives it; "" when it says itself."""
        seen = self._fleet().instances.get(name)
        return seen.http if seen is not None else ""

    def _broken(self, command: object, exc: Exception) -> Event:
        now = asyncio.get_running_loop().time()
        return EffectFailed(type(command).__name__, repr(exc), now)


def _about(given: argparse.Namespace, settings: Settings) -> About:
    """What the supervisor wrote down when it began; ports that the system chose included."""
    path = given.run_dir / "gateway.json"  # the predecessor's, while we stand by
    try:
        document: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return About(given.parent, time.time(), settings.gateway.listen)
    started = time.time() if given.stand_by else path.stat().st_mtime
    return About(given.parent, started, tuple(document["listen"]))


def _orphaned() -> None:
    os._exit(EXIT_ORPHANED)


def main() -> None:
    given = arguments()
    end_with(given.life_fd, given.parent)
    configure(given.log_format, given.log_level, process="control")
    try:
        uvloop.run(ControlProcess(given).run())
    except (ConfigInvalid, StoreUnusable) as exc:
        log.error("control cannot start", extra={"reason": str(exc)})
        sys.exit(EXIT_UNUSABLE)


if __name__ == "__main__":
    main()

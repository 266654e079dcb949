"""Webhooks: each told what happens by POST, in order, until it has answered or is given up.

Floor 3, I/O.   Flow: fleet -> notes -> [webhooks] -> a server   Owner: control's event loop
One task a hook, so that none waits for another, and nothing in control waits for any of them. There
is no queue: what is to be told next is in the fleet. At least once: the cursor is kept after the
answer. What is logged and shown names the hook, never its URL or its secret.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import aiohttp
import orjson

from gateway.config_tables import Webhook
from gateway.fleet.notes import (
    KIND,
    Cursor,
    Note,
    cursor_change,
    cursor_of,
    now_told,
    signature,
    upcoming,
)
from gateway.fleet.snapshot import FleetSnapshot
from gateway.store.base import Change, Documents, Remove, Store, StoreFailed
from gateway.telemetry.tally import Tally

log = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[object]]

BACKOFF_S: Final = 1.0  # before the second try, doubled for each later one
BACKOFF_MAX_S: Final = 300.0
AGAIN: Final = frozenset({408, 425, 429})  # of 4xx, what may be otherwise a little later
SIGNATURE: Final = "x-sluicegate-signature"
ID: Final = "x-sluicegate-id"
EVENT: Final = "x-sluicegate-event"


class Webhooks:
    """wall: seconds since the epoch. environment: where `secret_env` is looked up."""

    def __init__(
        self,
        fleet: Callable[[], FleetSnapshot],
        store: Store,
        tally: Tally,
        rng: Random,
        wall: Callable[[], float],
        environment: Mapping[str, str],
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._tally = tally
        self._rng = rng
        self._wall = wall
        self._environment = environment
        self._cursors: dict[str, Cursor] = {}
        self._ailing: dict[str, str] = {}  # hook: what is wrong, a sentence
        self._moved = asyncio.Event()
        self._looked: tuple[object, ...] = (None,) * 4

    def restore(self, documents: Documents) -> None:
        """How far the last control has come; a cursor that cannot be read begins now."""
        for hook, document in documents.get(KIND, {}).items():
            try:
                self._cursors[hook] = cursor_of(document)
            except (KeyError, TypeError, ValueError, AttributeError):
                log.warning("the webhook's place is lost, it begins now", extra={"webhook": hook})

    def look(self, fleet: FleetSnapshot) -> None:
        """Something was decided; when it may have to be told, each hook looks for itself."""
        told = (fleet.settings.webhook, fleet.history, fleet.rollouts, fleet.drafted)
        if any(one is not other for one, other in zip(told, self._looked, strict=True)):
            self._looked = told
            self._moved.set()

    def problems(self) -> tuple[str, ...]:
        return tuple(self._ailing.values())

    async def run(self, pause: Pause = asyncio.sleep) -> None:
        """Until cancelled. A hook that the config changes begins anew, from its place."""
        async with asyncio.TaskGroup() as tasks:
            running: dict[Webhook, tuple[asyncio.Task[None], asyncio.Event]] = {}
            while True:
                self._moved.clear()
                wanted = self._fleet().settings.webhook
                for hook in running.keys() - set(wanted):
                    running.pop(hook)[0].cancel()
                    self._ailing.pop(hook.name, None)
                await self._forget({hook.name for hook in wanted})
                for hook in wanted:
                    if hook not in running:
                        woken = asyncio.Event()
                        task = tasks.create_task(self._serve(hook, woken, pause))
                        running[hook] = task, woken
                    running[hook][1].set()
                await self._moved.wait()

    async def _forget(self, wanted: set[str]) -> None:
        """The places of hooks that are gone: one that comes back begins then."""
        gone = self._cursors.keys() - wanted
        for name in gone:
            del self._cursors[name]
        if gone:
            await self._kept([Remove(KIND, name) for name in sorted(gone)])

    async def _serve(self, hook: Webhook, woken: asyncio.Event, pause: Pause) -> None:
        if hook.name not in self._cursors:
            await self._move(hook, now_told(self._fleet()))
        while True:
            woken.clear()
            note = upcoming(self._fleet(), hook, self._cursors[hook.name])
            if note is None:
                await woken.wait()
                continue
            await self._tell(hook, note, pause)
            await self._move(hook, note.after)

    async def _move(self, hook: Webhook, cursor: Cursor) -> None:
        self._cursors[hook.name] = cursor
        await self._kept([cursor_change(hook.name, cursor)])

    async def _kept(self, changes: Sequence[Change]) -> None:
        """A place that is not kept is told again by the next control: at least once."""
        try:
            await self._store.write(changes)
        except StoreFailed as exc:
            log.warning("a webhook's place is not kept", extra={"reason": str(exc)})

    # -- one note

    async def _tell(self, hook: Webhook, note: Note, pause: Pause) -> None:
        """Until it is answered, refused for good, or has been tried often enough."""
        body = orjson.dumps(note.document())
        for number in range(hook.retries + 1):
            why, is_final = await self._try(hook, note, body)
            if not why:
                self._tally.webhooks[hook.name, "delivered"] += 1
                self._ailing.pop(hook.name, None)
                return
            if is_final:
                break
            self._tally.webhooks[hook.name, "failed"] += 1
            self._ailing[hook.name] = f"webhook {hook.name}: {note.id} is not delivered: {why}"
            if number < hook.retries:
                await pause(self._backoff_s(number))
        self._tally.webhooks[hook.name, "given_up"] += 1
        self._ailing[hook.name] = f"webhook {hook.name}: {note.id} was given up: {why}"
        fields = {"webhook": hook.name, "note": note.id, "reason": why}
        log.error("a webhook was given up", extra=fields)

    def _backoff_s(self, number: int) -> float:
        """Half of it is chance: hooks of many gateways do not come back together."""
        whole = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(number, 30))
        return whole * (0.5 + self._rng.random() / 2)

    async def _try(self, hook: Webhook, note: Note, body: bytes) -> tuple[str, bool]:
        """Why it was not taken, "" if it was; and whether trying again is of no use."""
        fields = {"Content-Type": "application/json", ID: note.id, EVENT: note.kind}
        timeout = aiohttp.ClientTimeout(total=hook.timeout_s)
        try:
            secret = self._secret(hook)
            if secret:
                fields[SIGNATURE] = signature(secret, int(self._wall()), body)
            trusted = ssl.create_default_context(cafile=hook.ca_file) if hook.ca_file else True
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    hook.url, data=body, headers=fields, allow_redirects=False, ssl=trusted
                ) as response,
            ):
                status = response.status
        except TimeoutError:
            return f"no answer in {hook.timeout_s:g} s", False
        except Secretless as exc:
            return str(exc), False
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            return _said(exc), False
        if 200 <= status < 300:
            return "", False
        if 300 <= status < 400:
            return f"the answer is {status}, and redirects are not followed", True
        return f"the answer is {status}", 400 <= status < 500 and status not in AGAIN

    def _secret(self, hook: Webhook) -> bytes:
        """Read each time: a secret is exchanged without a restart.

        Raises: Secretless when there should be one: nothing is sent unsigned then.
        """
        if hook.secret_env:
            secret = self._environment.get(hook.secret_env, "").encode()
        elif hook.secret_file:
            try:
                secret = Path(hook.secret_file).read_bytes().strip()
            except OSError as exc:
                raise Secretless(f"its secret_file cannot be read: {exc.strerror}") from None
        else:
            return b""
        if not secret:
            raise Secretless("its secret is empty, or not set")
        return secret


class Secretless(Exception):
    """There is no secret to sign with; the message says which key names it."""


def _said(exc: Exception) -> str:
    """What went wrong, without the URL, which may hold a secret."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return "its host name is not found"
    if isinstance(exc, aiohttp.ClientConnectorError):
        number = exc.os_error.errno
        return f"no connection: {os.strerror(number) if number else type(exc.os_error).__name__}"
    return f"no answer: {type(exc).__name__}"

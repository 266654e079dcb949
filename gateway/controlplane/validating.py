"""Validations, from control's side: a child of the supervisor is ordered, and leaves a report.

Floor 3, I/O.   Flow: decide -> Validate -> [validating] -> supervisor -> child -> file -> Report
Control touches no traffic. Whatever becomes of the child is a report: its death, a start that
failed, and a deadline at which it is killed have a sentence each. What another control has left
running is killed, and its children are nobody else's business: decisions never hear of them.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from gateway.config import Settings
from gateway.config_tables import Validation
from gateway.fleet.commands import Validate
from gateway.fleet.events import ChildExited, ChildrenSeen, ChildStarted, Event, StartFailed
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import Kill, Message, Spawn
from gateway.rollout.machine import Phase
from gateway.validation.judging import Report, Rules, unusable
from gateway.validation.orders import Order, Way, decode_report, encode_order

CHILD: Final = "validation"  # its names begin with it
MARGIN_S: Final = 30.0  # for it to start, and to write its report, beside the time it has
SIGKILL: Final = 9


class Validating:
    """Owner: the control process's event loop.

    order: how the supervisor is told. parent: its pid.
    """

    def __init__(
        self, order: Callable[[Message], None], run_dir: Path, parent: int, log: tuple[str, str]
    ) -> None:
        self._order = order
        self._run_dir = run_dir
        self._parent = parent
        self._log = log  # format, level
        self._life = secrets.token_hex(4)  # no child of another control has a name of ours
        self._numbers = count(1)
        self._ends: dict[str, asyncio.Future[str]] = {}  # child: why it left no report, or ""
        self._waited: dict[str, Validate] = {}  # child: for whom

    def sifted(self, event: Event) -> Event | None:
        """The event without our children; None when it was about one of them."""
        match event:
            case ChildrenSeen(pids=pids):
                left = [name for name in pids if name.startswith(CHILD)]
                for name in left:
                    self._order(Kill(name, SIGKILL))
                for report in self._run_dir.glob(f"{CHILD}.{self._parent}.*"):
                    report.unlink(missing_ok=True)  # nobody waits for it any more
                return replace(event, pids={k: v for k, v in pids.items() if k not in left})
            case ChildExited(name=name, status=status) if name.startswith(CHILD):
                self._ended(name, f"the validation ended with status {status}" if status else "")
            case StartFailed(name=name, reason=reason) if name.startswith(CHILD):
                self._ended(name, f"the validation could not be started: {reason}")
            case ChildStarted(name=name) if name.startswith(CHILD):
                pass
            case _:
                return event
        return None

    def _ended(self, name: str, why: str) -> None:
        end = self._ends.get(name)
        if end is not None and not end.done():
            end.set_result(why)

    def look(self, fleet: FleetSnapshot) -> None:
        """Nothing is sent any longer for a rollout that waits for it no more."""
        for name, command in self._waited.items():
            rollout = fleet.rollout(command.model)
            waits = rollout is not None and rollout.id == command.rollout
            if self._ends[name].done():
                continue
            if not waits or rollout is None or rollout.phase is not Phase.VALIDATING:
                self._order(Kill(name, SIGKILL))
                self._ended(name, "the rollout has left its validation")

    async def run(self, command: Validate, settings: Settings) -> Report:
        """What the child found; never raises for anything that it does, and never hangs."""
        order = order_of(command, settings)
        name = f"{CHILD}.{self._parent}.{self._life}.{next(self._numbers)}"
        self._waited[name] = command
        path = self._run_dir / f"{name}.json"
        path.unlink(missing_ok=True)
        end = self._ends[name] = asyncio.get_running_loop().create_future()
        limit_s = order.way.total_s + MARGIN_S
        try:
            self._order(self._spawn(name, path, order))
            async with asyncio.timeout(limit_s):
                why = await end
        except TimeoutError:
            self._order(Kill(name, SIGKILL))
            why = f"the validation has not ended in {limit_s:g} s, and was stopped"
        finally:
            del self._ends[name], self._waited[name]
        return _report(path, why)

    def _spawn(self, name: str, path: Path, order: Order) -> Spawn:
        log_format, log_level = self._log
        given = {
            "--order": encode_order(order),
            "--report": str(path),
            "--life-fd": "{life}",
            "--parent": str(self._parent),
            "--log-format": log_format,
            "--log-level": log_level,
        }
        pairs = (part for pair in given.items() for part in pair)
        command = (sys.executable, "-P", "-m", "gateway.mains.validate", *pairs)
        return Spawn(name, command, {"life": "life"}, {}, False)


def order_of(command: Validate, settings: Settings) -> Order:
    """The child's order, by the keys of the model."""
    found = (one.rollout.validation for one in settings.model if one.name == command.model)
    keys = next(found, Validation())
    return Order(
        command.samples,
        command.model,
        tuple(f"http://{address}" for address in command.canary),
        tuple(f"http://{address}" for address in command.stable),
        Rules(keys.error_ratio_max, keys.latency_ratio_max, keys.answers, keys.similarity),
        Way(keys.concurrency, keys.request_s, keys.timeout_s, keys.samples_max),
    )


def _report(path: Path, why: str) -> Report:
    """What is in the file; one that is not there, or is none, has a reason."""
    if why:
        return unusable(why)
    try:
        return decode_report(path.read_bytes())
    except FileNotFoundError:
        return unusable("the validation ended without a report")
    except (OSError, ValueError, KeyError, TypeError) as exc:
        return unusable(f"the report of the validation cannot be read: {exc}")
    finally:
        path.unlink(missing_ok=True)

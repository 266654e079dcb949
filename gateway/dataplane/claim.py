"""Which instance a request holds, where it waits for one, and how all that is counted.

Floor 2, no I/O.
Owner: the exchange it is a part of, which calls `find` and `open` in one step. Every lease that it
opens is settled once, every request finished once.
"""

from typing import Final

from gateway.dataplane.plane import Plane
from gateway.errors import GatewayError, Refusal
from gateway.records import Outcome
from gateway.routing.admit import by_test_header, may_wait, not_ready, pinned, saturated
from gateway.routing.compiled import CompiledRoute, CompiledTarget, CompiledVersion
from gateway.routing.pick import NO_KEY, NONE_TRIED, draw_version, pick
from gateway.routing.replay import relief
from gateway.state.ledger import NO_LEASE
from gateway.state.waitroom import Key, Waiter

_SERVED: Final = int(Outcome.SERVED)
_REFUSED: Final = int(Outcome.REFUSED)
FULL_PAUSE_NS: Final = 100_000_000  # until an instance that said it is full is asked again


class Claim:
    """`target` is the last one that it held; `lease` says whether it still does. `attempts` counts
    the leases of this request; `tried` holds the slots that failed it. `unplaced`: it waits for
    room or for its own body; `listed` is its record then, NO_LEASE where none was free. `drawn`:
    weight alone has chosen the version, so that the next attempt says something of it; not a pin or
    a test header, and not a failure before."""

    __slots__ = (
        "_asks_again_ns",
        "_full_since_ns",
        "_insists",
        "_key",
        "_pin",
        "_plane",
        "_test",
        "_wait_key",
        "_waiter",
        "_waits_since_ns",
        "attempts",
        "drawn",
        "lease",
        "listed",
        "route",
        "section",
        "target",
        "tried",
        "unplaced",
        "version",
    )

    route: CompiledRoute
    version: CompiledVersion
    target: CompiledTarget

    def __init__(self, plane: Plane, waiter: Waiter) -> None:
        self._plane = plane
        self._waiter = waiter
        self._wait_key: Key | None = None
        self.listed = NO_LEASE
        self.unplaced = False
        self._waits_since_ns = self._asks_again_ns = self._full_since_ns = 0
        self._pin = ""
        self._test = b""
        self._insists = False  # the version was asked for by name or by test header
        self._key = NO_KEY
        self.drawn = True
        self.lease = NO_LEASE
        self.tried = NONE_TRIED
        self.section = self.attempts = 0

    def restart(self) -> None:
        """For the next request."""
        self.section = self.attempts = 0
        self._asks_again_ns = self._full_since_ns = 0

    # -- finding an instance

    def aim(self, route: CompiledRoute, pin: str, test: bytes, key: int) -> None:
        """Draw the version; `test`: what the test header says, behind a pin.

        Raises: GatewayError.
        """
        self.route = route
        self.section = route.section
        self._pin = pin
        self._test = test
        self._key = key
        self._insists = False
        self.drawn = True
        self.tried = NONE_TRIED
        shares = route.shares
        plain = len(shares) == 1 and not pin and not test
        self.version = shares[0] if plain else self._draw(route)

    def _draw(self, route: CompiledRoute) -> CompiledVersion:
        version: CompiledVersion | None = None
        if self._pin:
            version = pinned(route, self._pin)
        elif self._test:
            version = by_test_header(route, self._test)
        self._insists = version is not None
        if version is not None:
            self.drawn = False
            return version
        version = draw_version(route, self._key)
        if version is None:
            raise not_ready(route, "")
        return version

    def find(self, first: bool) -> bool:
        """Whether a target has room; `target` then. `first`: nobody waits before this one.

        Raises: GatewayError.
        """
        plane, route, version = self._plane, self.route, self.version
        waiting = plane.waitroom.size and not first
        if waiting and plane.waitroom.first((route.model, version.name)) is not None:
            return False
        ledger = plane.ledger
        target = pick(version, ledger, plane.rng, self._key, self.tried)
        if target is None:
            return False
        if not ledger.free and self.listed == NO_LEASE:
            raise GatewayError("leases_full", "the gateway holds as many requests as it can", 1)
        self.target = target
        return True

    def open(self, number: int, client_id: bytes, now: int, stage: int, connection: int) -> None:
        """Open a lease on the target that was found just now."""
        if self.unplaced:
            self.leave(now)
        slot = self.target.slot
        ledger = self._plane.ledger
        self.lease = ledger.open(
            slot, self.section, number, client_id, now, stage, connection, self.drawn
        )
        self.version.tally.held += 1
        self.attempts += 1

    @property
    def held(self) -> bool:
        return self.lease != NO_LEASE

    def received_bytes(self) -> int:
        """From the instance so far, by the lease that is held."""
        return self._plane.ledger.lease_bytes(self.lease) if self.held else 0

    def avoid_target(self) -> None:
        """The next attempt goes elsewhere."""
        self.tried = self.tried | {self.target.slot}

    def exhausted(self) -> bool:
        """Whether every target of the version has failed this request."""
        return all(target.slot in self.tried for target in self.version.targets)

    def read_table_again(self) -> None:
        """Route and version as they are now; the version stays unless it may get nothing more.

        Raises: GatewayError.
        """
        model = self.route.model
        route = self._plane.cell.read().routes.get(model)
        if route is None:
            raise GatewayError("unknown_model", f"no model named {model}", model=model)
        self.route = route
        current = route.by_name.get(self.version.name)
        if current is not None and (self._insists or current in route.shares):
            self.version = current
        else:
            self.version = self._draw(route)

    def fall_back(self) -> None:
        """After a failure that blames the instance: the version that takes over, if there is one.
        Whoever insists on a version keeps it. What follows says nothing of a version any more: a
        request that breaks whoever it meets counts once."""
        self.drawn = False
        stable = relief(self.route, self.version)
        if stable is not None and not self._insists:
            self.version = stable

    # -- waiting for one

    @property
    def waits(self) -> bool:
        return self._wait_key is not None

    def show(self, number: int, client_id: bytes, began_ns: int) -> None:
        """Let others see a request that has no instance yet: who died with this worker is named."""
        if not self.unplaced:
            self.unplaced = True
            ledger = self._plane.ledger
            self.listed = ledger.list_unplaced(self.section, number, client_id, began_ns)

    def wait(self, number: int, client_id: bytes, now: int) -> None:
        """Queue.

        Raises: GatewayError when the queue is full.
        """
        route, version = self.route, self.version
        if not may_wait(route, self._plane.ledger.waiting_for(self.section)):
            raise self.no_room("and the queue is full")
        self._wait_key = (route.model, version.name)
        self._waits_since_ns = now
        waitroom = self._plane.waitroom
        if self._full_since_ns:
            waitroom.enter_first(self._wait_key, self._waiter)
        else:
            waitroom.enter(self._wait_key, self._waiter)
        self._plane.ledger.wait_began(self.section)
        self.show(number, client_id, now)

    def wait_again(self, number: int, client_id: bytes, now: int) -> None:
        """Every instance that has room by our count says that it has none: clients that left may
        not be noticed there yet, or others send to it too. Queue as the first, for a moment at
        least. The patience of the queue has begun with the first refusal.

        Raises: GatewayError when the queue is full.
        """
        self._full_since_ns = self._full_since_ns or now
        self._asks_again_ns = now + FULL_PAUSE_NS
        self.tried = NONE_TRIED
        self.attempts = 0  # nothing was done: what follows is no replay, and has as many as any
        self.wait(number, client_id, now)

    def rests(self, now: int) -> bool:
        """Whether it was refused for want of room a moment ago."""
        return now < self._asks_again_ns

    def leave(self, now: int) -> None:
        """It is placed, or over: it waits for nothing any more."""
        self.unplaced = False
        if self.listed != NO_LEASE:
            self._plane.ledger.unlist(self.listed)
            self.listed = NO_LEASE
        key = self._wait_key
        if key is not None:
            self._wait_key = None
            self._plane.waitroom.leave(key, self._waiter)
            waited_us = (now - self._waits_since_ns) // 1000
            self._plane.ledger.wait_ended(self.section, waited_us)

    def change_queue(self) -> None:
        """Wait behind those of another version, after a new table said so."""
        key = (self.route.model, self.version.name)
        if self._wait_key is not None and self._wait_key != key:
            self._plane.waitroom.leave(self._wait_key, self._waiter)
            self._plane.waitroom.enter(key, self._waiter)
            self._wait_key = key

    def waited_too_long(self, now: int) -> bool:
        return now - (self._full_since_ns or self._waits_since_ns) >= self.route.queue_timeout_ns

    def no_room(self, why: str) -> GatewayError:
        held = sum(self._plane.ledger.in_flight(target.slot) for target in self.version.targets)
        return saturated(self.route, self.version, held, why)

    # -- counting

    def settle(self, outcome: int, now: int, sent_bytes: int, first_ns: int) -> None:
        """The attempt is over; `first_ns` as the ledger has it."""
        lease = self.lease
        self.lease = NO_LEASE
        self.version.tally.held -= 1
        self.version.freed = self.target
        plane = self._plane
        plane.ledger.settle(lease, outcome, now, sent_bytes, first_ns)
        if outcome == _REFUSED:
            return  # by an instance that takes nothing: no room has come
        if plane.waitroom.size:
            plane.freed(self.target.slot)
        if plane.ledger.peers and plane.ring is not None:
            plane.ring(self.section, self.target.slot, self.target.limit)

    def finish(self, outcome: int, refusal: Refusal) -> None:
        """The request is over. It counts as its last attempt ended; if no instance worked on it,
        as the refusal that the client was given."""
        ledger = self._plane.ledger
        if self.attempts and outcome != _REFUSED:
            ledger.ended(self.target.slot, outcome)
        else:
            ledger.refused(self.section, refusal)
        if self.attempts > 1:
            ledger.replayed(self.section, outcome == _SERVED)

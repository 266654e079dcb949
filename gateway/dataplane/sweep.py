"""Once a second: whose time is up?

Floor 3, I/O.
Deadlines are numbers that requests carry; setting one is a store, and no timer ever fires for a
request that finishes. The price is that a deadline is met up to a second late.
"""

import time
from typing import Final

from gateway.dataplane.accept import ClientConnection
from gateway.dataplane.dial import unreachable
from gateway.dataplane.plane import Plane
from gateway.dataplane.relay import Exchange
from gateway.dataplane.stages import AWAITING, DIALLING, SENDING, SETTLED, STREAMING
from gateway.records import Timeouts
from gateway.state.shared import BODIES_BYTES, POOLED
from gateway.wire.compose import date_line

NS: Final = 1_000_000_000


def sweep(plane: Plane, now: int) -> None:
    """Everything that happens by the clock in a worker, but for its beat."""
    plane.date = date_line(time.time())  # wall time: the Date field is what it is for
    plane.budget.fade()
    plane.ledger.gauge(POOLED, plane.pool.size)
    plane.ledger.gauge(BODIES_BYTES, plane.held_bytes)
    for connection in plane.pool.expired(now):
        connection.abandon()
    table = plane.cell.table
    if table is None:
        return
    for version in table.ramping():
        version.weigh(now)
    clients: list[ClientConnection] = list(plane.clients)
    for client in clients:
        exchange = client.exchange
        if exchange.stage != SETTLED:
            if exchange.claim.held:
                plane.ledger.account(exchange.claim.lease)
            look_at(exchange, table.timeouts, now)
        client.swept(now)


def look_at(exchange: Exchange, times: Timeouts, now: int) -> None:
    """End an exchange that has overrun one of its limits."""
    if exchange.moved:
        exchange.moved = False
        exchange.since_ns = now
    claim, stage = exchange.claim, exchange.stage
    quiet_s = (now - exchange.since_ns) / NS
    if claim.waits:
        if claim.waited_too_long(now):
            seconds = claim.route.queue_timeout_ns / NS
            exchange.refuse(claim.no_room(f"none came free in {seconds:g} s"))
    elif not claim.held:
        return  # its body is still coming: the client's own limits
    elif 0 < times.total_s <= (now - exchange.began_ns) / NS:
        exchange.timed_out(f"{times.total_s:g} s in all")
    elif stage == DIALLING and 0 < times.connect_s <= quiet_s:
        exchange.unreachable(unreachable(claim.target, f"no answer in {times.connect_s:g} s"))
    elif stage == AWAITING and 0 < times.first_byte_s <= quiet_s:
        exchange.timed_out(f"{times.first_byte_s:g} s for the first byte")
    elif stage == SENDING and 0 < times.idle_s <= quiet_s and exchange.stalled_upload:
        exchange.timed_out(f"{times.idle_s:g} s to read the body")
    elif stage == STREAMING and 0 < times.idle_s <= quiet_s:
        if exchange.caller.blocked:  # the client does not read: the instance is not to blame
            exchange.client_gone()
            exchange.caller.cut(exchange.answer.hides_a_cut())
        else:
            exchange.timed_out(f"{times.idle_s:g} s between bytes")

"""What we know of each instance, and whose word counts.

Floor 1, pure.   Flow: poll -> status -> [registry] -> table
Three opinions are kept apart: state (what it says), intent (what the operator wants), health (what
the gateway found). Only `admissible` combines them. Identity is id plus incarnation; incarnations
are opaque, so a superseded one is remembered and refused, and no order is assumed.
"""

import hashlib
import hmac
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import ip_address
from math import inf
from typing import Final

from gateway.config import Instance
from gateway.fleet.health import UNSEEN, Opinion
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.status import Status
from gateway.records import Health, Intent
from sluicegate.v1.states import TRANSITIONS, State

SUPERSEDED_MAX: Final = 32  # an id that restarts every minute is remembered for half an hour


class Origin(Enum):
    """Who brought an instance in. A value of the admin API."""

    CONFIG = "config"
    API = "api"
    REGISTERED = "registered"
    LAUNCHED = "launched"


STATIC: Final = frozenset({Origin.CONFIG, Origin.API})  # their addresses are given, not reported


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance: everything known of it."""

    name: str
    model: str
    version: str
    origin: Origin
    http: str = ""  # host:port; "" until it has told
    grpc: str = ""
    host: str = ""  # IP address of `http`; "" until resolved
    weight: float = 1.0  # what the file or its registration says
    limit: int = 0  # 0: the model's
    intent: Intent = Intent.ACTIVE
    retired: bool = False  # taken out of the file: it drains, then it is forgotten
    incarnation: str = ""  # "" before the first reading
    superseded: tuple[str, ...] = ()
    status: Status | None = None
    opinion: Opinion = UNSEEN
    slot: int = NO_SLOT
    since: float = 0.0  # of the state
    began: float = 0.0  # of the incarnation, as far as we saw it
    ready_since: float = 0.0
    expires_at: float = inf  # end of its registration
    token: str = ""  # hash of the launch token that may register it
    device: str = ""  # where the launcher has started it last
    lease: str = ""  # hash of the secret that its incarnation registered with
    shown: float = -1.0  # progress at which it was last recorded

    @property
    def state(self) -> State | None:
        return self.status.state if self.status else None

    @property
    def active_requests(self) -> int:
        return self.status.active_requests if self.status else 0

    @property
    def mismatch(self) -> str:
        """Why what answers there is not what was asked for; "" when it is."""
        if self.status is None or not self.status.model:
            return ""
        says = (self.status.model, self.status.version)
        if says == (self.model, self.version):
            return ""
        return f"it serves {says[0]} version {says[1]}, not {self.model} version {self.version}"

    @property
    def live(self) -> bool:
        """Whether somebody is there whom a registration under this id would push aside. Who said
        farewell has no address, in whatever state it went."""
        dead = self.opinion.health in {Health.LOST, Health.UNHEALTHY}
        return bool(self.grpc) and not dead and self.state is not State.STOPPED


def listed(row: Instance, since: float = 0.0) -> Seen:
    """An instance of which nothing is known but its row in config.toml."""
    return Seen(
        name=row.id,
        model=row.model,
        version=row.version,
        origin=Origin.CONFIG,
        http=row.http,
        grpc=row.grpc,
        weight=row.weight,
        limit=row.limit,
        since=since,
    )


def admissible(seen: Seen, weight: float) -> bool:
    """Whether requests may reach it at all; stands in front of every other rule.

    `weight`: its own, in force. The slot must be kept by the store before it may stand in a table;
    whoever builds the table sees to that.
    """
    return (
        seen.state is State.READY
        and seen.opinion.health is Health.GOOD
        and seen.intent is Intent.ACTIVE
        and weight > 0
        and not seen.mismatch
        and bool(seen.host)
    )


def hindrance(seen: Seen, weight: float) -> str:
    """Why it is not admissible, in words; "" when it is."""
    if seen.mismatch:
        return seen.mismatch
    if seen.opinion.health is not Health.GOOD and seen.opinion.reason:
        return seen.opinion.reason
    if seen.status is not None and seen.state is not State.READY:
        return seen.status.reason
    if seen.intent is not Intent.ACTIVE:
        return "held out by an operator"
    if weight <= 0:
        return "its weight is 0"
    return "" if seen.host else "its address is not known yet"


def literal_host(address: str) -> str:
    """The IP address in `host:port`; "" when the host is a name."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return str(ip_address(host))
    except ValueError:
        return ""


# --- readings ------------------------------------------------------------------------------------


def observe(seen: Seen, status: Status, host: str, now: float) -> Seen | str:
    """The record after a reading, or why the reading is ignored.

    An equal sequence refreshes the readings. A new incarnation starts clean: counters, health, slow
    start; the old one's word counts no more.
    """
    if status.incarnation in seen.superseded:
        return f"incarnation {status.incarnation} is superseded"
    if status.incarnation != seen.incarnation:
        seen = renewed(seen, status.incarnation, now)
    elif seen.status is not None:
        if status.sequence < seen.status.sequence:
            return f"sequence {status.sequence} is older than {seen.status.sequence}"
        why = illegal(seen, status)
        if why:
            return why
    given = seen.origin in STATIC  # by the file: what it says of its own addresses is not asked
    http = seen.http if given else status.http or seen.http
    moved = seen.state is not status.state
    ready = status.state is State.READY
    return replace(
        seen,
        status=status,
        http=http,
        grpc=seen.grpc if given else status.grpc or seen.grpc,
        host=host or (seen.host if http == seen.http else "") or literal_host(http),
        since=now if moved else seen.since,
        ready_since=now if ready and not seen.ready_since else seen.ready_since,
    )


def illegal(seen: Seen, status: Status) -> str:
    """Why no instance can have moved so within one incarnation; "" when it can.

    Every move makes the sequence grow. So a reading whose sequence is n higher may be n moves away,
    of which we saw the last only; and one that is a single step ahead must be a single move.
    """
    old = seen.status
    if old is None or status.incarnation != seen.incarnation or status.sequence < old.sequence:
        return ""
    moves = min(max(status.sequence - old.sequence, 1), len(State))  # no path needs more
    reached = {old.state}
    for _ in range(moves):
        reached |= {state for one in reached for state in TRANSITIONS[one]}
    if status.state in reached:
        return ""
    return f"{seen.name}: {old.state.name} to {status.state.name} is not legal in one incarnation"


def renewed(seen: Seen, incarnation: str, now: float) -> Seen:
    """The record at the start of a new incarnation."""
    past = (*seen.superseded, seen.incarnation) if seen.incarnation else seen.superseded
    return replace(
        seen,
        incarnation=incarnation,
        superseded=past[-SUPERSEDED_MAX:],
        status=None,
        opinion=UNSEEN,
        slot=NO_SLOT,
        since=now,
        began=now,
        ready_since=0.0,
        lease="",
        shown=-1.0,
    )


# --- registrations -------------------------------------------------------------------------------


def hashed(token: str) -> str:
    """How a launch token or an instance's secret is kept: only its hash rests anywhere."""
    return hashlib.sha256(token.encode()).hexdigest() if token else ""


def holds(seen: Seen, lease: str) -> bool:
    """Whether these are the words of its incarnation: ids, incarnations and addresses are shown to
    everybody, its secret to nobody. One that registered without a secret is not guarded.
    """
    return not seen.lease or hmac.compare_digest(lease, seen.lease)


def doubtful(seen: Seen | None, status: Status) -> bool:
    """Whether a registration that is admitted would push a live incarnation aside by its word
    alone: a restart in place is believed when it is found at the address.
    """
    if seen is None or seen.origin is not Origin.REGISTERED or not seen.live:
        return False
    return seen.incarnation not in {"", status.incarnation}


def admits(seen: Seen | None, status: Status, token: str, lease: str) -> str:
    """Why this registration is refused (ALREADY_EXISTS); "" when it is taken."""
    if seen is None:
        return ""
    name = status.instance_id
    if status.incarnation in seen.superseded:
        return f"incarnation {status.incarnation} of {name} is superseded by {seen.incarnation}"
    if status.incarnation == seen.incarnation and not holds(seen, lease):
        return f"incarnation {status.incarnation} of {name} has registered with another lease_token"
    if seen.origin in STATIC:
        if status.grpc == seen.grpc:
            return ""
        return f"{name} is a static instance at {seen.grpc}, and {status.grpc} is not that one"
    if seen.origin is Origin.LAUNCHED:
        if hmac.compare_digest(hashed(token), seen.token) and token:
            return ""
        return f"{name} belongs to an instance that this gateway starts itself"
    if status.grpc == seen.grpc or not seen.live:
        return ""
    return f"{name} is taken by a live instance at {seen.grpc}: wait until that one is lost"


def registered(seen: Seen | None, status: Status, weight: float, limit: int) -> Seen:
    """The record under which a registration is kept, once what it says has been observed: its
    addresses are part of the reading, and move only when that is accepted.

    Counters, health and slow start belong to a version: under another one it begins anew.
    """
    if seen is None:
        seen = Seen(status.instance_id, status.model, status.version, Origin.REGISTERED)
    named = (status.model, status.version)
    if seen.origin is Origin.REGISTERED and named != (seen.model, seen.version):
        seen = replace(seen, opinion=UNSEEN, slot=NO_SLOT, ready_since=0.0)
    if seen.origin is Origin.REGISTERED:
        return replace(
            seen,
            model=status.model,
            version=status.version,
            weight=weight or 1.0,
            limit=limit,
        )
    return seen

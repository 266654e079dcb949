"""The table as a request meets it: one dictionary lookup for the route, then references.

Floor 1, pure.
Built once per table from the frozen records. Two small things outlive a table and are handed from
the old one to the new: a route's place in its sequence (or changing weights would start it again),
and what is counted per version: leases, which bound affinity, and turns.
"""

from bisect import bisect_right
from hashlib import blake2b
from struct import Struct
from typing import Final

import orjson

from gateway.records import Bounds, Policy, Route, RouteTable, Standing, Target, Timeouts, Version
from gateway.routing.turns import Standstill, Turns

# Policies as numbers: comparing them costs next to nothing.
LEAST_LOADED: Final = 0
ROUND_ROBIN: Final = 1
RANDOM: Final = 2
AFFINITY: Final = 3
POLICY_NUMBERS: Final = {
    Policy.LEAST_LOADED: LEAST_LOADED,
    Policy.ROUND_ROBIN: ROUND_ROBIN,
    Policy.RANDOM: RANDOM,
    Policy.AFFINITY: AFFINITY,
}

NS: Final = 1_000_000_000
RING_POINTS: Final = 64  # per target of mean weight: shares within some 12 % (1 / sqrt(64))
RING_POINTS_MAX: Final = 65_536  # of one version: a thousand targets at full resolution
SLOW_START_FLOOR: Final = 0.05  # of the weight at age 0: none at all would never warm a cache
EIGHT: Final = Struct(">8Q")  # hashes in one digest


def key_hash(key: bytes) -> int:
    """A number below 2**64 that is the same in every worker and every life of the gateway."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def prefix_key(prefix: bytes) -> int:
    """Below 0, its complement a hash: it chooses an instance, and never a version. Users who share
    a system prompt share its cache; they are not one user, whom a rollout moves at once."""
    return ~key_hash(prefix)


class Ring:
    """Which of a version's instances a key belongs to: that of the first hash not below it.

    Shape: `hashes` ascend; owners[i] is the index of the target that owns hashes[i]. `members` are
    names and weights of the targets, in their order: as long as they stay, so does the ring.
    Cost: O(points log points) to make, a tenth of a second for a thousand instances.
    """

    __slots__ = ("hashes", "members", "owners")

    def __init__(self, members: list[tuple[str, float]]) -> None:
        self.members = members
        total = sum(weight for _, weight in members)
        points = min(RING_POINTS * len(members), RING_POINTS_MAX)
        owned: dict[int, int] = {}
        for index, (name, weight) in enumerate(members):
            share = max(1, round(points * weight / total))
            for number in range(0, share, 8):
                digest = blake2b(b"%s %d" % (name.encode(), number), digest_size=64).digest()
                for point in EIGHT.unpack(digest)[: share - number]:
                    owned[point] = index
        self.hashes = sorted(owned)
        self.owners = [owned[point] for point in self.hashes]


class Tally:
    """Of one version: the leases that this worker holds, its turns, its ring. Outlives tables."""

    __slots__ = ("held", "ring", "standstill")

    def __init__(self) -> None:
        self.held = 0
        self.standstill = Standstill()
        self.ring = Ring([])


class Place:
    """Where a route is in its sequence of versions. Outlives tables."""

    __slots__ = ("position",)

    def __init__(self, position: float) -> None:
        self.position = position


class CompiledTarget:
    """A target with all that a request needs of it; `index` in its version.

    `share` is its weight as far as its age allows, `capacity` that times its limit.
    """

    __slots__ = (
        "address",
        "announces",
        "capacity",
        "host",
        "index",
        "instance",
        "limit",
        "port",
        "ready_since_ns",
        "share",
        "slot",
        "weight",
    )

    def __init__(self, target: Target, version: Version, index: int) -> None:
        self.index = index
        self.slot = target.slot
        self.instance = target.instance
        self.limit = target.limit
        self.host = target.host
        self.port = target.port
        self.weight = self.share = target.weight
        self.ready_since_ns = target.ready_since_ns
        self.capacity = target.weight * target.limit
        shown = f"[{target.host}]" if ":" in target.host else target.host
        self.address = f"{shown}:{target.port}".encode()
        self.announces = b"x-model-version: %s\r\nx-instance-id: %s\r\nx-request-id: " % (
            version.name.encode(),
            target.instance.encode(),
        )


class CompiledVersion:
    """A version's targets, ready to draw from.

    Shape: bounds[i] is the sum of the weights of targets[0..i]; `even` when all are the same.
    `freed` is the target that gave a lease back last: where nearly all are full, it is the one that
    is not.
    """

    __slots__ = (
        "bounds",
        "even",
        "freed",
        "name",
        "policy",
        "ramps_until_ns",
        "ring",
        "slow_start_ns",
        "tally",
        "targets",
        "total",
        "turns",
        "weight",
    )

    def __init__(self, version: Version, route: Route, tally: Tally, now_ns: int) -> None:
        self.name = version.name
        self.weight = version.weight
        self.policy = POLICY_NUMBERS[route.policy]
        self.tally = tally
        reachable = [target for target in version.targets if target.weight > 0]
        self.targets = [CompiledTarget(t, version, index) for index, t in enumerate(reachable)]
        self.freed: CompiledTarget | None = None
        self.slow_start_ns = int(route.slow_start_s * NS)
        self.bounds: list[float] = []
        self.total = 0.0
        self.even = True
        self.ramps_until_ns = 0
        self.weigh(now_ns)
        if self.policy == AFFINITY:
            members: list[tuple[str, float]] = [(t.instance, t.weight) for t in self.targets]
            if members != tally.ring.members:
                tally.ring = Ring(members)
        self.ring = tally.ring
        takes_turns = self.policy == ROUND_ROBIN
        slots = [target.slot for target in self.targets] if takes_turns else []
        self.turns = Turns(slots, tally.standstill)

    def weigh(self, now_ns: int) -> None:
        """Give every target the share that its age allows (slow start)."""
        weights: list[float] = []
        self.ramps_until_ns = 0
        for target in self.targets:
            weight = target.weight
            age = now_ns - target.ready_since_ns
            if self.slow_start_ns and age < self.slow_start_ns:
                weight *= max(age / self.slow_start_ns, SLOW_START_FLOOR)
                until = target.ready_since_ns + self.slow_start_ns
                self.ramps_until_ns = max(self.ramps_until_ns, until)
            target.share = weight
            target.capacity = weight * target.limit
            weights.append(weight)
        total = 0.0
        self.bounds = []
        for weight in weights:
            total += weight
            self.bounds.append(total)
        self.total = total
        self.even = len(set(weights)) <= 1


class CompiledRoute:
    """A model's route. `shares` are the versions that weight reaches; bounds[i] is where the
    (i + 1)th begins in [0, 1). `weighed` are those, and the ones that have no instance now.
    `canary` is the name of the version that is rolled out, `stable` that of the one it is measured
    against, both "" without a rollout. `relief` takes over what fails on a canary, where that may
    be. `standings` may be replaced by a Note at any time."""

    __slots__ = (
        "blocked",
        "bounds",
        "by_name",
        "canary",
        "known",
        "model",
        "pinnable",
        "place",
        "policy",
        "queue_max",
        "queue_timeout_ns",
        "relief",
        "replayable",
        "section",
        "shares",
        "stable",
        "standings",
        "weighed",
    )

    def __init__(self, route: Route, place: Place, tallies: "Tallies", now_ns: int) -> None:
        self.model = route.model
        self.section = route.section
        self.policy = POLICY_NUMBERS[route.policy]
        self.queue_max = route.queue_max
        self.queue_timeout_ns = int(route.queue_timeout_s * NS)
        self.replayable = route.replayable
        self.pinnable = route.pinnable
        self.place = place
        self.standings: tuple[Standing, ...] = route.standings
        self.known = frozenset(v.name for v in route.versions)
        self.weighed = frozenset(v.name for v in route.versions if v.weight > 0 and not v.blocked)
        self.blocked = frozenset(v.name for v in route.versions if v.blocked)
        self.canary: str = route.canary or ""
        self.stable: str = route.stable or ""
        self.by_name: dict[str, CompiledVersion] = {}
        self.shares: list[CompiledVersion] = []
        weights: list[float] = []
        for version in _in_order(route):
            if version.blocked:
                continue
            tally = tallies.setdefault((route.model, version.name), Tally())
            compiled = CompiledVersion(version, route, tally, now_ns)
            if compiled.targets:
                self.by_name[version.name] = compiled
                if version.weight > 0:
                    self.shares.append(compiled)
                    weights.append(version.weight)
        self.relief: CompiledVersion | None = None
        if route.canary_fallback and weights:
            named = [version for version in self.shares if version.name == route.stable]
            most = self.shares[weights.index(max(weights))]
            self.relief = most if not self.canary else named[0] if named else None
        total = sum(weights)
        self.bounds = [sum(weights[: i + 1]) / total for i in range(len(weights) - 1)]

    def share_at(self, position: float) -> CompiledVersion:
        """The version whose share of [0, 1) holds the position. There must be one."""
        return self.shares[bisect_right(self.bounds, position)]


def _in_order(route: Route) -> list[Version]:
    """The versions as they divide [0, 1), whatever the table's order: the canary first. A key below
    its share is its own, so one that came to it stays for as long as that share grows; and only the
    stable one, next to it, gives way where the others keep theirs."""
    first = [route.canary, route.stable]
    return sorted(
        route.versions, key=lambda v: (first.index(v.name) if v.name in first else 2, v.name)
    )


Tallies = dict[tuple[str, str], Tally]


class CompiledTable:
    """Everything that requests are routed by; replaced whole."""

    __slots__ = (
        "bounds",
        "default",
        "generation",
        "listing",
        "owners",
        "routes",
        "tallies",
        "timeouts",
    )

    def __init__(self, table: RouteTable, old: "CompiledTable | None", now_ns: int) -> None:
        self.generation = table.generation
        self.bounds: Bounds = table.bounds
        self.timeouts: Timeouts = table.timeouts
        self.tallies: Tallies = {}
        if old is not None:
            named = {(route.model, one.name) for route in table.routes for one in route.versions}
            for key, tally in old.tallies.items():
                if tally.held or key in named:
                    self.tallies[key] = tally
        self.routes: dict[str, CompiledRoute] = {}
        for route in table.routes:
            before = old.routes.get(route.model) if old is not None else None
            place = before.place if before is not None else Place(0.0)
            self.routes[route.model] = CompiledRoute(route, place, self.tallies, now_ns)
        self.default = self.routes.get(table.default_model)
        # slot: who owns it. What is missing here gets no connection kept.
        self.owners: dict[int, tuple[CompiledRoute, CompiledVersion]] = {
            target.slot: (route, version)
            for route in self.routes.values()
            for version in route.by_name.values()
            for target in version.targets
        }
        self.listing: dict[str, dict[str, object]] = {
            route.model: _listed(route) for route in table.routes
        }

    def ramping(self) -> list[CompiledVersion]:
        """Versions whose weights change with time, until they are weighed at the ramp's end."""
        versions = (v for route in self.routes.values() for v in route.by_name.values())
        return [version for version in versions if version.ramps_until_ns]


def _listed(route: Route) -> dict[str, object]:
    """A model as `GET /v1/models` shows it: OpenAI's fields, and what stands behind the name."""
    return {
        "id": route.model,
        "object": "model",
        "created": route.created_s,
        "owned_by": "sluicegate",
        "versions": {v.name: {"weight": v.weight, "ready": len(v.targets)} for v in route.versions},
    }


def models_answer(table: CompiledTable, model: str) -> bytes | None:
    """The body for `GET /v1/models` (model "") or `/v1/models/{id}`; None for an unknown one."""
    if not model:
        return orjson.dumps({"object": "list", "data": list(table.listing.values())})
    found = table.listing.get(model)
    return None if found is None else orjson.dumps(found)

"""Routes and versions as a request meets them, and picks of them one after the other."""

from random import Random

from gateway.records import Policy, Version
from gateway.routing.compiled import CompiledRoute, CompiledTable, CompiledVersion
from gateway.routing.pick import (
    NO_KEY,
    NONE_TRIED,
    pick,
)
from gateway.state.ledger import Ledger
from tests.gateway.plain import route, table, target, version


def compiled(*versions: Version, policy: Policy = Policy.LEAST_LOADED) -> CompiledRoute:
    return CompiledTable(table(1, route(*versions, policy=policy)), None, 1).routes["m"]


def one_version(policy: Policy, *weights: float, limit: int = 10) -> CompiledVersion:
    targets = [target(n, 1, limit=limit, weight=w) for n, w in enumerate(weights)]
    return compiled(version(*targets), policy=policy).shares[0]


def picks(
    plan: CompiledVersion, held: Ledger, count: int, rng: Random, key: int = NO_KEY
) -> list[int]:
    """Slots, one pick after the other; nobody keeps a lease."""
    found = [pick(plan, held, rng, key, NONE_TRIED) for _ in range(count)]
    return [one.slot for one in found if one is not None]

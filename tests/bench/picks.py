"""What drawing a version and picking an instance costs, alone: nanoseconds, for each policy.

Floor 5, no I/O.
The real functions over a real segment, nothing in flight. `python -m tests.bench.picks` prints JSON
by policy and number of instances; the modules that Python finds first are the ones measured.
"""

import json
import os
import time
from collections.abc import Callable
from random import Random
from typing import Final

from gateway.records import Policy
from gateway.routing.compiled import CompiledTable
from gateway.routing.pick import NO_KEY, NONE_TRIED, draw_version, pick
from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create
from tests.gateway.plain import route, table, target, version

INSTANCES: Final = (10, 100, 1000)
ROWS: Final = 4  # of the segment, as in a gateway with one worker
KEYS: Final = 256  # sessions that come in turn
TIMED_NS: Final = 20_000_000  # of one measurement: clocks and the loop around are nothing beside it
TRIES: Final = 5  # the least of them: a neighbour can only add


def measured(policy: Policy, count: int, ledger: Ledger) -> float:
    """Nanoseconds per draw and pick among so many instances."""
    targets = [target(slot, 1, limit=1_000_000) for slot in range(count)]
    compiled = CompiledTable(table(1, route(version(*targets), policy=policy)), None, 0)
    made = compiled.routes["m"]
    rng = Random(1)
    keys = [rng.getrandbits(63) if policy is Policy.AFFINITY else NO_KEY for _ in range(KEYS)]

    def once() -> None:
        for key in keys:
            drawn = draw_version(made, key)
            assert drawn is not None
            pick(drawn, ledger, rng, key, NONE_TRIED)

    once()
    return min(_ns(once) for _ in range(TRIES)) / KEYS


def _ns(work: Callable[[], None]) -> float:
    """Of one call, over as many as the time allows."""
    begun = time.perf_counter_ns()
    calls = 0
    while (spent := time.perf_counter_ns() - begun) < TIMED_NS:
        work()
        calls += 1
    return spent / calls


def main() -> None:
    fd = create(Layout(ROWS, max(INSTANCES), 2, 64))
    ledger = Ledger(Segment(fd), 0)
    found = {
        policy.value: {str(count): measured(policy, count, ledger) for count in INSTANCES}
        for policy in Policy
    }
    os.close(fd)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

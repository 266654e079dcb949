"""May a failed attempt be tried on another instance?

Floor 1, pure.   Flow: relay -> [replay] -> pick
Source: RFC 9110 section 9.2.2: what may have been read is sent again only if it is idempotent, or
if the operator has said that the model does not mind.
"""

from enum import IntEnum
from typing import Final

from gateway.routing.compiled import CompiledRoute, CompiledVersion

IDEMPOTENT: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})  # RFC 9110 9.2.2

BUDGET_SHARE: Final = 0.1  # of recent requests: a dying fleet is not finished off by its replays
BUDGET_RESERVE: Final = 10.0  # so that a quiet gateway can replay at all; as linkerd has it


class Failure(IntEnum):
    """How an attempt failed, as far as sending it again is concerned."""

    CONNECT_FAILED = 0
    REFUSED = 1  # the instance said that it did nothing
    RESET_REUSED = 2  # the connection had served before: it may have been closed as we wrote
    RESET_FRESH = 3
    DEADLINE = 4
    BROKEN = 5  # bytes that are no response: it was read, and somebody answered
    FULL = 6  # the instance said that it did nothing, because it has no room


class Decision(IntEnum):
    REPLAY = 0
    FAIL = 1  # tell the client
    CUT = 2  # the response has begun: the connection is the only messenger


def decide(failure: Failure, begun: bool, held: bool, harmless: bool) -> Decision:
    """The row of the table: begun = response bytes went out; held = the whole body is still here;
    harmless = the method is idempotent, or the model declared replayable."""
    if begun:
        return Decision.CUT
    if failure in (Failure.CONNECT_FAILED, Failure.REFUSED, Failure.FULL):
        return Decision.REPLAY if held else Decision.FAIL
    if failure is Failure.RESET_REUSED and held and harmless:
        return Decision.REPLAY
    return Decision.FAIL


def relief(route: CompiledRoute, failed: CompiledVersion) -> CompiledVersion | None:
    """The version that takes over what failed on a canary, if the model says so. None: the request
    keeps its version. While a rollout runs its version is the canary, whatever the weights; else
    whatever has less weight than the version of most. The failure stays with it, since attempts are
    counted where they were made."""
    stable = route.relief
    if stable is None:
        return None
    is_canary = failed.name == route.canary if route.canary else failed.weight < stable.weight
    return stable if is_canary else None


def affordable(replays: float, requests: float) -> bool:
    """Whether recent traffic carries one more replay."""
    return replays < BUDGET_SHARE * requests + BUDGET_RESERVE

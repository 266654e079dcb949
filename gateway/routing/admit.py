"""When there is no instance to give: wait, or refuse, and with which words.

Floor 1, pure.   Flow: match -> pick -> [admit]
"""

from math import ceil
from typing import Final

from gateway.errors import GatewayError
from gateway.routing.compiled import CompiledRoute, CompiledVersion

SATURATED_RETRY_S: Final = 1  # room comes with the next request that finishes
UNKNOWN_RETRY_S: Final = 5  # nobody is loading: as often as a person would look
ALWAYS: Final = b"always"  # words of the test header
NEVER: Final = b"never"
RETRY_MAX_S: Final = 600  # beyond that an estimate says nothing


def may_wait(route: CompiledRoute, waiting: int) -> bool:
    """Whether one more may queue; `waiting` counts those of all workers."""
    return waiting < route.queue_max


def saturated(route: CompiledRoute, version: CompiledVersion, held: int, why: str) -> GatewayError:
    limit = sum(target.limit for target in version.targets)
    return GatewayError(
        "saturated",
        f"no room for {route.model}: {held} of {limit} in flight, {why}",
        SATURATED_RETRY_S,
        model=route.model,
        version=version.name,
    )


def retry_after_s(route: CompiledRoute, version: str = "") -> int:
    """Whole seconds until the best instance that the request could go to should be ready: one of
    the version that it insists on, or else of any that weight reaches."""
    estimates = [
        s.ready_in_s
        for s in route.standings
        if s.ready_in_s >= 0 and (s.version == version if version else s.version in route.weighed)
    ]
    if not estimates:
        return UNKNOWN_RETRY_S
    return min(max(ceil(min(estimates)), 1), RETRY_MAX_S)


def not_ready(route: CompiledRoute, version: str) -> GatewayError:
    """Why nothing can serve the model, or the pinned version of it, now."""
    standings = [s for s in route.standings if not version or s.version == version]
    if route.by_name and not version:
        message = f"no ready instance of {route.model}: all weights of ready versions are 0"
    else:
        name = f"{route.model} version {version}" if version else route.model
        message = f"no ready instance of {name}: {len(standings)} known"
    return GatewayError(
        "no_ready_instance",
        message,
        retry_after_s(route, version),
        model=route.model,
        instances=[
            {
                "instance": standing.instance,
                "version": standing.version,
                "state": standing.state,
                "phase": standing.phase,
                "progress": standing.progress,
                "reason": standing.reason,
            }
            for standing in standings
        ],
    )


def pinned(route: CompiledRoute, version: str) -> CompiledVersion:
    """The version that a request insists on, whatever its weight.

    Raises: GatewayError.
    """
    if not route.pinnable:
        raise GatewayError("bad_request", f"{route.model} does not allow to pin a version")
    return _whatever_its_weight(route, version)


def by_test_header(route: CompiledRoute, said: bytes) -> CompiledVersion | None:
    """The version that a test header asks for; None while nothing is rolled out.

    A word that is none of ours is refused, rollout or not: who mistypes it would test the wrong
    version, and not know.
    Raises: GatewayError.
    """
    if said != ALWAYS and said != NEVER:
        raise GatewayError("bad_request", "x-sluicegate-canary is neither `always` nor `never`")
    version = route.canary if said == ALWAYS else route.stable
    return _whatever_its_weight(route, version) if version else None


def _whatever_its_weight(route: CompiledRoute, version: str) -> CompiledVersion:
    found = route.by_name.get(version)
    if found is not None:
        return found
    if version in route.blocked:
        text = f"{route.model} version {version} was rolled back and gets no requests"
        raise GatewayError("version_blocked", text, model=route.model, version=version)
    if version in route.known or any(s.version == version for s in route.standings):
        raise not_ready(route, version)
    raise GatewayError("unknown_version", f"{route.model} has no version {version}")

"""Which modules of the data plane are compiled where a C compiler is at hand, and whether they are.

Floor 0, pure.
NATIVE is what runs for every request or chunk; each file is plain Python that mypyc turns into C as
it stands. Same code, same tests: nothing but the time it takes depends on it. All of the modules
are compiled, or none.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Final

NATIVE: Final = (
    "gateway.errors",
    "gateway.wire.bodies",
    "gateway.wire.chunks",
    "gateway.wire.compose",
    "gateway.wire.events",
    "gateway.wire.framing",
    "gateway.wire.heads",
    "gateway.wire.lines",
    "gateway.wire.repeats",
    "gateway.routing.admit",
    "gateway.routing.compiled",
    "gateway.routing.document",
    "gateway.routing.match",
    "gateway.routing.pick",
    "gateway.routing.replay",
    "gateway.routing.turns",
    "gateway.state.budget",
    "gateway.state.cell",
    "gateway.state.ledger",
    "gateway.state.pool",
    "gateway.state.rows",
    "gateway.state.shared",
    "gateway.state.waitroom",
    "gateway.dataplane.accept",
    "gateway.dataplane.answer",
    "gateway.dataplane.asking",
    "gateway.dataplane.bells",
    "gateway.dataplane.body",
    "gateway.dataplane.caller",
    "gateway.dataplane.claim",
    "gateway.dataplane.dial",
    "gateway.dataplane.instance",
    "gateway.dataplane.placing",
    "gateway.dataplane.plane",
    "gateway.dataplane.relay",
    "gateway.dataplane.stages",
)

# The other modules of those packages, and those beside them that they import.
LEFT_OUT: Final = {
    "gateway.records": "enums and frozen dataclasses: compiled, they are neither faster nor whole",
    "gateway.messages": "between processes, a few a second",
    "gateway.state.settle": "when a worker has died, and in control",
    "gateway.dataplane.link": "an asyncio.Protocol: a native class cannot inherit from it",
    "gateway.dataplane.listeners": "once per listening socket",
    "gateway.dataplane.sampler": "for a request in many, where the operator asks for it",
    "gateway.dataplane.sweep": "once a second",
    "gateway.dataplane.worker": "once per order of control",
}


def interpreted(loaded: Mapping[str, ModuleType]) -> list[str]:
    """The listed modules that are not among the loaded ones as extensions; `sys.modules` fits."""
    return [name for name in NATIVE if _is_python(loaded.get(name))]


def _is_python(module: ModuleType | None) -> bool:
    return module is None or (module.__file__ or ".py").endswith(".py")

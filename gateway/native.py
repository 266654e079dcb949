"""Which modules of the data plane are compiled where a C compiler is at hand, and whether they are.

Floor 0, pure.
Listed is what runs for every request or chunk. Left out: what runs once a second or less (sweep,
dial, listeners, link, worker, settle), because nothing is won there; `records` and `state.shared`,
because their enums, dataclasses and constants are read in ways that compiled ones do not allow.
The files are the same in both cases: each is Python that mypyc turns into C as it stands.
"""

import sys
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
    "gateway.routing.admit",
    "gateway.routing.compiled",
    "gateway.routing.match",
    "gateway.routing.pick",
    "gateway.routing.replay",
    "gateway.state.budget",
    "gateway.state.cell",
    "gateway.state.ledger",
    "gateway.state.pool",
    "gateway.state.waitroom",
    "gateway.dataplane.accept",
    "gateway.dataplane.answer",
    "gateway.dataplane.body",
    "gateway.dataplane.caller",
    "gateway.dataplane.claim",
    "gateway.dataplane.instance",
    "gateway.dataplane.plane",
    "gateway.dataplane.relay",
    "gateway.dataplane.stages",
)


def interpreted() -> list[str]:
    """The listed modules that this process has loaded as plain Python."""
    loaded = (sys.modules[name] for name in NATIVE if name in sys.modules)
    return [module.__name__ for module in loaded if (module.__file__ or "").endswith(".py")]

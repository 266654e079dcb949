"""A real `sluicegate serve` whose only instances are HTTP servers that already listen, or will.

Floor 3, I/O.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.lifecycle_front import Fronted, fronted
from tests.live.gateways import ROOT, Gateway, config, running

MODEL: Final = "m"
VERSION: Final = "1"  # as lifecycle_front says
LIMIT: Final = 1_000_000  # requests in flight per instance: nothing here is about waiting


@dataclass(frozen=True, slots=True)
class Build:
    """How the data plane runs. `folder` holds its compiled modules; None: as plain Python."""

    name: str
    folder: Path | None

    @property
    def environment(self) -> Mapping[str, str]:
        """Without the safe path, Python would take the folder it is started in first; without a
        path, what is installed."""
        return {"PYTHONPATH": str(self.folder or ROOT), "PYTHONSAFEPATH": "1"}


INTERPRETED: Final = Build("interpreted", None)


def named(build: Build) -> str:
    """The contender that is a gateway of this build."""
    return f"Sluicegate ({build.name})"


def config_text(folder: Path, instances: Sequence[Fronted], workers: int = 1) -> str:
    """A whole config.toml."""
    model = f'[[model]]\nname = "{MODEL}"\nweights = {{ "{VERSION}" = 1 }}\nlimit = {LIMIT}\n'
    default = f'default_model = "{MODEL}"\nworkers = {workers}\n'
    tables = (model, *(one.toml(MODEL) for one in instances))
    return config(folder, *tables, gateway=default)


@asynccontextmanager
async def gateway_over(
    folder: Path, addresses: Sequence[str], workers: int = 1, build: Build = INTERPRETED
) -> AsyncIterator[Gateway]:
    """A gateway with an instance at each address, when all of them are READY to it."""
    async with fronted(addresses, MODEL) as instances:
        text = config_text(folder, instances, workers)
        async with running(folder, text, build.environment) as running_gateway:
            await running_gateway.ready(*(one.name for one in instances))
            await running_gateway.says(lambda text: text == "every worker serves a table")
            await running_gateway.routes(MODEL, {VERSION: 1})
            yield running_gateway

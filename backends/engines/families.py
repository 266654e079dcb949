"""Snapshot -> an engine and a tokenizer that can run it.

Floor 3, I/O.
Everything that an extra brings is imported in here and only when it is asked for, so an instance
without that extra can still say what is missing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final, Protocol

from backends import openai
from backends.engines.base import Engine, Sampling
from backends.errors import DependencyMissing, RequestInvalid, SnapshotInvalid
from backends.settings import Settings
from backends.snapshots.repository import Snapshot
from backends.text import HoldsBack, Text

DEVICE_TARGETS: Final = MappingProxyType({"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend"})


@dataclass(frozen=True, slots=True)
class Parts:
    """What it takes to answer; the engine is still to be loaded."""

    engine: Engine
    text: Text
    scan: Callable[[tuple[str, ...]], HoldsBack]
    defaults: Sampling


class Family(Protocol):
    """Engines of one kind, as `engine` in a manifest names it."""

    def require(self) -> None:
        """Raises: DependencyMissing, before anything slow has begun."""

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts:
        """Raises: DependencyMissing, SnapshotInvalid."""


class LlmFamily:
    """Text generation in MindSpore."""

    def require(self) -> None:
        for module in ("mindspore", "tokenizers", "jinja2", "psutil", "safetensors"):
            if find_spec(module) is None:
                what = "MindSpore" if module == "mindspore" else f"the module {module}"
                raise DependencyMissing(
                    f"{what} is not installed: pip install 'sluicegate[mindspore]' "
                    "(Python 3.11 or 3.12)"
                )

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts:
        from backends.engines.llm.engine import LlmEngine
        from backends.engines.llm.text import StopScanner, Tokenizer

        engine = LlmEngine(
            snapshot,
            settings.cache_root,
            threads=settings.threads,
            slots=settings.slots,
            max_seq_len=settings.max_seq_len,
            device_target=DEVICE_TARGETS[settings.device_kind],
        )
        return Parts(engine, Tokenizer.read(snapshot.folder), StopScanner, defaults_of(snapshot))


def defaults_of(snapshot: Snapshot) -> Sampling:
    """How the model's makers want it sampled where a request says nothing.

    Raises: SnapshotInvalid naming the file.
    """
    path = snapshot.folder / "generation_config.json"
    try:
        return openai.parse_defaults(json.loads(path.read_bytes()) if path.exists() else {})
    except (OSError, ValueError, RequestInvalid) as exc:
        raise SnapshotInvalid(f"{path}: {exc}; import it again") from exc


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType({"llm": LlmFamily()})

"""Snapshot -> an engine that can run it, and what is needed beside it.

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

from backends.engines.base import Engine, Sampling
from backends.engines.mindir_file import FILE_NAME
from backends.engines.tensor import TensorEngine
from backends.errors import DependencyMissing, RequestInvalid, SnapshotInvalid
from backends.openai.drawing import parse_defaults
from backends.settings import Settings
from backends.snapshots.manifest import MindirManifest
from backends.snapshots.repository import Snapshot
from backends.text import HoldsBack, Text

DEVICE_TARGETS: Final = MappingProxyType({"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend"})


@dataclass(frozen=True, slots=True)
class Parts:
    """What it takes to answer with text; the engine is still to be loaded."""

    engine: Engine
    text: Text
    scan: Callable[[tuple[str, ...]], HoldsBack]
    defaults: Sampling


@dataclass(frozen=True, slots=True)
class GraphParts:
    """What it takes to answer with tensors; the engine is still to be loaded."""

    engine: TensorEngine
    max_delay_s: float


class Family(Protocol):
    """Engines of one kind, as `engine` in a manifest names it."""

    def require(self) -> None:
        """Raises: DependencyMissing, before anything slow has begun."""

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts | GraphParts:
        """Raises: DependencyMissing, SnapshotInvalid."""


class LlmFamily:
    """Text generation in MindSpore."""

    def require(self) -> None:
        _require("mindspore", "tokenizers", "jinja2", "psutil", "safetensors")

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


class MindirFamily:
    """Any graph that MindSpore exported."""

    def require(self) -> None:
        _require("mindspore", "psutil")

    def build(self, snapshot: Snapshot, settings: Settings) -> GraphParts:
        from backends.engines.mindir import MindirEngine

        manifest = snapshot.manifest
        assert isinstance(manifest, MindirManifest), "the family of another engine"
        if settings.slots is not None or settings.max_seq_len is not None:
            raise SnapshotInvalid(
                f"{snapshot.folder}: a graph has neither slots nor a length: its max_batch is "
                "chosen when it is imported; start it without --slots and --max-seq-len"
            )
        engine = MindirEngine(
            snapshot.folder / FILE_NAME,
            manifest.signature,
            manifest.graph_rows,
            threads=settings.threads,
            device_target=DEVICE_TARGETS[settings.device_kind],
        )
        return GraphParts(engine, manifest.max_delay_ms / 1000)


def _require(*modules: str) -> None:
    for module in modules:
        if find_spec(module) is None:
            what = "MindSpore" if module == "mindspore" else f"the module {module}"
            raise DependencyMissing(
                f"{what} is not installed: pip install 'sluicegate[mindspore]' "
                "(Python 3.11 or 3.12)"
            )


def defaults_of(snapshot: Snapshot) -> Sampling:
    """How the model's makers want it sampled where a request says nothing.

    Raises: SnapshotInvalid naming the file.
    """
    path = snapshot.folder / "generation_config.json"
    try:
        return parse_defaults(json.loads(path.read_bytes()) if path.exists() else {})
    except (OSError, ValueError, RequestInvalid) as exc:
        raise SnapshotInvalid(f"{path}: {exc}; import it again") from exc


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {"llm": LlmFamily(), "mindir": MindirFamily()}
)

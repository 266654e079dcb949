"""MindSpore, imported late and set up once for this process.

Floor 3, I/O (environment, import).
Importing costs seconds and half a gigabyte, so nothing but an engine that loads does it. Some of
its settings are environment variables that it reads at import: they are written here, none is
read. A process has one life with one engine; a second engine in it (tests) works, uncached.
"""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Final

from backends.errors import DependencyMissing

LOG_LEVEL: Final = "3"  # errors only; the default prints warnings nobody can act on


def version() -> str:
    """MindSpore's version, without importing it.

    Raises: DependencyMissing.
    """
    if importlib.util.find_spec("mindspore") is None:
        raise DependencyMissing(
            "MindSpore is not installed: pip install 'sluicegate[mindspore]' (Python 3.11 or 3.12)"
        )
    return importlib.metadata.version("mindspore")


def is_fresh() -> bool:
    """Whether MindSpore is still to be imported: only then can it be given a compile cache."""
    return "mindspore" not in sys.modules


def compiled() -> int:
    """Graphs that this process has compiled, or read from a cache.

    More of them after READY: a shape that nobody had promised.
    """
    module = sys.modules.get("mindspore.graph.api")  # it may not be here yet, or never
    by_cell = getattr(module, "cells_compile_cache", {})
    return sum(len(graphs) for graphs in list(by_cell.values()) if graphs)


def prepare(device_target: str, threads: int, cache: Path | None) -> Any:
    """The mindspore module, in graph mode on that device. `threads` 0: MindSpore's own choice."""
    os.environ["GLOG_v"] = LOG_LEVEL  # noqa: SIM112  # the name is MindSpore's
    if cache is not None:
        assert is_fresh(), "MindSpore reads the place of its compile cache when it is imported"
        os.environ["MS_COMPILER_CACHE_ENABLE"] = "1"
        os.environ["MS_COMPILER_CACHE_PATH"] = str(cache)
    import mindspore as ms

    ms.set_device(device_target)
    ms.set_context(mode=ms.GRAPH_MODE)
    if threads and device_target == "CPU":
        ms.device_context.cpu.op_tuning.threads_num(threads)
    return ms


def stop_caching() -> None:
    """Graphs compiled from now on (a second engine's) do not go into this one's cache."""
    os.environ["MS_COMPILER_CACHE_ENABLE"] = "0"

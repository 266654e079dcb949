"""MindSpore as it is set up, and as it is missed."""

import subprocess
import sys

import pytest

from backends.engines import runtime
from backends.errors import DependencyMissing

# In a process of its own: what is set must be set before the import, and once.
CACHED = """
import os, pathlib, sys
from backends.engines import runtime
assert runtime.is_fresh()
ms = runtime.prepare("CPU", 1, pathlib.Path(sys.argv[1]))
assert not runtime.is_fresh()
assert ms.get_context("mode") == ms.GRAPH_MODE
assert os.environ["MS_COMPILER_CACHE_PATH"] == sys.argv[1]
assert os.environ["MS_COMPILER_CACHE_ENABLE"] == "1"
runtime.stop_caching()
assert os.environ["MS_COMPILER_CACHE_ENABLE"] == "0"
"""


@pytest.mark.mindspore
def test_mindspore_is_told_of_its_cache_before_it_is_imported(tmp_path: object) -> None:
    subprocess.run([sys.executable, "-c", CACHED, str(tmp_path)], check=True)


@pytest.mark.mindspore
def test_the_version_is_known_without_the_import() -> None:
    major, minor, *_ = runtime.version().split(".")
    assert (int(major), int(minor)) >= (2, 10)


def test_importing_the_engine_imports_no_mindspore() -> None:
    code = "import sys, backends.engines.llm.engine; assert 'mindspore' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_mindspore_the_version_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", None)  # as Python marks what cannot be imported
    with pytest.raises(DependencyMissing, match=r"pip install 'sluicegate\[mindspore\]'"):
        runtime.version()

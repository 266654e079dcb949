"""A pytest plugin for the run on compiled modules: `pytest -p tests.compiled`.

The same tests run on the interpreted modules too, and would pass if those were taken by mistake. So
this run does not begin unless every listed module is there as an extension.
"""

import sys
from importlib import import_module

import pytest

from gateway.native import NATIVE, interpreted


def pytest_sessionstart() -> None:
    for name in NATIVE:
        import_module(name)
    if found := interpreted(sys.modules):
        raise pytest.UsageError(f"not compiled: {', '.join(found)}; see .ci/compiled.py")

"""The list of what is compiled is whole, and says the truth of what is loaded."""

from pathlib import Path
from types import ModuleType

import pytest

from gateway.native import LEFT_OUT, NATIVE, interpreted

ROOT = Path(__file__).parents[2]
PACKAGES = ("wire", "routing", "state", "dataplane")
EXTENSION = "m.cpython-311-x86_64-linux-gnu.so"


def loaded(file: str | None) -> ModuleType:
    module = ModuleType("m")
    module.__file__ = file
    return module


def test_each_module_of_the_data_plane_is_compiled_or_left_out_for_a_reason() -> None:
    found = {
        f"gateway.{package}.{path.stem}"
        for package in PACKAGES
        for path in (ROOT / "gateway" / package).glob("*.py")
        if path.stem != "__init__"
    }
    assert set(NATIVE) & set(LEFT_OUT) == set()
    listed = {*NATIVE, *LEFT_OUT}
    assert {name for name in listed if name.count(".") == 2} == found
    assert all((ROOT / f"{name.replace('.', '/')}.py").is_file() for name in listed)


def test_no_module_is_listed_twice() -> None:
    assert len(set(NATIVE)) == len(NATIVE)


def test_with_every_module_an_extension_nothing_is_interpreted() -> None:
    assert interpreted({name: loaded(EXTENSION) for name in NATIVE}) == []


@pytest.mark.parametrize("file", ["m.py", None])
def test_one_module_of_python_is_named(file: str | None) -> None:
    modules = {name: loaded(EXTENSION) for name in NATIVE}
    assert interpreted({**modules, "gateway.wire.heads": loaded(file)}) == ["gateway.wire.heads"]


def test_a_module_that_is_not_loaded_is_no_evidence() -> None:
    assert interpreted({}) == list(NATIVE)

"""A version that a gateway's config names is in use, whether it runs or not."""

from pathlib import Path
from typing import Any

import pytest

from backends.snapshots.used import root_of, uses

CONFIG: dict[str, Any] = {
    "repository": {"root": "models"},
    "model": [
        {"name": "a", "weights": {"1": 100, "2": 0}, "replicas": {"2": 1}},
        {"name": "b", "weights": {"1": 1}},
    ],
    "instance": [{"id": "far", "model": "a", "version": "3"}],
}


@pytest.mark.parametrize(
    ("model", "version", "keys"),
    [
        ("a", "1", ["[[model]] weights"]),
        ("a", "2", ["[[model]] weights", "[[model]] replicas"]),
        ("a", "3", ["[[instance]] far"]),
        ("b", "2", []),
        ("c", "1", []),
    ],
)
def test_each_key_that_names_it_is_told(model: str, version: str, keys: list[str]) -> None:
    assert uses(CONFIG, model, version) == keys


@pytest.mark.parametrize("config", [{}, {"model": 1}, {"model": [1]}, {"model": {"name": "a"}}])
def test_what_is_no_config_names_nothing(config: dict[str, Any]) -> None:
    assert uses(config, "a", "1") == []


def test_the_root_is_the_configs_or_the_gateways_default() -> None:
    assert root_of(CONFIG) == Path("models")
    assert root_of({}) == root_of({"repository": 3}) == Path("var/models")

"""Two gateways that disagree about addresses hand nothing over; one that runs alone has a lock."""

import os
from pathlib import Path

import pytest

from gateway.config import parse
from gateway.mains.belongings import differences, holder, lock, sign, store_of
from gateway.takeover.offer import Facts
from tests.gateway.mains.configs import quiet_config

BOUND = {
    "gateway.listen": "127.0.0.1:8000",
    "admin.listen": "127.0.0.1:9000",
    "registry.listen": "127.0.0.1:9100",
}


def facts(folder: Path) -> Facts:
    listen, admin, registry = BOUND.values()
    return Facts(1, "9", (listen,), admin, registry, str(folder / "sluicegate.db"))


def test_the_same_addresses_and_ports_that_the_system_chose_are_no_difference(
    tmp_path: Path,
) -> None:
    for text in (quiet_config(tmp_path, **BOUND), quiet_config(tmp_path)):
        assert differences(facts(tmp_path), parse(text)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gateway.listen", "127.0.0.1:8001"),
        ("gateway.listen", "127.0.0.2:0"),
        ("admin.listen", "127.0.0.1:9001"),
        ("registry.listen", "127.0.0.1:9101"),
    ],
)
def test_another_address_is_named_with_its_key(key: str, value: str, tmp_path: Path) -> None:
    settings = parse(quiet_config(tmp_path, **{**BOUND, key: value}))
    assert differences(facts(tmp_path), settings) == [f"{key} is {value}, not {BOUND[key]}"]


def test_an_address_more_and_another_store_are_named(tmp_path: Path) -> None:
    text = quiet_config(tmp_path, **BOUND)
    more = text.replace('"127.0.0.1:8000"', '"127.0.0.1:8000", "127.0.0.1:8001"')
    (sentence,) = differences(facts(tmp_path), parse(more))
    assert sentence == "gateway.listen is 127.0.0.1:8000, 127.0.0.1:8001, not 127.0.0.1:8000"
    other = parse(text.replace("sluicegate.db", "other.db"))
    (sentence,) = differences(facts(tmp_path), other)
    assert sentence == f"store.url is {store_of(other)}, not {tmp_path / 'sluicegate.db'}"


def test_the_lock_says_whose_it_is_and_goes_with_its_last_holder(tmp_path: Path) -> None:
    first = lock(tmp_path)
    assert first is not None
    assert lock(tmp_path) is None
    assert holder(tmp_path) == str(os.getpid())
    handed = os.dup(first)  # as a successor has it
    os.close(first)
    assert lock(tmp_path) is None
    sign(handed)
    assert holder(tmp_path) == str(os.getpid())
    os.close(handed)
    again = lock(tmp_path)
    assert again is not None
    os.close(again)

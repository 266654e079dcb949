from pathlib import Path

import pytest

from admin import whereabouts
from admin.whereabouts import Unclear, check_address, find
from gateway.config import Settings


@pytest.mark.parametrize("address", ["127.0.0.1:9901", "[::1]:1", "localhost:9901", "unix:/a/b"])
def test_an_address_is_taken_as_it_is(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize("address", ["9901", "", "host:", ":9901", "host:port", "unix:rel"])
def test_what_is_no_address_is_said_to_be_none(address: str) -> None:
    with pytest.raises(Unclear, match="neither"):
        check_address(address)


def test_the_config_file_says_where(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[admin]\nlisten = "127.0.0.1:7777"\n[gateway]\ntypo = 1\n')
    assert find(path, required=True) == "127.0.0.1:7777"


def test_without_a_file_or_a_key_the_default_holds(tmp_path: Path) -> None:
    assert find(tmp_path / "none.toml", required=False) == whereabouts.DEFAULT
    empty = tmp_path / "config.toml"
    empty.touch()
    assert find(empty, required=True) == whereabouts.DEFAULT


def test_the_defaults_are_those_of_the_config() -> None:
    settings = Settings()
    assert (settings.admin.listen, settings.gateway.run_dir) == (
        whereabouts.DEFAULT,
        whereabouts.RUN_DIR,
    )


def test_a_port_that_was_chosen_at_the_start_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[admin]\nlisten = "127.0.0.1:0"\n[gateway]\nrun_dir = "run"\n')
    with pytest.raises(Unclear, match="names no running gateway"):
        find(path, required=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gateway.json").write_text('{"pid": 1, "admin": "127.0.0.1:5555"}')
    assert find(path, required=True) == "127.0.0.1:5555"


def test_the_run_folder_is_looked_for_where_one_stands_and_then_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "etc", tmp_path / "here"
    for folder, port in ((beside, 1), (here, 2)):
        (folder / "run").mkdir(parents=True)
        (folder / "run" / "gateway.json").write_text(f'{{"admin": "127.0.0.1:{port}"}}')
    path = beside / "config.toml"
    path.write_text('[admin]\nlisten = "127.0.0.1:0"\n[gateway]\nrun_dir = "run"\n')
    monkeypatch.chdir(here)
    assert find(path, required=True) == "127.0.0.1:2"
    (here / "run" / "gateway.json").unlink()
    assert find(path, required=True) == "127.0.0.1:1"
    (beside / "run" / "gateway.json").unlink()
    with pytest.raises(Unclear) as unclear:
        find(path, required=True)
    assert str(here / "run") in str(unclear.value)
    assert str(beside / "run") in str(unclear.value)


@pytest.mark.parametrize(
    "text", ["[admin", "[admin]\nlisten = 5\n", '[admin]\nlisten = "nowhere"\n', "\xff"]
)
def test_a_file_that_cannot_say_where_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Unclear):
        find(path, required=False)


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Unclear, match=r"there is no .*none\.toml: say where the gateway is"):
        find(tmp_path / "none.toml", required=True)

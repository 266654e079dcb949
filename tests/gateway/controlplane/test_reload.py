import asyncio
from pathlib import Path

import pytest

from gateway.config import ConfigInvalid
from gateway.controlplane.reload import SettingsFile
from gateway.fleet.events import Event, ReloadAsked
from tests.gateway.fleet.builders import STATICS


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "config.toml").write_text(STATICS)
    return SettingsFile(folder / "config.toml", tmp_path / "accepted.toml")


def test_a_broken_file_gives_its_problems(file: SettingsFile) -> None:
    file.path.write_text("[gateway]\nworkers = -1\n")
    text, settings, problems = file.read()
    assert settings is None
    assert text.startswith("[gateway]")
    assert [problem.path for problem in problems] == ["gateway.workers"]


def test_a_missing_or_unchanged_file_is_no_change(file: SettingsFile) -> None:
    file.read()
    assert not file.moved()
    file.path.unlink()
    assert not file.moved()
    assert file.read()[1] is None
    file.path.write_text(STATICS + "# more\n")
    assert file.moved()


def test_a_first_start_needs_a_good_file_and_a_later_one_goes_on_with_the_copy(
    file: SettingsFile,
) -> None:
    good = file.begin(again=False)
    file.path.write_text("nonsense")
    assert file.begin(again=True) == good
    with pytest.raises(ConfigInvalid):
        file.begin(again=False)


async def test_a_rename_over_the_file_and_a_swapped_link_are_seen(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(f"{STATICS}# {name}\n")
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "data").symlink_to(tmp_path / "one")
    (conf / "config.toml").symlink_to(conf / "data" / "config.toml")
    file = SettingsFile(conf / "config.toml", tmp_path / "accepted.toml")
    file.begin(again=False)
    events: asyncio.Queue[Event] = asyncio.Queue()
    watching = asyncio.create_task(file.watch(events.put_nowait))
    async with asyncio.timeout(20):
        seen = asyncio.create_task(events.get())
        while not seen.done():  # the watcher says nowhere that it has begun: swap until it sees
            (conf / "fresh").symlink_to(tmp_path / "two")
            (conf / "fresh").replace(conf / "data")
            await asyncio.wait([seen], timeout=1.0)
        assert isinstance(seen.result(), ReloadAsked)
    file.read()
    assert not file.moved()
    watching.cancel()

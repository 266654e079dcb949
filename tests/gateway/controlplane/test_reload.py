import asyncio
from pathlib import Path

import pytest

from gateway.config import ConfigInvalid
from gateway.controlplane import reload
from gateway.controlplane.reload import QUIET_S, SettingsFile
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


@pytest.mark.parametrize(
    "fixed", ['[store]\nurl = "sqlite:other.db"', '[gateway]\nlisten = ["127.0.0.1:1"]']
)
def test_a_later_start_does_not_take_over_what_a_running_gateway_cannot_change(
    file: SettingsFile, fixed: str
) -> None:
    good = file.begin(again=False)
    file.path.write_text(f"{fixed}\n{STATICS}")
    assert file.begin(again=True) == good
    assert file.begin(again=True) == good  # the copy is still the one in force
    assert file.begin(again=False) != good


@pytest.mark.parametrize("text", [STATICS.replace("100", "50"), "nonsense"])
async def test_a_later_start_goes_on_with_the_copy_and_asks_for_what_the_file_says(
    text: str, file: SettingsFile
) -> None:
    """What a changed file takes away is drained by a reload; a start without it would drop it."""
    good = file.begin(again=False)
    file.path.write_text(text)
    assert file.begin(again=True) == good
    assert await first(file) == "this control began without it"


async def first(file: SettingsFile) -> str:
    """Why the first reload is asked for."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    watching = asyncio.create_task(file.watch(events.put_nowait))
    async with asyncio.timeout(300):
        event = await events.get()
    watching.cancel()
    assert isinstance(event, ReloadAsked)
    return event.why


def test_an_empty_file_is_no_change_and_no_config(file: SettingsFile) -> None:
    """Somebody is about to write it; as TOML it would be a gateway without any model."""
    file.begin(again=False)
    for text in ("", " \n"):
        file.path.write_text(text)
        assert not file.moved()
        _, settings, problems = file.read()
        assert settings is None
        assert "is empty" in str(problems[0])


async def test_a_file_that_is_being_written_is_left_to_be_finished(file: SettingsFile) -> None:
    """Half of this one is whole TOML, and without the second instance."""
    file.begin(again=False)
    whole = STATICS.replace("100", "50")
    half = whole[: whole.index('[[instance]]\nid = "b"')]
    texts: list[str] = []
    with file.path.open("w") as writing:
        writing.write(half)
        writing.flush()
        settling = asyncio.create_task(file._settled())
        settling.add_done_callback(lambda _: texts.append(file.path.read_text()))
        await asyncio.sleep(QUIET_S / 2)
        writing.write(whole[len(half) :])
    assert await settling
    assert texts == [whole]


async def test_a_folder_that_vanishes_and_comes_back_is_watched_again(
    file: SettingsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "LOOK_MS", 50)
    file.begin(again=False)
    away = file.path.parent.with_name("away")
    file.path.parent.rename(away)
    watching = asyncio.create_task(first(file))
    await asyncio.sleep(0)
    file.path.parent.mkdir()
    file.path.write_text(STATICS.replace("100", "50"))
    assert await watching == "the file changed"


async def test_the_file_behind_a_link_is_watched_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "real" / "gateway.toml").write_text(STATICS)
    (tmp_path / "conf" / "config.toml").symlink_to(tmp_path / "real" / "gateway.toml")
    file = SettingsFile(tmp_path / "conf" / "config.toml", tmp_path / "accepted.toml")
    file.begin(again=False)
    assert set(file._folders()) == {tmp_path / "conf", tmp_path / "real"}
    before = file._folders()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "gateway.toml").write_text(STATICS)
    (tmp_path / "conf" / "fresh").symlink_to(tmp_path / "other" / "gateway.toml")
    (tmp_path / "conf" / "fresh").replace(tmp_path / "conf" / "config.toml")
    assert file._folders() != before


def test_a_copy_that_cannot_be_read_is_no_reason_to_refuse_a_good_file(
    file: SettingsFile, tmp_path: Path
) -> None:
    (tmp_path / "accepted.toml").write_bytes(b"\xff")
    assert file.begin(again=True).model[0].name == "m"


async def test_a_file_that_was_declined_at_the_start_is_asked_for_so_that_its_refusal_is_recorded(
    file: SettingsFile,
) -> None:
    file.begin(again=False)
    file.path.write_text(f'[store]\nurl = "sqlite:other.db"\n{STATICS}')
    file.begin(again=True)
    events: asyncio.Queue[Event] = asyncio.Queue()
    watching = asyncio.create_task(file.watch(events.put_nowait))
    async with asyncio.timeout(300):
        assert isinstance(await events.get(), ReloadAsked)
    watching.cancel()


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
    async with asyncio.timeout(300):
        seen = asyncio.create_task(events.get())
        while not seen.done():  # the watcher says nowhere that it has begun: swap until it sees
            (conf / "fresh").symlink_to(tmp_path / "two")
            (conf / "fresh").replace(conf / "data")
            await asyncio.wait([seen], timeout=1.0)
        assert isinstance(seen.result(), ReloadAsked)
    file.read()
    assert not file.moved()
    watching.cancel()


async def test_where_a_link_leads_is_watched_after_the_link_has_moved(tmp_path: Path) -> None:
    """One round of looking ends then, and the next one begins at other folders."""
    for name in ("conf", "one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "real.toml").write_text(f"{STATICS}# {name}\n")
    path = tmp_path / "conf" / "config.toml"
    path.symlink_to(tmp_path / "one" / "real.toml")
    file = SettingsFile(path, tmp_path / "accepted.toml")
    file.begin(again=False)

    async def round_of_looking() -> None:
        async for _ in file._looks():
            pass

    looking = asyncio.create_task(round_of_looking())
    await asyncio.sleep(0)  # it looks at the folders as they are now
    async with asyncio.timeout(300):
        while not looking.done():  # the watcher says nowhere that it has begun: swap until it sees
            fresh = path.with_name("fresh")
            fresh.symlink_to(tmp_path / "two" / "real.toml")
            fresh.replace(path)
            await asyncio.wait([looking], timeout=1.0)
    assert tmp_path / "two" in file._folders()


def test_a_folder_that_takes_no_copy_is_a_problem_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(STATICS)
    file = SettingsFile(tmp_path / "config.toml", tmp_path / "gone" / "accepted.toml")
    with pytest.raises(ConfigInvalid, match=r"gateway\.run_dir: a copy .* cannot be kept in it"):
        file.begin(again=False)
    file.begin(again=False, stands_by=True)

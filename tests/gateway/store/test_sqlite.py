"""The embedded store keeps what it said it kept, and leaves alone what it does not understand."""

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from gateway.store.base import UNREADABLE, Fenced, Put, Remove, StoreFailed, StoreUnusable
from gateway.store.sqlite import SqliteStore

WRITER = """
import asyncio, sys
from pathlib import Path
from gateway.store.base import UNREADABLE, Put
from gateway.store.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    for n in range(10**6):
        await store.write([Put("drains", "a", {"n": n}), Put("weights", "m", {"n": n})])
        print(n, flush=True)

asyncio.run(main())
"""


async def test_what_was_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "deep" / "s.db")
    await store.write([Put("drains", "a", {"grace_s": 1.5}), Put("drains", "b", {})])
    await store.write([Remove("drains", "b"), Put("drains", "a", {"grace_s": 2})])
    await store.close()
    store = await SqliteStore.open(tmp_path / "deep" / "s.db")
    assert await store.read() == {"drains": {"a": {"grace_s": 2}}}
    await store.close()


async def test_a_write_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.write([Put("drains", "a", {"n": 1})])
    other = sqlite3.connect(tmp_path / "s.db")
    other.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON documents WHEN NEW.key = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    with pytest.raises(StoreFailed, match="refused"):
        await store.write([Put("drains", "a", {"n": 2}), Put("drains", "bad", {})])
    assert await store.read() == {"drains": {"a": {"n": 1}}}
    await store.close()
    other.close()


async def test_writes_that_wait_are_flushed_together_and_each_is_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    said = list[str]()
    store._connection.set_trace_callback(said.append)
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON documents WHEN NEW.key = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    other.execute("BEGIN IMMEDIATE")  # holds up the first write, so that the others wait
    changes = [[Put("drains", f"d{n}", {"n": n})] for n in range(200)]
    changes.insert(100, [Put("drains", "half", {}), Put("drains", "bad", {})])
    changes.append([Put("drains", "d0", {"n": 99})])
    writes = [asyncio.ensure_future(store.write(one)) for one in changes]
    await asyncio.sleep(0)  # every write has been handed over
    other.execute("ROLLBACK")
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert [n for n, one in enumerate(done) if isinstance(one, StoreFailed)] == [100]
    kept = (await store.read())["drains"]
    assert kept == {f"d{n}": {"n": n} for n in range(200)} | {"d0": {"n": 99}}
    assert said.count("COMMIT") <= 2
    await store.close()
    other.close()


async def test_a_disk_that_is_full_fails_every_write_that_waited(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.write([Put("drains", "a", {"n": 1})])
    store._connection.execute("PRAGMA max_page_count = 1")
    big = {"text": "x" * 100_000}
    writes = (store.write([Put("drains", f"d{n}", big)]) for n in range(5))
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(one) for one in done] == [StoreFailed] * 5
    assert await store.read() == {"drains": {"a": {"n": 1}}}
    store._connection.execute("PRAGMA max_page_count = 100000")
    await store.write([Put("drains", "b", {"n": 2})])
    assert (await store.read())["drains"].keys() == {"a", "b"}
    await store.close()


async def test_a_killed_writer_loses_nothing_it_was_told_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    said = [await writer.stdout.readline() for _ in range(20)]
    os.kill(writer.pid, signal.SIGKILL)
    said += (await writer.stdout.read()).splitlines(keepends=True)
    await writer.wait()
    whole = [int(line) for line in said if line.endswith(b"\n")]
    store = await SqliteStore.open(path)
    documents = await store.read()
    await store.close()
    assert documents["drains"]["a"]["n"] >= whole[-1]
    assert documents["drains"]["a"] == documents["weights"]["m"]


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 1")
    connection.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 400)


def _torn(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_newer, "newer Sluicegate"),
        (_foreign, "something else"),
        (_garbage, "cannot be used"),
        (_torn, "damaged|cannot be used"),
    ],
)
async def test_a_file_that_is_not_understood_is_refused_and_left_alone(
    spoil: object, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    store = await SqliteStore.open(path)
    await store.write([Put("drains", str(n), {"x": "y" * 200}) for n in range(200)])
    await store.close()
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match=sentence) as caught:
        await SqliteStore.open(path)
    assert str(path) in str(caught.value)
    assert "Move it away" in str(caught.value)
    assert path.read_bytes() == before


async def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        await SqliteStore.open(tmp_path / "file" / "s.db")


async def test_a_store_that_turned_read_only_fails_the_write_and_nothing_has_changed(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.write([Put("drains", "a", {"n": 1})])
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreFailed, match="readonly"):
        await store.write([Put("drains", "a", {"n": 2})])
    assert await store.read() == {"drains": {"a": {"n": 1}}}
    await store.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_moved_away_takes_no_more_writes_until_it_is_back(
    replaced: bool, tmp_path: Path
) -> None:
    """SQLite goes on writing to a file without a name: what it says it kept would be gone."""
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.write([Put("drains", "a", {"n": 1})])
    (tmp_path / "s.db").rename(tmp_path / "away.db")
    if replaced:
        (tmp_path / "s.db").write_bytes(b"")
    with pytest.raises(StoreFailed, match="moved or removed"):
        await store.write([Put("drains", "a", {"n": 2})])
    (tmp_path / "away.db").replace(tmp_path / "s.db")
    await store.write([Put("drains", "a", {"n": 3})])
    assert (await store.read())["drains"]["a"] == {"n": 3}
    await store.close()


async def test_a_body_that_is_no_document_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    """It once kept control from starting."""
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.write([Put("drains", "a", {"n": 1}), Put("drains", "b", {"n": 1})])
    other = sqlite3.connect(tmp_path / "s.db")
    with other:
        other.execute("UPDATE documents SET body = '{' WHERE key = 'a'")
    other.close()
    documents = await store.read()
    assert documents["drains"] == {"b": {"n": 1}}
    assert list(documents[UNREADABLE]) == ["drains a"]
    await store.close()


# --- one writer ----------------------------------------------------------------------------------


async def test_a_store_that_was_claimed_since_refuses_writes_and_keeps_nothing_of_them(
    tmp_path: Path,
) -> None:
    old = await SqliteStore.open(tmp_path / "s.db")
    await old.write([Put("drains", "a", {"n": 1})])
    new = await SqliteStore.open(tmp_path / "s.db")
    with pytest.raises(Fenced, match="another gateway writes the store now"):
        await old.write([Put("drains", "a", {"n": 2})])
    await new.write([Put("drains", "b", {})])
    assert await old.read() == {"drains": {"a": {"n": 1}, "b": {}}}
    await old.close()
    await new.close()


async def test_one_that_stands_by_writes_nothing_before_its_claim_and_everything_with_it(
    tmp_path: Path,
) -> None:
    old = await SqliteStore.open(tmp_path / "s.db")
    new = await SqliteStore.open(tmp_path / "s.db", stand_by=True)
    await new.write([Put("drains", "a", {"n": 1})])
    await new.write([Put("drains", "b", {})])
    await old.write([Put("weights", "m", {})])  # the predecessor is not disturbed
    assert await old.read() == {"weights": {"m": {}}}
    await asyncio.gather(new.claim(), new.write([Put("drains", "a", {"n": 2})]))
    assert await old.read() == {"weights": {"m": {}}, "drains": {"a": {"n": 2}, "b": {}}}
    with pytest.raises(Fenced):
        await old.write([Put("weights", "m", {"n": 1})])
    await new.claim()  # it has one: nothing more to do
    await new.write([Put("weights", "m", {"n": 2})])
    await old.close()
    await new.close()


async def test_a_claim_fails_whole_when_somebody_else_has_claimed_since(tmp_path: Path) -> None:
    """A predecessor that goes on takes its store back; who comes too late commits nothing."""
    old = await SqliteStore.open(tmp_path / "s.db")
    late = await SqliteStore.open(tmp_path / "s.db", stand_by=True)
    await late.write([Put("drains", "late", {})])
    await old.reclaim([Put("drains", "mine", {})])
    with pytest.raises(Fenced):
        await late.claim()
    assert await old.read() == {"drains": {"mine": {}}}
    await old.write([Put("drains", "more", {})])
    await old.close()
    await late.close()


async def test_a_store_is_taken_back_from_one_that_had_claimed_it(tmp_path: Path) -> None:
    old = await SqliteStore.open(tmp_path / "s.db")
    failed = await SqliteStore.open(tmp_path / "s.db", stand_by=True)
    await failed.claim()
    await old.reclaim([Put("slots", "0", {"segment": 1})])
    await old.write([Put("slots", "1", {"segment": 1})])
    with pytest.raises(Fenced):
        await failed.write([Put("slots", "0", {"segment": 2})])
    assert await old.read() == {"slots": {"0": {"segment": 1}, "1": {"segment": 1}}}
    await old.close()
    await failed.close()


async def test_settled_is_after_every_write_that_was_begun(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    writes = [asyncio.create_task(store.write([Put("drains", str(n), {})])) for n in range(20)]
    await asyncio.sleep(0)  # each has begun
    await store.settled()
    assert len((await store.read())["drains"]) == 20
    await asyncio.gather(*writes)
    await store.close()

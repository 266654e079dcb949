"""The embedded store: one SQLite file, written ahead and flushed before a write returns.

Floor 3, I/O.   Owner: the control process; one connection, used on one thread of its own.
An existing file is opened only when it is ours and of a version we know: a corrupted or newer one
is refused with a sentence and left as it is (source: SQLite documentation, `PRAGMA user_version`,
`PRAGMA application_id`, "Write-Ahead Logging").
The file has one writer: whoever claims it raises its epoch, and a write under an older one is
refused in the transaction that would have made it.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeVar

import orjson

from gateway.store.base import (
    UNREADABLE,
    Change,
    Documents,
    Fenced,
    Put,
    StoreFailed,
    StoreUnusable,
)

T = TypeVar("T")
Row = tuple[str, str, bytes | None]  # kind, key, document; None: it is removed

APPLICATION_ID: Final = 0x534C4743  # "SLGC"
SCHEMA_VERSION: Final = 1
BUSY_S: Final = 5.0  # a predecessor that is just ending may hold the lock for a moment
EPOCH: Final = ("fence", "epoch")  # kind and key of the document that says who writes

SCHEMA: Final = f"""
CREATE TABLE documents (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    body BLOB NOT NULL,
    changed_at REAL NOT NULL,  -- seconds since the epoch, for people who look into the file
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """A write that waits for the thread."""

    rows: list[Row]
    ours: bool  # only while nobody else has claimed the store
    claims: bool  # it is ours from then on
    done: "Future[None]" = field(default_factory=Future)


class SqliteStore:
    """A Store in one file. `open` is the way to make one.

    One that stands by writes nothing: what it is given waits in memory, and `claim` writes all of
    it in the transaction that makes it the writer. Until then the file is as if it was not there.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, thread: ThreadPoolExecutor
    ) -> None:
        self._path = path
        self._file = _identity(path)
        self._connection = connection
        self._thread = thread
        self._epoch = 0
        self._waiting: deque[Wish] = deque()
        self._put_off: list[Change] | None = None  # while it stands by

    @classmethod
    async def open(cls, path: Path, stand_by: bool = False) -> Self:
        """The store at `path`, made if nothing is there; claimed, unless it is to stand by.

        Raises: StoreUnusable; the file is as it was.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, _open, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        store = cls(path, connection, thread)
        if stand_by:
            store._put_off = []
            store._epoch = await store._run(store._epoch_there)
            return store
        try:
            await store.reclaim(())
        except StoreFailed as exc:
            await store.close()
            raise StoreUnusable(f"{path} cannot be used: {exc}. {_WAY_OUT}") from exc
        return store

    async def read(self) -> Documents:
        return await self._run(self._read)

    async def write(self, changes: Sequence[Change]) -> None:
        """Writes that come while the file is being flushed are flushed together, in their order."""
        if self._put_off is not None:
            self._put_off.extend(changes)
        else:
            await self._wish(changes, ours=True, claims=False)

    async def reclaim(self, changes: Sequence[Change]) -> None:
        await self._wish(changes, ours=False, claims=True)

    async def claim(self) -> None:
        if self._put_off is not None:
            changes, self._put_off = self._put_off, None  # later writes queue up behind these
            await self._wish(changes, ours=True, claims=True)

    async def settled(self) -> None:
        await self._run(self._write_waiting)

    async def _wish(self, changes: Sequence[Change], *, ours: bool, claims: bool) -> None:
        wish = Wish(_rows(changes), ours, claims)
        self._waiting.append(wish)
        self._thread.submit(self._write_waiting)
        try:
            await asyncio.wrap_future(wish.done)
        except sqlite3.Error as exc:
            raise StoreFailed(f"the store could not be written: {exc}") from exc

    async def close(self) -> None:
        await self._run(self._connection.close)
        self._thread.shutdown()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _read(self) -> Documents:
        documents: Documents = {}
        for kind, key, body in self._connection.execute("SELECT kind, key, body FROM documents"):
            if (kind, key) == EPOCH:
                continue
            try:
                document = orjson.loads(body)
            except orjson.JSONDecodeError as exc:
                kind, key, document = UNREADABLE, f"{kind} {key}", {"reason": str(exc)}
            documents.setdefault(kind, {})[key] = document
        return documents

    def _epoch_there(self) -> int:
        query = "SELECT body FROM documents WHERE kind = ? AND key = ?"
        found = self._connection.execute(query, EPOCH).fetchone()
        try:
            return int(orjson.loads(found[0])["value"]) if found else 0
        except (ValueError, TypeError, KeyError):
            return 0  # spoilt: whoever claims it next begins again

    def _write_waiting(self) -> None:
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        wanted = [wish for wish in taken if wish.done.set_running_or_notify_cancel()]
        if not wanted:
            return  # they went with those before them
        kept: list[Future[None]] = []
        try:
            self._check_place()
            with self._connection:  # commits, or rolls back on an error
                self._connection.execute("BEGIN IMMEDIATE")
                there, epoch = self._epoch_there(), self._epoch
                for wish in wanted:
                    try:
                        there, epoch = self._carry_out(wish, there, epoch)
                    except (Fenced, sqlite3.Error) as exc:
                        if not self._connection.in_transaction:  # a full disk ends all of it
                            raise
                        wish.done.set_exception(exc)
                    else:
                        kept.append(wish.done)
        except (Fenced, sqlite3.Error) as exc:
            for wish in wanted:
                if not wish.done.done():
                    wish.done.set_exception(exc)
            return
        self._epoch = epoch
        for done in kept:
            done.set_result(None)

    def _check_place(self) -> None:
        """Raises: sqlite3.Error when SQLite would go on writing where nobody will look."""
        if _identity(self._path) != self._file:
            raise sqlite3.OperationalError(
                f"{self._path} was moved or removed: put it back, or restart the gateway"
            )

    def _carry_out(self, wish: Wish, there: int, epoch: int) -> tuple[int, int]:
        """The epoch in force afterwards, and ours. Raises: Fenced, sqlite3.Error."""
        if wish.ours and there != epoch:
            raise Fenced("another gateway writes the store now: this one was taken over")
        if not wish.claims:
            self._write(wish.rows)
            return there, epoch
        claimed = there + 1
        self._write([*wish.rows, (*EPOCH, orjson.dumps({"value": claimed}))])
        return claimed, claimed

    def _write(self, rows: Sequence[Row]) -> None:
        """All of one write, or none of it. Raises: sqlite3.Error."""
        run, now = self._connection.execute, time.time()
        run("SAVEPOINT one")
        try:
            for kind, key, body in rows:
                if body is None:
                    run("DELETE FROM documents WHERE kind = ? AND key = ?", (kind, key))
                else:
                    run("REPLACE INTO documents VALUES (?, ?, ?, ?)", (kind, key, body, now))
        except sqlite3.Error:
            if self._connection.in_transaction:
                run("ROLLBACK TO one")
                run("RELEASE one")
            raise
        run("RELEASE one")


def _rows(changes: Sequence[Change]) -> list[Row]:
    return [
        (one.kind, one.key, orjson.dumps(one.document) if isinstance(one, Put) else None)
        for one in changes
    ]


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not path.exists() or path.stat().st_size == 0
        connection = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
    except (OSError, sqlite3.Error) as exc:
        raise StoreUnusable(f"{path} cannot be opened: {exc}") from exc
    try:
        if not fresh:
            _check(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if fresh:
            connection.executescript(SCHEMA)
    except sqlite3.Error as exc:
        connection.close()
        raise StoreUnusable(f"{path} cannot be used: {exc}. {_WAY_OUT}") from exc
    except StoreUnusable:
        connection.close()
        raise
    return connection


_WAY_OUT: Final = (
    "Move it away to start without stored intent, or restore a backup; it is untouched"
)


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Raises: StoreUnusable unless the file is ours, of a known version, and whole."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise StoreUnusable(f"{path} is a database of something else. {_WAY_OUT}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreUnusable(
            f"{path} was written by a newer Sluicegate (schema {version}, this one knows "
            f"{SCHEMA_VERSION}). Run the newer one. {_WAY_OUT}"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreUnusable(f"{path} is damaged: {verdict}. {_WAY_OUT}")

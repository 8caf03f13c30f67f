"""
What was acknowledged lasts: rows in SQLite, or nowhere when no path is given.

WAL with synchronous=NORMAL: a commit is in the file (in the kernel's cache) before the reply goes out, so it outlives
a kill of this process at any moment. Only a crash of the machine can lose the last commits, never the file's
integrity; a fake cloud's state is not worth a disk flush for every write.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from fakecloud.state.records import Record

_SCHEMA = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key));
INSERT INTO schema_version VALUES (1);
"""
# What leads from each version to the next, the first of them from 1 to 2.
_MIGRATIONS = (
    # Version 2 has kinds of rows that a program of version 1 does not know (actions, replies, reserved addresses):
    # the number alone keeps it from such a file.
    "",
    # Version 3 has load balancers that are about to go, or about to lose an address.
    "",
)
SCHEMA_VERSION = 1 + len(_MIGRATIONS)
_UPSERT = "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body"


_BEGIN_ANEW = "restore a copy of it, or move it and its -wal and -shm away to begin anew"
# By SQLite's primary result code. An error of input and output is said of a disk that is full as well.
_ADVICE = {
    sqlite3.SQLITE_CORRUPT: f"the file is damaged; {_BEGIN_ANEW}",
    sqlite3.SQLITE_NOTADB: f"the file is damaged, or another program's; give another file, {_BEGIN_ANEW}",
    sqlite3.SQLITE_ERROR: f"the file is damaged, or another program's; give another file, {_BEGIN_ANEW}",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "make room on its disk, or look what the kernel's log says of it",
    sqlite3.SQLITE_BUSY: "another process uses it; end that one, or give another file",
}


class StoreError(Exception):
    """The file can't be used; the message says why and what to do."""


class Row(NamedTuple):
    """As it is stored; the body is JSON."""

    kind: str
    key: str
    body: str


class Store(Protocol):
    """Where rows last."""

    def load(self) -> Sequence[Row]:
        """Every row. Raises StoreError."""
        ...

    def damaged(self, row: Row, reason: str) -> StoreError:
        """What to say of a row that can't be understood."""
        ...

    async def commit(self, records: Iterable[Record]) -> None:
        """Write all of the rows or none. Raises StoreError."""
        ...

    def close(self) -> None: ...


class MemoryStore:
    """Forgets everything at the end; the state in memory is all there is."""

    def load(self) -> Sequence[Row]:
        return ()

    def damaged(self, row: Row, reason: str) -> StoreError:
        return StoreError(f"{row.kind} {row.key}: {reason}")

    async def commit(self, records: Iterable[Record]) -> None:
        """Nothing has to last."""

    def close(self) -> None:
        """Nothing is open."""


class SqliteStore:
    """One file; one thread writes, so that a slow disk never stops traffic."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError when the file can't be opened, is damaged, or was written by a newer version."""
        self._path = path
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=0.2)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as error:
            raise self._error(error) from error
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    def _prepare(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        # A second process on the same file would give out the same addresses again.
        run("PRAGMA locking_mode=EXCLUSIVE")
        if (found := run("PRAGMA quick_check(1)").fetchone()) != ("ok",):
            raise StoreError(f"--state {self._path}: {found[0]}; {_ADVICE[sqlite3.SQLITE_CORRUPT]}")
        run("BEGIN IMMEDIATE")
        if run("SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'").fetchone() == (0,):
            self._run_all(_SCHEMA)
        (version,) = run("SELECT version FROM schema_version").fetchone() or (None,)
        if not isinstance(version, int) or version < 1:
            reason = f"schema version {version!r}, expected a number from 1 to {SCHEMA_VERSION}"
            raise StoreError(f"--state {self._path}: {reason}; {_ADVICE[sqlite3.SQLITE_CORRUPT]}")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"--state {self._path}: schema version {version}, this fakecloud knows {SCHEMA_VERSION}; "
                "use the fakecloud that wrote it, or another file"
            )
        # All in one transaction: a migration that is interrupted has not begun.
        for migration in _MIGRATIONS[version - 1 :]:
            self._run_all(migration)
        run("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))
        run("COMMIT")

    def _run_all(self, statements: str) -> None:
        for statement in statements.split(";")[:-1]:
            self._database.execute(statement)

    def load(self) -> Sequence[Row]:
        try:
            # What is no text in UTF-8 is told of with its row, by who reads the body.
            self._database.text_factory = lambda text: text.decode(errors="backslashreplace")
            rows = self._database.execute("SELECT kind, key, CAST(body AS TEXT) FROM records ORDER BY rowid")
            return [Row(*map(str, row)) for row in rows]
        except sqlite3.Error as error:
            raise self._error(error) from error

    def damaged(self, row: Row, reason: str) -> StoreError:
        where = f"the row {row.kind} {row.key} of the table records"
        return StoreError(f"--state {self._path}: {where} can't be read: {reason}; remove it, {_BEGIN_ANEW}")

    def _error(self, error: sqlite3.Error) -> StoreError:
        # The primary code is in the lowest byte.
        advice = _ADVICE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "give a file in a writable directory")
        return StoreError(f"--state {self._path}: {error}; {advice}")

    async def commit(self, records: Iterable[Record]) -> None:
        rows = [(r.kind.value, r.key, None if r.body is None else r.body.model_dump_json()) for r in records]
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, rows)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _write(self, rows: Sequence[tuple[str, str, str | None]]) -> None:
        with self._database:
            self._database.execute("BEGIN")
            for kind, key, body in rows:
                if body is None:
                    self._database.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))
                else:
                    self._database.execute(_UPSERT, (kind, key, body))

    def close(self) -> None:
        self._thread.shutdown()
        self._database.close()

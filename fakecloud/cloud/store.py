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
from typing import Protocol

from fakecloud.state.records import Kind, Record

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


class StoreError(Exception):
    """The file can't be used; the message says why and what to do."""


class Store(Protocol):
    """Where rows last."""

    def load(self) -> Sequence[tuple[Kind, str]]:
        """Every row's kind and JSON body."""
        ...

    async def commit(self, records: Iterable[Record]) -> None:
        """Write all of the rows or none. Raises StoreError."""
        ...

    def close(self) -> None: ...


class MemoryStore:
    """Forgets everything at the end; the state in memory is all there is."""

    def load(self) -> Sequence[tuple[Kind, str]]:
        return ()

    async def commit(self, records: Iterable[Record]) -> None:
        """Nothing has to last."""

    def close(self) -> None:
        """Nothing is open."""


class SqliteStore:
    """One file; one thread writes, so that a slow disk never stops traffic."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError when the file can't be opened, or was written by a newer version."""
        self._path = path
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=0.2)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as error:
            raise StoreError(f"--state {path}: {error}; give a file in a writable directory") from error
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    def _prepare(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        # A second process on the same file would give out the same addresses again.
        run("PRAGMA locking_mode=EXCLUSIVE")
        run("BEGIN IMMEDIATE")
        if run("SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'").fetchone() == (0,):
            self._run_all(_SCHEMA)
        (version,) = run("SELECT version FROM schema_version").fetchone()
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

    def load(self) -> Sequence[tuple[Kind, str]]:
        rows = self._database.execute("SELECT kind, body FROM records ORDER BY rowid").fetchall()
        return [(Kind(kind), body) for kind, body in rows]

    async def commit(self, records: Iterable[Record]) -> None:
        rows = [(r.kind.value, r.key, None if r.body is None else r.body.model_dump_json()) for r in records]
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, rows)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

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

"""The SQLite file behind a pool: its tables, its opening, its transactions, and what can go wrong with it, in words.

It is kept by SQLite's rollback journal, and each transaction is synced (``synchronous=FULL``, the default): a question
of 16 responses of 2,000 tokens then takes some 20 ms instead of 9 with a write-ahead log, of which a copy of the file
alone would lack the end, and which shared folders and disks that may only be read do not go with. Signals stand there
raw: compressed they take less room (37 % with the shipped model), and each pass over them much longer.
"""

import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from langchain_reasc.exceptions import PoolError
from langchain_reasc.untrusted import open_file

__all__ = ["FORMAT", "Database", "is_store"]

FORMAT: Final = 1
_APPLICATION: Final = 0x52654153  # "ReAS", by which `file` can tell whose database it is
_MAGIC: Final = b"SQLite format 3\0"
_WAIT: Final = 30.0  # seconds, for another process that writes
_SCHEMA: Final = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE questions (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, input TEXT, accepted TEXT NOT NULL);
CREATE TABLE responses (
  question INTEGER NOT NULL REFERENCES questions, number INTEGER NOT NULL, answer TEXT, correct INTEGER, score REAL,
  completion_tokens INTEGER NOT NULL, prompt_tokens INTEGER, finish_reason TEXT, cut_off INTEGER NOT NULL,
  answer_span TEXT, last_step TEXT, seconds REAL, signal_tokens INTEGER NOT NULL, PRIMARY KEY (question, number)
) WITHOUT ROWID;
CREATE TABLE messages (
  question INTEGER NOT NULL REFERENCES questions, number INTEGER NOT NULL, text TEXT, beside TEXT, usage TEXT,
  token_lengths TEXT, PRIMARY KEY (question, number)
);
CREATE TABLE signals (
  name TEXT NOT NULL, question INTEGER NOT NULL REFERENCES questions, tokens BLOB NOT NULL, PRIMARY KEY (question, name)
);
"""


def is_store(path: Path) -> bool:
    """Whether a file is an SQLite database, rather than a pool as JSON Lines."""
    with open_file(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Database:
    """A pool's file, open.

    Args:
        connection: to the database.
        path: what messages call it.
        temporary: whether it goes when it is closed.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, *, temporary: bool = False) -> None:
        self.path = path
        self._sql, self._temporary = connection, temporary
        self.close = weakref.finalize(self, connection.close)
        """Close the file; reading or writing it is an error from then on."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a pool that exists, to write it too where that is allowed.

        Raises:
            PoolError: it cannot be opened, is no pool, or was written by a version to come.
        """
        # What a kill left half done is undone by who opens the file next, if it may be written.
        store = cls._connected(path, "rw" if os.access(path, os.W_OK) else "ro")
        if store._is_empty():
            raise PoolError(f"{path} holds no question; record some with `reasc record`")
        store._check()
        return store

    @classmethod
    def create(cls, path: Path) -> Self:
        """Begin a pool in a file that is not there or empty, or go on with the one that is there.

        Raises:
            PoolError: the file cannot be written, is no pool, or was written by a version to come.
        """
        store = cls._connected(path, "rwc")
        with store.transaction() if store._is_empty() else nullcontext():
            store._begin()
        store._check()
        return store

    @classmethod
    def temporary(cls, path: Path) -> Self:
        """A pool of no name, which goes when it is closed; it is on disk where memory would not hold it.

        Args:
            path: what messages call it.
        """
        store = cls(sqlite3.connect("", isolation_level=None, check_same_thread=False), path, temporary=True)
        store._begin()
        return store

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written within, or nothing of it.

        Raises:
            PoolError: it could not be written; the disk is full, say.
        """
        with self._named():
            if self._sql.in_transaction:  # part of a larger one
                yield
                return
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            finally:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")

    @classmethod
    def _connected(cls, path: Path, mode: str) -> Self:
        where = f"file:{quote(str(path.absolute()))}?mode={mode}"
        try:
            opened = sqlite3.connect(where, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise PoolError(f"{path}: {_advice(str(error))}") from error
        return cls(opened, path)

    def _begin(self) -> None:
        """Make the tables of a file that has none; another process may have made them meanwhile."""
        if self._is_empty():
            for statement in _SCHEMA.split(";"):
                self._sql.execute(statement)

    def _is_empty(self) -> bool:
        return not self._all("SELECT 1 FROM sqlite_master")

    def _check(self) -> None:
        [(application,)], [(version,)] = self._all("PRAGMA application_id"), self._all("PRAGMA user_version")
        if application != _APPLICATION:
            raise PoolError(f"{self.path} is an SQLite database, but no pool")
        if version > FORMAT:
            raise PoolError(
                f"{self.path} was written by a newer version of langchain-reasc (format {version}, here is {FORMAT}); "
                "update langchain-reasc"
            )
        self._check_tables()
        [(pages,)], [(size,)] = self._all("PRAGMA page_count"), self._all("PRAGMA page_size")
        if (there := self.path.stat().st_size) < pages * size:  # SQLite would read zeros for what is gone
            raise PoolError(f"{self.path}: the file is damaged ({there} of {pages * size} bytes are there)")

    def _check_tables(self) -> None:
        """Refuse what only looks like our tables: a view or a virtual table may compute for ever, a trigger write."""
        ours = {statement.split()[2]: statement.strip() for statement in _SCHEMA.split(";") if "TABLE" in statement}
        for kind, name, table, sql in self._all("SELECT type, name, tbl_name, sql FROM sqlite_master"):
            if (kind in ("table", "view") and sql != ours.get(name, sql)) or (kind == "trigger" and table in ours):
                raise PoolError(f"{self.path}: its {kind} {name!r} is nothing that a recording wrote, and is not read")

    def _all(self, query: str, *values: Any) -> list[Any]:
        return list(self._each(query, *values))

    def _each(self, query: str, *values: Any) -> Iterator[Any]:
        with self._named():
            try:
                for row in self._sql.execute(query, values):  # noqa: UP028 (`yield from` closes what may be closed already)
                    yield row
            except UnicodeDecodeError as error:  # of a name in the file, or of what SQLite says of it
                raise PoolError(f"{self.path}: the file is damaged ({error})") from error

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What SQLite complains of, as an error that names the file and says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            said = str(error)
            if self._temporary and _is_full(said):
                raise PoolError(
                    f"{self.path}: no room for what is kept of it while it is read ({said}); name a folder that has "
                    "some by TMPDIR. A pool in SQLite needs none"
                ) from error
            raise PoolError(f"{self.path}: {_advice(said)}") from error


def _is_full(said: str) -> bool:
    return "disk is full" in said or "disk I/O error" in said


def _advice(said: str) -> str:
    if _is_full(said):
        return f"it could not be written ({said}); what was recorded before is kept: make room, and go on from there"
    if "locked" in said:
        return f"another process has been writing it for {_WAIT:.0f} s ({said})"
    if "malformed" in said or "not a database" in said or "no such" in said or "decode" in said:
        return f"the file is damaged ({said})"
    if "readonly" in said or "unable to open" in said:
        return f"{said}; to write a pool, its file and its folder must be writable: make them so, or copy it elsewhere"
    return said

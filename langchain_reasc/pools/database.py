"""The SQLite file of a pool: its tables, opening and checking it, transactions, and its errors.

The rollback journal with ``synchronous=FULL`` (the default) is used: a question of 16 responses of 2,000 tokens then
takes some 20 ms instead of 9 with a write-ahead log, but the file can be copied alone, and works on shared folders and
read-only disks. Signals are stored raw: compressed they take 37 % with the shipped model, and each pass over them much
longer.
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

__all__ = ["FORMAT", "Database", "is_sqlite"]

FORMAT: Final = 1
_APPLICATION: Final = 0x52654153  # "ReAS", by which `file` identifies the database
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
_ADVICE: Final = {
    (
        "disk is full",
        "disk I/O error",
    ): "it could not be written ({0}); what was recorded is kept: make room, and go on from there",
    ("locked",): f"another process has been writing it for {_WAIT:.0f} s ({{0}})",
    ("malformed", "not a database", "no such", "decode"): "the file is damaged ({0})",
    ("readonly", "unable to open"): "{0}; to write a pool, its file and its folder must be writable: make them so, or "
    "copy it elsewhere",
}
"""Parts of SQLite's messages -> what to tell the user."""


def is_sqlite(path: Path) -> bool:
    """Return whether a file is an SQLite database."""
    with open_file(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Database:
    """An open pool file.

    Args:
        connection: the connection to the database.
        path: the file.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._sql = connection
        self.close = weakref.finalize(self, connection.close)
        """Close the file; using it afterwards is an error."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing pool, for writing too where that is allowed.

        Raises:
            PoolError: it cannot be opened, is not a pool, holds no question, or was written by a later version.
        """
        source = Path(path)
        if not source.exists():
            raise PoolError(f"no pool at {source}; record one with `reasc record`")
        # A transaction that a kill interrupted is rolled back by whoever opens the file next, if it is writable.
        store = cls._connect(source, "rw" if os.access(source, os.W_OK) else "ro")
        if store._is_empty():
            raise PoolError(f"{source} holds no question; record some with `reasc record`")
        store._check()
        return store

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create a pool, or open the one that is there.

        Raises:
            PoolError: the file cannot be written, is not a pool, or was written by a later version.
        """
        store = cls._connect(path, "rwc")
        with store.transaction() if store._is_empty() else nullcontext():
            if store._is_empty():  # another process may have created the tables meanwhile
                for statement in _SCHEMA.split(";"):
                    store._sql.execute(statement)
        store._check()
        return store

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is written within, or nothing of it.

        Raises:
            PoolError: it could not be written, for example because the disk is full.
        """
        with self._explained():
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
    def _connect(cls, path: Path, mode: str) -> Self:
        _require_sqlite(path)
        where = f"file:{quote(str(path.absolute()))}?mode={mode}"
        try:
            opened = sqlite3.connect(where, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise PoolError(f"{path}: {_advice(str(error))}") from error
        return cls(opened, path)

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
        # Refuse what only looks like our tables: a view or a virtual table may compute for ever, a trigger write.
        ours = {statement.split()[2]: statement.strip() for statement in _SCHEMA.split(";") if "TABLE" in statement}
        for kind, name, table, sql in self._all("SELECT type, name, tbl_name, sql FROM sqlite_master"):
            if (kind in ("table", "view") and sql != ours.get(name, sql)) or (kind == "trigger" and table in ours):
                raise PoolError(f"{self.path}: its {kind} {name!r} was not written by a recording, and is not read")
        [(pages,)], [(size,)] = self._all("PRAGMA page_count"), self._all("PRAGMA page_size")
        if (there := self.path.stat().st_size) < pages * size:  # SQLite would read zeros for what is missing
            raise PoolError(f"{self.path}: the file is damaged ({there} of {pages * size} bytes are there)")

    def _all(self, query: str, *values: Any) -> list[Any]:
        return list(self._each(query, *values))

    def _each(self, query: str, *values: Any) -> Iterator[Any]:
        with self._explained():
            try:
                for row in self._sql.execute(query, values):  # noqa: UP028 (`yield from` closes what may be closed already)
                    yield row
            except UnicodeDecodeError as error:  # of a name in the file, or in SQLite's own message
                raise PoolError(f"{self.path}: the file is damaged ({error})") from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise PoolError(f"{self.path}: {_advice(str(error))}") from error


def _require_sqlite(path: Path) -> None:
    """Refuse a file that is there and is neither empty nor an SQLite database."""
    try:
        if not path.exists() or is_sqlite(path) or not path.stat().st_size:
            return
    except IsADirectoryError:
        raise PoolError(f"{path} is a folder; name a pool in it") from None
    except OSError as error:
        raise PoolError(f"cannot read the pool {path}: {error.strerror or error}") from error
    raise PoolError(
        f"{path} is not a pool, which is an SQLite file; if it holds a pool as JSON Lines, "
        f"`reasc pool import {path} {path.with_suffix('.sqlite')}` makes one of it, and if it holds questions, "
        "`reasc record` does"
    )


def _advice(message: str) -> str:
    found = next((advice for parts, advice in _ADVICE.items() if any(part in message for part in parts)), "{0}")
    return found.format(message)

"""SQLite files of our own: recognised before they are read, written in transactions,
their errors told in words.
"""

import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from urllib.parse import quote

from langchain_reasc.exceptions import ReASCError
from langchain_reasc.files import check_name, open_file

_MAGIC: Final = b"SQLite format 3\0"
_ADVICE: Final = {
    (
        "disk is full",
        "disk I/O error",
    ): "it could not be written ({0}); what was {done} before is kept: make room, and "
    "go on from there",
    ("locked",): "another process has been writing it for {wait:g} s ({0})",
    ("malformed", "not a database", "no such", "decode"): "the file is damaged ({0})",
    (
        "readonly",
        "unable to open",
    ): "{0}; to write a {name}, its file and its folder must be writable: make them so, "
    "or copy it elsewhere",
}
"""Parts of SQLite's messages -> what to tell the user."""


class Database:
    """A file of ours, open. A subclass says what it holds.

    Args:
        connection: the connection to the database.
        path: the file.

    Attributes:
        NAME: what the file is called in errors.
        DONE: what was done with its contents, and by what, in errors.
        INSTEAD: what to do about a file of another kind.
        ERROR: what is raised for all that goes wrong.
        APPLICATION: the number by which ``file`` identifies it.
        FORMAT: the version of the schema.
        SCHEMA: the tables.
        WAIT: seconds, for another process that writes.
    """

    NAME: ClassVar[str]
    DONE: ClassVar[tuple[str, str]]
    INSTEAD: ClassVar[str]
    ERROR: ClassVar[type[ReASCError]]
    APPLICATION: ClassVar[int]
    FORMAT: ClassVar[int]
    SCHEMA: ClassVar[str]
    WAIT: ClassVar[float] = 30.0

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._sql = connection
        self.close = weakref.finalize(self, connection.close)
        """Close the file; using it afterwards is an error."""
        self.close.atexit = False  # what else ends with the process may use it

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create a file, or open the one that is there.

        Raises:
            ReASCError: it cannot be written, is something else, or was written by a
                later version.
        """
        store = cls._connect(path, "rwc")
        with store.transaction() if store._is_empty() else nullcontext():
            # another process may have created the tables meanwhile
            if store._is_empty():
                identity = f"PRAGMA application_id = {cls.APPLICATION}; PRAGMA user_version = {cls.FORMAT};"
                for statement in (identity + cls.SCHEMA).split(";"):
                    store._sql.execute(statement)
        store._check()
        return store

    @contextmanager
    def transaction(self, mode: str = "IMMEDIATE") -> Iterator[None]:
        """Write all that is written within, or nothing of it.

        Args:
            mode: SQLite's word for when to lock the file; ``DEFERRED`` suffices to
                read.

        Raises:
            ReASCError: it could not be written, for example because the disk is full.
        """
        with self._reading():
            if self._sql.in_transaction:  # part of a larger one
                yield
                return
            self._sql.execute(f"BEGIN {mode}")
            try:
                yield
                self._sql.execute("COMMIT")
            finally:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")

    @classmethod
    def _connect(cls, path: Path, mode: str) -> Self:
        cls._require_sqlite(path)
        where = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
        try:
            opened = sqlite3.connect(
                where,
                uri=True,
                timeout=cls.WAIT,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise cls.ERROR(f"{path}: {cls._advice(error)}") from error
        return cls(opened, path)

    @classmethod
    def _require_sqlite(cls, path: Path) -> None:
        """Refuse a file that is there and is neither empty nor an SQLite database, and
        a name of no file.
        """
        try:
            check_name(path)
            if not path.exists():
                return
            with open_file(
                path
            ) as file:  # no device, and no pipe, whose size would be 0
                if file.read(len(_MAGIC)) in (b"", _MAGIC):
                    return
        except IsADirectoryError:
            raise cls.ERROR(f"{path} is a folder; name a {cls.NAME} in it") from None
        except OSError as error:
            raise cls.ERROR(
                f"cannot open the {cls.NAME} {str(path)!r}: {error.strerror or error}"
            ) from error
        instead = cls.INSTEAD.format(path=path, sqlite=path.with_suffix(".sqlite"))
        raise cls.ERROR(
            f"{path} is not a {cls.NAME}, which is an SQLite file; {instead}"
        )

    def _is_empty(self) -> bool:
        return not self._all("SELECT 1 FROM sqlite_master")

    def _check(self) -> None:
        application, version = (
            self._all(f"PRAGMA {name}")[0][0]
            for name in ("application_id", "user_version")
        )
        if application != self.APPLICATION:
            raise self.ERROR(f"{self.path} is an SQLite database, but no {self.NAME}")
        if version > self.FORMAT:
            raise self.ERROR(
                f"{self.path} was written by a newer version of langchain-reasc "
                f"(format {version}, here is {self.FORMAT}); update langchain-reasc"
            )
        self._check_tables()

    def _check_tables(self) -> None:
        """Refuse what only looks like our tables: a view or a virtual table may compute
        for ever, a trigger write.
        """
        ours = {
            statement.split()[2]: statement.strip()
            for statement in self.SCHEMA.split(";")
            if "TABLE" in statement
        }
        for kind, name, table, sql in self._all(
            "SELECT type, name, tbl_name, sql FROM sqlite_master"
        ):
            if (kind in ("table", "view") and sql != ours.get(name, sql)) or (
                kind == "trigger" and table in ours
            ):
                raise self.ERROR(
                    f"{self.path}: its {kind} {name!r} was not written by "
                    f"{self.DONE[1]}, and is not read"
                )

    def _all(self, query: str, *values: Any) -> list[Any]:
        with self._reading():
            return self._sql.execute(query, values).fetchall()

    def _insert(self, table: str, *values: Any) -> int:
        """Add a row. Return its number."""
        places = ", ".join("?" * len(values))
        return int(
            self._sql.execute(
                f"INSERT INTO {table} VALUES ({places})", values
            ).lastrowid
            or 0
        )

    @contextmanager
    def _reading(self, what: str = "") -> Iterator[None]:
        """Raise our error for what SQLite cannot do, and for ``what`` if its values
        cannot be parsed.
        """
        try:
            yield
        except sqlite3.Error as error:
            raise self.ERROR(f"{self.path}: {self._advice(error)}") from error
        except (
            UnicodeDecodeError
        ) as error:  # of a name in the file, or in SQLite's own message
            raise self.ERROR(f"{self.path}: the file is damaged ({error})") from error
        except (ValueError, TypeError) as error:
            if not what or isinstance(error, self.ERROR):
                raise
            raise self.ERROR(
                f"{self.path}: the file is damaged ({what} cannot be read: {error})"
            ) from error

    @classmethod
    def _advice(cls, error: sqlite3.Error) -> str:
        message = str(error)
        found = next(
            (
                advice
                for parts, advice in _ADVICE.items()
                if any(part in message for part in parts)
            ),
            "{0}",
        )
        return found.format(message, name=cls.NAME, done=cls.DONE[0], wait=cls.WAIT)

"""A pool's file: an SQLite database, which a kill at any moment leaves whole.

Tables (``sqlite3 pool.sqlite`` shows them)::

    about      name, value                 what the recording says of itself, each value as JSON
    questions  number, id, input, accepted what was asked, and the accepted answers; both as JSON
    responses  question, number, answer, correct, score, completion_tokens, ...    what decisions need
    messages   question, number, text, beside, usage, token_lengths                what they do not need
    signals    name, question, tokens      float32, little-endian, of all responses to the question, one after the other

A question is added in one transaction, which is on disk before the next one begins. ``responses.signal_tokens`` says
how many of the values of a question's signals belong to each response.
"""

import json
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError

__all__ = ["FORMAT", "PoolStore", "StoredMessage", "StoredQuestion", "StoredResponse", "is_store"]

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
  name TEXT NOT NULL, question INTEGER NOT NULL REFERENCES questions, tokens BLOB NOT NULL, PRIMARY KEY (name, question)
);
"""
_RESPONSE: Final = (
    *("answer", "correct", "score", "completion_tokens", "prompt_tokens", "finish_reason", "cut_off"),
    *("answer_span", "last_step", "seconds", "signal_tokens"),
)
_MESSAGE: Final = ("text", "beside", "usage", "token_lengths")

TokenSignals = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """What a pool keeps of a response that decisions do not need.

    Attributes:
        text: what the model wrote; None where it was not kept.
        beside: what its vote depends on besides text and finish reason, such as tool calls, as LangChain has it.
        usage: its ``usage_metadata``, as the provider reported it.
        token_lengths: how many characters of the text each token spells, where that could be told.
    """

    text: str | None = None
    beside: Any = None
    usage: dict[str, Any] | None = None
    token_lengths: list[int] | None = None


class StoredResponse(NamedTuple):
    """A response on its way into a pool: the columns of ``responses`` by name, its message and its token signals."""

    columns: Mapping[str, Any]
    message: StoredMessage = StoredMessage()
    signals: TokenSignals = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question on its way into a pool or out of it.

    Attributes:
        id: its name.
        input: what was asked; anything that JSON can hold.
        accepted: the right answer, and others that are accepted.
        responses: those to store, or those that were.
    """

    id: str
    input: Any
    accepted: Sequence[str]
    responses: Sequence[StoredResponse] = field(default=())


def is_store(path: Path) -> bool:
    """Whether a file is an SQLite database, rather than a pool as JSON Lines."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class PoolStore:
    """A pool's file, open.

    Args:
        connection: to the database.
        path: what messages call it.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._sql = connection
        self.close = weakref.finalize(self, connection.close)
        """Close the file; reading or writing it is an error from then on."""

    @classmethod
    def open(cls, path: Path) -> "PoolStore":
        """Open a pool that exists, to write it too where that is allowed.

        Raises:
            PoolError: it cannot be opened, is no pool, or was written by a version to come.
        """
        mode = "rw" if os.access(path, os.W_OK) else "ro"  # what a kill left half done is undone by who opens it next
        with _named(path):
            where = f"file:{quote(str(path.absolute()))}?mode={mode}"
            store = cls(_connected(where, uri=True), path)
            if store._is_empty():
                raise PoolError(f"{path} holds no question; record some with `reasc record`")
            store._check_version()
        return store

    @classmethod
    def create(cls, path: Path) -> "PoolStore":
        """Begin a pool in a file that is not there or empty, or go on with the one that is there.

        Raises:
            PoolError: the file cannot be written, is no pool, or was written by a version to come.
        """
        with _named(path):
            store = cls(_connected(str(path)), path)
            if store._is_empty():
                store._sql.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            store._check_version()
        return store

    @classmethod
    def temporary(cls, path: Path) -> "PoolStore":
        """A pool of no name, which goes when it is closed; it is on disk where memory would not hold it.

        Args:
            path: what messages call it.
        """
        store = cls(_connected(""), path)
        store._sql.executescript(_SCHEMA)
        return store

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written within, or nothing of it.

        Raises:
            PoolError: it could not be written; the disk is full, say.
        """
        with _named(self.path):
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

    def about(self) -> dict[str, Any]:
        """What the recording says of itself."""
        return {name: json.loads(value) for name, value in self._all("SELECT name, value FROM about")}

    def set_about(self, metadata: Mapping[str, Any]) -> None:
        """Say more of the recording, or something else."""
        with self.transaction():
            self._sql.executemany(
                "INSERT OR REPLACE INTO about VALUES (?, ?)",
                [(name, json.dumps(value, ensure_ascii=False)) for name, value in metadata.items()],
            )

    def add(self, question: StoredQuestion) -> None:
        """Add a question with its responses, or to a question that is there the responses behind those it has.

        Raises:
            PoolError: it could not be written; then nothing of it is.
        """
        with self.transaction():
            row = self._number(question.id)
            if row is None:
                added = self._sql.execute(
                    "INSERT INTO questions (id, input, accepted) VALUES (?, ?, ?)",
                    (question.id, _json(question.input), _json(list(question.accepted))),
                )
                row = int(added.lastrowid or 0)
            [(held,)] = self._all("SELECT COUNT(*) FROM responses WHERE question = ?", row)
            for number, one in enumerate(question.responses, start=held):
                columns = {**one.columns, "signal_tokens": _tokens(one.signals)}
                self._insert("responses", row, number, [_plain(columns.get(name)) for name in _RESPONSE])
                message = one.message
                kept = (_plain(message.text), _json(message.beside), _json(message.usage), _json(message.token_lengths))
                self._insert("messages", row, number, kept)
            self._add_signals(row, [one.signals for one in question.responses])

    def set_question(self, question: str, accepted: Sequence[str]) -> None:
        """Write the accepted answers of a question anew; what it was graded by them before no longer holds."""
        with self.transaction():
            self._sql.execute("UPDATE questions SET accepted = ? WHERE id = ?", (_json(list(accepted)), question))
            self.set_responses(question, [{"correct": None}] * len(self.messages(question)))

    def set_responses(self, question: str, changes: Iterable[Mapping[str, Any]]) -> None:
        """Change columns of each response to a question.

        Args:
            question: its id.
            changes: per response, column -> value.
        """
        with self.transaction():
            row = self._number(question)
            for number, columns in enumerate(changes):
                if columns:
                    told = ", ".join(f"{name} = ?" for name in columns)
                    values = [_plain(value) for value in columns.values()]
                    self._sql.execute(
                        f"UPDATE responses SET {told} WHERE question = ? AND number = ?", (*values, row, number)
                    )

    def set_signals(self, question: str, responses: Sequence[TokenSignals]) -> None:
        """Write the signals of all responses to a question, in place of those that it has."""
        with self.transaction():
            row = self._number(question)
            self._sql.execute("DELETE FROM signals WHERE question = ?", (row,))
            self._add_signals(int(row or 0), responses)
            self.set_responses(question, [{"signal_tokens": _tokens(one)} for one in responses])

    def set_verdicts(self, question: str, verdicts: Sequence[bool | None]) -> None:
        """Write whether each response to a question is right; None where answer and reference tell."""
        self.set_responses(question, [{"correct": verdict} for verdict in verdicts])

    def ids(self) -> dict[str, int]:
        """The questions in recorded order, with how many responses each has."""
        return dict(
            self._all(
                "SELECT id, (SELECT COUNT(*) FROM responses WHERE question = questions.number) FROM questions "
                "ORDER BY number"
            )
        )

    def questions(self) -> Iterator[StoredQuestion]:
        """All questions in recorded order, without messages and signals: those are fetched for each."""
        columns = ", ".join(f"r.{name}" for name in _RESPONSE)
        rows = self._each(
            f"SELECT q.id, q.input, q.accepted, {columns} FROM questions q JOIN responses r ON r.question = q.number "
            "ORDER BY q.number, r.number"
        )
        for (id, asked, accepted), held in groupby(rows, key=lambda row: row[:3]):
            responses = [StoredResponse(_columns(row[3:])) for row in held]
            yield StoredQuestion(id, json.loads(asked or "null"), json.loads(accepted), responses)

    def messages(self, question: str) -> list[StoredMessage]:
        """What is kept of the responses to a question beside their columns; none where it is not there."""
        rows = self._all(
            f"SELECT {', '.join(_MESSAGE)} FROM messages WHERE question = (SELECT number FROM questions WHERE id = ?) "
            "ORDER BY number",
            question,
        )
        return [StoredMessage(text, *(json.loads(one or "null") for one in more)) for text, *more in rows]

    def usages(self) -> Iterator[tuple[str, list[Any]]]:
        """The ``usage_metadata`` of each response to each question, where it was kept."""
        rows = self._each(
            "SELECT q.id, m.usage FROM questions q JOIN messages m ON m.question = q.number ORDER BY q.number, m.number"
        )
        for id, held in groupby(rows, key=lambda row: row[0]):
            yield id, [json.loads(usage or "null") for _, usage in held]

    def signal_names(self) -> list[tuple[str, int]]:
        """The signals that are there, with the number of questions that have each."""
        return self._all("SELECT name, COUNT(*) FROM signals GROUP BY name ORDER BY MIN(rowid)")

    def with_signals(self) -> int:
        """How many questions have signals."""
        [(questions,)] = self._all("SELECT COUNT(DISTINCT question) FROM signals")
        return int(questions)

    def signals(self, name: str, questions: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        """One signal of some questions: id -> the values of all its responses, one after the other."""
        marks = ", ".join("?" * len(questions))
        rows = self._each(
            "SELECT q.id, s.tokens FROM questions q JOIN signals s ON s.question = q.number "
            f"WHERE s.name = ? AND q.id IN ({marks})",
            name,
            *questions,
        )
        return {id: np.frombuffer(tokens, dtype="<f4") for id, tokens in rows}

    def _add_signals(self, row: int, responses: Sequence[TokenSignals]) -> None:
        """Add the signals of responses behind those that are there; only such as all that have any carry are kept."""
        held: dict[str, bytes] = dict(self._all("SELECT name, tokens FROM signals WHERE question = ?", row))
        carrying = [{name: np.asarray(v, dtype="<f4") for name, v in one.items()} for one in responses if one]
        names = [name for name in (carrying[0] if carrying else held) if all(name in one for one in carrying)]
        for name in [name for name in names if not held or name in held]:
            values = held.get(name, b"") + b"".join(one[name].tobytes() for one in carrying)
            self._sql.execute("INSERT OR REPLACE INTO signals VALUES (?, ?, ?)", (name, row, values))
        for name in held.keys() - names if carrying else ():
            self._sql.execute("DELETE FROM signals WHERE question = ? AND name = ?", (row, name))

    def _insert(self, table: str, row: int, number: int, values: Sequence[Any]) -> None:
        marks = ", ".join("?" * (len(values) + 2))
        self._sql.execute(f"INSERT INTO {table} VALUES ({marks})", (row, number, *values))

    def _number(self, question: str) -> int | None:
        found = self._all("SELECT number FROM questions WHERE id = ?", question)
        return found[0][0] if found else None

    def _is_empty(self) -> bool:
        return not self._all("SELECT 1 FROM sqlite_master")

    def _check_version(self) -> None:
        [(application,)], [(version,)] = self._all("PRAGMA application_id"), self._all("PRAGMA user_version")
        if application != _APPLICATION:
            raise PoolError(f"{self.path} is an SQLite database, but no pool")
        if version > FORMAT:
            raise PoolError(
                f"{self.path} was written by a newer version of langchain-reasc (format {version}, here is {FORMAT}); "
                "update langchain-reasc"
            )

    def _all(self, query: str, *values: Any) -> list[Any]:
        return list(self._each(query, *values))

    def _each(self, query: str, *values: Any) -> Iterator[Any]:
        with _named(self.path):
            yield from self._sql.execute(query, values)


def _connected(where: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(where, uri=uri, timeout=_WAIT, isolation_level=None, check_same_thread=False)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What SQLite complains of, as an error that names the file and says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise PoolError(f"{path}: {_advice(str(error))}") from error


def _advice(said: str) -> str:
    if "disk is full" in said or "disk I/O error" in said:
        return f"it could not be written ({said}); what was recorded before is kept: make room, and go on from there"
    if "locked" in said:
        return f"another process has been writing it for {_WAIT:.0f} s ({said})"
    if "malformed" in said or "not a database" in said:
        return f"the file is damaged ({said})"
    return said


def _columns(values: Sequence[Any]) -> dict[str, Any]:
    columns = dict(zip(_RESPONSE, values, strict=True))
    for name in ("answer_span", "last_step"):
        columns[name] = tuple(json.loads(columns[name])) if columns[name] else None
    columns["cut_off"] = bool(columns["cut_off"])
    columns["correct"] = None if columns["correct"] is None else bool(columns["correct"])
    return columns


def _tokens(signals: TokenSignals) -> int:
    """Of how many tokens signals are."""
    return next((int(np.size(values)) for values in signals.values()), 0)


def _plain(value: Any) -> Any:
    """A value as SQLite takes it; half an emoji is no text."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(value) if isinstance(value, tuple | list) else value


def _json(value: Any) -> str | None:
    return None if value is None else str(_plain(json.dumps(value, ensure_ascii=False)))

"""The SQLite file of ``calibration="online"``: what every process that shares it has seen, and what was learned of it.

Tables (``sqlite3 online.sqlite`` shows them)::

    learned    name, value                  fingerprint, state (counts, drift monitors) and calibrations, each as JSON:
                                            "calibration" is of all kinds of request, "calibration KIND" of one
    measures   number, names                sets of measures, as JSON: signal, score, window of each row of scores
    questions  number, answers, measures, scores, counted, decided, answer, id, correct, p_correct, kind
                                            the last 512, and the last 128 of each kind of request

``scores`` are float32, little-endian, of shape (measures, responses). Answers are numbers, ids are drawn at random, and
kinds of request are hashes: no text is kept. What a process reads and writes of a question is one transaction, in a
write-ahead log with ``synchronous=NORMAL``: a kill loses nothing that was written, a power failure perhaps the last of
it.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakSet

import numpy as np
from pydantic import ValidationError

from langchain_reasc.calibration.online_state import Observed, OnlineState
from langchain_reasc.calibration.record import Calibration, Fingerprint, Record
from langchain_reasc.complaints import findings
from langchain_reasc.database import Database
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.files import parse_json
from langchain_reasc.method.confidence import Measure

__all__ = ["KEPT", "KEPT_OF_KIND", "OnlineStore", "OnlineStoreFile"]

KEPT: Final = 512
KEPT_OF_KIND: Final = 128
_BEGUN_WITHIN: Final = 1.0  # seconds that another process has between making the file and its tables
_PAUSE: Final = 0.01  # seconds
_FIELDS: Final = ("counted", "decided", "answer", "id", "correct", "p_correct", "kind")
_COLUMNS: Final = ", ".join(("number", "answers", "measures", "scores", *_FIELDS))
_FORGET: Final = """
DELETE FROM questions WHERE kind = :kind AND number <= :until AND number < (
  SELECT number FROM questions WHERE kind = :kind ORDER BY number DESC LIMIT 1 OFFSET :kept
)
"""
"""Forgets questions of a kind that are neither among the last 512 nor among the last 128 of theirs."""
_RECORDS: Final[Mapping[str, Any]] = {"fingerprint": Fingerprint, "state": OnlineState, "calibration": Calibration}


class OnlineStore(Database):
    """The file, open."""

    NAME = "calibration store"
    DONE = "learned", "online learning"
    INSTEAD = "name another file, or move this one away to begin anew"
    ERROR = CalibrationFileError
    APPLICATION = 0x52654F6E  # "ReOn"
    FORMAT = 1
    SCHEMA = """
CREATE TABLE learned (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE measures (number INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE);
CREATE TABLE questions (
  number INTEGER PRIMARY KEY, answers TEXT NOT NULL, measures INTEGER NOT NULL REFERENCES measures,
  scores BLOB NOT NULL, counted INTEGER NOT NULL, decided INTEGER NOT NULL, answer INTEGER, id TEXT, correct INTEGER,
  p_correct REAL, kind TEXT NOT NULL
);
CREATE INDEX of_kind ON questions (kind, number);
"""
    WAIT = 5.0

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._parsed: dict[str, tuple[str, Record]] = {}  # name -> what was read or written last

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing store, for writing too where that is allowed.

        Raises:
            CalibrationFileError: it is not there, cannot be read, is something else, or is damaged.
        """
        source = Path(path)
        if not source.exists():
            raise CalibrationFileError(f'no calibration store at {source}; calibration="online" makes one')
        try:
            return cls._opened(source, "rw" if os.access(source, os.W_OK) else "ro")
        except CalibrationFileError as error:
            if not isinstance(error.__cause__, sqlite3.OperationalError):
                raise
        # SQLite could not make the files beside it that it shares with writers: the disk is full, or may only be read.
        return cls._opened(source, "ro&immutable=1")

    @classmethod
    def _opened(cls, source: Path, mode: str) -> Self:
        store = cls._connect(source, mode)
        until = time.monotonic() + _BEGUN_WITHIN
        while store._is_empty():
            if time.monotonic() > until:
                raise CalibrationFileError(f"{source} is empty; {cls.INSTEAD}")
            time.sleep(_PAUSE)
        store._check()
        return store

    def _check(self) -> None:
        super()._check()
        [[found], *_] = self._all("PRAGMA quick_check(1)")
        if found != "ok":
            raise CalibrationFileError(f"{self.path}: the file is damaged ({found}); {self.INSTEAD}")
        self._sql.execute("PRAGMA synchronous = NORMAL")

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create a store, or open the one that is there; see :meth:`Database.create`."""
        store, until = super().create(path), time.monotonic() + cls.WAIT
        with store._reading():
            while True:
                try:
                    store._sql.execute("PRAGMA journal_mode = WAL")
                    return store
                except sqlite3.OperationalError:  # SQLite does not wait for another process that does the same
                    if time.monotonic() > until:
                        raise
                    time.sleep(_PAUSE)

    def learned(self, name: str) -> Any:
        """Return what is kept under this name: ``fingerprint``, ``state``, ``calibration`` or ``calibration KIND``.

        None where nothing is.
        """
        rows = self._all("SELECT value FROM learned WHERE name = ?", name)
        if not rows:
            return None
        text, record = self._parsed.get(name, (None, None))
        if text != rows[0][0]:
            with self._valid(f"its {name}"):
                record = _RECORDS[name.partition(" ")[0]].model_validate_json(rows[0][0])
            self._parsed[name] = rows[0][0], record
        return record

    def calibration(self, kind: str | None = None) -> Calibration | None:
        """Return the calibration of a kind of request, or, for None, of all of them."""
        known: Calibration | None = self.learned(_name(kind))
        return known

    def set_learned(
        self, fingerprint: Fingerprint, state: OnlineState, calibration: Callable[[str | None], Calibration | None]
    ) -> None:
        """Replace what is kept beside the questions.

        Args:
            fingerprint: what it is learned of.
            state: what was learned.
            calibration: returns the calibration of a kind of request, or, for None, of all.
        """
        with self.transaction():
            before = self.learned("state")
            for name, record in {"fingerprint": fingerprint, "state": state, _name(None): calibration(None)}.items():
                self._set(name, record)
            known = before.kinds if before and before.alarms == state.alarms else {}
            for kind, counts in state.kinds.items():
                if kind not in known or counts.fitted != known[kind].fitted:
                    self._set(_name(kind), calibration(kind))
            if before and (forgotten := before.kinds.keys() - state.kinds):
                for kind in forgotten:
                    self._set(_name(kind), None)
                    self._sql.execute("DELETE FROM questions WHERE kind = ? AND number <= ?", (kind, self.last - KEPT))

    def _set(self, name: str, record: Record | None) -> None:
        if record is None:
            self._sql.execute("DELETE FROM learned WHERE name = ?", (name,))
            self._parsed.pop(name, None)
        elif record != self.learned(name):
            self._parsed[name] = record.model_dump_json(), record
            self._sql.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", (name, self._parsed[name][0]))

    @property
    def last(self) -> int:
        """The number of the last question; 0 where there is none."""
        return int(self._all("SELECT MAX(number) FROM questions")[0][0] or 0)

    def measures(self) -> list[Measure]:
        """Return the measures by which some question has scores."""
        return list(dict.fromkeys(one for measures in self._measures().values() for one in measures))

    def questions(self, measures: Sequence[Measure], *, after: int = 0) -> list[Observed]:
        """Return the questions behind this number, with scores of shape (measures, responses)."""
        number_of = {measure: row for row, measure in enumerate(measures)}
        places = {known: [number_of.get(one, -1) for one in held] for known, held in self._measures().items()}
        rows = self._all(f"SELECT {_COLUMNS} FROM questions WHERE number > ? ORDER BY number", after)
        questions = []
        for number, *columns in rows:
            with self._valid(f"question {number}"):
                questions.append(_question(columns, places, len(measures)))
        return questions

    def add(self, question: Observed, measures: Sequence[Measure]) -> None:
        """Add a question, and forget those that are no longer kept."""
        scored = np.flatnonzero(np.isfinite(question.scores).any(axis=1)).tolist()
        names = json.dumps([(one.signal, one.score, one.window) for one in (measures[row] for row in scored)])
        with self.transaction():
            self._sql.execute("INSERT OR IGNORE INTO measures (names) VALUES (?)", (names,))
            [(known,)] = self._all("SELECT number FROM measures WHERE names = ?", names)
            with np.errstate(over="ignore"):
                scores = question.scores[scored].astype("<f4")
            scores[np.isinf(scores)] = np.nan  # too large for float32
            fields = (getattr(question, name) for name in _FIELDS)
            last = self._insert("questions", None, json.dumps(question.answers), known, scores.tobytes(), *fields)
            self._sql.execute(_FORGET, {"kind": question.kind, "until": last - KEPT, "kept": KEPT_OF_KIND - 1})
            for (kind,) in self._all("SELECT kind FROM questions WHERE number = ?", last - KEPT):
                self._sql.execute(_FORGET, {"kind": kind, "until": last - KEPT, "kept": KEPT_OF_KIND - 1})

    def set_correct(self, id: str, correct: bool) -> None:
        """Keep whether the answer to a question was right."""
        with self.transaction():
            self._sql.execute("UPDATE questions SET correct = ? WHERE id = ?", (correct, id))

    def clear(self) -> None:
        """Forget all questions."""
        with self.transaction():
            self._sql.execute("DELETE FROM questions")

    def _measures(self) -> dict[int, list[Measure]]:
        rows = self._all("SELECT number, names FROM measures")
        with self._valid("its measures"):
            return {number: [Measure(*one) for one in parse_json(names)] for number, names in rows}

    @contextmanager
    def _valid(self, what: str) -> Iterator[None]:
        """Raise our error where ``what`` is not what was written, without showing it."""
        try:
            yield
        except ValidationError as error:
            why = findings(error, values=False)[0]
        except (ValueError, TypeError, LookupError) as error:
            why = str(error)
        else:
            return
        raise CalibrationFileError(f"{self.path}: the file is damaged ({what} cannot be read: {why}); {self.INSTEAD}")


def _question(columns: Sequence[Any], places: Mapping[int, Sequence[int]], measures: int) -> Observed:
    """Parse a row.

    Args:
        columns: what it holds.
        places: number of a set of measures -> which row of scores is each one's; -1: none.
        measures: rows of scores.

    Raises:
        ValueError: it was not written by :meth:`OnlineStore.add`.
        LookupError: likewise.
    """
    text, known, blob, counted, decided, answer, id, correct, p_correct, kind = columns
    answers = tuple(parse_json(text))
    scores = np.frombuffer(blob, dtype="<f4").reshape(len(places[known]), len(answers))
    numbers = [one for one in (*answers, answer, decided) if one is not None]
    wrong = any(type(one) is not int or one < 0 for one in numbers) or not 0 <= (p_correct or 0) <= 1
    if not answers or wrong or np.isinf(scores).any():
        raise ValueError("its numbers contradict each other")
    placed = np.full((measures + 1, len(answers)), np.nan)
    placed[list(places[known])] = scores
    correct = None if correct is None else bool(correct)
    return Observed(
        answers,
        placed[:-1],
        counted=bool(counted),
        decided=decided,
        answer=answer,
        id=id,
        correct=correct,
        p_correct=p_correct,
        kind=kind,
    )


def _name(kind: str | None) -> str:
    """Return the name of a calibration."""
    return "calibration" if kind is None else f"calibration {kind}"


class OnlineStoreFile:
    """A store that several processes and threads use, open from its first use on.

    It is opened anew where another file has taken its place, after an error, and in both processes after a fork.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._store: OnlineStore | None = None
        self._is: tuple[int, int] | None = None  # the file that is open
        _files.add(self)

    @contextmanager
    def transaction(self, *, create: bool) -> Iterator[OnlineStore | None]:
        """Give the store, whose changes are kept together or not at all; None where there is none to read.

        Args:
            create: whether to write, and so to create the file where it is not there.

        Raises:
            CalibrationFileError: it cannot be opened, read or written, or its folder does not exist.
        """
        if not self.path.absolute().parent.is_dir():
            raise CalibrationFileError(f"there is no folder {self.path.parent}")
        with _NOT_WHILE_FORKING:
            if not (create or self.path.exists()):
                yield None
                return
            try:
                store = self._opened(create=create)
                with store.transaction("IMMEDIATE" if create else "DEFERRED"):
                    yield store
            except BaseException:
                self.close()
                raise

    def _opened(self, *, create: bool) -> OnlineStore:
        if self._store is None or self._is != self._identity():
            self.close()
            self._store = OnlineStore.create(self.path) if create else OnlineStore.open(self.path)
            self._is = self._identity()
        return self._store

    def _identity(self) -> tuple[int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def close(self) -> None:
        """Close it until its next use."""
        if self._store is not None:
            self._store.close()
        self._store = None


_files: WeakSet[OnlineStoreFile] = WeakSet()
# SQLite's locks are the process's: a child that is forked with a connection takes its parent's locks for its own.
_NOT_WHILE_FORKING: Final = threading.Lock()


def _close_before_fork() -> None:
    _NOT_WHILE_FORKING.acquire()
    for file in tuple(_files):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_close_before_fork,
        after_in_parent=_NOT_WHILE_FORKING.release,
        after_in_child=_NOT_WHILE_FORKING.release,
    )

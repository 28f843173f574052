"""The SQLite file of observations. Any number of processes may append to it.

Tables (``sqlite3 online.sqlite`` shows them)::

    about         name, value         "fingerprint": the model, sampling and prompt of the rows; "made_of": signal ->
                                      the k and V behind its scores; each as JSON
    measures      number, names       sets of measures, as JSON: signal, score, window of each row of scores
    observations  number, kind, ...   one row for each question that was asked, see
                                      :class:`~langchain_reasc.calibration.Observation`
    restarts      number, drift       a row that showed drift; it and the rows before it are deleted
    escalations   kind, known         what is known of a small and a large model, as JSON, see
                                      :class:`~langchain_reasc.calibration.LearnedEscalation`

``scores`` are float32, little-endian, of shape (measures, responses). Answers are
numbers, ids are random, and kinds of request are hashes, so the file contains no text.
A row is written in one transaction to a write-ahead log with ``synchronous=NORMAL``. A
killed process loses no written row; a power failure may lose the last ones.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final, Self, get_args
from weakref import WeakSet

import numpy as np
from pydantic import TypeAdapter, ValidationError

from langchain_reasc.calibration.drift import MONITORED, Drift, Prediction
from langchain_reasc.calibration.escalation import LearnedEscalation
from langchain_reasc.calibration.observations import (
    Observation,
    Observations,
    SignalProvenance,
)
from langchain_reasc.complaints import findings
from langchain_reasc.database import Database
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch
from langchain_reasc.files import check_name, parse_json
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint, check_fingerprint

__all__ = ["NOT_KEPT", "ObservationFile", "ObservationStore"]

NOT_KEPT: Final = (
    "what is learned now is not kept yet, and is written when the file can be: %s"
)
"""The warning that a file could not be written, with the error."""
# seconds that another process may take between creating the file and its tables
_CREATED_WITHIN: Final = 1.0
_PAUSE: Final = 0.01  # seconds
_FIELDS: Final = ("kind", "decided", "answer", "counted", "id", "correct", "p_correct")
_COLUMNS: Final = ", ".join(
    ("number", *_FIELDS, "answers", "labels", "predictions", "measures", "scores")
)
_PROVENANCE: Final = TypeAdapter(SignalProvenance)


class ObservationStore(Database):
    """The open file."""

    NAME = "calibration store"
    DONE = "learned", "online learning"
    INSTEAD = "name another file, or move this one away to begin anew"
    ERROR = CalibrationFileError
    APPLICATION = 0x52654F6E  # "ReOn"
    FORMAT = 3
    SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE measures (number INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE);
CREATE TABLE observations (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, decided INTEGER NOT NULL, answer INTEGER, counted INTEGER NOT NULL,
  id TEXT, correct INTEGER, p_correct REAL, answers TEXT NOT NULL, labels TEXT NOT NULL, predictions TEXT NOT NULL,
  measures INTEGER NOT NULL REFERENCES measures, scores BLOB NOT NULL
);
CREATE TABLE restarts (number INTEGER PRIMARY KEY, drift TEXT NOT NULL);
CREATE TABLE escalations (kind TEXT PRIMARY KEY, known TEXT NOT NULL);
"""
    WAIT = 5.0

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing store, for writing if permissions allow it.

        Raises:
            CalibrationFileError: the file does not exist, cannot be read, is not a
                store, or is damaged.
        """
        source = Path(path)
        if not source.exists():
            raise CalibrationFileError(
                f'no calibration store at {source}; calibration="online" makes one'
            )
        try:
            return cls._opened(source, "rw" if os.access(source, os.W_OK) else "ro")
        except CalibrationFileError as error:
            if not isinstance(error.__cause__, sqlite3.OperationalError):
                raise
        # SQLite could not create its -wal and -shm files: the disk is full or
        # read-only.
        return cls._opened(source, "ro&immutable=1")

    @classmethod
    def _opened(cls, source: Path, mode: str) -> Self:
        store = cls._connect(source, mode)
        until = time.monotonic() + _CREATED_WITHIN
        while store._is_empty():
            if time.monotonic() > until:
                raise CalibrationFileError(f"{source} is empty; {cls.INSTEAD}")
            time.sleep(_PAUSE)
        store._check()
        return store

    def _check_tables(self) -> None:
        [(version,)] = self._all("PRAGMA user_version")
        if version < self.FORMAT:
            raise CalibrationFileError(
                f"{self.path} was written by an earlier version; {self.INSTEAD}"
            )
        super()._check_tables()
        [[finding], *_] = self._all("PRAGMA quick_check(1)")
        if finding != "ok":
            raise self._damaged(finding)
        self._sql.execute("PRAGMA synchronous = NORMAL")

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create a store, or open the one that is there; see :meth:`Database.create`."""
        store = super().create(path)
        until = time.monotonic() + cls.WAIT
        with store._reading():
            while True:
                try:
                    store._sql.execute("PRAGMA journal_mode = WAL")
                    return store
                except sqlite3.OperationalError:
                    # Another process does the same, and SQLite does not wait for it.
                    if time.monotonic() > until:
                        raise
                    time.sleep(_PAUSE)

    @property
    def fingerprint(self) -> Fingerprint | None:
        """The model, sampling and prompt of the rows; None without rows."""
        text = self._about("fingerprint")
        if text is None:
            return None
        with self._valid("its fingerprint"):
            return Fingerprint.model_validate_json(text)

    @property
    def provenance(self) -> SignalProvenance:
        """Signal -> the k and V behind its scores."""
        with self._valid("its made_of"):
            return _PROVENANCE.validate_json(self._about("made_of") or "{}")

    def check_fits(self, fingerprint: Fingerprint | None, what: str) -> None:
        """Refuse a model, sampling or prompt other than that of the rows.

        Args:
            fingerprint: the model, sampling and prompt now.
            what: the beginning of the error.

        Raises:
            FingerprintMismatch: with what differs.
        """
        stored = self.fingerprint
        if stored is None or fingerprint is None:
            return
        try:
            check_fingerprint(stored, fingerprint)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(f"{what}: {error}") from None

    def describe(self, fingerprint: Fingerprint, provenance: SignalProvenance) -> None:
        """Store the fingerprint and the provenance of the rows."""
        values = {
            "fingerprint": fingerprint.model_dump_json(),
            "made_of": json.dumps(provenance),
        }
        for name, value in values.items():
            if value != self._about(name):
                self._sql.execute(
                    "INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value)
                )

    def _about(self, name: str) -> str | None:
        rows = self._all("SELECT value FROM about WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def observations(self, measures: Sequence[Measure] | None = None) -> Observations:
        """Return the rows that count, with scores by these measures, or by all measures
        in the file.
        """
        with self.transaction("DEFERRED"):
            if measures is None:
                measures = self.measures()
            observations = Observations(self.restarts(), self.provenance)
            observations.extend(self.rows(measures, after=observations.last))
        return observations

    def restarts(self, after: int = -1) -> list[tuple[int, Drift]]:
        """Return the later rows that showed drift, as (number, what had changed)."""
        rows = self._all(
            "SELECT number, drift FROM restarts WHERE number > ? ORDER BY number", after
        )
        if not all(drift in get_args(Drift) for _, drift in rows):
            raise self._damaged("its restarts cannot be read")
        return [(number, drift) for number, drift in rows]

    def rows(
        self, measures: Sequence[Measure], after: int = 0
    ) -> list[tuple[int, Observation]]:
        """Return later rows as (number, row), with scores of shape (measures,
        responses).
        """
        indices = {measure: index for index, measure in enumerate(measures)}
        places = {
            key: [indices.get(measure, -1) for measure in stored]
            for key, stored in self._measures().items()
        }
        query = f"SELECT {_COLUMNS} FROM observations WHERE number > ? ORDER BY number"
        rows = []
        for number, *columns in self._all(query, after):
            with self._valid(f"row {number}"):
                rows.append((number, _observation(columns, places, len(measures))))
        return rows

    def append(
        self, row: Observation, measures: Sequence[Measure]
    ) -> tuple[int, Observation]:
        """Append a row. Return its number and the row as the file stores it."""
        scored = np.flatnonzero(np.isfinite(row.scores).any(axis=1)).tolist()
        with np.errstate(over="ignore"):
            scores = row.scores[scored].astype("<f4")
        scores[np.isinf(scores)] = np.nan  # too large for float32
        names = json.dumps([astuple(measures[index]) for index in scored])
        fields = [getattr(row, name) for name in _FIELDS]
        lists = (row.answers, row.right, row.predictions)
        with self.transaction():
            self._sql.execute(
                "INSERT OR IGNORE INTO measures (names) VALUES (?)", (names,)
            )
            [(key,)] = self._all("SELECT number FROM measures WHERE names = ?", names)
            # A restart deletes rows, whose numbers are not used again.
            [(last,)] = self._all(
                "SELECT MAX(number) FROM (SELECT number FROM observations UNION ALL "
                "SELECT number FROM restarts)"
            )
            number = self._insert(
                "observations",
                (last or 0) + 1,
                *fields,
                *map(json.dumps, lists),
                key,
                scores.tobytes(),
            )
        stored = np.full(row.scores.shape, np.nan)
        stored[scored] = scores
        return number, replace(row, scores=stored)

    def set_outcomes(self, outcomes: Mapping[str, bool]) -> None:
        """Store outcomes: id of a question -> whether its answer was right."""
        values = [(correct, id) for id, correct in outcomes.items()]
        with self.transaction():
            self._sql.executemany(
                "UPDATE observations SET correct = ? WHERE id = ?", values
            )

    def outcomes(self) -> list[tuple[int, bool]]:
        """Return the known outcomes as (number of a row, whether its answer was right)."""
        query = "SELECT number, correct FROM observations WHERE correct >= 0"
        return [(number, bool(correct)) for number, correct in self._all(query)]

    def restart(self, restarts: Mapping[int, Drift]) -> None:
        """Delete the rows up to those that showed drift. Several processes may do this
        for the same row.
        """
        with self.transaction():
            self._sql.executemany(
                "INSERT OR IGNORE INTO restarts VALUES (?, ?)", restarts.items()
            )
            self._sql.execute(
                "DELETE FROM observations WHERE number <= ?", (max(restarts),)
            )

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete rows."""
        with self.transaction():
            self._sql.executemany(
                "DELETE FROM observations WHERE number = ?",
                [(number,) for number in numbers],
            )

    def escalation(self, kind: str) -> LearnedEscalation | None:
        """Return what is known of a small and a large model for a kind of request."""
        if not self._has_table("escalations"):
            return None
        rows = self._all("SELECT known FROM escalations WHERE kind = ?", kind)
        if not rows:
            return None
        with self._valid(f"what is known of {kind}"):
            return LearnedEscalation.model_validate_json(rows[0][0])

    def escalations(self) -> list[LearnedEscalation]:
        """Return what is known of all kinds of request."""
        if not self._has_table("escalations"):
            return []
        rows = self._all("SELECT known FROM escalations")
        with self._valid("its escalations"):
            return [LearnedEscalation.model_validate_json(text) for (text,) in rows]

    def set_escalation(
        self, kind: str, known: LearnedEscalation, id: str | None = None
    ) -> None:
        """Store what is known of a small and a large model for a kind of request.

        Args:
            kind: the kind.
            known: what is known, with the last question.
            id: the last question, if it is not to be asked again.
        """
        with self.transaction():
            self._sql.execute(
                "CREATE TABLE IF NOT EXISTS escalations (kind TEXT PRIMARY KEY, known "
                "TEXT NOT NULL)"
            )
            self._sql.execute(
                "INSERT OR REPLACE INTO escalations VALUES (?, ?)",
                (kind, known.model_dump_json()),
            )
            if id is not None:
                self._sql.execute(
                    "CREATE TABLE IF NOT EXISTS shadowed (kind TEXT, id TEXT, PRIMARY "
                    "KEY (kind, id))"
                )
                self._sql.execute(
                    "INSERT OR IGNORE INTO shadowed VALUES (?, ?)", (kind, id)
                )

    def is_shadowed(self, kind: str, id: str) -> bool:
        """Return whether a question was stored with its id."""
        if not self._has_table("shadowed"):
            return False
        query = "SELECT 1 FROM shadowed WHERE kind = ? AND id = ?"
        return bool(self._all(query, kind, id))

    def _has_table(self, name: str) -> bool:
        """Whether the file has a table that not every file has."""
        return bool(self._all("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def measures(self) -> list[Measure]:
        """Return the measures of which any row has scores."""
        return list(dict.fromkeys(chain.from_iterable(self._measures().values())))

    def _measures(self) -> dict[int, list[Measure]]:
        rows = self._all("SELECT number, names FROM measures")
        with self._valid("its measures"):
            return {
                key: list(starmap(Measure, parse_json(names))) for key, names in rows
            }

    @contextmanager
    def _valid(self, what: str) -> Iterator[None]:
        """Raise CalibrationFileError if ``what`` is damaged, without showing its
        content.
        """
        try:
            yield
        except ValidationError as error:
            reason = findings(error, values=False)[0]
        except (ValueError, TypeError, LookupError) as error:
            reason = str(error)
        else:
            return
        raise self._damaged(f"{what} cannot be read: {reason}")

    def _damaged(self, reason: str) -> CalibrationFileError:
        return CalibrationFileError(
            f"{self.path}: the file is damaged ({reason}); {self.INSTEAD}"
        )


def _observation(
    columns: Sequence[Any], places: Mapping[int, Sequence[int]], measures: int
) -> Observation:
    """Parse a row.

    Args:
        columns: the columns after its number.
        places: number of a set of measures -> the row of scores of each measure; -1 for
            none.
        measures: rows of scores.

    Raises:
        ValueError: the row was not written by :meth:`ObservationStore.append`.
        LookupError: its set of measures is unknown.
    """
    fields = dict(zip(_FIELDS, columns, strict=False))
    *texts, key, blob = columns[len(_FIELDS) :]
    answers, right, predicted = (tuple(parse_json(text)) for text in texts)
    predictions = tuple(starmap(Prediction, predicted))
    indices = places[key]
    scores = np.frombuffer(blob, dtype="<f4").reshape(len(indices), len(answers))
    numbers = [*answers, fields["answer"], fields["decided"]]
    shares = [fields["p_correct"] or 0]
    for prediction in predictions:
        shares += prediction[1:]
    if not (
        answers
        and all(_is_number(number) for number in numbers)
        and all(0 <= share <= 1 for share in shares)
        and len(right) in (0, len(answers))
        and all(label is None or type(label) is bool for label in right)
        and not np.isinf(scores).any()
        and {prediction.monitor for prediction in predictions} <= {*MONITORED}
    ):
        raise ValueError("its numbers contradict each other")
    # Scores by a measure that is not asked for go to one more row, which is dropped.
    placed = np.full((measures + 1, len(answers)), np.nan)
    placed[list(indices)] = scores
    fields["counted"] = bool(fields["counted"])
    if fields["correct"] is not None:
        fields["correct"] = bool(fields["correct"])
    return Observation(
        answers, placed[:-1], right=right, predictions=predictions, **fields
    )


def _is_number(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


class ObservationFile:
    """A store that several processes and threads use. It stays open after its first
    use.

    It is opened again if another file has replaced it, after an error, and in both
    processes after a fork.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._store: ObservationStore | None = None
        self._is: tuple[int, int] | None = None  # device and inode of the open file
        _files.add(self)

    @contextmanager
    def transaction(self, *, create: bool) -> Iterator[ObservationStore | None]:
        """Yield the store in one transaction; None if ``create`` is false and there is
        no file.

        Args:
            create: whether to write, and to create a missing file.

        Raises:
            CalibrationFileError: the file cannot be opened, read or written, or its
                folder does not exist.
        """
        try:
            check_name(self.path)
        except OSError as error:
            reason = error.strerror or error
            raise CalibrationFileError(
                f"the state of online learning cannot be {str(self.path)!r}: {reason}; "
                "name another file"
            ) from error
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

    def _opened(self, *, create: bool) -> ObservationStore:
        if self._store is None or self._is != self._identity():
            self.close()
            open_store = ObservationStore.create if create else ObservationStore.open
            self._store = open_store(self.path)
            self._is = self._identity()
        return self._store

    def _identity(self) -> tuple[int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def close(self) -> None:
        """Close the file until its next use."""
        if self._store is not None:
            self._store.close()
        self._store = None


_files: WeakSet[ObservationFile] = WeakSet()
# SQLite's locks belong to a process: a forked child would mistake its parent's locks
# for its own.
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

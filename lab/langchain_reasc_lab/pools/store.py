"""The SQLite schema of a pool, read and written question by question.

Tables (``sqlite3 pool.sqlite`` shows them)::

    about      name, value                 what the recording says of itself, each value as JSON
    questions  number, id, input, accepted the question, and the accepted answers; both as JSON
    responses  question, number, answer, correct, score, completion_tokens, ...    what decisions need
    messages   question, number, text, beside, usage, token_lengths                what they do not need
    signals    name, question, tokens      float32, little-endian, of all responses to the question, concatenated

A question is added in one transaction, which is on disk before the next one begins, so
that a kill at any moment leaves the file whole. ``responses.signal_tokens`` says how
many values of each signal of a question belong to each response.

The rollback journal with ``synchronous=FULL`` (the default) is used: a question of 16
responses of 2,000 tokens then takes some 20 ms instead of 9 with a write-ahead log, but
the file can be copied alone, and works on shared folders and read-only disks. Signals
are stored raw: compressed they take 37 % with the shipped model, and each pass over
them much longer.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.database import Database
from langchain_reasc.exceptions import PoolError
from langchain_reasc.files import parse_json
from langchain_reasc.method.confidence import Span, Spans

__all__ = [
    "Message",
    "PoolQuestion",
    "PoolResponse",
    "PoolStore",
    "TokenSignals",
    "storable",
]

TokenSignals = Mapping[str, npt.ArrayLike]
"""Signal name -> shape (T,), of one response."""


@dataclass(frozen=True, slots=True)
class PoolResponse:
    """The parts of a recorded response that decisions need.

    Attributes:
        answer: the answer found in it; None when there is none.
        correct: whether it is right, as it was graded; None in the file where answer
            and reference decide.
        score: S(y) as it was recorded; None if no confidence could be read.
        completion_tokens: tokens generated.
        prompt_tokens: tokens of its prompt; None if the provider did not say.
        finish_reason: why the model ended, in the provider's word.
        cut_off: whether it ended early; it is then never accepted alone.
        answer_span: the tokens that spell the answer, half-open.
        last_step: those of the last step before it, half-open.
        seconds: from its launch to its end; None if that was not timed.
        signal_tokens: how many of its tokens have signals.
    """

    answer: str | None
    completion_tokens: int
    score: float | None = None
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    cut_off: bool = False
    correct: bool | None = None
    answer_span: Span | None = None
    last_step: Span | None = None
    seconds: float | None = None
    signal_tokens: int = 0

    @property
    def spans(self) -> Spans:
        """Which of its tokens are which."""
        return Spans(self.answer_span, self.last_step)


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """A question with its responses in the order in which they were drawn.

    Attributes:
        id: the question's name.
        references: the right answer, and others that are accepted; empty if it is not
            known.
        responses: one at least.
        input: the question; anything that JSON can hold.
    """

    id: str
    references: tuple[str, ...]
    responses: tuple[PoolResponse, ...]
    input: Any = None

    @property
    def reference(self) -> str:
        """The first accepted answer; empty if it is not known."""
        return self.references[0] if self.references else ""


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a recorded response that decisions do not need.

    Attributes:
        text: the model's text; None if it was not kept.
        beside: what else of the message its vote needs, such as tool calls, as
            LangChain has it.
        usage: its ``usage_metadata``, as the provider reported it.
        token_lengths: how many characters of the text each token spells, where that is
            known.
    """

    text: str | None = None
    beside: Any = None
    usage: dict[str, Any] | None = None
    token_lengths: list[int] | None = None


_SCHEMA: Final = """
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
_QUESTIONS_AT_ONCE: Final = 256
_COLUMNS: Final[dict[str, tuple[type, ...]]] = {
    "answer": (str,),
    "correct": (int,),
    "score": (float, int),
    "completion_tokens": (int,),
    "prompt_tokens": (int,),
    "finish_reason": (str,),
    "cut_off": (int,),
    "answer_span": (str,),
    "last_step": (str,),
    "seconds": (float, int),
    "signal_tokens": (int,),
}
"""The columns of ``responses`` in their order, and what SQLite gives for them where
they are not NULL.
"""
_MESSAGE: Final = {"beside": dict, "usage": dict, "token_lengths": list}
"""The columns of ``messages`` behind the text, which are JSON."""


class PoolStore(Database):
    """A pool's file, open."""

    NAME = "pool"
    DONE = "recorded", "a recording"
    INSTEAD = (
        "if it holds a pool as JSON Lines, `reasc pool import {path} {sqlite}` makes "
        "one of it, and if it holds questions, `reasc record` does"
    )
    ERROR = PoolError
    APPLICATION = 0x52654153  # "ReAS"
    FORMAT = 1
    SCHEMA = _SCHEMA

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "PoolStore":
        """Open an existing pool, for writing too where that is allowed.

        Raises:
            PoolError: it cannot be opened, is not a pool, holds no question, or was
                written by a later version.
        """
        source = Path(path)
        if not source.exists():
            raise PoolError(f"no pool at {source}; record one with `reasc record`")
        # A transaction that a kill interrupted is rolled back by whoever opens the file
        # next, if it is writable.
        store = cls._connect(source, "rw" if os.access(source, os.W_OK) else "ro")
        if store._is_empty():
            raise PoolError(
                f"{source} holds no question; record some with `reasc record`"
            )
        store._check()
        return store

    def about(self) -> dict[str, Any]:
        """Return the metadata of the recording."""
        rows = self._all("SELECT name, value FROM about")
        with self._reading("its metadata"):
            return {name: parse_json(value) for name, value in rows}

    def set_about(self, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata, or replace what is there under the same names."""
        rows = [(name, _json(value) or "null") for name, value in metadata.items()]
        with self.transaction():
            self._sql.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", rows)

    def add_question(
        self,
        question: PoolQuestion,
        messages: Sequence[Message] = (),
        signals: Sequence[TokenSignals] = (),
        *,
        expected: int | None = None,
    ) -> None:
        """Add a question with its responses; where it is there already, append its
        responses.

        Args:
            question: the question with the responses to add; their ``signal_tokens``
                are counted from ``signals``.
            messages: the message of each response; empty for none.
            signals: the token signals of each response; empty for none.
            expected: how many responses the question should have already; None for any
                number.

        Raises:
            PoolError: it could not be written, or another process has added to the
                question; then nothing is written.
        """
        messages = messages or [Message()] * len(question.responses)
        signals = signals or [{}] * len(question.responses)
        with self.transaction():
            row = self._number(question.id)
            if row is None:
                added = self._sql.execute(
                    "INSERT INTO questions (id, input, accepted) VALUES (?, ?, ?)",
                    (
                        storable(question.id),
                        _json(question.input),
                        _json(list(question.references)),
                    ),
                )
                row = int(added.lastrowid or 0)
            [(held,)] = self._all(
                "SELECT COUNT(*) FROM responses WHERE question = ?", row
            )
            if expected is not None and held != expected:
                raise PoolError(
                    f"{self.path} has {held} responses to question {question.id!r} "
                    f"where {expected} were expected: another process records into it. "
                    "Let one do so at a time; the same command then goes on"
                )
            each = zip(question.responses, messages, signals, strict=True)
            for number, (response, message, own) in enumerate(each, start=held):
                columns = [_column(getattr(response, name)) for name in _COLUMNS][:-1]
                self._insert("responses", row, number, *columns, _tokens(own))
                beside = [_json(getattr(message, name)) for name in _MESSAGE]
                self._insert("messages", row, number, storable(message.text), *beside)
            self._add_signals(row, question.id, signals)

    def set_references(self, question: str, references: Sequence[str]) -> None:
        """Replace the accepted answers of a question, and forget how its responses were
        graded by the old ones.
        """
        with self.transaction():
            row = self._number(question)
            self._sql.execute(
                "UPDATE questions SET accepted = ? WHERE number = ?",
                (_json(list(references)), row),
            )
            self._sql.execute(
                "UPDATE responses SET correct = NULL WHERE question = ?", (row,)
            )

    def set_responses(
        self, question: str, changes: Iterable[Mapping[str, Any]]
    ) -> None:
        """Change columns (name -> value) of each response to a question."""
        with self.transaction():
            row = self._number(question)
            for number, columns in enumerate(changes):
                assigned = ", ".join(f"{name} = ?" for name in columns)
                values = (*map(_column, columns.values()), row, number)
                self._sql.execute(
                    (
                        f"UPDATE responses SET {assigned} WHERE question = ? AND number = "
                        "?"
                    ),
                    values,
                )

    def set_signals(self, question: str, signals: Sequence[TokenSignals]) -> None:
        """Replace the token signals of all responses to a question."""
        with self.transaction():
            row = self._number(question)
            self._sql.execute("DELETE FROM signals WHERE question = ?", (row,))
            self.set_responses(
                question, [{"signal_tokens": _tokens(one)} for one in signals]
            )
            self._add_signals(int(row or 0), question, signals)

    def ids(self) -> dict[str, int]:
        """Return the ids of the questions in recorded order, and how many responses
        each has.
        """
        counted = "(SELECT COUNT(*) FROM responses WHERE question = questions.number)"
        return dict(self._all(f"SELECT id, {counted} FROM questions ORDER BY number"))

    def questions(self) -> Iterator[PoolQuestion]:
        """Yield all questions in recorded order; messages and signals are read
        separately.
        """
        last, shared = 0, dict[Any, Any]()
        after = "SELECT number FROM questions WHERE number > ? ORDER BY number LIMIT ?"
        columns = ", ".join(f"r.{name}" for name in _COLUMNS)
        # A part at a time, so that a process that writes need not wait for the end.
        while numbers := [
            number for (number,) in self._all(after, last, _QUESTIONS_AT_ONCE)
        ]:
            rows = self._all(
                f"SELECT q.id, q.input, q.accepted, {columns} FROM questions q JOIN "
                "responses r ON q.number = r.question WHERE q.number BETWEEN ? AND ? "
                "ORDER BY q.number, r.number",
                *(numbers[0], numbers[-1]),
            )
            for (id, input, accepted), held in groupby(rows, key=lambda row: row[:3]):
                with self._reading(f"question {id!r}"):
                    responses = tuple(_response(row[3:], shared) for row in held)
                    question = PoolQuestion(
                        id,
                        _references(accepted),
                        responses,
                        parse_json(input or "null"),
                    )
                yield question
            last = numbers[-1]

    def messages(self, question: str) -> list[Message]:
        """Return the messages of the responses to a question; an empty list for an
        unknown question.
        """
        rows = self._all(
            f"SELECT text, {', '.join(_MESSAGE)} FROM messages WHERE question = "
            "(SELECT number FROM questions WHERE id = ?) ORDER BY number",
            storable(question),
        )
        with self._reading(f"question {question!r}"):
            return [_message(row) for row in rows]

    def signal_names(self) -> dict[str, int]:
        """Return the names of the token signals, and how many questions have each."""
        return dict(
            self._all(
                "SELECT name, COUNT(*) FROM signals GROUP BY name ORDER BY MIN(rowid)"
            )
        )

    def questions_with_signals(self) -> int:
        """Return how many questions have token signals."""
        [(questions,)] = self._all("SELECT COUNT(DISTINCT question) FROM signals")
        return int(questions)

    def signals(
        self, name: str, questions: Sequence[str]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Return one signal of some questions: id -> the values of all its responses,
        concatenated.
        """
        rows = self._all(
            "SELECT q.id, s.tokens FROM questions q JOIN signals s ON s.question = "
            "q.number WHERE s.name = ? AND q.id IN "
            f"({', '.join('?' * len(questions))})",
            name,
            *map(storable, questions),
        )
        with self._reading(f"signal {name!r}"):
            return {id: np.frombuffer(tokens, dtype="<f4") for id, tokens in rows}

    def _add_signals(
        self, row: int, question: str, signals: Sequence[TokenSignals]
    ) -> None:
        """Append signals to those of a question, keeping those that all responses with
        any signals have.
        """
        carrying = [self._arrays(one, question) for one in signals if one]
        if not carrying:
            return
        held = dict(
            self._all(
                "SELECT name, tokens FROM signals WHERE question = ? ORDER BY rowid",
                row,
            )
        )
        names = [
            name for name in held or carrying[0] if all(name in one for one in carrying)
        ]
        self._sql.execute("DELETE FROM signals WHERE question = ?", (row,))
        for name in names:
            values = b"".join(
                [held.get(name, b""), *(one[name].tobytes() for one in carrying)]
            )
            self._insert("signals", name, row, values)
        if not names:
            self._sql.execute(
                "UPDATE responses SET signal_tokens = 0 WHERE question = ?", (row,)
            )

    def _arrays(
        self, signals: TokenSignals, question: str
    ) -> dict[str, npt.NDArray[np.float32]]:
        arrays = {
            name: np.asarray(values, dtype="<f4") for name, values in signals.items()
        }
        if len({values.size for values in arrays.values()}) > 1:
            raise PoolError(
                f"{self.path}: signals of question {question!r} are of different "
                "numbers of tokens"
            )
        return arrays

    def _number(self, question: str) -> int | None:
        found = self._all(
            "SELECT number FROM questions WHERE id = ?", storable(question)
        )
        return found[0][0] if found else None

    def _check(self) -> None:
        super()._check()
        [[pages]], [[size]] = (
            self._all("PRAGMA page_count"),
            self._all("PRAGMA page_size"),
        )
        if (
            there := self.path.stat().st_size
        ) < pages * size:  # SQLite would read zeros for what is missing
            raise PoolError(
                f"{self.path}: the file is damaged ({there} of {pages * size} bytes "
                "are there)"
            )


def storable(text: Any) -> Any:
    """Return a text as SQLite takes it: half a surrogate pair is replaced by U+FFFD.
    Other values stay.
    """
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if isinstance(text, str)
        else text
    )


def _column(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, tuple | list) else storable(value)


def _json(value: Any) -> str | None:
    """Return a value as JSON, with escapes where it holds half a surrogate pair; None
    for None.
    """
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if storable(text) == text else json.dumps(value)


def _tokens(signals: TokenSignals) -> int:
    return next((int(np.size(values)) for values in signals.values()), 0)


def _response(values: Sequence[Any], shared: dict[Any, Any]) -> PoolResponse:
    """Parse a row; equal strings and integers are kept in memory once.

    Raises:
        ValueError: a value that no recording wrote.
    """
    row = dict(zip(_COLUMNS, values, strict=True))
    for name, value in row.items():
        if not _is_valid(name, value):
            raise ValueError(f"{name} is {value!r:.40}")
        if isinstance(value, str | int):
            row[name] = shared.setdefault(value, value)
    for name in ("answer_span", "last_step"):
        if row[name] is not None:
            begin, end = map(int, parse_json(row[name]))
            row[name] = shared.setdefault(begin, begin), shared.setdefault(end, end)
    row["cut_off"] = bool(row["cut_off"])
    row["correct"] = None if row["correct"] is None else bool(row["correct"])
    return PoolResponse(**row)


def _is_valid(name: str, value: Any) -> bool:
    if value is None:
        return name not in ("completion_tokens", "signal_tokens")
    if not isinstance(value, _COLUMNS[name]):
        return False
    return not isinstance(value, int | float) or (
        math.isfinite(value) and not (name.endswith("_tokens") and value < 0)
    )


def _message(row: Sequence[Any]) -> Message:
    text, *more = row
    if not isinstance(text, str | None):
        raise ValueError(f"text is {text!r:.40}")
    values = {
        name: None if one is None else parse_json(one)
        for name, one in zip(_MESSAGE, more, strict=True)
    }
    for name, value in values.items():
        items = value if isinstance(value, list) else ()
        if value is not None and not (
            isinstance(value, _MESSAGE[name]) and all(type(one) is int for one in items)
        ):
            raise ValueError(f"{name} is {value!r:.40}")
    return Message(text, **values)


def _references(text: str) -> tuple[str, ...]:
    accepted = parse_json(text)
    if not isinstance(accepted, list) or not all(
        isinstance(one, str) for one in accepted
    ):
        raise ValueError(
            f"the accepted answers are {accepted!r:.40}, which is not a list of strings"
        )
    return tuple(accepted)

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools.database import FORMAT, Database, is_store
from langchain_reasc.pools.stored import (
    MESSAGE,
    RESPONSE,
    StoredMessage,
    StoredQuestion,
    StoredResponse,
    TokenSignals,
    accepted_of,
    as_json,
    as_stored,
    columns_of,
    message_of,
    tokens_of,
)
from langchain_reasc.untrusted import parse_json

__all__ = ["FORMAT", "PoolStore", "StoredMessage", "StoredQuestion", "StoredResponse", "TokenSignals", "is_store"]

_AT_ONCE: Final = 256  # questions


class PoolStore(Database):
    """A pool's file, open: what it holds is read and written question by question."""

    def about(self) -> dict[str, Any]:
        """What the recording says of itself."""
        rows = self._all("SELECT name, value FROM about")
        with self._read("what it says of itself"):
            return {name: parse_json(value) for name, value in rows}

    def set_about(self, metadata: Mapping[str, Any]) -> None:
        """Say more of the recording, or something else."""
        with self.transaction():
            self._sql.executemany(
                "INSERT OR REPLACE INTO about VALUES (?, ?)",
                [(name, as_json(value) or "null") for name, value in metadata.items()],
            )

    def add(self, question: StoredQuestion, *, behind: int | None = None) -> None:
        """Add a question with its responses, or to a question that is there the responses behind those it has.

        Args:
            question: with the responses to add.
            behind: how many it should have already; None for however many there are.

        Raises:
            PoolError: it could not be written, or another process has added to the question; then nothing of it is.
        """
        with self.transaction():
            row = self._number(question.id)
            if row is None:
                added = self._sql.execute(
                    "INSERT INTO questions (id, input, accepted) VALUES (?, ?, ?)",
                    (as_stored(question.id), as_json(question.input), as_json(list(question.accepted))),
                )
                row = int(added.lastrowid or 0)
            held = self._held(row)
            if behind is not None and held != behind:
                raise PoolError(
                    f"{self.path} has {held} responses to question {question.id!r} where {behind} were expected: "
                    "another process records into it. Let one do so at a time; the same command then goes on"
                )
            for number, one in enumerate(question.responses, start=held):
                columns = {**one.columns, "signal_tokens": tokens_of(one.signals)}
                self._insert("responses", row, number, [as_stored(columns.get(name)) for name in RESPONSE])
                beside = (as_json(getattr(one.message, name)) for name in MESSAGE[1:])
                self._insert("messages", row, number, (as_stored(one.message.text), *beside))
            self._add_signals(row, question.id, [one.signals for one in question.responses])

    def set_question(self, question: str, accepted: Sequence[str]) -> None:
        """Write the accepted answers of a question anew; what it was graded by them before no longer holds."""
        with self.transaction():
            self._sql.execute(
                "UPDATE questions SET accepted = ? WHERE id = ?", (as_json(list(accepted)), as_stored(question))
            )
            self._sql.execute("UPDATE responses SET correct = NULL WHERE question = ?", (self._number(question),))

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
                    values = [as_stored(value) for value in columns.values()]
                    self._sql.execute(
                        f"UPDATE responses SET {told} WHERE question = ? AND number = ?", (*values, row, number)
                    )

    def set_signals(self, question: str, responses: Sequence[TokenSignals]) -> None:
        """Write the signals of all responses to a question, in place of those that it has."""
        with self.transaction():
            row = self._number(question)
            self._sql.execute("DELETE FROM signals WHERE question = ?", (row,))
            self.set_responses(question, [{"signal_tokens": tokens_of(one)} for one in responses])
            self._add_signals(int(row or 0), question, responses)

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
        columns, last = ", ".join(f"r.{name}" for name in RESPONSE), 0
        after = "SELECT number FROM questions WHERE number > ? ORDER BY number LIMIT ?"
        # A part at a time, so that who writes meanwhile need not wait for the end.
        while numbers := [number for (number,) in self._all(after, last, _AT_ONCE)]:
            rows = self._all(
                f"SELECT q.id, q.input, q.accepted, {columns} FROM questions q "
                "JOIN responses r ON q.number = r.question WHERE q.number BETWEEN ? AND ? ORDER BY q.number, r.number",
                *(numbers[0], numbers[-1]),
            )
            for (id, asked, accepted), held in groupby(rows, key=lambda row: row[:3]):
                with self._read(f"question {id!r}"):
                    responses = [StoredResponse(columns_of(row[3:])) for row in held]
                    read = StoredQuestion(id, parse_json(asked or "null"), accepted_of(accepted), responses)
                yield read
            last = numbers[-1]

    def messages(self, question: str) -> list[StoredMessage]:
        """What is kept of the responses to a question beside their columns; none where it is not there."""
        rows = self._all(
            f"SELECT {', '.join(MESSAGE)} FROM messages WHERE question = (SELECT number FROM questions WHERE id = ?) "
            "ORDER BY number",
            as_stored(question),
        )
        with self._read(f"question {question!r}"):
            return [message_of(row) for row in rows]

    def usages(self) -> Iterator[tuple[str, list[Any]]]:
        """The ``usage_metadata`` of each response to each question, where it was kept."""
        rows = self._each(
            "SELECT q.id, m.usage FROM questions q JOIN messages m ON m.question = q.number ORDER BY q.number, m.number"
        )
        for id, held in groupby(rows, key=lambda row: row[0]):
            with self._read(f"what was used for question {id!r}"):
                usages = [parse_json(usage or "null") for _, usage in held]
            yield id, usages

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
            *map(as_stored, questions),
        )
        with self._read(f"signal {name!r}"):
            return {id: np.frombuffer(tokens, dtype="<f4") for id, tokens in rows}

    def _add_signals(self, row: int, question: str, responses: Sequence[TokenSignals]) -> None:
        """Add the signals of responses behind those that are there; only such as all that have any carry are kept."""
        carrying = [{name: np.asarray(v, dtype="<f4") for name, v in one.items()} for one in responses if one]
        if not carrying:
            return
        for one in carrying:
            if len({values.size for values in one.values()}) > 1:
                raise PoolError(f"{self.path}: signals of question {question!r} are of different numbers of tokens")
        rows = self._all("SELECT name, tokens FROM signals WHERE question = ? ORDER BY rowid", row)
        held: dict[str, bytes] = dict(rows)
        names = [name for name in held or carrying[0] if all(name in one for one in carrying)]
        for name in names:
            values = held.get(name, b"") + b"".join(one[name].tobytes() for one in carrying)
            self._sql.execute("INSERT OR REPLACE INTO signals VALUES (?, ?, ?)", (name, row, values))
        for name in held.keys() - names:
            self._sql.execute("DELETE FROM signals WHERE question = ? AND name = ?", (row, name))
        if not names:  # nothing in common, so that there is nothing to read
            self._sql.execute("UPDATE responses SET signal_tokens = 0 WHERE question = ?", (row,))

    def _held(self, row: int) -> int:
        [(held,)] = self._all("SELECT COUNT(*) FROM responses WHERE question = ?", row)
        return int(held)

    def _insert(self, table: str, row: int, number: int, values: Sequence[Any]) -> None:
        marks = ", ".join("?" * (len(values) + 2))
        self._sql.execute(f"INSERT INTO {table} VALUES ({marks})", (row, number, *values))

    def _number(self, question: str) -> int | None:
        found = self._all("SELECT number FROM questions WHERE id = ?", as_stored(question))
        return found[0][0] if found else None

    @contextmanager
    def _read(self, what: str) -> Iterator[None]:
        """What cannot be made of what stands in the file, as an error that names both."""
        try:
            yield
        except (ValueError, TypeError) as error:
            raise PoolError(f"{self.path}: the file is damaged ({what} cannot be read: {error})") from error

"""What a pool's file holds, and reading and writing it question by question.

Tables (``sqlite3 pool.sqlite`` shows them)::

    about      name, value                 what the recording says of itself, each value as JSON
    questions  number, id, input, accepted the question, and the accepted answers; both as JSON
    responses  question, number, answer, correct, score, completion_tokens, ...    what decisions need
    messages   question, number, text, beside, usage, token_lengths                what they do not need
    signals    name, question, tokens      float32, little-endian, of all responses to the question, concatenated

A question is added in one transaction, which is on disk before the next one begins, so that a kill at any moment leaves
the file whole. ``responses.signal_tokens`` says how many values of each signal of a question belong to each response.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Span, Spans
from langchain_reasc.pools.database import Database
from langchain_reasc.untrusted import parse_json

__all__ = ["Message", "PoolQuestion", "PoolResponse", "PoolStore", "TokenSignals", "storable"]

TokenSignals = Mapping[str, npt.ArrayLike]
"""Signal name -> shape (T,), of one response."""


@dataclass(frozen=True, slots=True)
class PoolResponse:
    """What decisions need of one recorded response.

    Attributes:
        answer: the answer found in it; None when there is none.
        correct: whether it is right, as it was graded; None in the file where answer and reference decide.
        score: S(y) as it was recorded; None where no confidence could be read.
        completion_tokens: tokens generated.
        prompt_tokens: tokens of its prompt; None where the provider did not say.
        finish_reason: why the model ended, in the provider's word.
        cut_off: whether it ended early; it is then never accepted alone.
        answer_span: the tokens that spell the answer, half-open.
        last_step: those of the last step before it, half-open.
        seconds: from its launch to its end; None where that was not timed.
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
        references: the right answer, and others that are accepted; empty where it is not known.
        responses: one at least.
        input: the question; anything that JSON can hold.
    """

    id: str
    references: tuple[str, ...]
    responses: tuple[PoolResponse, ...]
    input: Any = None

    @property
    def reference(self) -> str:
        """The first accepted answer; empty where it is not known."""
        return self.references[0] if self.references else ""


@dataclass(frozen=True, slots=True)
class Message:
    """What a pool keeps of a response that decisions do not need.

    Attributes:
        text: what the model wrote; None where it was not kept.
        beside: what its vote depends on besides text and finish reason, such as tool calls, as LangChain has it.
        usage: its ``usage_metadata``, as the provider reported it.
        token_lengths: how many characters of the text each token spells, where that is known.
    """

    text: str | None = None
    beside: Any = None
    usage: dict[str, Any] | None = None
    token_lengths: list[int] | None = None


_QUESTIONS_AT_ONCE: Final = 256
_TYPES: Final[dict[str, tuple[type, ...]]] = {
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
"""The columns of ``responses`` in their order, and what SQLite gives for them where they are not NULL."""
_COLUMNS: Final = ", ".join(f"r.{name}" for name in _TYPES)
_MESSAGE: Final = tuple(field.name for field in fields(Message))


class PoolStore(Database):
    """A pool's file, open."""

    def about(self) -> dict[str, Any]:
        """Return the metadata of the recording."""
        rows = self._all("SELECT name, value FROM about")
        with self._parsing("its metadata"):
            return {name: parse_json(value) for name, value in rows}

    def set_about(self, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata, or replace what is there under the same names."""
        rows = [(name, _json(value) or "null") for name, value in metadata.items()]
        with self.transaction():
            self._sql.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", rows)

    def add(
        self,
        question: PoolQuestion,
        messages: Sequence[Message] = (),
        signals: Sequence[TokenSignals] = (),
        *,
        behind: int | None = None,
    ) -> None:
        """Add a question with its responses; where it is there already, append its responses.

        Args:
            question: the question with the responses to add; their ``signal_tokens`` are counted from ``signals``.
            messages: the message of each response; empty for none.
            signals: the token signals of each response; empty for none.
            behind: how many responses the question should have already; None for any number.

        Raises:
            PoolError: it could not be written, or another process has added to the question; then nothing is written.
        """
        messages = messages or [Message()] * len(question.responses)
        signals = signals or [{}] * len(question.responses)
        with self.transaction():
            row = self._number(question.id)
            if row is None:
                added = self._sql.execute(
                    "INSERT INTO questions (id, input, accepted) VALUES (?, ?, ?)",
                    (storable(question.id), _json(question.input), _json(list(question.references))),
                )
                row = int(added.lastrowid or 0)
            [(held,)] = self._all("SELECT COUNT(*) FROM responses WHERE question = ?", row)
            if behind is not None and held != behind:
                raise PoolError(
                    f"{self.path} has {held} responses to question {question.id!r} where {behind} were expected: "
                    "another process records into it. Let one do so at a time; the same command then goes on"
                )
            each = zip(question.responses, messages, signals, strict=True)
            for number, (response, message, own) in enumerate(each, start=held):
                columns = [getattr(response, name) for name in _TYPES][:-1]
                self._insert("responses", row, number, [*map(_column, columns), _tokens(own)])
                self._insert("messages", row, number, [storable(message.text), *_beside(message)])
            self._add_signals(row, question.id, signals)

    def set_references(self, question: str, references: Sequence[str]) -> None:
        """Replace the accepted answers of a question, and forget how its responses were graded by the old ones."""
        with self.transaction():
            values = (_json(list(references)), storable(question))
            self._sql.execute("UPDATE questions SET accepted = ? WHERE id = ?", values)
            self._sql.execute("UPDATE responses SET correct = NULL WHERE question = ?", (self._number(question),))

    def set_responses(self, question: str, changes: Iterable[Mapping[str, Any]]) -> None:
        """Change columns (name -> value) of each response to a question."""
        with self.transaction():
            row = self._number(question)
            for number, columns in enumerate(changes):
                assigned = ", ".join(f"{name} = ?" for name in columns)
                values = (*map(_column, columns.values()), row, number)
                self._sql.execute(f"UPDATE responses SET {assigned} WHERE question = ? AND number = ?", values)

    def set_signals(self, question: str, signals: Sequence[TokenSignals]) -> None:
        """Replace the token signals of all responses to a question."""
        with self.transaction():
            row = self._number(question)
            self._sql.execute("DELETE FROM signals WHERE question = ?", (row,))
            self.set_responses(question, [{"signal_tokens": _tokens(one)} for one in signals])
            self._add_signals(int(row or 0), question, signals)

    def ids(self) -> dict[str, int]:
        """Return the ids of the questions in recorded order, and how many responses each has."""
        counted = "(SELECT COUNT(*) FROM responses WHERE question = questions.number)"
        return dict(self._all(f"SELECT id, {counted} FROM questions ORDER BY number"))

    def questions(self) -> Iterator[PoolQuestion]:
        """Yield all questions in recorded order; messages and signals are read separately."""
        last, shared = 0, dict[Any, Any]()
        after = "SELECT number FROM questions WHERE number > ? ORDER BY number LIMIT ?"
        # A part at a time, so that a process that writes need not wait for the end.
        while numbers := [number for (number,) in self._all(after, last, _QUESTIONS_AT_ONCE)]:
            rows = self._all(
                f"SELECT q.id, q.input, q.accepted, {_COLUMNS} FROM questions q "
                "JOIN responses r ON q.number = r.question WHERE q.number BETWEEN ? AND ? ORDER BY q.number, r.number",
                *(numbers[0], numbers[-1]),
            )
            for (id, asked, accepted), held in groupby(rows, key=lambda row: row[:3]):
                with self._parsing(f"question {id!r}"):
                    responses = tuple(_response(row[3:], shared) for row in held)
                    read = PoolQuestion(id, _references(accepted), responses, parse_json(asked or "null"))
                yield read
            last = numbers[-1]

    def messages(self, question: str) -> list[Message]:
        """Return the messages of the responses to a question; none where the question is not there."""
        rows = self._all(
            f"SELECT {', '.join(_MESSAGE)} FROM messages WHERE question = (SELECT number FROM questions WHERE id = ?) "
            "ORDER BY number",
            storable(question),
        )
        with self._parsing(f"question {question!r}"):
            return [_message(row) for row in rows]

    def usages(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield each question's id with the ``usage_metadata`` of its responses, None where it was not kept."""
        rows = self._each(
            "SELECT q.id, m.usage FROM questions q JOIN messages m ON m.question = q.number ORDER BY q.number, m.number"
        )
        for id, held in groupby(rows, key=lambda row: row[0]):
            with self._parsing(f"the usage of question {id!r}"):
                usages = [parse_json(usage or "null") for _, usage in held]
            yield id, usages

    def signal_names(self) -> dict[str, int]:
        """Return the names of the token signals, and how many questions have each."""
        return dict(self._all("SELECT name, COUNT(*) FROM signals GROUP BY name ORDER BY MIN(rowid)"))

    def questions_with_signals(self) -> int:
        """Return how many questions have token signals."""
        [(questions,)] = self._all("SELECT COUNT(DISTINCT question) FROM signals")
        return int(questions)

    def signals(self, name: str, questions: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Return one signal of some questions: id -> the values of all its responses, concatenated."""
        rows = self._each(
            "SELECT q.id, s.tokens FROM questions q JOIN signals s ON s.question = q.number "
            f"WHERE s.name = ? AND q.id IN ({', '.join('?' * len(questions))})",
            name,
            *map(storable, questions),
        )
        with self._parsing(f"signal {name!r}"):
            return {id: np.frombuffer(tokens, dtype="<f4") for id, tokens in rows}

    def _add_signals(self, row: int, question: str, signals: Sequence[TokenSignals]) -> None:
        """Append signals to those of a question, keeping those that all responses with any signals have."""
        carrying = [{name: np.asarray(v, dtype="<f4") for name, v in one.items()} for one in signals if one]
        if not carrying:
            return
        if any(len({values.size for values in one.values()}) > 1 for one in carrying):
            raise PoolError(f"{self.path}: signals of question {question!r} are of different numbers of tokens")
        held = dict(self._all("SELECT name, tokens FROM signals WHERE question = ? ORDER BY rowid", row))
        names = [name for name in held or carrying[0] if all(name in one for one in carrying)]
        for name in names:
            values = held.get(name, b"") + b"".join(one[name].tobytes() for one in carrying)
            self._sql.execute("INSERT OR REPLACE INTO signals VALUES (?, ?, ?)", (name, row, values))
        for name in held.keys() - names:
            self._sql.execute("DELETE FROM signals WHERE question = ? AND name = ?", (row, name))
        if not names:
            self._sql.execute("UPDATE responses SET signal_tokens = 0 WHERE question = ?", (row,))

    def _insert(self, table: str, row: int, number: int, values: Sequence[Any]) -> None:
        marks = ", ".join("?" * (len(values) + 2))
        self._sql.execute(f"INSERT INTO {table} VALUES ({marks})", (row, number, *values))

    def _number(self, question: str) -> int | None:
        found = self._all("SELECT number FROM questions WHERE id = ?", storable(question))
        return found[0][0] if found else None

    @contextmanager
    def _parsing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError) as error:
            raise PoolError(f"{self.path}: the file is damaged ({what} cannot be read: {error})") from error


def storable(text: Any) -> Any:
    """Return a text as SQLite takes it: half a surrogate pair is replaced by U+FFFD. Other values stay."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else text


def _column(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, tuple | list) else storable(value)


def _json(value: Any) -> str | None:
    """Return a value as JSON, with escapes where it holds half a surrogate pair; None for None."""
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if storable(text) == text else json.dumps(value)


def _beside(message: Message) -> list[str | None]:
    return [_json(getattr(message, name)) for name in _MESSAGE[1:]]


def _tokens(signals: TokenSignals) -> int:
    return next((int(np.size(values)) for values in signals.values()), 0)


def _response(values: Sequence[Any], shared: dict[Any, Any]) -> PoolResponse:
    """Parse a row; equal strings and integers are kept in memory once.

    Raises:
        ValueError: a value that no recording wrote.
    """
    read = dict(zip(_TYPES, values, strict=True))
    for name, value in read.items():
        if not _is_valid(name, value):
            raise ValueError(f"{name} is {value!r:.40}")
        if isinstance(value, str | int):
            read[name] = shared.setdefault(value, value)
    for name in ("answer_span", "last_step"):
        if read[name] is not None:
            begin, end = map(int, parse_json(read[name]))
            read[name] = shared.setdefault(begin, begin), shared.setdefault(end, end)
    read["cut_off"] = bool(read["cut_off"])
    read["correct"] = None if read["correct"] is None else bool(read["correct"])
    return PoolResponse(**read)


def _is_valid(name: str, value: Any) -> bool:
    if value is None:
        return name not in ("completion_tokens", "signal_tokens")
    if not isinstance(value, _TYPES[name]):
        return False
    if not isinstance(value, int | float):
        return True
    return math.isfinite(value) and not (name.endswith("_tokens") and value < 0)


def _message(values: Sequence[Any]) -> Message:
    text, *more = values
    beside, usage, lengths = (None if one is None else parse_json(one) for one in more)
    for name, value, kind in (("text", text, str), ("beside", beside, dict), ("usage", usage, dict)):
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name} is {value!r:.40}")
    if lengths is not None and not (isinstance(lengths, list) and all(type(one) is int for one in lengths)):
        raise ValueError(f"token_lengths is {lengths!r:.40}")
    return Message(text, beside, usage, lengths)


def _references(text: str) -> tuple[str, ...]:
    accepted = parse_json(text)
    if not isinstance(accepted, list) or not all(isinstance(one, str) for one in accepted):
        raise ValueError(f"the accepted answers are {accepted!r:.40}, which is not a list of strings")
    return tuple(accepted)

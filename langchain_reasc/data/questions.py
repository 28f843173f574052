"""Questions, labelled or not, from any source."""

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from langchain_reasc.data.rows import RowReader, fields_reader, id_of
from langchain_reasc.data.sources import Row, is_text, rows_of, text_rows
from langchain_reasc.exceptions import ConfigurationError

Source = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question and its right answer, normalized.

    Attributes:
        id: the question's name in the pool, from which the seeds of its samples are
            made.
        input: the question.
        reference: the right answer; empty if it is not known.
        accepted: other answers that are accepted.
    """

    id: str
    input: str
    reference: str
    accepted: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """The right answer, and others that are accepted; none if it is not known."""
        if not self.reference:
            return ()
        return (self.reference, *self.accepted)


def read_questions(
    source: Source,
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[LabelledQuestion]:
    """Read questions with their answers.

    The answer may be plain (``42``), end a worked solution after ``####`` (GSM8K), or
    be boxed in one (MATH). With a truth value, yes or no is right, too. Several answers
    are accepted if the field is a list, or if a field ``aliases`` or ``accepted`` has
    others. A question without an ``id`` is named after its text, so that it keeps its
    name, and with it its samples, in any file and place.

    Args:
        source: a file (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``; ``.gz``
            of the texts, see :mod:`langchain_reasc.data.sources`),
            ``hf:OWNER/NAME[:CONFIG]/SPLIT``, or ``last-letters:N``.
        question_field: the field of the question; None finds it among the usual names
            (question, input, problem, ...).
        answer_field: the field of the answer; None finds it likewise (answer,
            reference, target, ...).
        limit: how many to read at most.

    Raises:
        ConfigurationError: there is no such file, it cannot be read, a question has no
            answer, or an id appears twice; the message names the file and the place in
            it.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    rows = islice(some_rows(source, question_field, answer_field), limit)
    return labelled_questions(rows, fields_reader(question_field, answer_field))


def labelled_questions(
    rows: Iterator[tuple[str, Row]], reader: RowReader
) -> list[LabelledQuestion]:
    """Read a question of each row.

    Raises:
        ConfigurationError: a question has no answer, or an id appears twice.
    """
    questions: dict[str, LabelledQuestion] = {}
    for where, row in rows:
        question = reader.question(row, where)
        references = reader.references(row, where)
        id = id_of(row, reader.id_field) or id_of(row, "id")
        if id is None:
            id = _id_from_text(question, questions)
        if id in questions:
            first = list(questions).index(id) + 1
            raise ConfigurationError(
                f"{where}: id {id!r} appears a second time, it is question {first}'s; "
                "ids must be unique"
            )
        questions[id] = LabelledQuestion(id, question, references[0], references[1:])
    return list(questions.values())


def read_unlabelled(
    source: Source,
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[tuple[str, tuple[str, ...] | None]]:
    """Read questions, each with its accepted answers or None. A question that appears
    again is left out.

    Args:
        source: as for :func:`read_questions`; a file that ends in ``.txt``, or has no
            ending, has a question a line.
        question_field: the field of the question; None finds it among the usual names.
        answer_field: the field where a right answer may be; None reads none.
        limit: how many to read at most.

    Raises:
        ConfigurationError: there is no such file, a line cannot be read, there is no
            such field, or a field was given for a text.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    field = question_field or answer_field
    if field and is_text(source):
        raise ConfigurationError(
            f"{source} is a text with a question a line, and has no field {field!r}"
        )
    reader = fields_reader(question_field, answer_field)
    questions: dict[str, tuple[str, ...] | None] = {}
    for where, row in some_rows(source, question_field, answer_field, may_be_text=True):
        # Without --answer-field, no column is taken for answers.
        question = reader.question(row, where)
        answers = None
        if answer_field is not None and id_of(row, answer_field) is not None:
            answers = reader.references(row, where)
        questions.setdefault(question, answers)
        if len(questions) == limit:
            break
    return list(questions.items())


def text_questions(
    source: Source, *, limit: int | None = None
) -> list[LabelledQuestion]:
    """Read a text with a question a line, whose right answers are not known; errors as
    :func:`read_unlabelled`.
    """
    return [
        LabelledQuestion(_id_from_text(text), text, "")
        for text, _ in read_unlabelled(source, limit=limit)
    ]


def some_rows(
    source: Source,
    question_field: str | None,
    answer_field: str | None,
    *,
    may_be_text: bool = False,
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a source, with their places.

    Raises:
        ConfigurationError: a row cannot be read, or there is none.
    """
    if may_be_text and is_text(source):
        rows = text_rows(Path(source))
    else:
        rows = rows_of(source, has_header=bool(question_field or answer_field))
    # An empty source is an error, which a generator would show too late.
    first = next(rows, None)
    if first is None:
        raise ConfigurationError(f"{os.fspath(source)} holds no question")
    return chain((first,), rows)


def _id_from_text(question: str, taken: Collection[str] = ()) -> str:
    """Return an id made of a question's text, other than the ``taken`` ones."""
    # A text may have half a surrogate pair.
    id = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    candidate = id
    times = 1
    # The same text may have been named before.
    while candidate in taken:
        times += 1
        candidate = f"{id}-{times}"
    return candidate

"""Questions, labelled or not, from any source."""

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path

from langchain_reasc.data.files import Row, is_text, rows_of, text_rows
from langchain_reasc.data.formats import DataFormat, format_of, id_of
from langchain_reasc.exceptions import ConfigurationError

__all__ = [
    "DataSet",
    "LabelledQuestion",
    "data_format",
    "id_from_text",
    "read_data_set",
    "read_questions",
    "read_unlabelled",
]

Source = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question and its right answer, normalized.

    Attributes:
        id: the question's name in the pool, from which the seeds of its samples are made.
        input: the question.
        reference: the right answer.
        accepted: other answers that are accepted.
    """

    id: str
    input: str
    reference: str
    accepted: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """The right answer, and others that are accepted."""
        return (self.reference, *self.accepted)


@dataclass(frozen=True, slots=True)
class DataSet:
    """Questions and their format.

    Attributes:
        questions: in the order of their source.
        format: the format they were read in: its name, the preset for its prompts, the grader of its answers.
    """

    questions: list[LabelledQuestion]
    format: DataFormat


def read_questions(
    source: Source,
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[LabelledQuestion]:
    """Read questions with their answers.

    The answer may be plain (``42``), end a worked solution after ``####`` (GSM8K), or be boxed in one (MATH). Several
    are accepted where the field holds a list, or a field ``aliases`` or ``accepted`` others. A question without an
    ``id`` is named after its text, so that it keeps its name, and with it its samples, in any file and place.

    Args:
        source: a file (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``; ``.gz`` of the texts, see
            :mod:`langchain_reasc.data.files`), ``hf:OWNER/NAME[:CONFIG]/SPLIT``, or ``last-letters:N``.
        format: a data set of :mod:`langchain_reasc.data.formats`; ``"auto"`` recognizes it by the fields of the first
            row; ``"any"`` looks for the usual names of fields.
        question_field: the field of the question; None finds it among the usual names (question, input, problem, ...).
        answer_field: the field of the answer; None finds it likewise (answer, reference, target, ...).
        limit: how many to read at most.

    Raises:
        ConfigurationError: there is no such file, it cannot be read, a question has no answer, or an id appears twice;
            the message names the file and the place in it.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    fields = {"question_field": question_field, "answer_field": answer_field}
    return read_data_set(source, format=format, limit=limit, **fields).questions


def read_data_set(
    source: Source,
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> DataSet:
    """Read questions as :func:`read_questions` does, with the format they are in."""
    chosen, rows = _recognized(source, False, format, question_field, answer_field)
    questions: dict[str, LabelledQuestion] = {}
    for where, row in islice(rows, limit):
        question, references = chosen.question(row, where), chosen.references(row, where)
        name = id_of(row, chosen.id_field) or id_of(row, "id") or id_from_text(question, questions)
        if name in questions:
            first = list(questions).index(name) + 1
            raise ConfigurationError(
                f"{where}: id {name!r} appears a second time, it is question {first}'s; ids must be unique"
            )
        questions[name] = LabelledQuestion(name, question, references[0], references[1:])
    return DataSet(list(questions.values()), chosen)


def data_format(
    source: Source, *, format: str = "auto", question_field: str | None = None, answer_field: str | None = None
) -> DataFormat:
    """Return the format of a source, recognized by its first row.

    Raises:
        ConfigurationError: that row cannot be read, or there is none.
    """
    return _recognized(source, is_text(source), format, question_field, answer_field)[0]


def read_unlabelled(
    source: Source,
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[tuple[str, str | None]]:
    """Read questions, with their right answers where there are some. A question that appears again is left out.

    Args:
        source: as for :func:`read_questions`; a file of any other kind is a text with a question a line.
        format: likewise.
        question_field: the field of the question; None finds it among the usual names.
        answer_field: the field where a right answer may be; None reads none.
        limit: how many to read at most.

    Raises:
        ConfigurationError: there is no such file, a line cannot be read, there is no such field, or a field or a format
            was given for a text.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    text = is_text(source)
    if text and (field := question_field or answer_field):
        raise ConfigurationError(f"{source} is a text with a question a line, and has no field {field!r}")
    if text and format not in ("auto", "any"):
        raise ConfigurationError(f"{source} is a text with a question a line, and not of the format {format}")
    chosen, rows = _recognized(source, text, format, question_field, answer_field)
    questions: dict[str, str | None] = {}
    for where, row in rows:
        known = answer_field is not None and id_of(row, answer_field) is not None
        questions.setdefault(chosen.question(row, where), chosen.references(row, where)[0] if known else None)
        if len(questions) == limit:
            break
    return list(questions.items())


def id_from_text(question: str, taken: Collection[str] = ()) -> str:
    """Return an id made of a question's text; another one where the same text has been named before."""
    name = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return next(other for other in chain([name], (f"{name}-{times}" for times in count(2))) if other not in taken)


def _recognized(
    source: Source, text: bool, format: str, question_field: str | None, answer_field: str | None
) -> tuple[DataFormat, Iterator[tuple[str, Row]]]:
    """Return the format that is named or that the first row has, and all rows."""
    named = [field for field in (question_field, answer_field) if field is not None]
    rows = text_rows(Path(source)) if text else rows_of(source, named=named)
    first = next(rows, None)
    if first is None:
        raise ConfigurationError(f"{os.fspath(source)} holds no question")
    chosen = format_of(format, first[1], question_field=question_field, answer_field=answer_field)
    return chosen, chain((first,), rows)

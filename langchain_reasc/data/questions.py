"""Questions with their right answers, and those without, from files, the hub, or made from names."""

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path

from langchain_reasc.data.fields import id_of
from langchain_reasc.data.formats import DataFormat, format_of
from langchain_reasc.data.rows import Row, is_text, rows_of, text_rows
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["DataSet", "LabelledQuestion", "data_format", "read_data_set", "read_questions", "read_unlabelled"]


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question and its right answer, normalized.

    Attributes:
        id: the question's name in the pool, from which the seeds of its samples are made.
        input: what is asked.
        reference: the right answer.
        accepted: other answers that are right, too.
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
    """Questions, and what they are.

    Attributes:
        questions: in the order of their source.
        format: as which they were read: its name, the preset that asks them, the grader of their answers.
    """

    questions: list[LabelledQuestion]
    format: DataFormat


def read_questions(
    source: str | os.PathLike[str],
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[LabelledQuestion]:
    """Read questions with their answers.

    The answer may be plain (``42``), end a worked solution after ``####`` (GSM8K), or be boxed in one (MATH). Several
    are accepted where the field holds a list, or a field ``aliases`` or ``accepted`` others. A question without an
    ``id`` is named after its text, so that it keeps its name, and with it its samples, wherever it stands in whatever
    kind of file.

    Args:
        source: a file (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``; ``.gz`` of the texts, see
            :mod:`langchain_reasc.data.rows`), ``hf:OWNER/NAME[:CONFIG]/SPLIT``, or ``last-letters:N``.
        format: a data set of :mod:`langchain_reasc.data.formats`; ``"auto"`` recognizes it by the fields of the first
            row; ``"any"`` looks for the usual names of fields.
        question_field: where the question is; None finds it among the usual names (question, input, problem, ...).
        answer_field: where the answer is; None finds it likewise (answer, reference, target, ...).
        limit: how many to read at most.

    Raises:
        ConfigurationError: no such file, what cannot be read, a question without an answer, an id that is there twice;
            it names the file and the place in it.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    fields = {"question_field": question_field, "answer_field": answer_field}
    return read_data_set(source, format=format, limit=limit, **fields).questions


def read_data_set(
    source: str | os.PathLike[str],
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> DataSet:
    """As :func:`read_questions`, and which data set they are of."""
    chosen, rows = _recognized(
        rows_of(source, named=_named(question_field, answer_field)), source, format, question_field, answer_field
    )
    questions: dict[str, LabelledQuestion] = {}
    for where, row in islice(rows, limit):
        question, references = chosen.question(row, where), chosen.references(row, where)
        name = id_of(row, chosen.id_field) or id_of(row, "id") or _named_after(question, questions)
        if name in questions:
            first = list(questions).index(name) + 1
            raise ConfigurationError(
                f"{where}: id {name!r} appears a second time, it is question {first}'s; ids must be unique"
            )
        questions[name] = LabelledQuestion(name, question, references[0], references[1:])
    return DataSet(list(questions.values()), chosen)


def data_format(
    source: str | os.PathLike[str],
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
) -> DataFormat:
    """Which data set a source is of, by its first row.

    Raises:
        ConfigurationError: that row cannot be read, or there is none.
    """
    rows = text_rows(Path(source)) if is_text(source) else rows_of(source, named=_named(question_field, answer_field))
    return _recognized(rows, source, format, question_field, answer_field)[0]


def read_unlabelled(
    source: str | os.PathLike[str],
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[tuple[str, str | None]]:
    """Read questions, with their right answers where there are some. A question that is there again is left out.

    Args:
        source: as for :func:`read_questions`; a file of any other kind is a text with a question a line.
        format: likewise.
        question_field: where the question is; None finds it among the usual names.
        answer_field: where a right answer may be; None reads none.
        limit: how many to read at most.

    Raises:
        ConfigurationError: no such file, a line that cannot be read, no such field, or a field or a format of a text.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    plain = is_text(source)
    if plain and (named := question_field or answer_field):
        raise ConfigurationError(f"{source} is a text with a question a line, and has no field {named!r}")
    if plain and format not in ("auto", "any"):
        raise ConfigurationError(f"{source} is a text with a question a line, and not of the format {format}")
    found = text_rows(Path(source)) if plain else rows_of(source, named=_named(question_field, answer_field))
    chosen, rows = _recognized(found, source, format, question_field, answer_field)
    questions: dict[str, str | None] = {}
    for where, row in rows:
        known = answer_field is not None and id_of(row, answer_field) is not None
        questions.setdefault(chosen.question(row, where), chosen.references(row, where)[0] if known else None)
        if len(questions) == limit:
            break
    return list(questions.items())


def _recognized(
    rows: Iterator[tuple[str, Row]],
    source: str | os.PathLike[str],
    format: str,
    question_field: str | None,
    answer_field: str | None,
) -> tuple[DataFormat, Iterator[tuple[str, Row]]]:
    """The format that is named or that the first row has, and all rows."""
    first = next(rows, None)
    if first is None:
        raise ConfigurationError(f"{os.fspath(source)} holds no question")
    chosen = format_of(format, first[1], question_field=question_field, answer_field=answer_field)
    return chosen, chain((first,), rows)


def _named(*fields: str | None) -> list[str]:
    return [field for field in fields if field is not None]


def _named_after(question: str, taken: Collection[str]) -> str:
    """A name made of the text; the second time that the same is asked, another one."""
    name = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    again = (f"{name}-{times}" for times in count(2))
    return name if name not in taken else next(other for other in again if other not in taken)

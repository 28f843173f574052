"""Questions from JSON Lines or CSV, and those without right answers from a text, too."""

import csv
import hashlib
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from langchain_reasc.answers import boxed, normalize
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["LabelledQuestion", "read_questions", "read_unlabelled"]

_QUESTION_FIELDS = ("question", "input", "problem", "prompt", "query")
_ANSWER_FIELDS = ("answer", "reference", "target", "label", "solution")


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


def read_questions(
    path: str | os.PathLike[str],
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[LabelledQuestion]:
    """Read questions with their answers.

    The answer may be plain (``42``), end a worked solution after ``####`` (GSM8K), or be boxed in one (MATH). A
    question without an ``id`` is named after its text, so that it keeps its name, and with it its samples, wherever it
    stands in whatever kind of file.

    Args:
        path: a ``.csv`` file with a header, or JSON Lines.
        question_field: where the question is; None finds it among the usual names (question, input, problem, ...).
        answer_field: where the answer is; None finds it likewise (answer, reference, target, ...).
        limit: how many to read at most.

    Raises:
        ConfigurationError: no such file, a line that cannot be read, or no such field; it names the line.
    """
    source = Path(path)
    questions: dict[str, LabelledQuestion] = {}
    for number, record in _records(source):
        if limit is not None and len(questions) >= limit:
            break
        where = f"{source}, line {number}"
        question = _field(record, question_field, _QUESTION_FIELDS, "question", where)
        reference = _reference(_field(record, answer_field, _ANSWER_FIELDS, "answer", where))
        given = record.get("id")
        name = _named_after(question, questions) if given in (None, "") else str(given)
        if name in questions:
            raise ConfigurationError(f"{where}: id {name!r} appears a second time; ids must be unique")
        questions[name] = LabelledQuestion(name, question, reference)
    if not questions:
        raise ConfigurationError(f"{source} holds no question")
    return list(questions.values())


def read_unlabelled(
    path: str | os.PathLike[str],
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> list[tuple[str, str | None]]:
    """Read questions, with their right answers where there are some. A question that is there again is left out.

    Args:
        path: a text with a question a line; or JSON Lines (``.jsonl``, ``.json``), or ``.csv`` with a header.
        question_field: where the question is; None finds it among the usual names.
        answer_field: where a right answer may be; None reads none.
        limit: how many to read at most.

    Raises:
        ConfigurationError: no such file, a line that cannot be read, no such field, or an answer field in a text.
    """
    source = Path(path)
    records = source.suffix.lower() in (".csv", ".json", ".jsonl")
    if not records and (named := question_field or answer_field):
        raise ConfigurationError(f"{source} is a text with a question a line, and has no field {named!r}")
    questions: dict[str, str | None] = {}
    for number, record in _records(source) if records else _lines(source):
        if limit is not None and len(questions) >= limit:
            break
        question = _field(record, question_field, _QUESTION_FIELDS, "question", f"{source}, line {number}")
        given = record.get(answer_field) if answer_field else None
        questions.setdefault(question, None if given in (None, "") else _reference(str(given)))
    if not questions:
        raise ConfigurationError(f"{source} holds no question")
    return list(questions.items())


def _lines(source: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = source.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"no questions at {source}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read questions from {source}: {error}") from error
    yield from ((at, {"question": line.strip()}) for at, line in enumerate(text.splitlines(), 1) if line.strip())


def _named_after(question: str, taken: Collection[str]) -> str:
    """A name made of the text; the second time that the same is asked, another one."""
    name = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    again = (f"{name}-{times}" for times in count(2))
    return name if name not in taken else next(other for other in again if other not in taken)


def _records(source: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            if source.suffix.lower() == ".csv":
                reader = csv.DictReader(file)
                yield from ((reader.line_num, record) for record in reader)
            else:
                yield from (
                    (number, _parsed(line, source, number)) for number, line in enumerate(file, 1) if line.strip()
                )
    except FileNotFoundError:
        raise ConfigurationError(f"no questions at {source}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"cannot read questions from {source}: {error}") from error


def _parsed(line: str, source: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{source}, line {number} is not valid JSON ({error.msg}); questions come as JSON Lines, or as .csv"
        ) from None
    if not isinstance(record, dict):
        raise ConfigurationError(f"{source}, line {number}: a question is a JSON object, got {record!r:.60}")
    return record


def _field(record: dict[str, Any], named: str | None, usual: tuple[str, ...], what: str, where: str) -> str:
    names = (named,) if named else usual
    found = next((record[name] for name in names if record.get(name) not in (None, "")), None)
    if found is None:
        raise ConfigurationError(
            f"{where} has no {what} (looked for {', '.join(names)}; it has {', '.join(map(str, record))}); "
            f"name the field with --{what}-field"
        )
    return str(found).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half an emoji is no text


def _reference(text: str) -> str:
    if "####" in text:
        return normalize(text.rpartition("####")[2])
    return boxed()(text) or normalize(text)

"""Find the question and its right answers in a row, by the names of its fields."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from langchain_reasc.answers import boxed, form_of, written
from langchain_reasc.data.sources import ANSWER_FIELDS, QUESTION_FIELDS, Row
from langchain_reasc.exceptions import ConfigurationError

_ACCEPTED: Final = ("aliases", "accepted")
_YES_NO: Final = {"true": "yes", "false": "no"}


@dataclass(frozen=True, slots=True)
class RowReader:
    """How a row is read.

    Attributes:
        question: returns the question, given a row and its place.
        references: returns the right answers in plain notation, likewise.
        id_field: the field of a question's id.
    """

    question: Callable[[Row, str], str]
    references: Callable[[Row, str], tuple[str, ...]]
    id_field: str = "id"


def fields_reader(
    question_field: str | None = None, answer_field: str | None = None
) -> RowReader:
    """Return a reader of these fields, or of those with the usual names."""
    question_fields = (question_field,) if question_field else QUESTION_FIELDS
    answer_fields = (answer_field,) if answer_field else ANSWER_FIELDS
    return RowReader(
        partial(question_in, names=question_fields),
        partial(references_in, names=answer_fields),
    )


def id_of(row: Row, name: str) -> str | None:
    """Return a field as a string, such as an id; None if it is empty."""
    value = row.get(name)
    if _is_empty(value):
        return None
    return str(value)


def accepted_answers(answers: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the answers in plain notation, each once: what follows ``####`` (GSM8K),
    is boxed (MATH), or all of it.

    Raises:
        ConfigurationError: nothing is left of one, as of a full stop.
    """
    accepted: dict[str, str] = {}
    for text in answers:
        if "####" in text:
            answer = written(text.rpartition("####")[2])
        else:
            answer = boxed()(text) or written(text)
        # "1/2" and "0.5" are the same answer.
        accepted.setdefault(form_of(answer).key, answer)
    if "" in accepted.values():
        raise ConfigurationError(
            f"{where}: the answer {answers[0]!r:.60} says nothing that a response "
            "could say, too"
        )
    return tuple(accepted.values())


def spellings(answer: str) -> list[str]:
    """Return an answer, and after a truth value the yes or no that it stands for."""
    # Tables and JSON write "true" in place of "yes".
    yes_or_no = _YES_NO.get(answer.strip().casefold())
    if yes_or_no is None:
        return [answer]
    return [answer, yes_or_no]


def question_in(
    row: Row, where: str, names: Sequence[str] = ("question",), part: str = "question"
) -> str:
    """Return the first of these fields that is not empty; ``part`` and ``where`` are
    for the error.
    """
    name = _first_field(row, names, part, where)
    return _text(row[name], f"{where}: the {part} (field {name!r})", "a text")


def references_in(
    row: Row, where: str, names: Sequence[str] = ("answer",)
) -> tuple[str, ...]:
    """Return the answer and others that are accepted, from a list or the fields
    ``aliases`` and ``accepted``.
    """
    name = _first_field(row, names, "answer", where)
    answers: list[str] = []
    # The answer may itself be in the field ``accepted``.
    for field in dict.fromkeys([name, *_ACCEPTED]):
        values = row.get(field)
        if not isinstance(values, list | tuple):
            values = [values]
        subject = f"{where}: the answer (field {field!r})"
        for value in values:
            if not _is_empty(value):
                text = _text(value, subject, "a text, a number or a list of them")
                answers += spellings(text)
    return accepted_answers(answers, where)


def _first_field(row: Row, names: Sequence[str], part: str, where: str) -> str:
    """Return the name, in the row's own case, of the first of these fields that is not
    empty.
    """
    fields = list(map(str, row))
    # The same spelling wins, then the first one in another case.
    own_names = {field.lower(): field for field in reversed(fields)}
    own_names |= {field: field for field in fields}
    for name in names:
        own_name = own_names.get(name, name)
        if not _is_empty(row.get(own_name)):
            return own_name
    raise ConfigurationError(
        f"{where} has no {part} (looked for {', '.join(names)}; it has "
        f"{', '.join(fields)}); rename the field, or name it with "
        f"read_questions(..., {part.split()[-1]}_field=...)"
    )


def _is_empty(value: Any) -> bool:
    # An empty cell of a table is NaN.
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, list | tuple):
        return all(map(_is_empty, value))
    if isinstance(value, str):
        return not value.strip()
    return value is None


def _text(value: Any, subject: str, expected: str) -> str:
    if not isinstance(value, str | int | float):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise ConfigurationError(
            f"{subject} is {kind}, expected {expected}; got {value!r:.60}"
        )
    # JSON may have half a surrogate pair.
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

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
    """Return what reads the named fields, or those of the usual names where none is
    named.
    """
    asked = (question_field,) if question_field else QUESTION_FIELDS
    right = (answer_field,) if answer_field else ANSWER_FIELDS
    return RowReader(
        partial(question_in, names=asked), partial(references_in, names=right)
    )


def id_of(row: Row, name: str) -> str | None:
    """Return a field as a string, such as an id; None where it is empty."""
    given = row.get(name)
    return None if _is_empty(given) else str(given)


def accepted_answers(answers: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the answers in plain notation, each once: what follows ``####`` (GSM8K),
    is boxed (MATH), or all of it.

    Raises:
        ConfigurationError: nothing is left of one, as of a full stop.
    """
    accepted: dict[str, str] = {}
    for text in answers:
        answer = (
            written(text.rpartition("####")[2])
            if "####" in text
            else boxed()(text) or written(text)
        )
        accepted.setdefault(form_of(answer).key, answer)
    if "" in accepted.values():
        raise ConfigurationError(
            f"{where}: the answer {answers[0]!r:.60} says nothing that a response "
            "could say, too"
        )
    return tuple(accepted.values())


def spellings(answer: str) -> list[str]:
    """Return an answer, and after a truth value, as tables and JSON write it, also the
    yes or no that it stands for.
    """
    yes_or_no = _YES_NO.get(answer.strip().casefold())
    return [answer] if yes_or_no is None else [answer, yes_or_no]


def question_in(
    row: Row, where: str, names: Sequence[str] = ("question",), what: str = "question"
) -> str:
    """Return the first of these fields that is not empty; ``what`` and ``where`` are
    for the error.
    """
    name = _first_field(row, names, what, where)
    return _text(row[name], f"{where}: the {what} (field {name!r})", "a text")


def references_in(
    row: Row, where: str, names: Sequence[str] = ("answer",)
) -> tuple[str, ...]:
    """Return the answer and others that are accepted, from a list or the fields
    ``aliases`` and ``accepted``.
    """
    name = _first_field(row, names, "answer", where)
    answers: list[str] = []
    for field in (name, *(other for other in _ACCEPTED if other != name)):
        value = row.get(field)
        what = f"{where}: the answer (field {field!r})"
        each = value if isinstance(value, list | tuple) else [value]
        for one in each:
            if not _is_empty(one):
                answers += spellings(
                    _text(one, what, "a text, a number or a list of them")
                )
    return accepted_answers(answers, where)


def _first_field(row: Row, names: Sequence[str], what: str, where: str) -> str:
    """Return the name, in the row's own case, of the first of these fields that is not
    empty.
    """
    named = {name.lower(): name for name in reversed(list(map(str, row)))} | {
        str(name): str(name) for name in row
    }
    found = next(
        (
            named[name]
            for name in names
            if not _is_empty(row.get(named.get(name, name)))
        ),
        None,
    )
    if found is None:
        raise ConfigurationError(
            f"{where} has no {what} (looked for {', '.join(names)}; it has "
            f"{', '.join(map(str, row))}); rename the field, or name it with "
            f"read_questions(..., {what.split()[-1]}_field=...)"
        )
    return found


def _is_empty(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)  # as tables have it in an empty cell
    if isinstance(value, list | tuple):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and (not value or value.isspace()))


def _text(value: Any, what: str, expected: str) -> str:
    if not isinstance(value, str | int | float):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise ConfigurationError(
            f"{what} is {kind}, expected {expected}; got {value!r:.60}"
        )
    # half a surrogate pair
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

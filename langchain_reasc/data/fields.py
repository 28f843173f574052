"""What stands in the fields of a row: the question, its id, and the answers that are accepted."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_reasc.answers import boxed, normalize
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["ANSWER_FIELDS", "QUESTION_FIELDS", "accepted_of", "id_of", "references_of", "text_of"]

QUESTION_FIELDS: Final = ("question", "input", "problem", "prompt", "query")
ANSWER_FIELDS: Final = ("answer", "reference", "target", "label", "solution", "answers")
_ACCEPTED: Final = ("aliases", "accepted")


def text_of(row: Mapping[str, Any], names: Sequence[str], what: str, where: str) -> str:
    """The text of the first field that holds something; a number is its text.

    Args:
        row: a row.
        names: the fields to look in.
        what: what is looked for, in a word.
        where: the place of the row.

    Raises:
        ConfigurationError: there is none, or what is there is no text.
    """
    name = _first(row, names, what, where)
    return _text(row[name], f"{where}: the {what} (field {name!r})", "a text")


def accepted_of(row: Mapping[str, Any], names: Sequence[str], where: str) -> list[str]:
    """The answer as it is written, and others that are accepted, from a list, or from ``aliases`` or ``accepted``.

    Raises:
        ConfigurationError: there is none, or what is there is neither a text nor a list of texts.
    """
    name = _first(row, names, "answer", where)
    answers: list[str] = []
    for field in (name, *(other for other in _ACCEPTED if other != name)):
        value = row.get(field)
        each = value if isinstance(value, list | tuple) else [value]
        wanted = f"{where}: the answer (field {field!r})"
        answers += [_text(one, wanted, "a text, a number or a list of them") for one in each if not _is_empty(one)]
    return answers


def references_of(answers: Sequence[str], where: str) -> tuple[str, ...]:
    """The answers as they are compared, each once: what stands after ``####`` (GSM8K), in a box (MATH), or all of it.

    Raises:
        ConfigurationError: nothing is left of one, as of a full stop.
    """
    references = tuple(dict.fromkeys(map(_reference, answers)))
    if "" in references:
        raise ConfigurationError(f"{where}: the answer {answers[0]!r:.60} says nothing that a response could say, too")
    return references


def id_of(row: Mapping[str, Any], name: str) -> str | None:
    """The id that a row has; None where it has none."""
    given = row.get(name)
    return None if _is_empty(given) else str(given)


def _first(row: Mapping[str, Any], names: Sequence[str], what: str, where: str) -> str:
    named = {name.lower(): name for name in reversed(list(map(str, row)))} | {str(name): str(name) for name in row}
    found = next((named[name] for name in names if not _is_empty(row.get(named.get(name, name)))), None)
    if found is None:
        raise ConfigurationError(
            f"{where} has no {what} (looked for {', '.join(names)}; it has {', '.join(map(str, row))}); "
            f"rename the field, or name it with read_questions(..., {what.split()[-1]}_field=...)"
        )
    return found


def _is_empty(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)  # what a table has where nothing is
    if isinstance(value, list | tuple):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and (not value or value.isspace()))


def _text(value: Any, what: str, wanted: str) -> str:
    if not isinstance(value, str | int | float):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise ConfigurationError(f"{what} is {kind}, expected {wanted}; got {value!r:.60}")
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half an emoji is no text


def _reference(text: str) -> str:
    if "####" in text:
        return normalize(text.rpartition("####")[2])
    return boxed()(text) or normalize(text)

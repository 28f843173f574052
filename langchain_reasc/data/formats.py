"""Turn rows into questions: usual field names, and the published formats of known data sets.

==============  ============================================================================  =========  =========
name            its files                                                                     preset     grader
==============  ============================================================================  =========  =========
gsm8k           JSON Lines: question, answer (a solution that ends in ``#### 18``)            number     numeric
math500         JSON Lines: problem, solution, answer, subject, level, unique_id              maths      math
omni-math       JSON Lines: domain, difficulty, problem, solution, answer, source             maths      math
gpqa            CSV: Question, Correct Answer, Incorrect Answer 1 to 3, Record ID, ...        letter     choice
strategyqa      JSON: a list of qid, term, question, answer (true, false), facts, ...         yes-no     exact
last-letters    JSON: examples, a list of question and answer; or ``last-letters:500``        letters    exact
nq-open         JSON Lines: question, answer (a list of all that are accepted)                short      alias
any             any fields, see :func:`.read_questions`        none       exact
==============  ============================================================================  =========  =========

The paper grades MATH500 and Omni-Math by a model, xVerify: the grader ``judge``. The reader of gsm8k was tried on the
published file. Those of nq-open and last-letters were written after a look at published files; those of math500,
omni-math, gpqa and strategyqa after descriptions and other programs that read them: of all these only files made by
hand in the same format were read.

Questions have the ids that the data set gives them; as ``any``, those of ``id``, or names made of their texts. On the
Hugging Face Hub the data sets have the same fields: ``hf:openai/gsm8k:main/test``, ``hf:HuggingFaceH4/MATH-500/test``,
``hf:KbsdJames/Omni-MATH/test``, ``hf:Idavidrein/gpqa:gpqa_diamond/train``, ``hf:ChilleD/StrategyQA/test``,
``hf:google-research-datasets/nq_open/validation``; none of these could be tried.

GPQA lists the right answer first. Here the choices are put in an order made of the question and the choices' texts
alone, lettered from A to D below the question, and the letter is the answer: the same on every machine.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from langchain_reasc.answers import boxed, normalize
from langchain_reasc.data.files import ANSWER_FIELDS, QUESTION_FIELDS, Row
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["FORMATS", "DataFormat", "Grader", "accepted_answers", "format_of", "id_of"]

Grader = Literal["exact", "numeric", "choice", "math", "alias", "judge"]
"""How a response's answer is compared with the right ones."""

_ACCEPTED: Final = ("aliases", "accepted")
_RIGHT: Final = "Correct Answer"
_WRONG: Final = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_YES_NO: Final = {"true": "yes", "yes": "yes", "false": "no", "no": "no"}


@dataclass(frozen=True, slots=True)
class DataFormat:
    """How a data set's files are read.

    Attributes:
        name: its name for ``format=`` and ``--format``.
        recognizes: returns whether a row is of this data set.
        question: returns the question, given a row and its place.
        references: returns the right answers as they are compared, likewise.
        id_field: the field of a question's id.
        preset: the preset of its prompts, see :mod:`.prompts`; None where the task is not known.
        grader: how its answers are compared.
    """

    name: str
    recognizes: Callable[[Row], bool]
    question: Callable[[Row, str], str]
    references: Callable[[Row, str], tuple[str, ...]]
    id_field: str = "id"
    preset: str | None = None
    grader: Grader = "exact"


def format_of(name: str, row: Row, *, question_field: str | None = None, answer_field: str | None = None) -> DataFormat:
    """Return a format by name, or the one that a row is recognized by.

    Args:
        name: a data set, ``"any"``, or ``"auto"``, which looks at the row.
        row: the first one.
        question_field: the field of the question; with it or the next, ``"auto"`` means ``"any"``.
        answer_field: the field of the answer.

    Raises:
        ConfigurationError: an unknown name, or fields beside a data set that settles them.
    """
    asked = (question_field,) if question_field else QUESTION_FIELDS
    right = (answer_field,) if answer_field else ANSWER_FIELDS
    plain = DataFormat("any", lambda row: True, partial(_question, names=asked), partial(_references, names=right))
    fields_named = question_field is not None or answer_field is not None
    if name == "auto" and not fields_named:
        return next((one for one in FORMATS.values() if one.recognizes(row)), plain)
    if name in ("auto", "any"):
        return plain
    if name not in FORMATS:
        raise ConfigurationError(f"unknown format {name!r}; choose auto, any, {', '.join(FORMATS)}")
    if fields_named:
        raise ConfigurationError(f"format={name!r} settles the fields; leave out question_field and answer_field")
    return FORMATS[name]


def id_of(row: Row, name: str) -> str | None:
    """Return a field as a string, such as an id; None where it is empty."""
    given = row.get(name)
    return None if _is_empty(given) else str(given)


def accepted_answers(answers: Sequence[str], where: str) -> tuple[str, ...]:
    """Return answers as they are compared, each once: what follows ``####`` (GSM8K), is boxed (MATH), or all of it.

    Raises:
        ConfigurationError: nothing is left of one, as of a full stop.
    """
    accepted = tuple(
        dict.fromkeys(
            normalize(text.rpartition("####")[2]) if "####" in text else boxed()(text) or normalize(text)
            for text in answers
        )
    )
    if "" in accepted:
        raise ConfigurationError(f"{where}: the answer {answers[0]!r:.60} says nothing that a response could say, too")
    return accepted


def _question(row: Row, where: str, names: Sequence[str] = ("question",), what: str = "question") -> str:
    """Return the first of these fields that is not empty."""
    name = _first_field(row, names, what, where)
    return _text(row[name], f"{where}: the {what} (field {name!r})", "a text")


def _references(row: Row, where: str, names: Sequence[str] = ("answer",)) -> tuple[str, ...]:
    """Return the answer and others that are accepted, from a list or the fields ``aliases`` and ``accepted``."""
    name = _first_field(row, names, "answer", where)
    answers: list[str] = []
    for field in (name, *(other for other in _ACCEPTED if other != name)):
        value = row.get(field)
        what = f"{where}: the answer (field {field!r})"
        each = value if isinstance(value, list | tuple) else [value]
        answers += [_text(one, what, "a text, a number or a list of them") for one in each if not _is_empty(one)]
    return accepted_answers(answers, where)


def _first_field(row: Row, names: Sequence[str], what: str, where: str) -> str:
    """Return the name, in the row's own case, of the first of these fields that is not empty."""
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
        return math.isnan(value)  # as tables have it in an empty cell
    if isinstance(value, list | tuple):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and (not value or value.isspace()))


def _text(value: Any, what: str, expected: str) -> str:
    if not isinstance(value, str | int | float):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise ConfigurationError(f"{what} is {kind}, expected {expected}; got {value!r:.60}")
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half a surrogate pair


def _choices(row: Row, where: str) -> list[str]:
    """Return GPQA's choices in an order that does not tell which is right."""
    question = _question(row, where, ("Question",)).strip()
    texts = [_question(row, where, (name,), f"choice {name!r}").strip() for name in (_RIGHT, *_WRONG)]
    return sorted(texts, key=lambda text: hashlib.sha256(f"{question}\n{text}".encode()).digest())


def _gpqa_question(row: Row, where: str) -> str:
    lettered = (f"{letter}) {text}" for letter, text in zip("ABCD", _choices(row, where), strict=True))
    return "\n".join((_question(row, where, ("Question",)).strip(), "", *lettered))


def _gpqa_references(row: Row, where: str) -> tuple[str, ...]:
    right = _question(row, where, (_RIGHT,), "answer").strip()
    letters = [letter for letter, text in zip("ABCD", _choices(row, where), strict=True) if text == right]
    return accepted_answers(letters, where)  # several, where a wrong choice reads like the right one


def _yes_or_no(row: Row, where: str) -> tuple[str, ...]:
    given = _question(row, where, ("answer",), "answer")
    if (answer := _YES_NO.get(given.strip().casefold())) is None:
        raise ConfigurationError(f"{where}: an answer of StrategyQA is true or false, got {given!r:.60}")
    return (answer,)


def _has(*names: str) -> Callable[[Row], bool]:
    return lambda row: row.keys() >= set(names)


def _is_strategyqa(row: Row) -> bool:
    return _has("qid", "question", "answer")(row) and str(row["answer"]).casefold() in _YES_NO


def _is_last_letters(row: Row) -> bool:
    return str(row.get("question", "")).casefold().startswith("take the last letters of ") and "answer" in row


def _is_gsm8k(row: Row) -> bool:
    return "question" in row and "\n#### " in str(row.get("answer", ""))


def _is_nq_open(row: Row) -> bool:
    return set(row) == {"question", "answer"} and isinstance(row["answer"], list)


_problem: Final = partial(_question, names=("problem",))
_is_math500: Final = _has("problem", "answer", "subject", "level", "unique_id")
_is_omni_math: Final = _has("domain", "difficulty", "problem", "answer")
_is_gpqa: Final = _has("Question", _RIGHT, *_WRONG)
FORMATS: Final = {
    one.name: one
    for one in (
        DataFormat("gsm8k", _is_gsm8k, _question, _references, preset="number", grader="numeric"),
        DataFormat("math500", _is_math500, _problem, _references, "unique_id", "maths", "math"),
        DataFormat("omni-math", _is_omni_math, _problem, _references, preset="maths", grader="math"),
        DataFormat("gpqa", _is_gpqa, _gpqa_question, _gpqa_references, "Record ID", "letter", "choice"),
        DataFormat("strategyqa", _is_strategyqa, _question, _yes_or_no, "qid", "yes-no"),
        DataFormat("last-letters", _is_last_letters, _question, _references, preset="letters"),
        DataFormat("nq-open", _is_nq_open, _question, _references, preset="short", grader="alias"),
    )
}
"""Data sets by name; the first that recognizes a row is taken."""

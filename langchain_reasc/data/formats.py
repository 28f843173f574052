"""The data sets whose published files are known: how each writes a question, and how it is asked and graded.

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
any             any fields, see :func:`~langchain_reasc.data.questions.read_questions`        none       exact
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from langchain_reasc.data.fields import ANSWER_FIELDS, QUESTION_FIELDS, accepted_of, references_of, text_of
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["FORMATS", "DataFormat", "Grader", "format_of", "plain_format"]

Grader = Literal["exact", "numeric", "choice", "math", "alias", "judge"]
"""How a response's answer is compared with the right ones."""

_Row = Mapping[str, Any]
_RIGHT: Final = "Correct Answer"
_WRONG: Final = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_YES_NO: Final = {"true": "yes", "yes": "yes", "false": "no", "no": "no"}


@dataclass(frozen=True, slots=True)
class DataFormat:
    """How a data set's files are read.

    Attributes:
        name: what ``format=`` and ``--format`` call it.
        recognizes: whether a row is of this data set.
        question: what is asked; given a row and its place.
        references: the right answers as they are compared; likewise.
        id_field: the field of a question's id.
        preset: the prompt that asks it, see :mod:`.presets`; None where nothing is known of the task.
        grader: how its answers are compared.
    """

    name: str
    recognizes: Callable[[_Row], bool]
    question: Callable[[_Row, str], str]
    references: Callable[[_Row, str], tuple[str, ...]]
    id_field: str = "id"
    preset: str | None = None
    grader: Grader = "exact"


def plain_format(question_field: str | None = None, answer_field: str | None = None) -> DataFormat:
    """Any file: the fields that are named, else the usual ones."""
    asked = (question_field,) if question_field else QUESTION_FIELDS
    right = (answer_field,) if answer_field else ANSWER_FIELDS
    return DataFormat("any", lambda row: True, partial(_question, names=asked), partial(_references, names=right))


def format_of(
    name: str, row: _Row, *, question_field: str | None = None, answer_field: str | None = None
) -> DataFormat:
    """The format of a name, or the one that a row is recognized by.

    Args:
        name: of a data set, ``"any"``, or ``"auto"``, which looks at the row.
        row: the first one.
        question_field: where the question is; it and the next make any file of it.
        answer_field: where the answer is.

    Raises:
        ConfigurationError: an unknown name, or fields beside a data set that settles them.
    """
    plain = plain_format(question_field, answer_field)
    fields_named = question_field is not None or answer_field is not None
    if name == "auto":
        return plain if fields_named else next((one for one in FORMATS.values() if one.recognizes(row)), plain)
    if name == "any":
        return plain
    if name not in FORMATS:
        raise ConfigurationError(f"unknown format {name!r}; choose auto, any, {', '.join(FORMATS)}")
    if fields_named:
        raise ConfigurationError(f"format={name!r} settles the fields; leave out question_field and answer_field")
    return FORMATS[name]


def _question(row: _Row, where: str, names: Sequence[str] = ("question",)) -> str:
    return text_of(row, names, "question", where)


def _references(row: _Row, where: str, names: Sequence[str] = ("answer",)) -> tuple[str, ...]:
    return references_of(accepted_of(row, names, where), where)


def _has(*names: str) -> Callable[[_Row], bool]:
    return lambda row: row.keys() >= set(names)


def _choices(row: _Row, where: str) -> list[str]:
    """The choices in an order that says nothing of which is right."""
    question = _question(row, where, ("Question",)).strip()
    texts = [text_of(row, (name,), f"choice {name!r}", where).strip() for name in (_RIGHT, *_WRONG)]
    return sorted(texts, key=lambda text: hashlib.sha256(f"{question}\n{text}".encode()).digest())


def _gpqa_question(row: _Row, where: str) -> str:
    lettered = (f"{letter}) {text}" for letter, text in zip("ABCD", _choices(row, where), strict=True))
    return "\n".join((_question(row, where, ("Question",)).strip(), "", *lettered))


def _gpqa_references(row: _Row, where: str) -> tuple[str, ...]:
    right = text_of(row, (_RIGHT,), "answer", where).strip()
    letters = [letter for letter, text in zip("ABCD", _choices(row, where), strict=True) if text == right]
    return references_of(letters, where)  # several, where a wrong choice reads like the right one


def _yes_or_no(row: _Row, where: str) -> tuple[str, ...]:
    said = text_of(row, ("answer",), "answer", where)
    if (answer := _YES_NO.get(said.strip().casefold())) is None:
        raise ConfigurationError(f"{where}: an answer of StrategyQA is true or false, got {said!r:.60}")
    return (answer,)


def _is_strategyqa(row: _Row) -> bool:
    return _has("qid", "question", "answer")(row) and str(row["answer"]).casefold() in _YES_NO


def _is_last_letters(row: _Row) -> bool:
    return str(row.get("question", "")).casefold().startswith("take the last letters of ") and "answer" in row


def _is_gsm8k(row: _Row) -> bool:
    return "question" in row and "\n#### " in str(row.get("answer", ""))


def _is_nq_open(row: _Row) -> bool:
    return set(row) == {"question", "answer"} and isinstance(row["answer"], list)


def _by_name(formats: Iterable[DataFormat]) -> dict[str, DataFormat]:
    return {one.name: one for one in formats}


_of_a_problem: Final = partial(_question, names=("problem",))
FORMATS: Final = _by_name(
    (
        DataFormat("gsm8k", _is_gsm8k, _question, _references, preset="number", grader="numeric"),
        DataFormat(
            "math500",
            _has("problem", "answer", "subject", "level", "unique_id"),
            _of_a_problem,
            _references,
            id_field="unique_id",
            preset="maths",
            grader="math",
        ),
        DataFormat(
            "omni-math",
            _has("domain", "difficulty", "problem", "answer"),
            _of_a_problem,
            _references,
            preset="maths",
            grader="math",
        ),
        DataFormat(
            "gpqa",
            _has("Question", _RIGHT, *_WRONG),
            _gpqa_question,
            _gpqa_references,
            id_field="Record ID",
            preset="letter",
            grader="choice",
        ),
        DataFormat("strategyqa", _is_strategyqa, _question, _yes_or_no, id_field="qid", preset="yes-no"),
        DataFormat("last-letters", _is_last_letters, _question, _references, preset="letters"),
        DataFormat("nq-open", _is_nq_open, _question, _references, preset="short", grader="alias"),
    )
)
"""Data sets by name; the first that recognizes a row has it."""

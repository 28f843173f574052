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
any             any fields, see :func:`langchain_reasc.data.read_questions`                    none       exact
==============  ============================================================================  =========  =========

The paper grades MATH500 and Omni-Math by a model, xVerify. The reader of gsm8k was tried on the published file. Those
of nq-open and last-letters were written after a look at published files; those of math500, omni-math, gpqa and
strategyqa after descriptions and other programs that read them: of all these only files made by hand in the same format
were read.

Questions have the ids that the data set gives them; as ``any``, those of ``id``, or names made of their texts. On the
Hugging Face Hub the data sets have the same fields: ``hf:openai/gsm8k:main/test``, ``hf:HuggingFaceH4/MATH-500/test``,
``hf:KbsdJames/Omni-MATH/test``, ``hf:Idavidrein/gpqa:gpqa_diamond/train``, ``hf:ChilleD/StrategyQA/test``,
``hf:google-research-datasets/nq_open/validation``; none of these could be tried.

GPQA lists the right answer first. Here the choices are put in an order made of the question and the choices' texts
alone, lettered from A to D below the question, and the letter is the answer: the same on every machine.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final, Literal

from langchain_reasc.data import LabelledQuestion
from langchain_reasc.data.questions import (
    Source,
    labelled_questions,
    some_rows,
    text_questions,
)
from langchain_reasc.data.rows import (
    RowReader,
    accepted_answers,
    fields_reader,
    question_in,
    references_in,
)
from langchain_reasc.data.sources import Row, is_called_text
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["FORMATS", "DataFormat", "DataSet", "Grader", "format_of", "read_data_set"]

Grader = Literal["exact", "numeric", "choice", "math", "alias"]
"""How a response's answer is compared with the right ones."""

_RIGHT: Final = "Correct Answer"
_WRONG: Final = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_YES_NO: Final = {"true": "yes", "yes": "yes", "false": "no", "no": "no"}


@dataclass(frozen=True, slots=True)
class DataFormat(RowReader):
    """How a data set's files are read.

    Attributes:
        name: its name for ``format=`` and ``--format``.
        recognizes: returns whether a row is of this data set.
        preset: the preset of its prompts, see :mod:`.presets`; None if the task is not
            known.
        grader: how its answers are compared.
    """

    name: str = "any"
    recognizes: Callable[[Row], bool] = lambda row: True
    preset: str | None = None
    grader: Grader = "exact"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Questions and their format.

    Attributes:
        questions: in the order of their source.
        format: the format they were read in: its name, the preset for its prompts, the
            grader of its answers.
    """

    questions: list[LabelledQuestion]
    format: DataFormat


def read_data_set(
    source: Source,
    *,
    format: str = "auto",
    question_field: str | None = None,
    answer_field: str | None = None,
    limit: int | None = None,
) -> DataSet:
    """Read questions as :func:`langchain_reasc.data.read_questions` does, and those of
    published data sets.

    Args:
        source: see there; or a ``.txt`` with a question a line, whose right answers are
            not known.
        format: a data set; ``"auto"`` recognizes it by the fields of the first row;
            ``"any"`` looks for the usual names of fields.
        question_field: the field of the question; with it or the next, ``"auto"`` means
            ``"any"``.
        answer_field: the field of the answer.
        limit: how many to read at most.

    Raises:
        ConfigurationError: the same as there, an unknown format, or fields beside a
            format that settles them.
    """
    if is_called_text(source):
        if (
            named := question_field
            or answer_field
            or (format if format not in ("auto", "any") else None)
        ):
            raise ConfigurationError(
                f"{source} is a text with a question a line, and has no {named!r}"
            )
        return DataSet(text_questions(source, limit=limit), format_of("any", {}))
    rows = some_rows(source, question_field, answer_field)
    first = next(rows)
    chosen = format_of(
        format, first[1], question_field=question_field, answer_field=answer_field
    )
    return DataSet(
        labelled_questions(islice(chain((first,), rows), limit), chosen), chosen
    )


def format_of(
    name: str,
    row: Row,
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
) -> DataFormat:
    """Return a format by name, or the one that a row is recognized by.

    Args:
        name: a data set, ``"any"``, or ``"auto"``, which looks at the row.
        row: the first one.
        question_field: the field of the question; with it or the next, ``"auto"`` means
            ``"any"``.
        answer_field: the field of the answer.

    Raises:
        ConfigurationError: an unknown name, or fields beside a data set that settles
            them.
    """
    plain = fields_reader(question_field, answer_field)
    usual = DataFormat(plain.question, plain.references)
    fields_named = question_field is not None or answer_field is not None
    if name == "auto" and not fields_named:
        return next((one for one in FORMATS.values() if one.recognizes(row)), usual)
    if name in ("auto", "any"):
        return usual
    if name not in FORMATS:
        raise ConfigurationError(
            f"unknown format {name!r}; choose auto, any, {', '.join(FORMATS)}"
        )
    if fields_named:
        raise ConfigurationError(
            f"the format {name} settles the fields; name the format, or fields"
        )
    return FORMATS[name]


def _choices(row: Row, where: str) -> list[str]:
    """Return GPQA's choices in an order that does not tell which is right."""
    question = question_in(row, where, ("Question",)).strip()
    texts = [
        question_in(row, where, (name,), f"choice {name!r}").strip()
        for name in (_RIGHT, *_WRONG)
    ]
    return sorted(
        texts, key=lambda text: hashlib.sha256(f"{question}\n{text}".encode()).digest()
    )


def _gpqa_question(row: Row, where: str) -> str:
    lettered = (
        f"{letter}) {text}"
        for letter, text in zip("ABCD", _choices(row, where), strict=True)
    )
    return "\n".join((question_in(row, where, ("Question",)).strip(), "", *lettered))


def _gpqa_references(row: Row, where: str) -> tuple[str, ...]:
    right = question_in(row, where, (_RIGHT,), "answer").strip()
    letters = [
        letter
        for letter, text in zip("ABCD", _choices(row, where), strict=True)
        if text == right
    ]
    # several, where a wrong choice reads like the right one
    return accepted_answers(letters, where)


def _yes_or_no(row: Row, where: str) -> tuple[str, ...]:
    given = question_in(row, where, ("answer",), "answer")
    if (answer := _YES_NO.get(given.strip().casefold())) is None:
        raise ConfigurationError(
            f"{where}: an answer of StrategyQA is true or false, got {given!r:.60}"
        )
    return (answer,)


def _has(*names: str) -> Callable[[Row], bool]:
    return lambda row: row.keys() >= set(names)


def _is_strategyqa(row: Row) -> bool:
    return (
        _has("qid", "question", "answer")(row)
        and str(row["answer"]).casefold() in _YES_NO
    )


def _is_last_letters(row: Row) -> bool:
    return (
        str(row.get("question", "")).casefold().startswith("take the last letters of ")
        and "answer" in row
    )


def _is_gsm8k(row: Row) -> bool:
    return "question" in row and "\n#### " in str(row.get("answer", ""))


def _is_nq_open(row: Row) -> bool:
    return set(row) == {"question", "answer"} and isinstance(row["answer"], list)


_problem: Final = partial(question_in, names=("problem",))
_is_math500: Final = _has("problem", "answer", "subject", "level", "unique_id")
_is_omni_math: Final = _has("domain", "difficulty", "problem", "answer")
_is_gpqa: Final = _has("Question", _RIGHT, *_WRONG)
FORMATS: Final = {
    one.name: one
    for one in (
        DataFormat(
            question_in, references_in, "id", "gsm8k", _is_gsm8k, "number", "numeric"
        ),
        DataFormat(
            _problem,
            references_in,
            "unique_id",
            "math500",
            _is_math500,
            "maths",
            "math",
        ),
        DataFormat(
            _problem, references_in, "id", "omni-math", _is_omni_math, "maths", "math"
        ),
        DataFormat(
            _gpqa_question,
            _gpqa_references,
            "Record ID",
            "gpqa",
            _is_gpqa,
            "letter",
            "choice",
        ),
        DataFormat(
            question_in, _yes_or_no, "qid", "strategyqa", _is_strategyqa, "yes-no"
        ),
        DataFormat(
            question_in,
            references_in,
            "id",
            "last-letters",
            _is_last_letters,
            "letters",
        ),
        DataFormat(
            question_in, references_in, "id", "nq-open", _is_nq_open, "short", "alias"
        ),
    )
}
"""Data sets by name; the first that recognizes a row is taken."""

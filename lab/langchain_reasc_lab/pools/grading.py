"""Grading a pool again, by any grader, without a new sample."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc_lab.pools.graders import Grader, grader_name
from langchain_reasc_lab.pools.pool import Pool
from langchain_reasc_lab.pools.store import PoolQuestion, PoolStore

Labels = Mapping[str, tuple[str, ...]]
"""The accepted answers by question id."""


@dataclass(frozen=True, slots=True)
class Grading:
    """A grader's verdicts on a pool's responses.

    Attributes:
        grader: its name.
        verdicts: by question id, of each response; None if the grader could not decide.
        answers: distinct answers that were graded.
        undecided: how many of those the grader could not decide.
    """

    grader: str
    verdicts: Mapping[str, tuple[bool | None, ...]]
    answers: int
    undecided: int

    @property
    def notice(self) -> str | None:
        """A sentence on what could not be decided; None if everything was decided."""
        if not self.undecided:
            return None
        responses = sum(
            verdict is None
            for verdicts in self.verdicts.values()
            for verdict in verdicts
        )
        return (
            f"{self.grader} could not decide whether {self.undecided:,} of "
            f"{self.answers:,} answers are right; the {responses:,} responses that "
            "give them count as wrong"
        )


def grade_pool(
    pool: Pool,
    grader: Grader,
    *,
    labels: Labels | None = None,
    on_question: Callable[[int, int], None] = lambda done, total: None,
) -> Grading:
    """Grade all responses of a pool; nothing is written.

    Each answer to a question is graded once, however many responses give it: equal
    answers are right together. A response without an answer is wrong, without asking
    the grader. A question without accepted answers keeps the verdicts that it has.

    Args:
        pool: recorded responses.
        grader: decides which answers are right. What it raises is raised.
        labels: the accepted answers of questions where they are others than the pool's.
        on_question: called with (done, total) questions.

    Raises:
        PoolError: no answer at all could be decided, so that everything would count as
            wrong.
    """
    labels = labels or {}
    verdicts: dict[str, tuple[bool | None, ...]] = {}
    decisions: list[bool | None] = []
    for done, question in enumerate(pool.questions, start=1):
        references = labels.get(question.id, question.references)
        if question.references or question.id in labels:
            graded = _graded_answers(question, grader, references)
            verdicts[question.id] = tuple(
                graded.get(response.answer or "", False)
                for response in question.responses
            )
            decisions += graded.values()
        else:
            verdicts[question.id] = tuple(
                response.correct for response in question.responses
            )
        on_question(done, len(pool.questions))
    name = grader_name(grader)
    undecided = decisions.count(None)
    if decisions and undecided == len(decisions):
        raise PoolError(
            f"{name} could not decide whether any of the {undecided:,} answers in "
            f"{pool.path} is right; nothing was changed"
        )
    return Grading(name, verdicts, len(decisions), undecided)


def labels_from(
    pool: Pool, questions: Sequence[LabelledQuestion]
) -> tuple[Labels, int]:
    """Return the accepted answers of a pool's questions as a file has them, and how
    many of those questions it lacks.

    A question is matched by its id, or else by its text.

    Raises:
        ConfigurationError: the file has none of the pool's questions, or another one
            under an id of the pool's.
    """
    by_id = {question.id: question for question in questions}
    by_text = {question.input: question for question in questions}
    labels: dict[str, tuple[str, ...]] = {}
    for held in pool.questions:
        text = held.input if isinstance(held.input, str) else ""
        labelled = by_id.get(held.id) or by_text.get(text)
        if labelled is None:
            continue
        if text and text.strip() != labelled.input.strip():
            raise ConfigurationError(
                f"{pool.path} holds another question with id {held.id!r} "
                f"({text!r:.60}) than the labels ({labelled.input!r:.60})"
            )
        labels[held.id] = labelled.references
    if not labels:
        raise ConfigurationError(
            f"the labels are those of none of the questions in {pool.path}, by id or "
            "by text"
        )
    return labels, len(pool.questions) - len(labels)


def check_writable(pool: Pool) -> None:
    """Refuse a pool that verdicts cannot be written into, before anything is graded.

    Raises:
        PoolError: the file may not be written, or other rules found its answers.
    """
    if not os.access(pool.path, os.W_OK):
        raise PoolError(
            f"{pool.path} may not be written; see what would change with --dry-run"
        )
    version = pool.metadata.get("extraction_version")
    if version not in (None, EXTRACTION_VERSION):
        raise PoolError(
            f"the answers in {pool.path} were found by version {version} of the "
            f"extraction rules, here is version {EXTRACTION_VERSION}: `reasc record` "
            "brings them up to date, then grade it; or see what would change "
            "(--dry-run)"
        )


def write_verdicts(pool: Pool, grading: Grading, labels: Labels | None = None) -> None:
    """Write verdicts into a pool's file, with the grader's name and the accepted
    answers where those are others.

    What could not be decided is written as wrong. A reader sees the old verdicts or the
    new ones, never some of each.

    Raises:
        PoolError: see :func:`check_writable`; or the file holds other responses by now,
            or could not be written.
    """
    check_writable(pool)
    store = PoolStore.open(pool.path)
    try:
        with store.transaction():
            held = store.ids()
            if any(
                held.get(id) != len(verdicts)
                for id, verdicts in grading.verdicts.items()
            ):
                raise PoolError(
                    f"{pool.path} has changed while it was graded; nothing was "
                    "written: grade it again"
                )
            for id, references in (labels or {}).items():
                store.set_references(id, references)
            for id, verdicts in grading.verdicts.items():
                store.set_responses(
                    id, [{"correct": bool(verdict)} for verdict in verdicts]
                )
            store.set_about({"grader": grading.grader})
    finally:
        store.close()


def _graded_answers(
    question: PoolQuestion, grader: Grader, references: Sequence[str]
) -> dict[str, bool | None]:
    """Return each distinct answer to a question -> the grader's verdict; blank ones are
    left out.
    """
    asked = question.input if isinstance(question.input, str) else ""
    answers = dict.fromkeys(response.answer or "" for response in question.responses)
    return {
        answer: grader(asked, answer, references)
        for answer in answers
        if answer.strip()
    }

"""The questions of a calibration, labelled or not, and the grading of answers to them."""

import logging
import os
import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import Extractor, Schemas, ToolVotes, Vote
from langchain_reasc.data import is_text, read_questions, read_unlabelled
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.runnable.meanings import Meanings
from langchain_reasc.sampling import Cutoff, QuestionClock
from langchain_reasc.threads import DaemonExecutor, as_they_end

__all__ = ["Graded", "Question", "Questions", "UnlabelledQuestions", "grades", "read", "read_unlabelled_questions"]

logger = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)

Questions = (
    Iterable[LanguageModelInput | tuple[LanguageModelInput, str | Sequence[str] | None]] | str | os.PathLike[str]
)
"""Inputs, or pairs with the right answer or a list of those that are accepted; or a file of questions, see
:func:`langchain_reasc.data.read_questions`."""
UnlabelledQuestions = Iterable[LanguageModelInput | tuple[LanguageModelInput, str | None]] | str | os.PathLike[str]
"""Inputs, or pairs with the right answer where it is known; or a file of them, see
:func:`langchain_reasc.data.read_unlabelled`."""


class Question(NamedTuple):
    """An input, the answers that are right (None where none is known), and the name that a file gives it."""

    input: LanguageModelInput
    references: tuple[str, ...] | None = None
    id: str | None = None


def read(questions: Questions) -> list[Question]:
    """Read questions with their right answers, or without any.

    Raises:
        ConfigurationError: a file that cannot be read, or what is no question.
    """
    if not isinstance(questions, str | os.PathLike):
        return [_question(one) for one in questions]
    if is_text(questions):
        return [Question(text) for text, _ in read_unlabelled(questions)]
    return [Question(one.input, one.references, one.id) for one in read_questions(questions)]


def _question(one: Any) -> Question:
    messages = isinstance(one, list) and one and all(isinstance(message, BaseMessage) for message in one)
    if isinstance(one, str | PromptValue) or messages:
        return Question(one)
    if not isinstance(one, list | tuple) or len(one) != 2:  # a row of a file, say, whose keys would be asked
        raise ConfigurationError(f"each question is a pair (input, right answer), or an input, got {reprlib.repr(one)}")
    value, right = one
    accepted = right if isinstance(right, list | tuple) else [right]
    return Question(cast(LanguageModelInput, value), None if right is None else tuple(map(str, accepted)))


def read_unlabelled_questions(questions: UnlabelledQuestions) -> list[Question]:
    """Read inputs, each with its right answer where that is known."""
    given: Iterable[Any] = read_unlabelled(questions) if isinstance(questions, str | os.PathLike) else questions
    pairs = [one if isinstance(one, tuple) and len(one) == 2 else (one, None) for one in given]
    return [Question(value, None if right is None else (str(right),)) for value, right in pairs]


class Graded(NamedTuple):
    """A vote on a labelled question.

    Attributes:
        prompt: the question.
        vote: what a response votes for.
        references: the right answer, and others that are accepted.
    """

    prompt: list[BaseMessage]
    vote: Vote
    references: Sequence[str]


def grades(
    votes: Mapping[K, Graded],
    extract: Extractor,
    config: RunnableConfig,
    *,
    tools: ToolVotes,
    schemas: Schemas | None,
    concurrency: int,
    cutoff: Cutoff,
) -> dict[K, bool | None]:
    """Return whether each vote is right; None where its meaning could not be compared.

    Args:
        votes: each to be compared with the right answers to its question.
        extract: finds the answer in a response; its equivalence, if it has one, compares that with the right answer.
        config: callbacks, tags and metadata of a judge's calls.
        tools: how calls of tools are compared.
        schemas: tool -> schema of its arguments; None where the tools are not known.
        concurrency: questions whose answers are compared at once.
        cutoff: ends comparing.

    Raises:
        CalibrationDataError: no vote could be compared.
    """
    failures: list[Exception] = []

    def grade(one: Graded) -> bool | None:
        answer = one.vote.answer
        if answer is None:
            return False
        labels = [extract.label(reference) for reference in one.references]
        if one.vote.calls:
            return any(tools.same(tools.label(label, schemas), answer) for label in labels)
        if extract.equivalence is None or answer in labels:
            return answer in labels
        clock = QuestionClock(question=None, sample=None)
        try:
            meanings = Meanings(extract.equivalence, one.prompt, config, clock=clock, cutoff=cutoff)
            return any(meanings.same(label, answer) for label in labels)
        except Exception as error:
            logger.warning("a question is left out, as its answer could not be compared with the right one: %r", error)
            failures.append(error)
            return None

    if extract.equivalence is None:
        return {key: grade(one) for key, one in votes.items()}
    with DaemonExecutor(concurrency, "grade") as threads:
        grading = {key: threads.submit(grade, one) for key, one in votes.items()}
        try:
            for _ in as_they_end(list(grading.values())):
                pass
        finally:  # after Ctrl-C nobody waits for the others
            cutoff.give_up()
    found = {key: one.result() for key, one in grading.items()}
    if failures and all(right is None for right in found.values()):
        raise CalibrationDataError(f"no response could be compared with the right answer: {failures[0]!r}")
    return found

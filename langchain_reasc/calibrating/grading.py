"""Which responses to labelled questions are right."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import Extractor, Schemas, ToolVotes, vote_of
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.runnable.votes import Meanings
from langchain_reasc.sampling import Cutoff, QuestionClock
from langchain_reasc.threads import DaemonExecutor, as_they_end

__all__ = ["Graded", "graded"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Graded:
    """A labelled question and its response.

    Attributes:
        prompt: the question.
        message: the response; None where there is none.
        references: the right answer, and others that are accepted.
    """

    prompt: list[BaseMessage]
    message: AIMessage | None
    references: Sequence[str]


def graded(
    responses: Sequence[Graded],
    extract: Extractor,
    config: RunnableConfig,
    *,
    tools: ToolVotes,
    schemas: Schemas | None,
    concurrency: int,
    cutoff: Cutoff,
) -> list[bool | None]:
    """Whether each response is right; None where there is none, or it cannot be told whether it means the same.

    Args:
        responses: the questions.
        extract: finds the answer in a response; its equivalence, if it has one, compares that with the right answer.
        config: callbacks, tags and metadata of a judge's calls.
        tools: how calls of tools are compared.
        schemas: tool -> schema of its arguments; None where the tools are not known.
        concurrency: questions whose answers are compared at once.
        cutoff: ends comparing.

    Raises:
        CalibrationDataError: of no response could it be told.
    """
    failures: list[Exception] = []

    def grade(one: Graded) -> bool | None:
        if one.message is None:
            return None
        vote = vote_of(one.message, extract, tools, schemas)
        if vote.answer is None:
            return False
        labels = [extract.label(reference) for reference in one.references]
        if vote.calls:
            called = [tools.label(label, schemas) for label in labels]
            return any(vote.answer == label or tools.same(label, vote.answer) for label in called)
        if extract.equivalence is None or vote.answer in labels:
            return vote.answer in labels
        clock = QuestionClock(question=None, sample=None)
        try:
            meanings = Meanings(extract.equivalence, one.prompt, config, clock=clock, cutoff=cutoff)
            return any(meanings.same(label, vote.answer) for label in labels)
        except Exception as error:
            logger.warning("a question is left out, as its answer could not be compared with the right one: %r", error)
            failures.append(error)
            return None

    if extract.equivalence is None:
        return [grade(one) for one in responses]
    with DaemonExecutor(concurrency, "grade") as threads:
        grading = [threads.submit(grade, one) for one in responses]
        try:
            for _ in as_they_end(grading):
                pass
        finally:  # after Ctrl-C nobody waits for the others
            cutoff.give_up()
    told = [one.result() for one in grading]
    if failures and all(right is None for right in told):
        raise CalibrationDataError(f"no response could be compared with the right answer: {failures[0]!r}")
    return told

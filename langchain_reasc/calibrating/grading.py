"""Grading: whether the answers of responses are right."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import Extractor, Schemas, ToolVotes, Vote
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.runnable.votes import Meanings
from langchain_reasc.sampling import Cutoff, QuestionClock
from langchain_reasc.threads import DaemonExecutor, as_they_end

__all__ = ["Graded", "grades"]

logger = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)


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

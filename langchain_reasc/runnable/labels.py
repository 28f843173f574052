"""The questions of a calibration, with or without right answers, and the grading of
answers.
"""

import hashlib
import json
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import Extractor, Schemas, ToolVotes, Vote
from langchain_reasc.data import is_text, read_questions, read_unlabelled
from langchain_reasc.data.rows import spellings
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.runnable.meanings import Meanings
from langchain_reasc.sampling import Cutoff, QuestionClock

Questions = (
    Iterable[LanguageModelInput | tuple[LanguageModelInput, str | Sequence[str] | None]]
    | str
    | os.PathLike[str]
)
"""Inputs, or pairs with the right answer or a list of those that are accepted; or a
file of questions, see :func:`langchain_reasc.data.read_questions`.
"""


class LabelledInput(NamedTuple):
    """An input and its accepted answers; None if they are unknown."""

    input: LanguageModelInput
    references: tuple[str, ...] | None = None


def read_inputs(questions: Questions) -> list[LabelledInput]:
    """Read questions, with their right answers if known.

    Raises:
        ConfigurationError: a file cannot be read, or an item is not a question.
    """
    if not isinstance(questions, str | os.PathLike):
        return [_labelled_input(question) for question in questions]
    if is_text(questions):
        return [LabelledInput(text) for text, _ in read_unlabelled(questions)]
    return [
        LabelledInput(question.input, question.references)
        for question in read_questions(questions)
    ]


def _labelled_input(question: Any) -> LabelledInput:
    if isinstance(question, str | PromptValue) or _is_messages(question):
        return LabelledInput(question)
    if not isinstance(question, list | tuple) or len(question) != 2:
        # Such as a row of a file, whose keys would be asked.
        raise ConfigurationError(
            "each question is a pair (input, right answer), or an input, got "
            f"{reprlib.repr(question)}"
        )
    value, answer = question
    if answer is None:
        return LabelledInput(cast(LanguageModelInput, value))
    accepted = answer if isinstance(answer, list | tuple) else [answer]
    references: list[str] = []
    for reference in accepted:
        references += spellings(str(reference))
    return LabelledInput(cast(LanguageModelInput, value), tuple(references))


def _is_messages(question: Any) -> bool:
    if not isinstance(question, list) or not question:
        return False
    return all(isinstance(message, BaseMessage) for message in question)


def graded(
    votes: Mapping[int, Vote],
    references: Sequence[str],
    prompt: list[BaseMessage],
    extract: Extractor,
    config: RunnableConfig,
    *,
    tools: ToolVotes,
    schemas: Schemas | None,
    cutoff: Cutoff,
) -> dict[int, bool]:
    """Return whether each answer to a question is right.

    Args:
        votes: number of an answer -> a vote for it.
        references: the right answer, and others that are accepted.
        prompt: the question.
        extract: finds the answer in a response; its equivalence, if it has one,
            compares that with the right answer.
        config: callbacks, tags and metadata of a judge's calls.
        tools: how calls of tools are compared.
        schemas: tool -> schema of its arguments; None if the tools are not known.
        cutoff: ends comparing.
    """
    labels = [extract.label(reference) for reference in references]
    answers = [vote.answer for vote in votes.values() if not vote.calls]
    right: set[str] = set()
    for label in labels:
        right |= extract.same_as(label, answers)
    meanings = None
    if extract.equivalence is not None:
        clock = QuestionClock(question=None, sample=None)
        meanings = Meanings(
            extract.equivalence, prompt, config, clock=clock, cutoff=cutoff
        )

    def is_right(vote: Vote) -> bool:
        answer = vote.answer
        if vote.calls:
            right_calls = [tools.label(label, schemas) for label in labels]
            return any(tools.same(calls, answer or "") for calls in right_calls)
        if meanings is None or answer is None or answer in right:
            return answer in right
        return any(meanings.same(label, answer) for label in labels)

    return {number: is_right(vote) for number, vote in votes.items()}


def id_of(prompt: Sequence[BaseMessage], references: Sequence[str] | None) -> str:
    """Return a hash of a question and its right answers. If these are corrected, the
    question is asked again.
    """
    messages = [[message.type, message.content] for message in prompt]
    plain = json.dumps([messages, references], default=str)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]

"""The questions of a calibration, with their right answers or without."""

import os
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue

from langchain_reasc.data import is_text, read_questions, read_unlabelled
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["Question", "Questions", "UnlabelledQuestions", "read", "read_unlabelled_questions"]

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

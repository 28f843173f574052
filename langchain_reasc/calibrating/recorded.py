"""Calibrate with a pool that keeps each response on disk, so that an interrupted call resumes."""

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from langchain_core.messages import BaseMessage, get_buffer_string

from langchain_reasc.answers import ToolVotes
from langchain_reasc.calibrating.labelled import Labelled
from langchain_reasc.calibrating.pool import calibrate_on_pool
from langchain_reasc.calibration import Calibration, FixedPrompt
from langchain_reasc.data import LabelledQuestion, accepted_answers, id_from_text
from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError, LogprobsUnavailable
from langchain_reasc.models.prepared import ModelOrName, model_of
from langchain_reasc.pools import (
    DrawnQuestion,
    PendingQuestion,
    QuestionSampler,
    read_pool,
    record_pool,
    sample_questions,
)
from langchain_reasc.runnable.concurrency import Concurrency, EventLoop
from langchain_reasc.runnable.progress import Progress, show_progress

__all__ = ["Recorded"]


@dataclass(frozen=True)
class _Prompts:
    """The prompts as they were given, in place of a template.

    Attributes:
        of: text that the pool calls a question by -> its prompt.
        fixed: which part of them is the same for every question.
    """

    of: Mapping[str, list[BaseMessage]]
    fixed: FixedPrompt | None

    def messages(self, question: str) -> list[BaseMessage]:
        """Return the prompt of a question; of none, the first."""
        return self.of.get(question) or next(iter(self.of.values()))


class Recorded:
    """Labelled questions whose responses are kept in a pool.

    Args:
        labelled: the questions.
        model: the chat model as the user gave it.
        pool: the file.
        ask_confidence: whether the model is to state its confidence, which a pool does not keep.

    Raises:
        ConfigurationError: options that do not go with a pool, or the same question twice.
    """

    def __init__(
        self, labelled: Labelled, model: ModelOrName, pool: str | os.PathLike[str], *, ask_confidence: bool
    ) -> None:
        for name, given in (("ask_confidence", ask_confidence), ("tool_votes", labelled.tool_votes != ToolVotes())):
            if given:
                raise ConfigurationError(f"a pool keeps responses as they are: pool= goes without {name}")
        self._labelled, self._model, self._path = labelled, model_of(model).with_config(labelled.config), Path(pool)
        texts = [_text(prompt) for prompt in labelled.prompts]
        if len(set(texts)) < len(texts):
            again = next(text for text in texts if texts.count(text) > 1)
            raise ConfigurationError(f"a pool holds each question once, and {again!r:.60} is there again")
        self._prompts = _Prompts(dict(zip(texts, labelled.prompts, strict=True)), labelled.fixed_prompt)
        self._questions = [
            LabelledQuestion(one.id or id_from_text(text), text, first, tuple(others))
            for text, one in zip(texts, labelled.questions, strict=True)
            for first, *others in [accepted_answers(one.references or (), f"question {text!r:.60}")]
        ]

    async def record(self, io: Concurrency, progress: Progress) -> None:
        """Ask for all responses that the pool does not hold. Cancelled, it asks no further question.

        Raises:
            LogprobsUnavailable: the first response carries no confidence.
            PoolError, SamplingError: as of :func:`~langchain_reasc.pools.record_pool`.
        """
        stopped, done = threading.Event(), 0
        loop = asyncio.get_running_loop() if io is EventLoop else None

        def report(complete: int, total: int) -> None:
            nonlocal done
            for _ in range(complete - done):
                if loop is None:
                    move()
                else:
                    loop.call_soon_threadsafe(move)
            done = complete
            if stopped.is_set():
                raise InterruptedError("calibrating was cancelled")

        record = partial(
            record_pool,
            self._model,
            self._questions,
            self._path,
            samples=self._labelled.samples,
            answer=self._labelled.answer,
            template=self._prompts,
            concurrency=self._labelled.concurrency,
            workers=self._ask_each,
            on_question=report,
        )
        try:
            with show_progress(progress, len(self._questions)) as move:
                await io.in_thread(record)
        finally:
            stopped.set()

    def fit(self, *, p_target: float, seed: int) -> Calibration:
        """Calibrate on the pool's responses to these questions."""
        ids = [question.id for question in self._questions]
        return calibrate_on_pool(read_pool(self._path), self._labelled.measure, p_target=p_target, seed=seed, only=ids)

    def _ask_each(
        self, missing: Sequence[PendingQuestion], ask: QuestionSampler
    ) -> Iterator[tuple[PendingQuestion, DrawnQuestion | ContextOverflowError]]:
        """Ask the first alone, whose confidence is looked at before more is paid for; it is kept all the same.

        Also where the pool holds some already: those may be what an earlier call stopped at for want of confidence.
        """
        seen = False
        while missing and not seen:
            [(first, answered)] = sample_questions(missing[:1], ask, 1)
            missing = missing[1:]
            yield first, answered
            seen = isinstance(answered, DrawnQuestion) and _checked(answered)
        yield from sample_questions(missing, ask, self._labelled.concurrency)


def _checked(answered: DrawnQuestion) -> bool:
    """Whether there was a response to look at.

    Raises:
        LogprobsUnavailable: it carries no confidence.
    """
    first = next((one for one in answered.responses if one.response.completion_tokens), None)
    if first is not None and first.reading is None:
        raise LogprobsUnavailable(
            f"nothing to calibrate, so no further question was asked: {first.why_unread}; a model that returns no "
            "logprobs can state its confidence (ask_confidence=True, without pool)"
        )
    return first is not None


def _text(prompt: Sequence[BaseMessage]) -> str:
    alone = prompt[0] if len(prompt) == 1 and prompt[0].type == "human" else None
    return alone.content if alone is not None and isinstance(alone.content, str) else get_buffer_string(prompt)

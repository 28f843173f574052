"""Questions without right answers, and what is drawn for them to calibrate on."""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.calibrating.checkpoint import Checkpoint
from langchain_reasc.calibrating.grading import Graded, graded
from langchain_reasc.calibration import (
    Calibration,
    Fingerprint,
    MadeOf,
    Observed,
    calibrate_observed,
    candidate_measures,
)
from langchain_reasc.data import read_unlabelled
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_CONFIDENCE
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.models.prepared import ModelOrName, to_messages
from langchain_reasc.runnable.loop import asolve, solve
from langchain_reasc.runnable.observing import Finished, observed
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.setup import Setup
from langchain_reasc.sampling import Cutoff

__all__ = ["Drawn", "QuestionInput", "Questions", "Unlabelled"]

logger = logging.getLogger(__name__)

QuestionInput = LanguageModelInput | tuple[LanguageModelInput, str | None]
"""What the chat model is asked; or that with the right answer, where it is known."""
Questions = Iterable[QuestionInput] | str | os.PathLike[str]
"""Questions, or a file of them: see :func:`langchain_reasc.data.read_unlabelled`."""
_AT_ONCE = 4  # samples of a question: what counting votes needs at least


@dataclass(frozen=True, slots=True)
class Drawn:
    """What sampling left of a question, and the responses themselves.

    Attributes:
        finished: the answers, and the token signals of the responses.
        messages: the responses, in the same order.
    """

    finished: Finished
    messages: Sequence[AIMessage | None]

    @classmethod
    def of(cls, finished: Finished, result: ReASCResult) -> "Drawn":
        """Those that the decision rests on."""
        return cls(finished, [response.message for response in result.responses if response.used])


@dataclass(frozen=True)
class Unlabelled:
    """The questions, and how they are asked.

    Attributes:
        setup: how they are asked, counting votes.
        prompts: the questions.
        references: the right answers; None where one is not known.
        config: callbacks, tags and metadata of the calls.
        concurrency: questions in flight at once.
        measures: the candidates for scoring a response.
        checkpoint: keeps what each question leaves to learn from; None keeps nothing.
    """

    setup: Setup
    prompts: Sequence[list[BaseMessage]]
    references: Sequence[str | None]
    config: RunnableConfig
    concurrency: int
    measures: Sequence[Measure]
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(
        cls,
        model: ModelOrName,
        questions: Questions,
        concurrency: int,
        config: RunnableConfig,
        measure: Measure | Literal["auto"],
        checkpoint: str | os.PathLike[str] | None,
        **options: Any,
    ) -> "Unlabelled":
        """Read, and checked before anything is paid for.

        Raises:
            CalibrationDataError: there is no question.
            ConfigurationError: a file that cannot be read, or a concurrency, measure or number of samples that
                cannot be.
        """
        if isinstance(questions, str | os.PathLike):
            questions = read_unlabelled(questions)
        pairs = list(map(_paired, questions))
        if not pairs:
            raise CalibrationDataError("there is no question to calibrate on; 64 are a good number")
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
        if options["max_samples"] < 2:
            raise ConfigurationError(f"max_samples must be 2 or more, got {options['max_samples']}: one agrees alone")
        setup = Options(
            model=model,
            calibration="online",  # which asks for logprobs, and while it learns counts votes
            measure=None if measure == "auto" else measure,
            on_missing_confidence="count",
            concurrency=_AT_ONCE,
            confidence=DEFAULT_CONFIDENCE,
            sample_timeout=None,
            **options,
        )._setup
        measures = candidate_measures([*SIGNALS, VERBALIZED]) if measure == "auto" else [measure]
        prompts, references = [to_messages(value) for value, _ in pairs], [right for _, right in pairs]
        asked = cls(setup, prompts, references, config, concurrency, measures)
        if checkpoint is None:
            return asked
        holds_for = f"{asked._fingerprint().model_dump_json()} {setup.options.max_samples}"
        return replace(asked, checkpoint=Checkpoint(checkpoint, holds_for, measures))

    @property
    def missing(self) -> list[int]:
        """The questions that are still to be asked; one whose right answer is known always is, to be graded."""
        return [
            at
            for at, prompt in enumerate(self.prompts)
            if self.checkpoint is None or self.references[at] is not None or not self.checkpoint.holds(prompt)
        ]

    def drawn(self, cutoff: Cutoff, at: int) -> Drawn | Exception:
        """The responses to a question, in a thread of a pool; or why there are none."""
        finished: list[Finished] = []
        try:
            result = solve(self._question(self.prompts[at], finished, cutoff))
        except Exception as error:
            return _left_out(error)
        self._keep(at, finished[0])
        return Drawn.of(finished[0], result)

    async def adrawn(self, at: int) -> Drawn | Exception:
        """The same in an event loop."""
        finished: list[Finished] = []
        try:
            result = await asolve(self._question(self.prompts[at], finished, Cutoff()))
        except Exception as error:
            return _left_out(error)
        await asyncio.to_thread(self._keep, at, finished[0])
        return Drawn.of(finished[0], result)

    def calibration(self, drawn: Mapping[int, Drawn | Exception], cutoff: Cutoff, **options: Any) -> Calibration:
        """What the responses that came are calibrated to.

        Args:
            drawn: what came of each question that was missing.
            cutoff: tells when the call is given up.
            options: those of :func:`~langchain_reasc.calibration.learner.calibrate_observed`.
        """
        came = [(at, one) for at, one in drawn.items() if isinstance(one, Drawn)]
        held = [prompt for at, prompt in enumerate(self.prompts) if at not in drawn]
        if not (came or held):
            raise CalibrationDataError(f"none of the {len(drawn)} questions gave a response; the first: {drawn[0]!r}")
        made_of: MadeOf = {}
        questions = [observed(one.finished, self.measures, made_of) for _, one in came]
        known = [self.checkpoint.observed(prompt, made_of) for prompt in held] if self.checkpoint else []
        calibration = calibrate_observed(
            [*known, *self._labelled(came, questions, cutoff)],
            self.measures,
            budget=self.setup.options.max_samples,
            made_of=made_of,
            fingerprint=self._fingerprint(),
            **options,
        )
        if self.checkpoint:
            self.checkpoint.remove()
        return calibration

    def _fingerprint(self) -> Fingerprint:
        model, options = self.setup.model.resolved(self.config), self.setup.options
        return model.fingerprint(self.prompts[0], prompt=options.fixed_prompt, answer=options.answer)

    def _keep(self, at: int, finished: Finished) -> None:
        if self.checkpoint and self.references[at] is None:
            self.checkpoint.keep(self.prompts[at], finished)

    def _labelled(
        self, came: Sequence[tuple[int, Drawn]], questions: Sequence[Observed], cutoff: Cutoff
    ) -> Iterator[Observed]:
        """The questions with what is known to be right in them: each answer is graded once, by its first response."""
        to_grade: dict[tuple[int, int], Graded] = {}
        for at, one in came:
            if (reference := self.references[at]) is not None:
                for number, message in zip(one.finished.answers, one.messages, strict=True):
                    if number is not None:
                        to_grade.setdefault((at, number), Graded(self.prompts[at], message, [reference]))
        told = graded(
            list(to_grade.values()),
            self.setup.extract,
            self.config,
            tools=self.setup.options.tool_votes,
            schemas=self.setup.model.schemas,
            concurrency=self.concurrency,
            cutoff=cutoff,
        )
        right = dict(zip(to_grade, told, strict=True))
        for (at, _), question in zip(came, questions, strict=True):
            if self.references[at] is None:
                yield question
            else:
                grades = tuple(number is not None and right[at, number] for number in question.answers)
                yield replace(question, right=grades)

    def _question(self, prompt: list[BaseMessage], finished: list[Finished], cutoff: Cutoff) -> Question:
        return Question(self.setup, prompt, self.config, cutoff=cutoff, on_finished=finished.append)


def _paired(one: Any) -> tuple[LanguageModelInput, str | None]:
    """An input, with its right answer where that is known."""
    if isinstance(one, tuple) and len(one) == 2:
        return one[0], None if one[1] is None else str(one[1])
    return cast(LanguageModelInput, one), None


def _left_out(error: Exception) -> Exception:
    logger.warning("a question is left out of the calibration: %r", error)
    return error

"""Calibrating a chat model in two lines: one response to each labelled question, then Algorithm 1."""

import asyncio
import logging
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from langchain_reasc.answers import AnswerSpec, Extractor, extractor, vote_of
from langchain_reasc.calibration import Calibration, calibrate_offline, select_measure
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.logprobs import SignalReading, read_signals
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.models.waiting import as_they_end
from langchain_reasc.runnable.grading import Graded, graded
from langchain_reasc.runnable.progress import Progress, shown
from langchain_reasc.sampling import Sample, Wave, adrawn, drawn

__all__ = ["LabelledInput", "acalibrate", "calibrate"]

logger = logging.getLogger(__name__)

LabelledInput = tuple[LanguageModelInput, str]
"""What the chat model is asked, and the right answer."""
_SEEDS = 1_000_003


def calibrate(
    model: Runnable[LanguageModelInput, Any],
    questions: Iterable[LabelledInput],
    *,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    p_target: float = 0.9,
    concurrency: int = 8,
    seed: int = 0,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """Ask each question once, and calibrate on what came (Algorithm 1). 128 questions are a good number.

    A question that fails, because it is too long, say, is left out with a warning.

    Args:
        model: the chat model that will be sampled, as :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: pairs of an input, asked as it will be in use, and its right answer.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`. With
            :func:`~langchain_reasc.answers.free_text` a response is right that means the same as the right answer; a
            question where that cannot be told is left out, too.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        ask_confidence: whether the model is asked to state its confidence, see
            :attr:`langchain_reasc.ReASCRunnable.ask_confidence`.
        measure: how a response is scored; ``"auto"`` chooses on the responses, cross-validated, among the signals that
            all of them carry.
        p_target: accuracy asked of what the gate accepts.
        concurrency: questions in flight at once.
        seed: the seed of everything random in the calibration.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar on stderr, or a function called with (questions asked, questions).

    Raises:
        CalibrationDataError: no question, or responses that determine no calibration.
        LogprobsUnavailable: the model returns no log-probabilities.

    Example:
        >>> calibration = calibrate(llm, [("What is 2 + 2?", "4"), ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    asked = _Asked.of(model, questions, concurrency, ensure_config(config), measure, ask_confidence=ask_confidence)
    cutoff = Cutoff()
    with ThreadPoolExecutor(concurrency, "calibrate") as threads, shown(progress, len(asked.prompts)) as move:
        try:
            drawing = [threads.submit(asked.first, cutoff, prompt) for prompt in asked.prompts]
            for _ in as_they_end(drawing):
                move()
            samples = [one.result() for one in drawing]
        finally:  # after Ctrl-C nobody waits for the others
            cutoff.give_up()
            threads.shutdown(wait=False, cancel_futures=True)
    return asked.calibration(samples, answer, fixed_prompt, measure, Cutoff(), p_target=p_target, seed=seed)


async def acalibrate(
    model: Runnable[LanguageModelInput, Any],
    questions: Iterable[LabelledInput],
    *,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    p_target: float = 0.9,
    concurrency: int = 8,
    seed: int = 0,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """The asynchronous :func:`calibrate`."""
    asked = _Asked.of(model, questions, concurrency, ensure_config(config), measure, ask_confidence=ask_confidence)
    places = asyncio.Semaphore(concurrency)
    with shown(progress, len(asked.prompts)) as move:

        async def one(prompt: list[BaseMessage]) -> Sample:
            async with places:
                sample = await asked.afirst(prompt)
            move()
            return sample

        async with asyncio.TaskGroup() as tasks:
            drawing = [tasks.create_task(one(prompt)) for prompt in asked.prompts]
    samples = [task.result() for task in drawing]
    cutoff = Cutoff()
    fit = partial(asked.calibration, samples, answer, fixed_prompt, measure, cutoff, p_target=p_target, seed=seed)
    try:
        return await asyncio.to_thread(fit)
    finally:
        cutoff.give_up()


@dataclass(frozen=True)
class _Asked:
    """The questions, and how they are asked."""

    model: PreparedModel
    prompts: Sequence[list[BaseMessage]]
    references: Sequence[str]
    config: RunnableConfig
    concurrency: int

    @classmethod
    def of(
        cls,
        model: Runnable[Any, Any],
        questions: Iterable[LabelledInput],
        concurrency: int,
        config: RunnableConfig,
        measure: Measure | Literal["auto"],
        *,
        ask_confidence: bool,
    ) -> "_Asked":
        pairs = list(questions)
        if not pairs:
            raise CalibrationDataError("there is no question to calibrate on; 128 with their answers are a good number")
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
        stated = isinstance(measure, Measure) and measure.signal == VERBALIZED
        if stated and not ask_confidence:
            raise ConfigurationError(f"the measure {measure} needs a model that is asked: ask_confidence=True")
        prepared = PreparedModel.of(model, logprobs=not stated, ask_confidence=ask_confidence).resolved(config)
        if prepared.no_logprobs and not (stated or (ask_confidence and measure == "auto")):
            raise LogprobsUnavailable(
                f"nothing to calibrate: {prepared.no_logprobs}; or let it state its confidence (ask_confidence=True)"
            )
        prompts, references = [to_messages(value) for value, _ in pairs], [str(right) for _, right in pairs]
        return cls(prepared, prompts, references, config, concurrency)

    def first(self, cutoff: Cutoff, prompt: list[BaseMessage]) -> Sample:
        """One response, in a thread of a pool."""
        wave = self._wave(prompt)
        with cutoff.heard_by(wave.cutoff.give_up), closing(drawn(wave)) as samples:
            return next(samples)

    async def afirst(self, prompt: list[BaseMessage]) -> Sample:
        """One response, in an event loop."""
        async with aclosing(adrawn(self._wave(prompt))) as samples:
            return await anext(samples)

    def calibration(
        self,
        samples: Sequence[Sample],
        answer: AnswerSpec,
        fixed_prompt: FixedPrompt | None,
        measure: Measure | Literal["auto"],
        cutoff: Cutoff,
        **options: Any,
    ) -> Calibration:
        """Algorithm 1 on the responses that came and carry what is asked for."""
        extract = extractor(answer)
        read = [_reading(sample, extract) for sample in samples]
        if all(reading is None for reading in read):
            first = next((sample.error for sample in samples if sample.error), None)
            raise CalibrationDataError(f"none of the {len(samples)} questions gave a response; the first: {first!r}")
        responses = [
            Graded(prompt, sample.message if reading else None, reference)
            for prompt, sample, reading, reference in zip(self.prompts, samples, read, self.references, strict=True)
        ]
        right = graded(responses, extract, self.config, concurrency=self.concurrency, cutoff=cutoff)
        readings = [one for one, told in zip(read, right, strict=True) if one is not None and told is not None]
        correct = [told for told in right if told is not None]
        chosen = (
            select_measure([one.signals for one in readings], correct, seed=options["seed"])
            if measure == "auto"
            else None
        )
        used = chosen.measure if chosen else measure
        assert isinstance(used, Measure)
        scored = [
            (score, right)
            for one, right in zip(readings, correct, strict=True)
            if (score := _score(one, used)) is not None
        ]
        return calibrate_offline(
            [score for score, _ in scored],
            [right for _, right in scored],
            measure=used,
            rejected=chosen.rejected if chosen else (),
            cross_validated=chosen.cross_validated if chosen else None,
            fingerprint=self.model.fingerprint(self.prompts[0], prompt=fixed_prompt, answer=answer),
            **readings[0].provenance(used.signal),
            **options,
        )

    def _wave(self, prompt: list[BaseMessage]) -> Wave:
        # Were all first responses sample 0, a seed that is set would tie them to one stream of random numbers.
        index = zlib.crc32(repr([(one.type, one.content) for one in prompt]).encode()) % _SEEDS
        return Wave(self.model, prompt, range(index, index + 1), self.config)


def _reading(sample: Sample, extract: Extractor) -> SignalReading | None:
    if sample.status != "complete" or sample.message is None:
        logger.warning("a question is left out of the calibration: %s", sample.error)
        return None
    try:
        return read_signals(sample.message, of_calls=vote_of(sample.message, extract).calls)
    except LogprobsUnavailable as error:
        logger.warning("a response is left out of the calibration: %s", error)
        return None


def _score(reading: SignalReading, measure: Measure) -> float | None:
    try:
        return reading.score(measure)
    except (LogprobsUnavailable, ConfidenceError) as error:
        logger.warning("a response is left out of the calibration: %s", error)
        return None

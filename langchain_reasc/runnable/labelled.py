"""Labelled questions, asked once each: what a calibration is made of."""

import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import AnswerSpec, Extractor, ToolVotes, Vote, extractor, places_of, vote_of
from langchain_reasc.calibration import Calibration, calibrate_offline, select_measure
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.inputs import to_messages
from langchain_reasc.models.logprobs import SignalReading, read_signals
from langchain_reasc.models.named import ModelOrName
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.grading import Graded, graded
from langchain_reasc.sampling import Sample, Wave, adrawn, drawn

__all__ = ["Labelled", "LabelledInput"]

logger = logging.getLogger(__name__)

LabelledInput = tuple[LanguageModelInput, str]
"""What the chat model is asked, and the right answer."""
_SEEDS = 1_000_003


@dataclass(frozen=True)
class Labelled:
    """The questions, and how they are asked."""

    model: PreparedModel
    prompts: Sequence[list[BaseMessage]]
    references: Sequence[str]
    config: RunnableConfig
    concurrency: int
    tool_votes: ToolVotes

    @classmethod
    def of(
        cls,
        model: ModelOrName,
        questions: Iterable[LabelledInput],
        concurrency: int,
        config: RunnableConfig,
        measure: Measure | Literal["auto"],
        *,
        ask_confidence: bool,
        tool_votes: ToolVotes | None,
    ) -> "Labelled":
        """Read, and checked before anything is paid for.

        Raises:
            CalibrationDataError: there is no question.
            ConfigurationError: a concurrency or a measure that cannot be.
            LogprobsUnavailable: the model is known to give no confidence.
        """
        pairs = list(questions)
        if not pairs:
            raise CalibrationDataError("there is no question to calibrate on; 128 with their answers are a good number")
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
        stated = isinstance(measure, Measure) and measure.signal == VERBALIZED
        if stated and not ask_confidence:
            raise ConfigurationError(f"the measure {measure} needs a model that is asked: ask_confidence=True")
        prepared = PreparedModel.of(
            model, logprobs=not stated, required=not ask_confidence, ask_confidence=ask_confidence
        ).resolved(config)
        if prepared.no_logprobs and not (stated or (ask_confidence and measure == "auto")):
            raise LogprobsUnavailable(
                f"nothing to calibrate: {prepared.no_logprobs}; or let it state its confidence (ask_confidence=True)"
            )
        prompts, references = [to_messages(value) for value, _ in pairs], [str(right) for _, right in pairs]
        return cls(prepared, prompts, references, config, concurrency, tool_votes or ToolVotes())

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
        *,
        p_target: float,
        seed: int,
    ) -> Calibration:
        """Algorithm 1 on the responses that came and carry what is asked for."""
        extract = extractor(answer)
        schemas = self.model.schemas
        vote = partial(vote_of, extract=extract, tools=self.tool_votes, schemas=schemas)
        of_span = measure == "auto" or measure.of_span
        read = [_reading(sample, vote, extract if of_span else None) for sample in samples]
        if all(reading is None for reading in read):
            first = next((sample.error for sample in samples if sample.error), None)
            raise CalibrationDataError(f"none of the {len(samples)} questions gave a response; the first: {first!r}")
        responses = [
            Graded(prompt, sample.message if reading else None, reference)
            for prompt, sample, reading, reference in zip(self.prompts, samples, read, self.references, strict=True)
        ]
        compared: Any = {"tools": self.tool_votes, "schemas": schemas, "concurrency": self.concurrency}
        right = graded(responses, extract, self.config, **compared, cutoff=cutoff)
        kept = [one for one, told in zip(read, right, strict=True) if one is not None and told is not None]
        readings = [reading for reading, _ in kept]
        correct = [told for told in right if told is not None]
        spans = [reading.spans if votes else None for reading, votes in kept]
        signals = [one.signals for one in readings]
        chosen = select_measure(signals, correct, spans=spans, seed=seed) if measure == "auto" else None
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
            p_target=p_target,
            rejected=chosen.rejected if chosen else (),
            cross_validated=chosen.cross_validated if chosen else None,
            fingerprint=self.model.fingerprint(self.prompts[0], prompt=fixed_prompt, answer=answer),
            **readings[0].provenance(used.signal),
        )

    def _wave(self, prompt: list[BaseMessage]) -> Wave:
        # Were all first responses sample 0, a seed that is set would tie them to one stream of random numbers.
        index = zlib.crc32(repr([(one.type, one.content) for one in prompt]).encode()) % _SEEDS
        return Wave(self.model, prompt, range(index, index + 1), self.config)


def _reading(
    sample: Sample, vote: Callable[[AIMessage], Vote], extract: Extractor | None
) -> tuple[SignalReading, bool] | None:
    """The signals of a response, with its spans where the extractor is given; and whether it votes."""
    if sample.status != "complete" or sample.message is None:
        logger.warning("a question is left out of the calibration: %s", sample.error)
        return None
    given = vote(sample.message)
    places = places_of(sample.message, extract, given) if extract else None
    try:
        return read_signals(sample.message, of_calls=given.calls, places=places), given.answer is not None
    except LogprobsUnavailable as error:
        logger.warning("a response is left out of the calibration: %s", error)
        return None


def _score(reading: SignalReading, measure: Measure) -> float | None:
    try:
        return reading.score(measure)
    except (LogprobsUnavailable, ConfidenceError) as error:
        logger.warning("a response is left out of the calibration: %s", error)
        return None

"""Responses to labelled questions, for a calibration by Algorithm 1."""

import logging
import zlib
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, NamedTuple, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import AnswerSpec, Extractor, ToolVotes, Vote, extractor, places_of, vote_of
from langchain_reasc.calibrating.questions import Graded, Question, grades
from langchain_reasc.calibration import (
    Calibration,
    FixedPrompt,
    calibrate_labelled,
    can_be_compared,
    default_measure,
    select_measure,
)
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Response
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.logprobs import SignalReading, read_signals
from langchain_reasc.models.prepared import ModelOrName, PreparedModel, to_messages
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.runnable.concurrency import Concurrency
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.sampling import Cutoff, Sample, Wave
from langchain_reasc.sampling import samples as drawn_samples

__all__ = ["Labelled"]

logger = logging.getLogger(__name__)

_SEEDS: Final = 1_000_003
_BLOCK: Final = 16  # seeds that a question has to itself
_SILENT: Final = 3  # responses without any confidence after which a model that was asked to state it is given up


class Labelled:
    """The questions, and how they are asked. All is checked before anything is paid for.

    Args:
        model: the chat model or its name.
        questions: inputs with right answers.
        samples: responses to each.
        concurrency: questions in flight at once.
        config: callbacks, tags and metadata of the calls.
        measure: how responses are scored; ``"auto"`` to choose.
        answer: where the answer is in a response.
        fixed_prompt: which part of a prompt is the same for every question.
        ask_confidence: whether the model is asked to state its confidence.
        tool_votes: how calls of tools are compared with the right ones.

    Raises:
        CalibrationDataError: there is no question.
        ConfigurationError: an invalid number of samples, concurrency or measure.
        LogprobsUnavailable: the model is known to give no confidence.
    """

    def __init__(
        self,
        model: ModelOrName,
        questions: Sequence[Question],
        *,
        samples: int,
        concurrency: int,
        config: RunnableConfig,
        measure: Measure | Literal["auto"],
        answer: AnswerSpec,
        fixed_prompt: FixedPrompt | None,
        ask_confidence: bool,
        tool_votes: ToolVotes,
    ) -> None:
        if not questions:
            raise CalibrationDataError("there is no question to calibrate on; 128 with their answers are a good number")
        for name, value in (("samples", samples), ("concurrency", concurrency)):
            if value < 1:
                raise ConfigurationError(f"{name} must be 1 or more, got {value}")
        self.model = _with_confidence(model, measure, config, ask_confidence=ask_confidence)
        self.questions, self.prompts = questions, [to_messages(one.input) for one in questions]
        self.samples, self.concurrency, self.config, self.measure = samples, concurrency, config, measure
        self.answer, self.fixed_prompt, self.tool_votes = answer, fixed_prompt, tool_votes
        self._ask_confidence = ask_confidence

    async def draw_all(self, io: Concurrency, progress: Progress) -> list[list[Sample]]:
        """Draw the responses to all questions; the first alone, whose confidence is looked at.

        Raises:
            LogprobsUnavailable: the first responses carry no confidence.
        """
        cutoff, first = Cutoff(), _FirstResponses(self.measure, _SILENT if self._ask_confidence else 1)
        drawn: dict[int, list[Sample]] = {}

        async def draw(at: int) -> tuple[int, list[Sample]]:
            held = alone if at == 0 else []
            return at, [*held, *await self._draw(io, cutoff, at, range(len(held), self.samples))]

        with show_progress(progress, len(self.prompts)) as move:
            alone = await self._draw(io, cutoff, 0, range(1))
            first.check(alone)
            async with (
                io.workers(self.concurrency, cutoff) as each,
                aclosing(each(draw, range(len(self.prompts)))) as all_,
            ):
                async for at, samples in all_:
                    first.check(samples)
                    move()
                    drawn[at] = samples
        return [drawn[at] for at in range(len(self.prompts))]

    async def _draw(self, io: Concurrency, cutoff: Cutoff, at: int, samples: range) -> list[Sample]:
        # Were all first responses sample 0, a seed that is set would tie them to one stream of random numbers.
        prompt = self.prompts[at]
        first = zlib.crc32(repr([(one.type, one.content) for one in prompt]).encode()) % _SEEDS * _BLOCK
        wave = Wave(self.model, prompt, range(first + samples.start, first + samples.stop), self.config)
        with cutoff.notifying(wave.cutoff.give_up):
            async with aclosing(drawn_samples(wave, is_async=io.is_async)) as items:
                found = [item async for item in items if isinstance(item, Sample)]
        return sorted(found, key=lambda sample: sample.index)

    def fit(self, drawn: Sequence[Sequence[Sample]], cutoff: Cutoff, *, p_target: float, seed: int) -> Calibration:
        """Run Algorithm 1 on the first response to each question that carries the confidence; the others beside it."""
        extract = extractor(self.answer)
        if not (questions := self._responses(drawn, extract, cutoff)):
            raise LogprobsUnavailable("nothing to calibrate: none of the responses carries a confidence")
        firsts = [some[0] for some in questions]
        measure, selected = _select(firsts, seed) if self.measure == "auto" else (self.measure, dict[str, Any]())
        return calibrate_labelled(
            [[(one.scored(measure), one.right) for one in some] for some in questions],
            measure,
            spelled_alike=not extract.equivalence,
            p_target=p_target,
            fingerprint=self.model.fingerprint(self.prompts[0], prompt=self.fixed_prompt, answer=self.answer),
            **selected,
            **firsts[0].reading.provenance(measure.signal),
        )

    def _responses(
        self, drawn: Sequence[Sequence[Sample]], extract: Extractor, cutoff: Cutoff
    ) -> list[list["_Response"]]:
        """Return the responses to each question that could be graded and carry a confidence; no empty list.

        Equal answers to a question are compared with its label once.

        Raises:
            CalibrationDataError: there was no response, or none could be compared.
        """
        complete = [
            (at, message, vote_of(message, extract, self.tool_votes, self.model.schemas))
            for at, message in _complete(drawn)
        ]
        right = grades(
            {
                (at, vote.answer, vote.calls): Graded(self.prompts[at], vote, self.questions[at].references or ())
                for at, _, vote in complete
            },
            extract,
            self.config,
            tools=self.tool_votes,
            schemas=self.model.schemas,
            concurrency=self.concurrency,
            cutoff=cutoff,
        )
        found: dict[int, list[_Response]] = {}
        for at, message, vote in complete:
            is_right = right[at, vote.answer, vote.calls]
            if is_right is not None and (reading := self._read(message, vote, extract)):
                found.setdefault(at, []).append(_Response(vote, is_right, reading))
        return list(found.values())

    def _read(self, message: AIMessage, vote: Vote, extract: Extractor) -> SignalReading | None:
        """Return the token signals of a response, with spans where a score may be of these; None if it has none."""
        of_span = self.measure == "auto" or self.measure.of_span
        try:
            places = places_of(message, extract, vote) if of_span else None
            return read_signals(message, of_calls=vote.calls, places=places)
        except LogprobsUnavailable as error:
            _left_out(error)
            return None


def _with_confidence(
    model: ModelOrName, measure: Measure | Literal["auto"], config: RunnableConfig, *, ask_confidence: bool
) -> PreparedModel:
    """Return the model, asked for logprobs or to state its confidence, as the measure needs it.

    Raises:
        ConfigurationError: the measure is of a stated confidence, for which the model is not asked.
        LogprobsUnavailable: the model is known to give no confidence.
    """
    stated = isinstance(measure, Measure) and measure.signal == VERBALIZED
    if stated and not ask_confidence:
        raise ConfigurationError(f"the measure {measure} needs a model that is asked: ask_confidence=True")
    made = PreparedModel.of(model, logprobs=not stated, required=not ask_confidence, ask_confidence=ask_confidence)
    prepared = made.resolved(config)
    if prepared.no_logprobs and not (stated or (ask_confidence and measure == "auto")):
        raise LogprobsUnavailable(
            f"nothing to calibrate: {prepared.no_logprobs}; or let it state its confidence (ask_confidence=True)"
        )
    return prepared


def _complete(drawn: Sequence[Sequence[Sample]]) -> list[tuple[int, AIMessage]]:
    """Return the complete responses, each with the number of its question; the others are logged.

    Raises:
        CalibrationDataError: there is none.
    """
    failures = [sample.error for some in drawn for sample in some if sample.status != "complete"]
    for error in failures:
        _left_out(error)
    complete = [
        (at, one.message)
        for at, some in enumerate(drawn)
        for one in some
        if one.status == "complete" and one.message is not None
    ]
    if not complete:
        first = next(filter(None, failures), None)
        raise CalibrationDataError(f"none of the {len(drawn)} questions gave a response; the first: {first!r}")
    return complete


class _FirstResponses:
    """Stops asking a model whose first responses carry no confidence, or not the signal that is to be measured.

    Args:
        measure: what is measured.
        most: how many of them may be without; a model that is asked to state it may forget to now and then.
    """

    def __init__(self, measure: Measure | Literal["auto"], most: int) -> None:
        self._signal = None if measure == "auto" or measure.signal == VERBALIZED else measure.signal
        self._left, self._seen = most, False

    def check(self, samples: Iterable[Sample]) -> None:
        """Look at samples, until one carries a confidence.

        Raises:
            LogprobsUnavailable: nothing but responses without confidence have come, or the first one with any lacks the
                signal.
        """
        for sample in samples:
            if self._seen:
                return
            if isinstance(sample.error, LogprobsUnavailable):
                raise sample.error
            if sample.message is None or sample.error or not output_tokens(sample.message):
                continue  # an empty response has no confidence either
            try:
                signals = read_signals(sample.message).signals
                self._seen = True
            except LogprobsUnavailable as error:
                self._left -= 1
                if self._left == 0:
                    raise LogprobsUnavailable(
                        f"nothing to calibrate, so no further question was asked: {error}; a model that returns no "
                        "logprobs can state its confidence (ask_confidence=True)"
                    ) from None
                continue
            if self._signal is not None and self._signal not in signals:
                raise LogprobsUnavailable(
                    f"the signal {self._signal!r} cannot be had from this model; its responses have "
                    f"{', '.join(signals)}"
                )


class _Response(NamedTuple):
    """What a response votes for, whether that is right, and its token signals."""

    vote: Vote
    right: bool
    reading: SignalReading

    def scored(self, measure: Measure) -> Response:
        """Return what a rule sees of it."""
        try:
            score = self.reading.score(measure)
        except (LogprobsUnavailable, ConfidenceError) as error:
            _left_out(error)
            score = None
        return Response(self.vote.answer, score, cut_off=self.vote.cut_off, kind=self.vote.kind)


def _left_out(error: object) -> None:
    logger.warning("a response is left out of the calibration: %s", error)


def _select(firsts: Sequence[_Response], seed: int) -> tuple[Measure, dict[str, Any]]:
    """Return the measure that separates right from wrong best, and what its choice adds to the record.

    Where too few are right, or wrong, it is the default.
    """
    right, signals = [one.right for one in firsts], [cast(Any, one.reading.signals) for one in firsts]
    if not can_be_compared(right):
        return default_measure([name for name in signals[0] if all(name in other for other in signals)]), {}
    spans = [one.reading.spans if one.vote.answer is not None else None for one in firsts]
    selection = select_measure(signals, right, spans=spans, seed=seed)
    return selection.measure, selection.evidence

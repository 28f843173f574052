"""Labelled questions, each asked a few times: what a calibration is made of."""

import logging
import os
import reprlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import AnswerSpec, Extractor, ToolVotes, Vote, extractor, places_of, vote_of
from langchain_reasc.calibrating.grading import Graded, graded
from langchain_reasc.calibration import (
    Calibration,
    FixedPrompt,
    auroc_within,
    calibrate_offline,
    can_be_compared,
    default_measure,
    select_measure,
    with_p_correct,
)
from langchain_reasc.data import read_questions
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Response
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.logprobs import SignalReading, read_signals
from langchain_reasc.models.prepared import ModelOrName, PreparedModel, to_messages
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.sampling import Cutoff, Sample, Wave, adrawn, drawn

__all__ = ["FirstResponses", "Labelled", "LabelledInput", "LabelledQuestions"]

logger = logging.getLogger(__name__)

LabelledInput = tuple[LanguageModelInput, str | Sequence[str]]
"""What the chat model is asked, and the right answer; or a list of the answers that are accepted."""
LabelledQuestions = Iterable[LabelledInput] | str | os.PathLike[str]
"""Questions with their answers, or a file of them that :func:`langchain_reasc.data.read_questions` reads."""
_SEEDS: Final = 1_000_003
_BLOCK: Final = 16  # seeds that a question has to itself
_SILENT: Final = 3  # responses without any confidence after which a model that was asked to state it is given up


@dataclass(frozen=True)
class Labelled:
    """The questions, and how they are asked.

    Attributes:
        model: what is sampled.
        prompts: the questions.
        references: the right answers to each.
        ids: the names that a file gives them; None where it gives none.
        samples: responses to each.
        config: callbacks, tags and metadata of the calls.
        concurrency: questions in flight at once.
        tool_votes: how calls of tools are compared with the right ones.
    """

    model: PreparedModel
    prompts: Sequence[list[BaseMessage]]
    references: Sequence[tuple[str, ...]]
    ids: Sequence[str | None]
    samples: int
    config: RunnableConfig
    concurrency: int
    tool_votes: ToolVotes

    @classmethod
    def of(
        cls,
        model: ModelOrName,
        questions: LabelledQuestions,
        samples: int,
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
            ConfigurationError: a file that cannot be read; a number of samples, a concurrency or a measure that cannot
                be.
            LogprobsUnavailable: the model is known to give no confidence.
        """
        given = _read(questions)
        if not given:
            raise CalibrationDataError("there is no question to calibrate on; 128 with their answers are a good number")
        for name, value in (("samples", samples), ("concurrency", concurrency)):
            if value < 1:
                raise ConfigurationError(f"{name} must be 1 or more, got {value}")
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
        prompts = [to_messages(value) for value, _, _ in given]
        references, ids = [right for _, right, _ in given], [name for _, _, name in given]
        return cls(prepared, prompts, references, ids, samples, config, concurrency, tool_votes or ToolVotes())

    def drawn(self, cutoff: Cutoff, at: int, held: Sequence[Sample] = (), samples: int | None = None) -> list[Sample]:
        """The responses to question ``at``, those that are there already first; in a thread of a pool."""
        wave = self._wave(at, len(held), samples or self.samples)
        with cutoff.heard_by(wave.cutoff.give_up), closing(drawn(wave)) as samples_drawn:
            return [*held, *sorted(samples_drawn, key=lambda sample: sample.index)]

    async def adrawn(self, at: int, held: Sequence[Sample] = (), samples: int | None = None) -> list[Sample]:
        """The same in an event loop."""
        async with aclosing(adrawn(self._wave(at, len(held), samples or self.samples))) as samples_drawn:
            return [*held, *sorted([sample async for sample in samples_drawn], key=lambda sample: sample.index)]

    def calibration(
        self,
        samples: Sequence[Sequence[Sample]],
        answer: AnswerSpec,
        fixed_prompt: FixedPrompt | None,
        measure: Measure | Literal["auto"],
        cutoff: Cutoff,
        *,
        p_target: float,
        seed: int,
    ) -> Calibration:
        """Algorithm 1 on the first response to each question that carries what is asked for; the others beside it."""
        extract = extractor(answer)
        of_span = measure == "auto" or measure.of_span
        every = [
            (at, one) for at, some in enumerate(samples) for sample in some if (one := self._taken(sample, extract))
        ]
        if not every:
            raise self._failure(samples)
        rights = self._graded(every, extract, cutoff)
        questions: dict[int, list[_Taken]] = {}
        for (at, one), right in zip(every, rights, strict=True):
            if right is not None:
                questions.setdefault(at, []).append(replace(one, right=right))
        found = [read for some in questions.values() if (read := list(_readable(some, extract if of_span else None)))]
        if not found:
            raise LogprobsUnavailable("nothing to calibrate: none of the responses carries a confidence")
        firsts = [some[0] for some in found]
        signals, correct = [one.signals for one in firsts], [one.right for one in firsts]
        used, chosen = measure, None
        if measure == "auto" and can_be_compared(correct):
            spans = [one.reading.spans if one.vote.answer is not None else None for one in firsts]
            chosen = select_measure(signals, correct, spans=spans, seed=seed)
            used = chosen.measure
        elif measure == "auto":
            used = default_measure([name for name in signals[0] if all(name in other for other in signals)])
        assert isinstance(used, Measure)
        scored = [[(one.response(used), one.right) for one in some] for some in found]
        labelled = [some[0] for some in scored if some[0][0].score is not None]
        votes = [[pair for pair in some if pair[0].answer is not None and pair[0].score is not None] for some in scored]
        calibration = calibrate_offline(
            [response.score or 0.0 for response, _ in labelled],
            [right for _, right in labelled],
            measure=used,
            p_target=p_target,
            rejected=chosen.rejected if chosen else (),
            cross_validated=chosen.cross_validated if chosen else None,
            within=None
            if self.samples == 1
            else auroc_within(
                [[response.score or 0.0 for response, _ in some] for some in votes],
                [[right for _, right in some] for some in votes],
            ),
            fingerprint=self.model.fingerprint(self.prompts[0], prompt=fixed_prompt, answer=answer),
            **firsts[0].reading.provenance(used.signal),
        )
        # A rule sees how answers are spelled; where they are compared by what they mean, that is not how it decides.
        return calibration if extract.equivalence else with_p_correct(calibration, scored)

    def _taken(self, sample: Sample, extract: Extractor) -> "_Taken | None":
        if sample.status != "complete" or sample.message is None:
            logger.warning("a response is left out of the calibration: %s", sample.error)
            return None
        return _Taken(sample.message, vote_of(sample.message, extract, self.tool_votes, self.model.schemas))

    def _graded(self, every: Sequence[tuple[int, "_Taken"]], extract: Extractor, cutoff: Cutoff) -> list[bool | None]:
        """Whether each response is right; equal answers to a question are compared with the right one once."""
        keys = [(at, one.vote.answer, one.vote.calls) for at, one in every]
        to_grade = {
            key: Graded(self.prompts[at], one.message, self.references[at])
            for key, (at, one) in zip(keys, every, strict=True)
        }
        compared: Any = {"tools": self.tool_votes, "schemas": self.model.schemas, "concurrency": self.concurrency}
        rights = graded(list(to_grade.values()), extract, self.config, **compared, cutoff=cutoff)
        told = dict(zip(to_grade, rights, strict=True))
        return [told[key] for key in keys]

    def _failure(self, samples: Sequence[Sequence[Sample]]) -> CalibrationDataError:
        first = next((sample.error for some in samples for sample in some if sample.error), None)
        return CalibrationDataError(f"none of the {len(samples)} questions gave a response; the first: {first!r}")

    def _wave(self, at: int, held: int, samples: int) -> Wave:
        # Were all first responses sample 0, a seed that is set would tie them to one stream of random numbers.
        prompt = self.prompts[at]
        first = zlib.crc32(repr([(one.type, one.content) for one in prompt]).encode()) % _SEEDS * _BLOCK
        return Wave(self.model, prompt, range(first + held, first + samples), self.config)


class FirstResponses:
    """Sees to it that a model without confidence is not asked all questions.

    Args:
        stated: whether the model is asked to state its confidence, which it may forget now and then.
    """

    def __init__(self, *, stated: bool) -> None:
        self._left = _SILENT if stated else 1
        self._seen = False

    def check(self, samples: Iterable[Sample]) -> None:
        """Take in what came.

        Raises:
            LogprobsUnavailable: nothing but responses without confidence have come.
        """
        for sample in samples:
            if self._seen:
                return
            if isinstance(sample.error, LogprobsUnavailable):
                raise sample.error
            if sample.message is None or sample.error or not output_tokens(sample.message):
                continue  # an empty response has no confidence either
            try:
                read_signals(sample.message)
                self._seen = True
            except LogprobsUnavailable as error:
                self._left -= 1
                if self._left == 0:
                    raise LogprobsUnavailable(
                        f"nothing to calibrate, so no further question was asked: {error}; a model that returns no "
                        "logprobs can state its confidence (ask_confidence=True)"
                    ) from None


@dataclass(frozen=True)
class _Taken:
    """A response that came.

    Attributes:
        message: what the model said.
        vote: what it votes for.
        right: whether that is right.
        reading: its token signals.
    """

    message: AIMessage
    vote: Vote
    right: bool = False
    reading: SignalReading = field(default_factory=lambda: SignalReading({}))

    @property
    def signals(self) -> Any:
        return self.reading.signals

    def response(self, measure: Measure) -> Response:
        """What a rule sees of it."""
        try:
            score = self.reading.score(measure)
        except (LogprobsUnavailable, ConfidenceError) as error:
            logger.warning("a response is left out of the calibration: %s", error)
            score = None
        return Response(self.vote.answer, score, cut_off=self.vote.cut_off, kind=self.vote.kind)


def _readable(some: Sequence[_Taken], extract: Extractor | None) -> Iterator[_Taken]:
    """Those whose token signals can be read, with these; and with spans where the extractor is given."""
    for one in some:
        try:
            places = places_of(one.message, extract, one.vote) if extract else None
            yield replace(one, reading=read_signals(one.message, of_calls=one.vote.calls, places=places))
        except LogprobsUnavailable as error:
            logger.warning("a response is left out of the calibration: %s", error)


def _read(questions: LabelledQuestions) -> list[tuple[LanguageModelInput, tuple[str, ...], str | None]]:
    """Questions, each with all answers that are accepted, and its name."""
    if isinstance(questions, str | os.PathLike):
        return [(one.input, one.references, one.id) for one in read_questions(questions)]
    given: list[tuple[LanguageModelInput, tuple[str, ...], str | None]] = []
    for pair in questions:
        if not isinstance(pair, list | tuple) or len(pair) != 2:  # a row of a file, say, whose keys would be asked
            raise ConfigurationError(f"each question is a pair (input, right answer), got {reprlib.repr(pair)}")
        value, right = pair
        given.append((value, tuple(map(str, right)) if isinstance(right, list | tuple) else (str(right),), None))
    return given

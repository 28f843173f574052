"""Labelled questions, each asked a few times: what a calibration by Algorithm 1 is made of."""

import logging
import os
import reprlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import AnswerSpec, Extractor, Schemas, ToolVotes, Vote, extractor, places_of, vote_of
from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    FixedPrompt,
    Selection,
    auroc_within,
    calibrate_offline,
    can_be_compared,
    default_measure,
    select_measure,
    with_p_correct,
)
from langchain_reasc.data import is_text, read_questions, read_unlabelled
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Response
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.logprobs import SignalReading, read_signals
from langchain_reasc.models.prepared import ModelOrName, PreparedModel, to_messages
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.runnable.batch import Progress, show_progress
from langchain_reasc.runnable.concurrency import Concurrency
from langchain_reasc.runnable.votes import Meanings
from langchain_reasc.sampling import Cutoff, QuestionClock, Sample, Wave
from langchain_reasc.sampling import samples as drawn_samples
from langchain_reasc.threads import DaemonExecutor, as_they_end

__all__ = ["Graded", "Labelled", "LabelledQuestion", "Questions", "graded", "read"]

logger = logging.getLogger(__name__)

QuestionInput = LanguageModelInput | tuple[LanguageModelInput, str | Sequence[str] | None]
"""What the chat model is asked, and the right answer, or a list of the answers that are accepted; or an input alone."""
Questions = Iterable[QuestionInput] | str | os.PathLike[str]
"""Questions, or a file of them that :func:`langchain_reasc.data.read_questions` reads."""
_SEEDS: Final = 1_000_003
_BLOCK: Final = 16  # seeds that a question has to itself
_SILENT: Final = 3  # responses without any confidence after which a model that was asked to state it is given up


class LabelledQuestion(NamedTuple):
    """An input, the answers that are right (None where none is known), and the name that a file gives it."""

    input: LanguageModelInput
    references: tuple[str, ...] | None = None
    id: str | None = None


def read(questions: Questions) -> list[LabelledQuestion]:
    """Read questions with their right answers, or without any.

    Raises:
        ConfigurationError: a file that cannot be read, or what is no question.
    """
    if isinstance(questions, str | os.PathLike):
        if is_text(questions):
            return [LabelledQuestion(text) for text, _ in read_unlabelled(questions)]
        return [LabelledQuestion(one.input, one.references, one.id) for one in read_questions(questions)]
    return [_labelled(one) for one in questions]


def _labelled(one: Any) -> LabelledQuestion:
    messages = isinstance(one, list) and one and all(isinstance(message, BaseMessage) for message in one)
    if isinstance(one, str | PromptValue) or messages:
        return LabelledQuestion(one)
    if not isinstance(one, list | tuple) or len(one) != 2:  # a row of a file, say, whose keys would be asked
        raise ConfigurationError(f"each question is a pair (input, right answer), or an input, got {reprlib.repr(one)}")
    value, right = one
    accepted = right if isinstance(right, list | tuple) else [right]
    return LabelledQuestion(cast(LanguageModelInput, value), None if right is None else tuple(map(str, accepted)))


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
        questions: Sequence[LabelledQuestion],
        samples: int,
        concurrency: int,
        config: RunnableConfig,
        measure: Measure | Literal["auto"],
        *,
        ask_confidence: bool,
        tool_votes: ToolVotes | None,
    ) -> "Labelled":
        """Check all of it before anything is paid for.

        Raises:
            CalibrationDataError: there is no question.
            ConfigurationError: an invalid number of samples, concurrency or measure.
            LogprobsUnavailable: the model is known to give no confidence.
        """
        if not questions:
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
        prompts = [to_messages(one.input) for one in questions]
        references, ids = [one.references or () for one in questions], [one.id for one in questions]
        return cls(prepared, prompts, references, ids, samples, config, concurrency, tool_votes or ToolVotes())

    async def draw_all(self, io: Concurrency, progress: Progress, *, stated: bool) -> list[list[Sample]]:
        """Draw the responses to all questions; the first alone, whose confidence is looked at.

        Raises:
            LogprobsUnavailable: the first responses carry no confidence.
        """
        cutoff, first, drawn = Cutoff(), FirstResponses(stated=stated), dict[int, list[Sample]]()

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

    def fit(
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
        """Run Algorithm 1 on the first response to each question that carries the confidence; the others beside it."""
        extract = extractor(answer)
        of_span = measure == "auto" or measure.of_span
        questions = self._graded(samples, extract, cutoff)
        found = [read for one in questions if (read := list(_readable(one, extract if of_span else None)))]
        if not found:
            raise LogprobsUnavailable("nothing to calibrate: none of the responses carries a confidence")
        firsts = [some[0] for some in found]
        chosen = _selected(firsts, seed) if measure == "auto" else measure
        selection: dict[str, Any] = {}
        if isinstance(chosen, Selection):
            selection = {"rejected": chosen.rejected, "cross_validated": chosen.cross_validated}
            chosen = chosen.measure
        scored = [[(one.response(chosen), one.right) for one in some] for some in found]
        labelled = [some[0] for some in scored if some[0][0].score is not None]
        calibration = calibrate_offline(
            [response.score or 0.0 for response, _ in labelled],
            [right for _, right in labelled],
            measure=chosen,
            p_target=p_target,
            within=_within(scored) if self.samples > 1 else None,
            fingerprint=self.model.fingerprint(self.prompts[0], prompt=fixed_prompt, answer=answer),
            **selection,
            **firsts[0].reading.provenance(chosen.signal),
        )
        # A rule sees how answers are spelled; where they are compared by what they mean, that is not how it decides.
        return calibration if extract.equivalence else with_p_correct(calibration, scored)

    def _graded(
        self, samples: Sequence[Sequence[Sample]], extract: Extractor, cutoff: Cutoff
    ) -> list[list["_GradedResponse"]]:
        """The responses to each question that came and could be graded; equal answers are compared with the label once.

        Raises:
            CalibrationDataError: there was no response, or none could be compared.
        """
        responses = {
            (at, sample.index): _GradedResponse(
                sample.message, vote_of(sample.message, extract, self.tool_votes, self.model.schemas)
            )
            for at, some in enumerate(samples)
            for sample in some
            if sample.status == "complete" and sample.message is not None
        }
        failures = [sample.error for some in samples for sample in some if sample.status != "complete"]
        for error in failures:
            logger.warning("a response is left out of the calibration: %s", error)
        if not responses:
            first = next(filter(None, failures), None)
            raise CalibrationDataError(f"none of the {len(samples)} questions gave a response; the first: {first!r}")
        keys = [(at, one.vote.answer, one.vote.calls) for (at, _), one in responses.items()]
        to_grade = {
            key: Graded(self.prompts[at], one.message, self.references[at])
            for key, ((at, _), one) in zip(keys, responses.items(), strict=True)
        }
        rights = graded(
            list(to_grade.values()),
            extract,
            self.config,
            tools=self.tool_votes,
            schemas=self.model.schemas,
            concurrency=self.concurrency,
            cutoff=cutoff,
        )
        right_of = dict(zip(to_grade, rights, strict=True))
        questions: dict[int, list[_GradedResponse]] = {}
        for key, one in zip(keys, responses.values(), strict=True):
            if (right := right_of[key]) is not None:
                questions.setdefault(key[0], []).append(replace(one, right=right))
        return list(questions.values())


class FirstResponses:
    """Stops asking a model whose first responses carry no confidence.

    Args:
        stated: whether the model is asked to state its confidence, which it may forget now and then.
    """

    def __init__(self, *, stated: bool) -> None:
        self._left = _SILENT if stated else 1
        self._seen = False

    def check(self, samples: Iterable[Sample]) -> None:
        """Look at samples, until one carries a confidence.

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
class _GradedResponse:
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

    def response(self, measure: Measure) -> Response:
        """Return what a rule sees of it."""
        try:
            score = self.reading.score(measure)
        except (LogprobsUnavailable, ConfidenceError) as error:
            logger.warning("a response is left out of the calibration: %s", error)
            score = None
        return Response(self.vote.answer, score, cut_off=self.vote.cut_off, kind=self.vote.kind)


def _readable(some: Sequence[_GradedResponse], extract: Extractor | None) -> Iterator[_GradedResponse]:
    """Those whose token signals can be read, with these; and with spans where the extractor is given."""
    for one in some:
        try:
            places = places_of(one.message, extract, one.vote) if extract else None
            yield replace(one, reading=read_signals(one.message, of_calls=one.vote.calls, places=places))
        except LogprobsUnavailable as error:
            logger.warning("a response is left out of the calibration: %s", error)


def _within(scored: Sequence[Sequence[tuple[Response, bool]]]) -> AUROC | None:
    """How well the scores separate the votes of one question; a response without an answer has no vote to weigh."""
    votes = [
        [(one.score, right) for one, right in some if one.answer is not None and one.score is not None]
        for some in scored
    ]
    return auroc_within(
        [[score for score, _ in some] for some in votes], [[right for _, right in some] for some in votes]
    )


def _selected(firsts: Sequence[_GradedResponse], seed: int) -> Selection | Measure:
    """The measure that separates right from wrong best; the default where too few are right, or wrong."""
    correct, signals = [one.right for one in firsts], [cast(Any, one.reading.signals) for one in firsts]
    if not can_be_compared(correct):
        return default_measure([name for name in signals[0] if all(name in other for other in signals)])
    spans = [one.reading.spans if one.vote.answer is not None else None for one in firsts]
    return select_measure(signals, correct, spans=spans, seed=seed)


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
    """Grade responses: whether each is right; None where there is none, or its meaning could not be compared.

    Args:
        responses: the questions.
        extract: finds the answer in a response; its equivalence, if it has one, compares that with the right answer.
        config: callbacks, tags and metadata of a judge's calls.
        tools: how calls of tools are compared.
        schemas: tool -> schema of its arguments; None where the tools are not known.
        concurrency: questions whose answers are compared at once.
        cutoff: ends comparing.

    Raises:
        CalibrationDataError: no response could be compared.
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
    found = [one.result() for one in grading]
    if failures and all(right is None for right in found):
        raise CalibrationDataError(f"no response could be compared with the right answer: {failures[0]!r}")
    return found

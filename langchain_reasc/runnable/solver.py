"""Answering a question: samples are drawn until the decision falls. Every face of ReASC is composed of a solver."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import AnswerSpec, Extractor
from langchain_reasc.calibration import Calibration, Fingerprint, OnlineCalibrator, check_fingerprint
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.exceptions import LogprobsUnavailable, SamplingError, Undecided
from langchain_reasc.method.stopping import ASC, StoppingRule
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.runnable.question import DeservesVote, Question, SpendingListener, Start
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.session import ResponseListener, Session
from langchain_reasc.sampling import Sample, Wave, adrawn, drawn
from langchain_reasc.sampling.slots import AsyncSlots, Slots
from langchain_reasc.sampling.time_limit import QuestionClock

__all__ = ["Solver"]

Launch = Callable[[int], range]
"""Given how many samples may be launched, says which ones those are."""


@dataclass(frozen=True, kw_only=True)
class Solver:
    """What answers questions, prepared once from the options of :class:`~langchain_reasc.ReASCRunnable`.

    Attributes:
        model: what is sampled.
        extract: finds the answer in a response.
        calibration: what scores mean; None counts votes, unless a calibrator learns it.
        calibrator: learns a calibration from the first responses; None where there is nothing to learn.

    The other attributes are the runnable's options of the same names.
    """

    model: PreparedModel
    extract: Extractor
    answer: AnswerSpec
    fixed_prompt: FixedPrompt | None
    calibration: Calibration | None
    calibrator: OnlineCalibrator | None
    max_samples: int
    concurrency: int
    confidence: float
    on_missing_confidence: Literal["error", "count"]
    sample_timeout: float | None
    timeout: float | None
    allow_fingerprint_mismatch: bool
    on_undecided: Literal["answer", "raise", "abstain"]
    token_budget: int | None
    time_budget: float | None

    def question(
        self,
        value: LanguageModelInput,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        *,
        cutoff: Cutoff | None = None,
        on_response: ResponseListener | None = None,
        deserves_vote: DeservesVote | None = None,
        on_spent: SpendingListener | None = None,
    ) -> Question:
        """An input, read and timed from now on.

        Raises:
            ConfigurationError: it is nothing that a chat model takes.
            LogprobsUnavailable: the model that the config chooses is known to give no confidence where one is needed.
        """
        clock = QuestionClock(question=self.timeout, sample=self.sample_timeout)
        model = self.model.resolved(config).bind(kwargs)
        self.require_confidence(model)
        return Question(model, to_messages(value), clock, cutoff or Cutoff(), on_response, deserves_vote, on_spent)

    def require_confidence(self, model: PreparedModel) -> None:
        """Say before anything is paid for that a model gives none.

        Raises:
            LogprobsUnavailable: it is needed.
        """
        if model.no_logprobs and self.on_missing_confidence == "error" and not self.counts(self.calibration):
            raise LogprobsUnavailable(f"{model.no_logprobs}; or count votes with on_missing_confidence='count'")

    def require_fit(
        self, model: PreparedModel, messages: list[BaseMessage] | None = None, *, bound: bool = True
    ) -> None:
        """Refuse a calibration that was measured on something else, as far as can be told.

        Args:
            model: what is sampled.
            messages: the messages of a call.
            bound: whether all that it is asked besides a question is known; else tools and the like are yet to come.

        Raises:
            FingerprintMismatch: naming what differs.
        """
        if self.calibration and not self.allow_fingerprint_mismatch:
            running = model.fingerprint(messages, prompt=self.fixed_prompt, answer=self.answer)
            check_fingerprint(self.calibration, running if bound else running.unbound())

    def first(self, question: Question, config: RunnableConfig, slots: Slots) -> Sample:
        """The first sample alone, after which the question's clock is paused."""
        [(sample, _)] = self._drawn(question, 1, range, config, slots)
        question.clock.pause()
        return sample

    async def afirst(self, question: Question, config: RunnableConfig, slots: AsyncSlots) -> Sample:
        """The asynchronous :meth:`first`."""
        [(sample, _)] = [pair async for pair in self._adrawn(question, 1, range, config, slots)]
        question.clock.pause()
        return sample

    def solve(
        self, question: Question, config: RunnableConfig, *, slots: Slots, start: Start | None = None
    ) -> ReASCResult:
        """Sample until the decision falls.

        Args:
            question: what is asked.
            config: the config of the run above the samples' own.
            slots: places for samples in flight.
            start: the first sample and its calibration, where they are given.

        Raises:
            ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
        """
        session = self._session(question, start)
        with _accounted(session, question):
            while wanted := session.wanted:
                with closing(self._drawn(question, wanted, session.launch, config, slots)) as samples:
                    for sample, wave in samples:
                        if _considered(session, sample, question.model):
                            wave.cutoff.stop()
                self._limit(session, question)
            return self._result(session)

    async def asolve(
        self, question: Question, config: RunnableConfig, *, slots: AsyncSlots, start: Start | None = None
    ) -> ReASCResult:
        """The asynchronous :meth:`solve`."""
        session = self._session(question, start)
        with _accounted(session, question):
            while wanted := session.wanted:
                async with aclosing(self._adrawn(question, wanted, session.launch, config, slots)) as samples:
                    async for sample, wave in samples:
                        if await self._aconsidered(session, sample, question.model):
                            wave.cutoff.stop()
                self._limit(session, question)
            if self.calibrator is None:
                return self._result(session)
            return await asyncio.to_thread(self._result, session)  # it may fit a mixture

    async def _aconsidered(self, session: Session, sample: Sample, model: PreparedModel) -> bool:
        if self.extract.blocks:
            return await asyncio.to_thread(_considered, session, sample, model)
        return _considered(session, sample, model)

    def _drawn(
        self, question: Question, wanted: int, launch: Launch, config: RunnableConfig, slots: Slots
    ) -> Generator[tuple[Sample, Wave]]:
        """A wave of up to ``wanted`` samples, as many as there are places for."""
        question.clock.pause()
        taken = slots.take(wanted, question.cutoff)
        question.clock.resume()
        if not taken:
            raise SamplingError("given up, because the call was interrupted or another input of its batch failed")
        wave = question.wave(launch(taken), config)
        try:
            with question.cutoff.heard_by(wave.cutoff.give_up), closing(drawn(wave)) as samples:
                for sample in samples:
                    slots.give_back()
                    taken -= 1
                    yield sample, wave
        finally:
            slots.give_back(taken)
            question.prompt_tokens = wave.cutoff.prompt_tokens

    async def _adrawn(
        self, question: Question, wanted: int, launch: Launch, config: RunnableConfig, slots: AsyncSlots
    ) -> AsyncGenerator[tuple[Sample, Wave]]:
        """The asynchronous :meth:`_drawn`."""
        question.clock.pause()
        taken = await slots.take(wanted)
        question.clock.resume()
        wave = question.wave(launch(taken), config)
        try:
            async with aclosing(adrawn(wave)) as samples:
                async for sample in samples:
                    slots.give_back()
                    taken -= 1
                    yield sample, wave
        finally:
            slots.give_back(taken)
            question.prompt_tokens = wave.cutoff.prompt_tokens

    def _session(self, question: Question, start: Start | None) -> Session:
        self.require_fit(question.model, question.messages)
        current = start.calibration if start else self.learned
        rule, notices = self._rule(current)
        session = Session(
            rule,
            extract=self.extract,
            measure=current.measure if current else self.calibrator.measure if self.calibrator else None,
            max_samples=self.max_samples,
            concurrency=self.concurrency,
            required=self.on_missing_confidence == "error" and not self.counts(current),
            calibration=None if self.allow_fingerprint_mismatch or self.counts(current) else current,
            notices=(*question.model.notices, *(start.notices if start else notices)),
            keep_logprobs=question.model.logprobs_wanted,
            on_response=question.on_response,
            deserves_vote=question.deserves_vote,
        )
        if start and start.sample.status == "complete":
            _considered(session, start.sample, question.model)
        elif start:
            session.lose(start.sample)
        question.clock.resume()
        return session

    @property
    def fingerprint(self) -> Fingerprint:
        """What a calibration that is learned here holds for."""
        return self.model.fingerprint(prompt=self.fixed_prompt, answer=self.answer)

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use."""
        return self.calibrator.calibration if self.calibrator else self.calibration

    def counts(self, calibration: Calibration | None) -> bool:
        """Whether votes are counted, whatever the confidence, and go on being so."""
        if self.calibrator is None and self.calibration is None:
            return True
        return bool(calibration and calibration.fallback)

    def _rule(self, calibration: Calibration | None) -> tuple[StoppingRule, tuple[str, ...]]:
        if calibration is None:
            why = "online calibration has seen too few responses yet" if self.calibrator else "no calibration"
            return ASC(self.confidence), (f"{why}: counting votes (ASC)",)
        rule = calibration.rule(confidence=self.confidence, on_missing_confidence=self.on_missing_confidence)
        if calibration.fallback:
            return rule, (f"counting votes (ASC): {calibration.fallback}",)
        if calibration.gate.closed_because:
            return rule, (f"the gate is closed: {calibration.gate.closed_because}",)
        return rule, ()

    def _limit(self, session: Session, question: Question) -> None:
        if question.clock.over:
            session.expire("timeout")
        elif (self.token_budget is not None and session.tokens >= self.token_budget) or (
            self.time_budget is not None and question.clock.seconds >= self.time_budget
        ):
            session.expire("budget")

    def _result(self, session: Session) -> ReASCResult:
        result = session.result()
        if self.calibrator and session.first_score is not None:
            self.calibrator.observe(session.first_score, **session.first_made_of)
        if not result.undecided or self.on_undecided == "answer":
            return result
        if self.on_undecided == "abstain":
            return result.abstained()
        decision = result.decision
        raise Undecided(
            f"the evidence is not sufficient after {decision.samples} samples ({decision.reason}): "
            f"{decision.answer!r} leads with a probability of {decision.posterior:.2f} of staying ahead, where "
            f"{self.confidence:g} is wanted; the error's result has every response",
            result,
        )


@contextmanager
def _accounted(session: Session, question: Question) -> Iterator[None]:
    """Tell in the end what was spent, of a question that fails too."""
    try:
        yield
    finally:
        if question.on_spent:
            question.on_spent(session.tokens, session.launched)


def _considered(session: Session, sample: Sample, model: PreparedModel) -> bool:
    """Whether the decision has fallen; an error says if the model was never asked for what is missing."""
    try:
        return session.add(sample)
    except LogprobsUnavailable as error:
        if model.unasked is None:
            raise
        raise LogprobsUnavailable(f"{error}. {model.unasked}") from error

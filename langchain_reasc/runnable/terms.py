"""On what terms questions are decided: which model, which rule, which calibration, and what they must fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import AnswerSpec, Extractor, ToolVotes, held_to
from langchain_reasc.calibration import (
    Calibration,
    Fingerprint,
    MixtureCalibrator,
    Safeguard,
    SupportCurve,
    check_fingerprint,
)
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable, Undecided
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import ASC, DEFAULT_CONFIDENCE, Decision, StoppingRule
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.runnable.ballot import Ballot, DeservesVote
from langchain_reasc.runnable.consensus_calibrator import ConsensusCalibrator
from langchain_reasc.runnable.meanings import Meanings
from langchain_reasc.runnable.observing import FinishedListener
from langchain_reasc.runnable.question import Question, SpendingListener, Start
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.session import ResponseListener, Session
from langchain_reasc.runnable.summary import PROMISES, shortened
from langchain_reasc.sampling.time_limit import QuestionClock

__all__ = ["Terms"]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The options of :class:`~langchain_reasc.ReASCRunnable`, prepared once, and what follows from them.

    Attributes:
        model: what is sampled.
        extract: finds the answer in a response.
        calibration: what scores mean; None counts votes, unless a calibrator learns it.
        calibrator: learns a calibration from the responses; None where there is nothing to learn.
        measure: how responses are scored for a given rule without a calibration.

    The other attributes are the runnable's options of the same names.
    """

    model: PreparedModel
    extract: Extractor
    answer: AnswerSpec
    fixed_prompt: FixedPrompt | None
    calibration: Calibration | None
    calibrator: MixtureCalibrator | ConsensusCalibrator | None
    max_samples: int
    concurrency: int
    confidence: float | None
    on_missing_confidence: Literal["error", "count"]
    sample_timeout: float | None
    timeout: float | None
    allow_fingerprint_mismatch: bool
    rule: StoppingRule | None = None
    measure: Measure | None = None
    safeguard: Safeguard = "default"
    on_undecided: Literal["answer", "raise", "abstain"] = "answer"
    token_budget: int | None = None
    time_budget: float | None = None
    tool_votes: ToolVotes = field(default_factory=ToolVotes)
    abstain_below: float | None = None
    audit: float = 0.05
    advised: set[str] = field(default_factory=set)

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
        sample_budget: int | None = None,
    ) -> Question:
        """An input, read and timed from now on.

        Raises:
            ConfigurationError: it is nothing that a chat model takes.
            LogprobsUnavailable: the model that the config chooses is known to give no confidence where one is needed.
        """
        clock = QuestionClock(question=self.timeout, sample=self.sample_timeout)
        model = self.model.resolved(config).bind(kwargs)
        self.require_confidence(model)
        return Question(
            model,
            to_messages(value),
            clock,
            cutoff or Cutoff(),
            on_response,
            deserves_vote,
            on_spent,
            sample_budget,
        )

    def require_confidence(self, model: PreparedModel) -> None:
        """Say before anything is paid for that a model gives none.

        Raises:
            LogprobsUnavailable: it is needed.
        """
        if self._reads_statements or self._missing == "count" or self.counts(self.calibration):
            return
        if model.no_logprobs:
            raise LogprobsUnavailable(
                f"{model.no_logprobs}; or let it state its confidence (ask_confidence=True, calibrated so), or count "
                "votes with on_missing_confidence='count'"
            )

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

    def misnamed(self, model: PreparedModel) -> list[str]:
        """What ``tool_votes`` names that none of the model's tools has; each is logged once."""
        schemas = model.schemas
        found = self.tool_votes.misnamed(schemas) if schemas else []
        for text in found:
            warn_once(text, id(self.tool_votes))
        return found

    def require_correctness(self) -> None:
        """Refuse to abstain by a probability that nothing tells.

        Raises:
            ConfigurationError: the calibration tells neither P(correct) nor P(agree) of answers of the rule.
        """
        if self.abstain_below is None:
            return
        rule, _ = self._rule(self.calibration)
        if _curves(self.calibration, rule):
            return
        known = self.calibration and (self.calibration.p_correct or self.calibration.p_agree)
        why = f"this one says it of {known.rule!r}, not of {rule.name!r}" if known else "here is none that does"
        raise ConfigurationError(
            f"abstain_below={self.abstain_below:g} needs a calibration that says how likely an answer is right "
            f"(p_correct) or that further responses agree with it (p_agree), and {why}; calibrate() with several "
            "samples of each labelled question tells p_correct, calibrate_unlabelled() tells p_agree"
        )

    def session(self, question: Question, start: Start | None, config: RunnableConfig) -> Session:
        """What collects the samples of a question, and decides on them.

        Raises:
            FingerprintMismatch: the calibration was measured on something else.
        """
        self.require_fit(question.model, question.messages)
        current = start.calibration if start else self.learned
        rule, notices = self._rule(current)
        session = Session(
            rule,
            ballot=self._ballot(question, config),
            measure=self._measure(current),
            max_samples=min(self.max_samples, question.sample_budget or self.max_samples),
            concurrency=self.concurrency,
            required=self._missing == "error" and not self.counts(current),
            calibration=None if self.allow_fingerprint_mismatch or self.counts(current) else current,
            notices=(*question.model.notices, *self.misnamed(question.model), *(start.notices if start else notices)),
            keep_logprobs=question.model.logprobs_wanted,
            on_response=question.on_response,
            curves=_curves(current, rule),
            promised=partial(self._promised, current),
            on_finished=question.on_finished or self._learning(current),
            audit=self.online is not None and current is not None and self.online.audits(self.audit),
        )
        if start and start.sample.status != "complete":
            session.lose(start.sample)
        question.clock.resume()
        return session

    def _ballot(self, question: Question, config: RunnableConfig) -> Ballot:
        meanings, equivalence = None, self.extract.equivalence
        if equivalence is not None:
            meanings = Meanings(equivalence, question.messages, config, clock=question.clock, cutoff=question.cutoff)
        schemas = question.model.schemas
        return Ballot(
            held_to(self.extract, question.model.text_schema),
            self.tool_votes,
            schemas,
            meanings=meanings,
            clock=question.clock,
            cutoff=question.cutoff,
            deserves_vote=question.deserves_vote,
            advised=self.advised,
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """What a calibration that is learned here holds for."""
        return self.model.fingerprint(prompt=self.fixed_prompt, answer=self.answer)

    @property
    def mixture(self) -> MixtureCalibrator | None:
        """What learns from first responses alone, and in a batch from all of them before any decision."""
        return self.calibrator if isinstance(self.calibrator, MixtureCalibrator) else None

    @property
    def online(self) -> ConsensusCalibrator | None:
        """What learns from every question that is answered."""
        return self.calibrator if isinstance(self.calibrator, ConsensusCalibrator) else None

    def _learning(self, current: Calibration | None) -> FinishedListener | None:
        """What a question that is decided under this calibration is told to, to learn from."""
        return partial(self.online.observe, learned=current is not None) if self.online else None

    @property
    def _missing(self) -> Literal["error", "count"]:
        """What is done with a response without confidence: learning online needs none."""
        return "count" if self.online else self.on_missing_confidence

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use."""
        return self.calibrator.calibration if self.calibrator else self.calibration

    def counts(self, calibration: Calibration | None) -> bool:
        """Whether votes are counted, whatever the confidence, and go on being so."""
        if self.rule is not None:
            return not self.rule.reads_scores
        if self.calibrator is None and self.calibration is None:
            return True
        return bool(calibration and (calibration.measure is None or calibration.counts(self.safeguard)))

    def _measure(self, calibration: Calibration | None) -> Measure | None:
        """How responses are scored while this calibration is in use; None where nothing reads their scores."""
        if self.rule is not None and not self.rule.reads_scores:
            return None
        if calibration:
            return calibration.measure
        return self.mixture.measure if self.mixture else self.measure

    @property
    def _reads_statements(self) -> bool:
        """Whether confidence is what the model states, and not read from its tokens."""
        known = self.calibrator or self.calibration
        measure = known.measure if known else self.measure
        return measure is not None and measure.signal == VERBALIZED

    def _rule(self, calibration: Calibration | None) -> tuple[StoppingRule, tuple[str, ...]]:
        if self.rule is not None:
            return self.rule, self._advice(self.rule, calibration)
        confidence = self.confidence or DEFAULT_CONFIDENCE
        options: Any = {
            "confidence": confidence,
            "on_missing_confidence": self._missing,
            "budget": self.max_samples,
        }
        if self.online:
            learned = calibration.rule(**options) if calibration else ASC(confidence)
            return learned, (self.online.notice(calibration),)
        if calibration is None:
            if self.calibrator is None and self.confidence is None:
                return FiniteHorizon(budget=self.max_samples), ("no calibration: counting votes (finite horizon)",)
            why = "the calibration by mixture has seen too few responses yet" if self.calibrator else "no calibration"
            return ASC(confidence), (f"{why}: counting votes (ASC)",)
        rule = calibration.rule(safeguard=self.safeguard, **options)
        return rule, calibration.notices(self.safeguard)

    def _advice(self, rule: StoppingRule, calibration: Calibration | None) -> tuple[str, ...]:
        """What a calibration has to say against a given rule."""
        if not (calibration and rule.reads_scores and calibration.counts(self.safeguard)):
            return ()
        why = calibration.fallback or calibration.unweighed
        return (f"the rule {rule.name} decides as given, where the calibration advises counting votes: {why}",)

    def _promised(self, calibration: Calibration | None, decision: Decision) -> str | None:
        """What a calibration promises of a decision in words, where it is its own rule that decides."""
        if calibration is None or self.rule is not None or calibration.counts(self.safeguard):
            return None
        return calibration.gate_promise(self.safeguard) if decision.reason == "gate" else calibration.guarantee

    def limit(self, session: Session, question: Question) -> None:
        """Let no more samples be launched where the question has had its time, or spent its budget."""
        if question.clock.over:
            session.expire("timeout")
        elif (self.token_budget is not None and session.tokens >= self.token_budget) or (
            self.time_budget is not None and question.clock.seconds >= self.time_budget
        ):
            session.expire("budget")

    def result(self, session: Session) -> ReASCResult:
        """The outcome, learned from, and as it is wanted where it is undecided.

        Raises:
            Undecided: the evidence is not sufficient, and that is to be raised.
        """
        result = session.result()
        if self.mixture and session.first_score is not None:
            self.mixture.observe(session.first_score, **session.first_made_of)
        if doubt := self._doubt(result):
            result = replace(result, doubt=doubt)
        elif not result.undecided or self.on_undecided == "answer":
            return result
        if self.on_undecided != "raise":
            return result.abstained()
        given = "" if result.answer is None else f"'{shortened(result.answer)}' is "
        raise Undecided(f"{given}{result.summary()}; the error's result has every response", result)

    def _doubt(self, result: ReASCResult) -> str | None:
        """Why an answer is not to be taken for one; what was not voted on is not doubted."""
        if self.abstain_below is None or result.decision.reason == "alone":
            return None
        if result.answer is None:
            return "no response gave an answer"
        for name, value in (("p_correct", result.p_correct), ("p_agree", result.p_agree)):
            if value is not None and value < self.abstain_below:
                return f"the answer {PROMISES[name]} with a probability of {value:.3g}, below {self.abstain_below:g}"
        return None


def _curves(calibration: Calibration | None, rule: StoppingRule) -> dict[str, SupportCurve]:
    """``p_correct`` or ``p_agree`` -> what a calibration says of the answers of this rule, where it does."""
    known = {"p_correct": calibration.p_correct, "p_agree": calibration.p_agree} if calibration else {}
    return {name: curve for name, curve in known.items() if curve is not None and curve.holds_for(rule.name)}

"""The voter: a model, and how its responses are read and decided on. It is made once
from the options.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypedDict

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from langchain_reasc.answers import (
    Extractor,
    Schemas,
    ToolVotes,
    extractor,
    held_to_schema,
)
from langchain_reasc.calibration import (
    Calibration,
    ConsensusCalibrator,
    MixtureCalibrator,
    load_calibration,
)
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import ASC, StoppingRule, warm_up
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.fingerprint import (
    Fingerprint,
    FixedPrompt,
    check_fingerprint,
    confidence_part,
    fingerprint_of,
    votes_part,
)
from langchain_reasc.models.prepared import PreparedModel, prepare_model
from langchain_reasc.models.stated import instruction
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.options import Online, Options
from langchain_reasc.threads import import_deferred, in_event_loop

OnMissing = Literal["error", "count"]
VoterLearner = MixtureCalibrator | ConsensusCalibrator
"""What learns a calibration of one model from what it answers."""

# Each kind of request may have a calibration of its own, and so a plan.
_MOST_PLANS: Final = 64
_PREPARING: Final = threading.Lock()
if hasattr(os, "register_at_fork"):
    # Or the lock would stay locked in a child that is forked meanwhile.
    os.register_at_fork(
        before=_PREPARING.acquire,
        after_in_parent=_PREPARING.release,
        after_in_child=_PREPARING.release,
    )


class MeasuredOn(TypedDict):
    """The options that a calibration holds for."""

    prompt: FixedPrompt | None
    answer: Any
    tool_votes: ToolVotes


@dataclass(frozen=True, kw_only=True, eq=False)
class Voter:
    """A model that votes. A question keeps the voter that it began with.

    Attributes:
        options: a copy of the options.
        model: what is sampled.
        extract: finds the answer in a response.
        on_missing_confidence: what is done with a response without confidence; the
            agreement rule counts it.
        calibration: what scores mean; None where there is none, or it is learned.
        learner: learns a calibration from what is answered; None if nothing is learned
            of this model alone.
        is_small: whether a larger model answers where this one is undecided.
        prepared: whether :meth:`prepare` has been called.
    """

    options: Options
    model: PreparedModel
    extract: Extractor
    on_missing_confidence: OnMissing
    calibration: Calibration | None = None
    learner: VoterLearner | None = None
    is_small: bool = False
    prepared: threading.Event = field(default_factory=threading.Event)
    _plans: dict[int, DecisionPlan] = field(default_factory=dict, init=False)

    @classmethod
    def from_options(
        cls,
        options: Options,
        model: Runnable[LanguageModelInput, Any],
        *,
        quiet: bool,
        is_small: bool = False,
        all_signals: bool = False,
    ) -> "Voter":
        """Check the options against each other and against the model, before anything
        is paid for.

        Args:
            options: the options.
            model: the model they name.
            quiet: whether samples are parts of one model call, see
                :mod:`langchain_reasc.sampling.tracing`.
            is_small: whether a larger model answers where this one is undecided.
            all_signals: whether every token signal is recorded, to choose among them.

        Raises:
            ReASCError: as the constructor of :class:`~langchain_reasc.ReASCRunnable`.
        """
        calibration = _given_calibration(options)
        measure = options.measure
        if measure is None and calibration is not None:
            measure = calibration.measure
        _check_combination(options, measure)
        on_missing: OnMissing = options.on_missing_confidence
        if _counts_unscored(options, calibration):
            on_missing = "count"
        reads_scores = _reads_scores(options, calibration, measure, is_small=is_small)
        prepared, measure = _prepared(
            options,
            model,
            measure,
            reads_scores,
            on_missing,
            quiet=quiet,
            alternatives=all_signals or _reads_alternatives(options, measure),
        )
        voter = cls(
            options=options,
            model=prepared,
            extract=extractor(options.answer),
            on_missing_confidence=on_missing,
            calibration=calibration,
            is_small=is_small,
        )
        if options.is_learning or options.fixed_prompt is not None:
            # To compute the fingerprint also checks the fixed prompt.
            running = voter.fingerprint
            if not is_small:
                learner = _learner(options, measure, running, quiet=quiet)
                voter = replace(voter, learner=learner)
        return voter

    def check(self, *, quiet: bool) -> None:
        """Refuse a calibration that does not fit, and prepare the first decision.

        Raises:
            ReASCError: as the constructor of :class:`~langchain_reasc.ReASCRunnable`.
        """
        if self.calibration is not None:
            # A chat model is bound to tools once it is made.
            self.require_fit(self.calibration, self.model, is_bound=not quiet)
        if self.model.no_logprobs:
            self.require_confidence(self.model)
        if self.options.abstain_below is not None:
            self._require_probability(self.options.abstain_below)
        if self.model.schemas:
            self.unknown_names(self.model.schemas)
        if not in_event_loop():  # else a thread of the first call does it
            self.prepare()

    def prepare(self) -> None:
        """Import and work out what the first decision needs. What is learned later is
        prepared where it is learned.
        """
        with _PREPARING:  # of all voters, which need much the same
            if self.prepared.is_set():
                return
            import_deferred()
            if not self.extract.blocks:
                self.extract("The answer is 5.")  # compiles its patterns
            calibration = None if self.is_small else self.learned
            warm_up(self.plan(calibration).rule)
            self.prepared.set()

    @property
    def fingerprint(self) -> Fingerprint:
        """What a calibration that is learned here holds for."""
        return running_fingerprint(self.model, **self.measured_on)

    @property
    def measured_on(self) -> MeasuredOn:
        """The options that a calibration holds for."""
        return MeasuredOn(
            prompt=self.options.fixed_prompt,
            answer=self.options.answer,
            tool_votes=self.options.tool_votes,
        )

    @property
    def mixture(self) -> MixtureCalibrator | None:
        """What learns from first responses alone, in a batch from all of them before
        any decision.
        """
        return self.learner if isinstance(self.learner, MixtureCalibrator) else None

    @property
    def online(self) -> ConsensusCalibrator | None:
        """What learns from every question that is answered."""
        return self.learner if isinstance(self.learner, ConsensusCalibrator) else None

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use."""
        return self.learner.calibration if self.learner else self.calibration

    def plan(self, calibration: Calibration | None) -> DecisionPlan:
        """Return the plan under a calibration, which is made once for each."""
        plan = self._plans.get(id(calibration))
        # An id may be used again for another calibration.
        if plan is None or plan.calibration is not calibration:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._make_plan(calibration)
            self._plans[id(calibration)] = plan
        return plan

    def plan_by(self, rule: StoppingRule, **fields: Any) -> DecisionPlan:
        """Return a plan by a rule; ``fields`` are the other fields of :class:`DecisionPlan`."""
        options = self.options
        is_rule_given = options.rule is not None
        min_share = None
        if (
            options.on_undecided != "answer"
            or options.abstain_below is not None
            or self.is_small
        ):
            min_share = options.min_share
        return DecisionPlan(
            rule=rule, is_rule_given=is_rule_given, min_share=min_share, **fields
        )

    def _make_plan(self, calibration: Calibration | None) -> DecisionPlan:
        rule = self.options.stopping_rule
        if rule is not None:
            return self._plan_by_given_rule(rule, calibration)
        if calibration is not None:
            return self._plan_by_calibration(calibration)
        if self.online is not None:
            untrained = FiniteHorizon(budget=self.options.max_samples)
            return self.plan_by(untrained, is_counted=False)
        if self.mixture is not None:
            notice = (
                "the calibration by mixture has seen too few responses yet: counting "
                "votes (ASC)"
            )
            return self.plan_by(
                ASC(),
                notices=(notice,),
                measure=self.mixture.measure,
                is_counted=False,
            )
        return self.plan_by(
            FiniteHorizon(budget=self.options.max_samples),
            notices=("no calibration: counting votes (finite horizon)",),
        )

    def _plan_by_given_rule(
        self, rule: StoppingRule, calibration: Calibration | None
    ) -> DecisionPlan:
        if not rule.reads_scores:
            return self.plan_by(rule, calibration=calibration)
        if calibration is None:
            return self.plan_by(rule, measure=self.options.measure, is_counted=False)
        notices: tuple[str, ...] = ()
        if calibration.counts:
            reason = calibration.fallback or calibration.unweighed
            notices = (
                f"the rule {rule.name} decides as given, where the calibration advises "
                f"counting votes: {reason}",
            )
        return self.plan_by(
            rule,
            notices=notices,
            measure=calibration.measure,
            is_counted=False,
            calibration=calibration,
        )

    def _plan_by_calibration(self, calibration: Calibration) -> DecisionPlan:
        rule = calibration.rule(
            on_missing_confidence=self.on_missing_confidence,
            budget=self.options.max_samples,
        )
        measure = calibration.measure if rule.reads_scores else None
        # What is learned online tells its notices with each question.
        notices = calibration.notices() if self.online is None else ()
        return self.plan_by(
            rule,
            notices=notices,
            measure=measure,
            is_counted=measure is None,
            calibration=calibration,
        )

    def learning_with(self, learner: object, *, other_answers: bool = False) -> "Voter":
        """Return a copy that learns with another learner, if that learns of the same;
        else this voter.

        Args:
            learner: the other learner.
            other_answers: whether it may learn of other answers, which are other kinds
                of request.
        """
        if self.learner is None or type(self.learner) is not type(learner):
            return self
        assert isinstance(learner, MixtureCalibrator | ConsensusCalibrator)
        if not other_answers and self.learner.learns_of != learner.learns_of:
            return self
        return replace(self, learner=learner)

    def with_classes(self, classes: Mapping[str, type[Any]]) -> "Voter":
        """Return a copy that checks calls of tools by these classes, by name."""
        return replace(self, model=replace(self.model, classes=classes))

    def held_to(self, schema: Any) -> "Voter":
        """Return a copy whose objects are held to a schema, unless they have one."""
        return replace(self, extract=held_to_schema(self.extract, schema))

    def quiet(self) -> "Voter":
        """Return a copy whose samples are parts of one model call."""
        return replace(self, model=replace(self.model, quiet=True))

    def require_fit(
        self,
        calibration: Calibration,
        model: PreparedModel,
        messages: list[BaseMessage] | None = None,
        *,
        is_bound: bool = True,
    ) -> None:
        """Refuse a calibration that was measured on something else, as far as can be
        told.

        Args:
            calibration: the calibration.
            model: what is sampled.
            messages: the messages of a call.
            is_bound: whether all that the model is asked besides a question is known;
                else tools and the like are yet to come.
        """
        if self.options.allow_fingerprint_mismatch:
            return
        running = running_fingerprint(model, messages, **self.measured_on)
        if not is_bound:
            running = running.unbound()
        check_fingerprint(calibration.fingerprint, running)

    def require_confidence(self, model: PreparedModel) -> None:
        """Refuse a model that is known to give no logprobs, before anything is paid
        for.

        Raises:
            LogprobsUnavailable: confidence is needed.
        """
        if self.on_missing_confidence == "count":
            return
        measure = self.options.measure
        if self.learner is not None:
            measure = self.learner.measure
        elif self.calibration is not None:
            measure = self.calibration.measure
        if _is_stated(measure) or self.plan(self.calibration).is_counted:
            return
        raise LogprobsUnavailable(
            f"{model.no_logprobs}; or let it state its confidence "
            "(confidence='stated', calibrated so), or count votes with "
            "on_missing_confidence='count'"
        )

    def unknown_names(self, schemas: Schemas) -> list[str]:
        """Say what ``tool_votes`` names that none of the model's tools has; each is
        logged once.
        """
        votes = self.options.tool_votes
        texts = votes.unknown_names(schemas)
        for text in texts:
            warn_once(text, id(votes))
        return texts

    def _require_probability(self, below: float) -> None:
        """Refuse to abstain by a probability that no calibration gives."""
        plan = self.plan(self.calibration)
        if plan.tells_probability:
            return
        reason = "here is none that does"
        calibration = self.calibration
        if calibration is not None and calibration.p_correct is not None:
            rule = calibration.p_correct.rule
            reason = f"this one says it of {rule!r}, not of {plan.rule.name!r}"
        raise ConfigurationError(
            f"abstain_below={below:g} needs a calibration that says how likely an "
            "answer is right (p_correct) or that one further response agrees with it "
            f"(p_agree), and {reason}; calibrate() tells both, "
            "p_correct with right answers to 16 questions or more"
        )


def running_fingerprint(
    model: PreparedModel,
    messages: Sequence[BaseMessage] | None = None,
    *,
    prompt: FixedPrompt | None = None,
    answer: Any = None,
    tool_votes: ToolVotes | None = None,
) -> Fingerprint:
    """Return what a calibration measured on this model would hold for.

    Little is known of a model that is not a chat model, or that a call's config has yet
    to settle. The arguments are those of ``fingerprint_of``; ``tool_votes`` says how
    calls of tools are compared.
    """
    confidence = None
    if model.ask_confidence:
        asks = instruction(tools=bool(model.kwargs.get("tools")))
        confidence = confidence_part(asks)
    votes = None if tool_votes is None else votes_part(tool_votes)
    if not isinstance(model.model, BaseChatModel) or model.per_config is not None:
        return Fingerprint(ask_confidence=confidence, tool_votes=votes)
    fingerprint = fingerprint_of(
        model.model,
        kwargs=model.kwargs,
        messages=messages,
        prompt=prompt,
        answer=answer,
    )
    return fingerprint.model_copy(
        update={"ask_confidence": confidence, "tool_votes": votes}
    )


def _given_calibration(options: Options) -> Calibration | None:
    """Return the calibration that was given, or is in the file that was."""
    calibration = options.calibration
    if calibration is None or isinstance(calibration, Calibration):
        return calibration
    if isinstance(calibration, Online) or options.is_learning:
        return None
    return load_calibration(calibration)


def _counts_unscored(options: Options, calibration: Calibration | None) -> bool:
    """Return whether a response without confidence is a count, whatever the options
    say: ``on_missing_confidence`` is for the paper's rule.
    """
    if options.online is not None:
        return True
    if calibration is None or options.stopping_rule is not None:
        return False
    return calibration.by_agreement


def _check_combination(options: Options, measure: Measure | None) -> None:
    """Refuse options that contradict each other; ``measure`` is the one given, or that
    of the calibration.
    """
    rule = options.stopping_rule
    calibration = options.calibration
    is_learning = options.is_learning
    if rule is not None:
        _check_rule(rule, calibration if is_learning else None, measure)
    reads_scores = rule is not None and rule.reads_scores
    is_scored = is_learning or (calibration is None and reads_scores)
    if options.measure is not None and not is_scored:
        raise ConfigurationError(
            f"confidence={str(measure)!r} goes with calibration='online' or 'mixture', or "
            "with a rule that reads scores; a calibration brings its own, and else no "
            "confidence is read"
        )


def _check_rule(rule: StoppingRule, learning: object, measure: Measure | None) -> None:
    """Refuse a rule beside a calibration that is ``learning``, or whose scores nothing
    gives.
    """
    if learning is not None:
        raise ConfigurationError(
            f"calibration={learning!r} makes its rule of what it learns, and takes no "
            f"other: leave out the rule {rule.name}, or the calibration"
        )
    if rule.reads_scores and measure is None:
        raise ConfigurationError(
            f"the rule {rule.name} reads the scores of responses, and nothing says how "
            "they are scored: give it confidence=Measure(...), or a calibration that has "
            "a measure"
        )


def _reads_scores(
    options: Options,
    calibration: Calibration | None,
    measure: Measure | None,
    *,
    is_small: bool,
) -> bool:
    """Return whether responses are scored, so that logprobs are worth their price."""
    if is_small and calibration is not None and calibration.escalation is not None:
        escalation = calibration.escalation
        if escalation.rule:
            return escalation.rule_named(escalation.rule).reads_scores
    rule = options.stopping_rule
    if rule is None and calibration is not None:
        rule = calibration.rule(budget=options.max_samples)
    if rule is not None:
        return rule.reads_scores
    if not options.is_learning:
        return False
    # Two models learn from votes alone, unless a measure is given.
    return not is_small or measure is not None


def _reads_alternatives(options: Options, measure: Measure | None) -> bool:
    """Return whether a score is made of the logprobs of other tokens than the chosen
    ones, too.
    """
    if measure is not None:
        return measure.signal != "token_logprob"
    # What learns without a measure reads the chosen tokens.
    return options.online is None


def _prepared(
    options: Options,
    model: Runnable[LanguageModelInput, Any],
    measure: Measure | None,
    reads_scores: bool,
    on_missing: OnMissing,
    *,
    quiet: bool,
    alternatives: bool,
) -> tuple[PreparedModel, Measure | None]:
    """Return the model, asked for logprobs where they are read; and the measure, for a
    mixture one that the model gives.
    """
    is_mixture = options.calibration == "mixture"
    is_required = on_missing == "error"

    def prepare(*, logprobs: bool) -> PreparedModel:
        return prepare_model(
            model,
            logprobs=logprobs,
            alternatives=alternatives,
            required=is_required and reads_scores,
            quiet=quiet,
            ask_confidence=options.asks_confidence,
        )

    prepared = prepare(logprobs=reads_scores and not _is_stated(measure))
    if is_mixture and measure is None:
        measure = _default_measure(prepared)
        if _is_stated(measure):
            # Nothing reads the logprobs then.
            prepared = prepare(logprobs=False)
    if measure and is_required and (is_mixture or options.measure):
        _require_signal(measure, prepared)
    return prepared, measure


def _learner(
    options: Options, measure: Measure | None, running: Fingerprint, *, quiet: bool
) -> VoterLearner | None:
    """Return what learns; None if nothing does."""
    if options.calibration == "mixture":
        return MixtureCalibrator(measure=measure or Measure(), fingerprint=running)
    online = options.online
    if online is None:
        return None
    return ConsensusCalibrator(
        measure=options.measure,
        budget=options.max_samples,
        fingerprint=running.unbound() if quiet else running,
        path=online.path,
        any_model=options.allow_fingerprint_mismatch,
    )


def _require_signal(measure: Measure, model: PreparedModel) -> None:
    """Refuse a measure of a signal that the model is known not to give."""
    if _is_stated(measure):
        return
    if model.signals is not None and measure.signal not in model.signals:
        raise ConfigurationError(
            f"the measure {measure} needs the signal {measure.signal!r}, which the "
            "model does not give (it gives: "
            f"{', '.join(model.signals) or 'none'}); name another measure, or with "
            "calibration='mixture' none"
        )


def _is_stated(measure: Measure | None) -> bool:
    """Return whether confidence is what the model states, and not read from its
    tokens.
    """
    return measure is not None and measure.signal == VERBALIZED


def _default_measure(model: PreparedModel) -> Measure:
    """Return the paper's measure, or the same score of the first signal that the model
    gives; else what the model states.
    """
    paper = Measure()
    has_no_signal = model.no_logprobs or model.not_requested or model.signals == ()
    if model.ask_confidence and has_no_signal:
        return Measure(VERBALIZED, "mean")
    if not model.signals or paper.signal in model.signals:
        return paper
    return Measure(model.signals[0], paper.score, paper.window)

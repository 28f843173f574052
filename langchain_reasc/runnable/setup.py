"""Prepare the options of a call: the model, the rule, and the check of the
calibration's fingerprint.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from langchain_reasc.answers import Extractor, Schemas, ToolVotes, extractor
from langchain_reasc.calibration import (
    Calibration,
    ConsensusCalibrator,
    EscalationLearner,
    MixtureCalibrator,
    load_calibration,
)
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import StoppingRule
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
from langchain_reasc.runnable.escalation import Large
from langchain_reasc.runnable.plan import Plan, make_plan
from langchain_reasc.threads import import_deferred, in_event_loop

if TYPE_CHECKING:
    from langchain_reasc.runnable.options import Options

LEARNING: Final = ("online", "mixture")
"""Values of ``calibration`` that learn from what is answered."""
OnMissing = Literal["error", "count"]
_KEPT: Final = 64  # plans: each kind of request may have a calibration of its own
_PREPARING: Final = threading.Lock()
if hasattr(
    os, "register_at_fork"
):  # or it would stay locked in a child that is forked meanwhile
    os.register_at_fork(
        before=_PREPARING.acquire,
        after_in_parent=_PREPARING.release,
        after_in_child=_PREPARING.release,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Options, checked and prepared once; a question that is being answered keeps the
    setup it began with.

    Attributes:
        options: a copy of the options.
        model: what is sampled.
        extract: finds the answer in a response.
        on_missing_confidence: what is done with a response without confidence; learning
            online needs none.
        calibration: what scores mean; None where there is none, or it is learned.
        learner: learns a calibration from what is answered; None if nothing is learned,
            or the large model has the learner.
        large: the large model that contested questions go to; None without one.
        prepared: whether :meth:`prepare` has been called.
    """

    options: "Options"
    model: PreparedModel
    extract: Extractor
    on_missing_confidence: OnMissing
    calibration: Calibration | None = None
    learner: MixtureCalibrator | ConsensusCalibrator | None = None
    large: Large | None = None
    prepared: threading.Event = field(default_factory=threading.Event)
    _plans: dict[int, Plan] = field(default_factory=dict, init=False)

    @classmethod
    def from_options(
        cls,
        options: "Options",
        model: Runnable[LanguageModelInput, Any],
        larger: Runnable[LanguageModelInput, Any] | None = None,
        *,
        quiet: bool,
    ) -> "Setup":
        """Check the options against each other and against the model, before anything
        is paid for.

        Args:
            options: the options.
            model: the model they name.
            larger: the larger model they name, if any.
            quiet: whether samples are parts of one model call, see
                :mod:`langchain_reasc.sampling.tracing`.

        Raises:
            ReASCError: as the constructor of :class:`~langchain_reasc.ReASCRunnable`.
        """
        known, learning = options.calibration, options.calibration in LEARNING
        if known is not None and not isinstance(known, Calibration):
            known = None if learning else load_calibration(known)
        measure = options.measure or (known.measure if known else None)
        _check_combination(options, measure)
        on_missing = (
            "count"
            if options.calibration == "online"
            else options.on_missing_confidence
        )
        prepared, measure = _prepared(
            options, model, known, measure, on_missing, quiet=quiet
        )
        setup = cls(
            options=options,
            model=prepared,
            extract=extractor(options.answer),
            on_missing_confidence=on_missing,
            calibration=known,
        )
        if learning or options.fixed_prompt is not None:
            running = setup.fingerprint  # which fails where the prompt is none
            if larger is None:
                setup = replace(
                    setup, learner=_learner(options, measure, running, quiet=quiet)
                )
        if larger is not None:
            setup = replace(
                setup, large=Large.from_options(options, setup, larger, quiet=quiet)
            )
        if known:  # a chat model is bound to tools once it is made
            setup.require_fit(known, prepared, bound=not quiet)
        if prepared.no_logprobs:
            setup.require_confidence(prepared)
        if options.abstain_below is not None:
            setup._require_probability(options.abstain_below)
        if prepared.schemas:
            setup.unknown_names(prepared.schemas)
        if not in_event_loop():  # else a thread of the first call does it
            setup.prepare()
        return setup

    def prepare(self) -> None:
        """Import and work out what the first decision needs; what is learned later is
        prepared where it is learned.
        """
        with _PREPARING:  # of all setups, which need much the same
            if not self.prepared.is_set():
                import_deferred()
                if not self.extract.blocks:
                    self.extract("The answer is 5.")  # compiles its patterns
                self.plan(None if self.large else self.learned).rule.prepare()
                self.prepared.set()

    @property
    def fingerprint(self) -> Fingerprint:
        """What a calibration that is learned here holds for."""
        return running_fingerprint(self.model, **self.measured_on)

    @property
    def measured_on(self) -> dict[str, Any]:
        """The options that a calibration holds for."""
        options = self.options
        return {
            "prompt": options.fixed_prompt,
            "answer": options.answer,
            "tool_votes": options.tool_votes,
        }

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
        if self.large and self.large.learner:
            return self.large.learner.calibration
        return self.learner.calibration if self.learner else self.calibration

    def plan(self, calibration: Calibration | None) -> Plan:
        """Return the plan under a calibration, which is made once for each."""
        plan = self._plans.get(id(calibration))
        if plan is None or plan.calibration is not calibration:
            if len(self._plans) >= _KEPT:
                self._plans.clear()
            plan = self._plans[id(calibration)] = make_plan(self, calibration)
        return plan

    def learning_with(
        self,
        known: MixtureCalibrator | ConsensusCalibrator | EscalationLearner,
        *,
        other_answers: bool = False,
    ) -> "Setup":
        """Return a copy that learns with another calibrator, if that learns of the
        same; else itself.

        Args:
            known: the other calibrator.
            other_answers: whether it may learn of other answers, which are other kinds
                of request.
        """
        own = self.large.learner if self.large else self.learner
        if (
            own is None
            or type(own) is not type(known)
            or not (other_answers or own.learns_of == known.learns_of)
        ):
            return self
        if isinstance(known, EscalationLearner):
            return replace(
                self, large=self.large and replace(self.large, learner=known)
            )
        return replace(self, learner=known)

    def with_answers(
        self,
        extract: Extractor | None = None,
        classes: Mapping[str, type[Any]] | None = None,
    ) -> "Setup":
        """Return a copy, the large model's too, that reads answers in another way.

        Args:
            extract: finds the answer in a response; None for the same.
            classes: the classes of the tools by name; None for the same.
        """
        model = self.model if classes is None else replace(self.model, classes=classes)
        large = self.large and replace(
            self.large, setup=self.large.setup.with_answers(extract, classes)
        )
        return replace(self, extract=extract or self.extract, model=model, large=large)

    def require_fit(
        self,
        calibration: Calibration,
        model: PreparedModel,
        messages: list[BaseMessage] | None = None,
        *,
        bound: bool = True,
    ) -> None:
        """Refuse a calibration that was measured on something else, as far as can be
        told.

        Args:
            calibration: the calibration.
            model: what is sampled.
            messages: the messages of a call.
            bound: whether all that it is asked besides a question is known; else tools
                and the like are yet to come.
        """
        options = self.options
        if not options.allow_fingerprint_mismatch:
            running = running_fingerprint(model, messages, **self.measured_on)
            check_fingerprint(
                calibration.fingerprint, running if bound else running.unbound()
            )

    def require_confidence(self, model: PreparedModel) -> None:
        """Refuse a model that is known to give no logprobs, before anything is paid
        for.

        Raises:
            LogprobsUnavailable: confidence is needed.
        """
        if self.on_missing_confidence == "count":
            return
        known = self.learner or self.calibration
        if not (
            _is_stated(known.measure if known else self.options.measure)
            or self.plan(self.calibration).counted
        ):
            raise LogprobsUnavailable(
                f"{model.no_logprobs}; or let it state its confidence "
                "(ask_confidence=True, calibrated so), or count votes with "
                "on_missing_confidence='count'"
            )

    def unknown_names(self, schemas: Schemas) -> list[str]:
        """Say what ``tool_votes`` names that none of the model's tools has; each is
        logged once.
        """
        votes = self.options.tool_votes
        found = votes.unknown_names(schemas)
        for text in found:
            warn_once(text, id(votes))
        return found

    def _require_probability(self, below: float) -> None:
        """Refuse to abstain by a probability that no calibration gives."""
        plan, calibration = self.plan(self.calibration), self.calibration
        if plan.probability_curves():
            return
        known = calibration and (calibration.p_correct or calibration.p_agree)
        why = (
            f"this one says it of {known.rule!r}, not of {plan.rule.name!r}"
            if known
            else "here is none that does"
        )
        raise ConfigurationError(
            f"abstain_below={below:g} needs a calibration that says how likely an "
            "answer is right (p_correct) or that further responses agree with it "
            f"(p_agree), and {why}; calibrate() tells both, p_correct with right "
            "answers to 16 questions or more"
        )


def running_fingerprint(
    model: PreparedModel,
    messages: Sequence[BaseMessage] | None = None,
    *,
    prompt: FixedPrompt | None = None,
    answer: Any = None,
    tool_votes: ToolVotes | None = None,
) -> Fingerprint:
    """Return what a calibration measured on this model would hold for, with the
    arguments of ``fingerprint_of``.

    ``tool_votes`` says how calls of tools are compared.

    Little is known of a model that is not a chat model, or that a call's config has yet
    to settle.
    """
    asks = (
        confidence_part(instruction(tools=bool(model.kwargs.get("tools"))))
        if model.ask_confidence
        else None
    )
    votes = None if tool_votes is None else votes_part(tool_votes)
    if not isinstance(model.model, BaseChatModel) or model.per_config is not None:
        return Fingerprint(ask_confidence=asks, tool_votes=votes)
    own = fingerprint_of(
        model.model,
        kwargs=model.kwargs,
        messages=messages,
        prompt=prompt,
        answer=answer,
    )
    return own.model_copy(update={"ask_confidence": asks, "tool_votes": votes})


def _check_combination(options: "Options", measure: Measure | None) -> None:
    """Refuse options that contradict each other; ``measure`` is the one given, or that
    of the calibration.
    """
    rule, calibration = options.stopping_rule, options.calibration
    learning = calibration in LEARNING
    if rule is not None:
        _check_rule(rule, calibration if learning else None, measure)
    scored = rule is not None and rule.reads_scores
    if (
        options.measure is not None
        and not learning
        and (calibration is not None or not scored)
    ):
        raise ConfigurationError(
            f"measure={str(measure)!r} goes with calibration='online' or 'mixture', or "
            "with a rule that reads scores; a calibration brings its own, and else no "
            "confidence is read"
        )
    if options.online_state is not None and calibration != "online":
        raise ConfigurationError(
            f"online_state={str(options.online_state)!r} goes with calibration='online'"
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
            "they are scored: give it measure=Measure(...), or a calibration that has "
            "a measure"
        )


def _prepared(
    options: "Options",
    model: Runnable[LanguageModelInput, Any],
    known: Calibration | None,
    measure: Measure | None,
    on_missing: OnMissing,
    *,
    quiet: bool,
) -> tuple[PreparedModel, Measure | None]:
    """Return the model, asked for logprobs where they are read; and the measure, for a
    mixture one that it gives.
    """
    mixture, counted = options.calibration == "mixture", on_missing == "count"
    rule = options.stopping_rule or (
        known.rule(budget=options.max_samples) if known else None
    )
    if (
        known
        and known.escalation
        and known.escalation.rule
        and options.escalate_to is not None
    ):
        rule = known.escalation.rule_named(known.escalation.rule)
    learns = options.calibration in LEARNING and (
        options.escalate_to is None or measure is not None
    )
    reads = learns if rule is None else rule.reads_scores
    asking: dict[str, Any] = {
        "required": not counted and reads,
        "quiet": quiet,
        "ask_confidence": options.ask_confidence,
    }
    prepared = prepare_model(
        model, logprobs=reads and not _is_stated(measure), **asking
    )
    if mixture and measure is None:
        measure = _default_measure(prepared)
        if _is_stated(measure):
            prepared = prepare_model(model, **asking)
    if measure and not counted and (mixture or options.measure):
        _require_signal(measure, prepared)
    return prepared, measure


def _learner(
    options: "Options", measure: Measure | None, running: Fingerprint, *, quiet: bool
) -> MixtureCalibrator | ConsensusCalibrator | None:
    """Return what learns; None if nothing does."""
    if options.calibration == "mixture":
        return MixtureCalibrator(measure=measure or Measure(), fingerprint=running)
    if options.calibration == "online":
        return ConsensusCalibrator(
            measure=options.measure,
            budget=options.max_samples,
            fingerprint=running.unbound() if quiet else running,
            path=None if options.online_state is None else Path(options.online_state),
            any_model=options.allow_fingerprint_mismatch,
        )
    return None


def _require_signal(measure: Measure, model: PreparedModel) -> None:
    """Refuse a measure of a signal that the model is known not to give."""
    if _is_stated(measure):
        if not model.ask_confidence:
            raise ConfigurationError(
                f"the measure {measure} needs a model that is asked: "
                "ask_confidence=True"
            )
    elif model.signals is not None and measure.signal not in model.signals:
        raise ConfigurationError(
            f"the measure {measure} needs the signal {measure.signal!r}, which the "
            f"model does not give (it gives: {', '.join(model.signals) or 'none'}); "
            "name another measure, or with calibration='mixture' none"
        )


def _is_stated(measure: Measure | None) -> bool:
    """Return whether confidence is what the model states, and not read from its tokens."""
    return measure is not None and measure.signal == VERBALIZED


def _default_measure(model: PreparedModel) -> Measure:
    """Return the paper's measure, or the same score of the first signal that the model
    gives; else what it states.
    """
    paper = Measure()
    if model.ask_confidence and (
        model.no_logprobs or model.not_requested or model.signals == ()
    ):
        return Measure(VERBALIZED, "mean")
    if not model.signals or paper.signal in model.signals:
        return paper
    return Measure(model.signals[0], paper.score, paper.window)

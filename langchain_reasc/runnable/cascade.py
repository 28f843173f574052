"""A small model before a large one: the two models, what their tokens cost, and what is
known of the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_reasc.calibration import (
    DEFAULT_RACE,
    Calibration,
    Course,
    EscalationLearner,
    LearnedEscalation,
)
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Cap, StoppingRule
from langchain_reasc.models.fingerprint import check_fingerprint
from langchain_reasc.models.settings import without_cache_marks
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.history import Role
from langchain_reasc.runnable.options import Escalation, Online, Options, Prices
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.voter import Voter
from langchain_reasc.threads import in_event_loop

ASKED_ONCE: Final[Mapping[str, Any]] = {
    "escalate_to": None,
    "rule": Cap(1),
    "max_samples": 1,
    "calibration": None,
    "confidence": None,
    "fixed_prompt": None,
    "abstain_below": None,
    "on_undecided": "answer",
    "min_share": 0.0,
}
"""The options of a large model that is asked once, where they differ from those of the
small one.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class LargeModel:
    """How the large model is asked.

    Attributes:
        voter: asks it once, or votes, if a ReASC model was given.
        is_asked_once: which of these.
        arguments: the arguments of its calls that were bound to it.
        config: the config that was bound to it.
    """

    voter: Voter
    is_asked_once: bool
    arguments: Mapping[str, Any]
    config: RunnableConfig

    @classmethod
    def asked_once(
        cls, options: Options, model: Runnable[LanguageModelInput, Any], *, quiet: bool
    ) -> "LargeModel":
        """Prepare a chat model that is asked once, with the options of the small one.

        Raises:
            ReASCError: the model cannot be sampled.
        """
        fields = {name: getattr(options, name) for name in Options.model_fields}
        fields |= ASKED_ONCE
        fields["model"] = model
        voter = Voter.from_options(Options(**fields), model, quiet=quiet)
        voter.check(quiet=quiet)
        return cls(voter=voter, is_asked_once=True, arguments={}, config={})


@dataclass(frozen=True, kw_only=True, eq=False)
class Cascade:
    """A small model, the large one behind it, and what is known of the two.

    Attributes:
        small: the small model.
        large: the large model.
        prices: of a million prompt tokens and a million generated tokens, of the small
            and of the large model.
        learner: what learns from questions that both models are asked; None if nothing
            is learned.
        escalation: what a calibration says of the two; None without one.
    """

    small: Voter
    large: LargeModel
    prices: Prices
    learner: EscalationLearner | None = None
    escalation: LearnedEscalation | None = None

    @classmethod
    def from_options(
        cls, options: Options, small: Voter, large: LargeModel
    ) -> "Cascade":
        """Put a small model before a large one.

        Raises:
            ConfigurationError: an option contradicts ``escalate_to``.
            FingerprintMismatch: the calibration was made with another large model.
        """
        escalation = options.escalation
        assert escalation is not None
        _check_options(options, small)
        calibration = small.calibration
        learner = None
        learned = None
        if calibration and calibration.escalation and options.rule is None:
            learned = calibration.escalation
            _check_promise(learned, escalation)
            _check_large_model(calibration, options, large.voter)
        elif options.online is not None:
            learner = _learner(
                options, options.online, escalation.promise, small, large.voter
            )
        return cls(
            small=small,
            large=large,
            prices=escalation.token_prices,
            learner=learner,
            escalation=learned,
        )

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use."""
        if self.learner is not None:
            return self.learner.calibration
        return self.small.calibration

    @property
    def measure(self) -> Measure | None:
        """How the first response of the small model is scored; None if no rule reads
        that.
        """
        if self.learner is not None:
            return self.learner.measure
        calibration = self.small.calibration
        if self.escalation is None or calibration is None or not self.escalation.scored:
            return None
        return calibration.measure

    def learning_with(
        self, learner: object, *, other_answers: bool = False
    ) -> "Cascade":
        """Return a copy that learns with another learner, if that learns of the same;
        else this one. See :meth:`Voter.learning_with`.
        """
        if self.learner is None or not isinstance(learner, EscalationLearner):
            return self
        if not other_answers and self.learner.learns_of != learner.learns_of:
            return self
        return replace(self, learner=learner)

    def with_classes(self, classes: Mapping[str, type[Any]]) -> "Cascade":
        """Return a copy whose models check calls of tools by these classes, by name."""
        large = replace(self.large, voter=self.large.voter.with_classes(classes))
        return replace(self, small=self.small.with_classes(classes), large=large)

    def held_to(self, schema: Any) -> "Cascade":
        """Return a copy whose models are held to a schema, unless they have one."""
        large = replace(self.large, voter=self.large.voter.held_to(schema))
        return replace(self, small=self.small.held_to(schema), large=large)

    def plan_by(self, rule: StoppingRule) -> DecisionPlan:
        """Return the plan by which the small model is asked, by a rule that was learned
        or is tested.
        """
        is_counted = self.measure is None
        return self.small.plan_by(rule, measure=self.measure, is_counted=is_counted)

    def course(self, kind: str) -> Course | None:
        """Return how the next question of a kind is answered; None if no rule was
        learned, and the plan decides.
        """
        if self.learner is not None:
            return self.learner.course(kind, self.small.options.audit)
        if self.escalation is None:
            return None
        rule = None
        if self.escalation.rule is not None:
            rule = self.escalation.rule_named(self.escalation.rule)
        return Course(rule, learned=self.escalation)

    def request_to_large(
        self, request: Request, arguments: Mapping[str, Any] | None = None
    ) -> Request:
        """Return a request as it is put to the large model, in what is left of the
        time.

        Args:
            request: what is asked of the small model.
            arguments: the arguments of the call, which are passed to the large model as
                far as it understands them; None for those of the request.
        """
        if arguments is None:
            arguments = request.arguments
        config = request.config
        if self.large.config:
            config = merge_configs(self.large.config, config)
        model = self.large.voter.model.resolved(config)
        # Arguments of one provider mean nothing to another.
        settings = request.model.settings_for(model, arguments)
        messages = request.history
        if not request.model.shares_client_with(model):
            messages = without_cache_marks(messages)
        large = Request(
            self.large.voter,
            messages,
            config,
            {**self.large.arguments, **settings},
            io=request.io,
            cutoff=request.cutoff,
            role="large",
        )
        # Both models share the time of the question.
        large.clock = request.clock
        return large

    def cost(self, usage: UsageMetadata, role: Role) -> float:
        """Return what tokens cost: in dollars, or in tokens of the small model if only
        the ratio of prices is known.
        """
        prompt, generated = self.prices[role == "large"]
        dollars = usage["input_tokens"] * prompt + usage["output_tokens"] * generated
        return dollars / 1e6


Solver = Voter | Cascade
"""What answers questions: one model, or two."""


def voter_of(solver: Solver) -> Voter:
    """Return the only model, or the small one."""
    return solver.small if isinstance(solver, Cascade) else solver


def _check_options(options: Options, small: Voter) -> None:
    """Refuse options that contradict ``escalate_to``."""
    if options.calibration == "mixture":
        raise ConfigurationError(
            "calibration='mixture' decides by the first responses to a whole batch, "
            "and escalate_to question by question; use calibration='online', or leave "
            "out one of the two"
        )
    calibration = small.calibration
    is_by_votes = options.rule is None and (
        calibration is None or calibration.escalation is not None
    )
    if is_by_votes and options.max_samples < DEFAULT_RACE.votes:
        raise ConfigurationError(
            f"max_samples={options.max_samples} leaves no room for the "
            f"{DEFAULT_RACE.votes} equal votes by which an answer stands with "
            "escalate_to; allow more, or give a rule"
        )


def _check_promise(learned: LearnedEscalation, escalation: Escalation) -> None:
    """Refuse a calibration that promises less than is asked."""
    if escalation.within is not None and escalation.within < learned.within:
        raise ConfigurationError(
            f"within={escalation.within:g} is less than the calibration promises "
            f"({learned.within:g}); calibrate again with this value, or leave it out"
        )


def _check_large_model(
    calibration: Calibration, options: Options, large: Voter
) -> None:
    """Refuse a calibration that was made with another large model."""
    if calibration.large is None or options.allow_fingerprint_mismatch:
        return
    try:
        check_fingerprint(calibration.large, large.fingerprint.unbound())
    except FingerprintMismatch as error:
        raise FingerprintMismatch(f"the large model (escalate_to): {error}") from None


def _learner(
    options: Options, online: Online, within: float, small: Voter, large: Voter
) -> EscalationLearner:
    """Return what learns from both models."""
    learner = EscalationLearner(
        within=within,
        measure=options.measure,
        fingerprint=small.fingerprint.unbound(),
        large=large.fingerprint.unbound(),
        path=online.path,
        any_model=options.allow_fingerprint_mismatch,
    )
    if not in_event_loop():
        # A file that cannot be used is refused at once, or else by the first call.
        learner.learned("")
    return learner

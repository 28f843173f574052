"""What follows from the options: the model, made ready to be sampled, the rule, and what a calibration must fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from langchain_reasc.answers import Extractor, extractor
from langchain_reasc.calibration import (
    Calibration,
    ConsensusCalibrator,
    Fingerprint,
    MixtureCalibrator,
    SupportCurve,
    check_fingerprint,
    load_calibration,
)
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import ASC, DEFAULT_CONFIDENCE, Decision, StoppingRule
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.threads import import_deferred, in_event_loop

if TYPE_CHECKING:
    from langchain_reasc.runnable.options import Options

__all__ = ["LEARNING", "Setup", "probability_curves"]

LEARNING: Final = ("online", "mixture")
"""Values of ``calibration`` that learn from what is answered."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Options, checked and prepared once; a question that is being answered keeps the setup it began with.

    Attributes:
        options: a copy of the options.
        model: what is sampled.
        extract: finds the answer in a response.
        calibration: what scores mean; None where there is none, or it is learned.
        mixture: learns a calibration from first responses alone, in a batch from all of them before any decision.
        online: learns a calibration from every question that is answered. Where neither is set, nothing is learned.
    """

    options: "Options"
    model: PreparedModel
    extract: Extractor
    calibration: Calibration | None
    mixture: MixtureCalibrator | None
    online: ConsensusCalibrator | None

    @classmethod
    def of(cls, options: "Options", model: Runnable[LanguageModelInput, Any], *, quiet: bool) -> "Setup":
        """Check the options against each other and against the model, before anything is paid for.

        Args:
            options: the options.
            model: the model they name.
            quiet: whether samples are parts of one model call, see :mod:`langchain_reasc.sampling.tracing`.

        Raises:
            ConfigurationError: options that contradict each other, or the model.
            CalibrationFileError: the calibration's file cannot be read.
            FingerprintMismatch: the calibration was measured on something else.
            LogprobsUnavailable: the model is known to give no confidence where one is needed.
        """
        known = _known_calibration(options)
        measure = options.measure or (known.measure if known else None)
        _check_combination(options, measure)
        prepared, measure = _prepared(options, model, known, measure, quiet=quiet)
        running = prepared.fingerprint(prompt=options.fixed_prompt, answer=options.answer)
        setup = cls(
            options=options,
            model=prepared,
            extract=extractor(options.answer),
            calibration=known,
            mixture=_mixture(options, measure, running),
            online=_online(options, running.unbound() if quiet else running),
        )
        setup.require_fit(prepared, bound=not quiet)  # a chat model is bound to tools once it is made
        setup.require_confidence(prepared)
        if options.abstain_below is not None:
            setup._require_probability(options.abstain_below)
        setup.misnamed(prepared)
        if not in_event_loop():  # else a thread of the first call does it
            import_deferred()
        return setup

    @property
    def fingerprint(self) -> Fingerprint:
        """What a calibration that is learned here holds for."""
        return self.model.fingerprint(prompt=self.options.fixed_prompt, answer=self.options.answer)

    @property
    def calibrator(self) -> MixtureCalibrator | ConsensusCalibrator | None:
        """What learns; None where nothing is learned."""
        return self.mixture or self.online

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use."""
        return self.calibrator.calibration if self.calibrator else self.calibration

    @property
    def on_missing_confidence(self) -> Literal["error", "count"]:
        """What is done with a response without confidence; learning online needs none."""
        return "count" if self.online else self.options.on_missing_confidence

    def counts_votes(self, calibration: Calibration | None) -> bool:
        """Whether votes are counted, whatever the confidence, and go on being counted."""
        if self.options.rule is not None:
            return not self.options.rule.reads_scores
        if self.calibrator is None and self.calibration is None:
            return True
        return bool(calibration and (calibration.measure is None or calibration.counts(self.options.safeguard)))

    def measure(self, calibration: Calibration | None) -> Measure | None:
        """How responses are scored while this calibration is in use; None where nothing reads their scores."""
        rule = self.options.rule
        if rule is not None and not rule.reads_scores:
            return None
        if calibration:
            return calibration.measure
        if self.mixture:
            return self.mixture.measure
        return self.options.measure if rule else None

    def rule(self, calibration: Calibration | None) -> tuple[StoppingRule, tuple[str, ...]]:
        """The rule that decides under a calibration, and what the caller should know of it."""
        options, safeguard = self.options, self.options.safeguard
        if (rule := options.rule) is not None:
            if not (calibration and rule.reads_scores and calibration.counts(safeguard)):
                return rule, ()
            why = calibration.fallback or calibration.unweighed
            return rule, (
                f"the rule {rule.name} decides as given, where the calibration advises counting votes: {why}",
            )
        confidence = options.confidence or DEFAULT_CONFIDENCE
        if calibration is not None:
            rule = calibration.rule(
                confidence=confidence,
                on_missing_confidence=self.on_missing_confidence,
                budget=options.max_samples,
                **({} if self.online else {"safeguard": safeguard}),
            )
            return rule, (self.online.notice(calibration),) if self.online else calibration.notices(safeguard)
        if self.online:
            return ASC(confidence), (self.online.notice(None),)
        if self.mixture:
            return ASC(confidence), ("the calibration by mixture has seen too few responses yet: counting votes (ASC)",)
        if options.confidence is not None:
            return ASC(confidence), ("no calibration: counting votes (ASC)",)
        return FiniteHorizon(budget=options.max_samples), ("no calibration: counting votes (finite horizon)",)

    def guarantee(self, calibration: Calibration | None, decision: Decision) -> str | None:
        """What a calibration promises of a decision, in words, where its own rule decides."""
        safeguard = self.options.safeguard
        if calibration is None or self.options.rule is not None or calibration.counts(safeguard):
            return None
        return calibration.gate_promise(safeguard) if decision.reason == "gate" else calibration.guarantee

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
        options = self.options
        if self.calibration and not options.allow_fingerprint_mismatch:
            running = model.fingerprint(messages, prompt=options.fixed_prompt, answer=options.answer)
            check_fingerprint(self.calibration, running if bound else running.unbound())

    def require_confidence(self, model: PreparedModel) -> None:
        """Refuse a model that is known to give no confidence, before anything is paid for.

        Raises:
            LogprobsUnavailable: confidence is needed.
        """
        known = self.calibrator or self.calibration
        if _is_stated(known.measure if known else self.options.measure) or self.on_missing_confidence == "count":
            return
        if model.no_logprobs and not self.counts_votes(self.calibration):
            raise LogprobsUnavailable(
                f"{model.no_logprobs}; or let it state its confidence (ask_confidence=True, calibrated so), or count "
                "votes with on_missing_confidence='count'"
            )

    def misnamed(self, model: PreparedModel) -> list[str]:
        """Say what ``tool_votes`` names that none of the model's tools has; each is logged once."""
        votes, schemas = self.options.tool_votes, model.schemas
        found = votes.misnamed(schemas) if schemas else []
        for text in found:
            warn_once(text, id(votes))
        return found

    def _require_probability(self, below: float) -> None:
        """Refuse to abstain by a probability that no calibration gives."""
        calibration = self.calibration
        rule, _ = self.rule(calibration)
        if probability_curves(calibration, rule):
            return
        known = calibration and (calibration.p_correct or calibration.p_agree)
        why = f"this one says it of {known.rule!r}, not of {rule.name!r}" if known else "here is none that does"
        raise ConfigurationError(
            f"abstain_below={below:g} needs a calibration that says how likely an answer is right (p_correct) or that "
            f"further responses agree with it (p_agree), and {why}; calibrate() with several samples of each labelled "
            "question tells p_correct, calibrate_unlabelled() tells p_agree"
        )


def probability_curves(calibration: Calibration | None, rule: StoppingRule) -> Mapping[str, SupportCurve]:
    """``p_correct`` or ``p_agree`` -> what a calibration says of the answers of this rule, where it does."""
    known = {"p_correct": calibration.p_correct, "p_agree": calibration.p_agree} if calibration else {}
    return {name: curve for name, curve in known.items() if curve is not None and curve.holds_for(rule.name)}


def _known_calibration(options: "Options") -> Calibration | None:
    given = options.calibration
    if isinstance(given, Calibration):
        return given
    return None if given is None or given in LEARNING else load_calibration(given)


def _check_combination(options: "Options", measure: Measure | None) -> None:
    """Refuse options that contradict each other; ``measure`` is the one given, or that of the calibration."""
    rule, calibration = options.rule, options.calibration
    scored = rule is not None and rule.reads_scores
    if rule is not None and calibration in LEARNING:
        raise ConfigurationError(
            f"calibration={calibration!r} makes its rule of what it learns, and takes no other: leave out the rule "
            f"{rule.name}, or the calibration"
        )
    if options.measure is not None and calibration not in LEARNING and (calibration is not None or not scored):
        raise ConfigurationError(
            f"measure={str(measure)!r} goes with calibration='online' or 'mixture', or with a rule that reads scores; "
            "a calibration brings its own, and else no confidence is read"
        )
    if options.online_state is not None and calibration != "online":
        raise ConfigurationError(f"online_state={str(options.online_state)!r} goes with calibration='online'")
    if rule is not None and scored and measure is None:
        raise ConfigurationError(
            f"the rule {rule.name} reads the scores of responses, and nothing says how they are scored: give it "
            "measure=Measure(...), or a calibration that has a measure"
        )


def _prepared(
    options: "Options",
    model: Runnable[LanguageModelInput, Any],
    known: Calibration | None,
    measure: Measure | None,
    *,
    quiet: bool,
) -> tuple[PreparedModel, Measure | None]:
    """The model, asked for logprobs where they are read; and the measure, for ``"mixture"`` one that it gives."""
    if options.rule is not None:
        reads = options.rule.reads_scores
    else:
        reads = options.calibration in LEARNING or measure is not None
    counted = options.on_missing_confidence == "count" or options.calibration == "online"
    asking: dict[str, Any] = {
        "required": not (counted or bool(known and known.counts(options.safeguard))),
        "quiet": quiet,
        "ask_confidence": options.ask_confidence,
    }
    prepared = PreparedModel.of(model, logprobs=reads and not _is_stated(measure), **asking)
    if options.calibration == "mixture" and measure is None:
        measure = _default_measure(prepared)
        if _is_stated(measure):
            prepared = PreparedModel.of(model, **asking)
    if measure and (options.calibration == "mixture" or (options.measure and options.calibration != "online")):
        _require_signal(measure, prepared, counted=options.on_missing_confidence == "count")
    return prepared, measure


def _mixture(options: "Options", measure: Measure | None, running: Fingerprint) -> MixtureCalibrator | None:
    """The calibrator that was given, where it fits, or a new one; None where no mixture is learned."""
    given, measure = options.calibrator, measure or Measure()
    if options.calibration != "mixture":
        return None
    if isinstance(given, ConsensusCalibrator):
        raise ConfigurationError("a ConsensusCalibrator goes with calibration='online'")
    if given is not None and given.goes_with(measure, running):
        return given
    return MixtureCalibrator(measure=measure, fingerprint=running)


def _online(options: "Options", running: Fingerprint) -> ConsensusCalibrator | None:
    given = options.calibrator
    if options.calibration != "online":
        return None
    if isinstance(given, MixtureCalibrator):
        raise ConfigurationError("a MixtureCalibrator goes with calibration='mixture'")
    if given is not None and given.goes_with(options.measure, running, options.online_state):
        return given
    return ConsensusCalibrator(
        measure=options.measure,
        budget=options.max_samples,
        fingerprint=running,
        path=options.online_state,
        any_model=options.allow_fingerprint_mismatch,
    )


def _require_signal(measure: Measure, model: PreparedModel, *, counted: bool) -> None:
    """Refuse a measure of a signal that the model is known not to give, unless such responses are counted."""
    if counted:
        return
    if _is_stated(measure):
        if not model.ask_confidence:
            raise ConfigurationError(f"the measure {measure} needs a model that is asked: ask_confidence=True")
    elif model.signals is not None and measure.signal not in model.signals:
        raise ConfigurationError(
            f"the measure {measure} needs the signal {measure.signal!r}, which the model does not give (it gives: "
            f"{', '.join(model.signals) or 'none'}); name another measure, or with calibration='mixture' none"
        )


def _is_stated(measure: Measure | None) -> bool:
    """Whether confidence is what the model states, and not read from its tokens."""
    return measure is not None and measure.signal == VERBALIZED


def _default_measure(model: PreparedModel) -> Measure:
    """The paper's measure, or the same score of the first signal that the model gives; else what it states."""
    paper = Measure()
    if model.ask_confidence and (model.no_logprobs or model.not_requested or model.signals == ()):
        return Measure(VERBALIZED, "mean")
    if not model.signals or paper.signal in model.signals:
        return paper
    return Measure(model.signals[0], paper.score, paper.window)

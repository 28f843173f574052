"""Prepare the options of a call: the model, the rule, and the check of the calibration's fingerprint."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel, PrivateAttr, model_validator

from langchain_reasc.answers import Extractor, Schemas, extractor
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
from langchain_reasc.method.agreement import LARGEST_HORIZON
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import ASC, DEFAULT_CONFIDENCE, StoppingRule
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.prepared import PreparedModel, model_of
from langchain_reasc.models.wrappers import leaves
from langchain_reasc.runnable.options import Options
from langchain_reasc.threads import import_deferred, in_event_loop

__all__ = ["LEARNING", "PreparedOptions", "Setup", "Terms", "probability_curves"]

LEARNING: Final = ("online", "mixture")
"""Values of ``calibration`` that learn from what is answered."""
OnMissing = Literal["error", "count"]
_PREPARING: Final = threading.Lock()
if hasattr(os, "register_at_fork"):  # or it would stay locked in a child that is forked meanwhile
    os.register_at_fork(
        before=_PREPARING.acquire, after_in_parent=_PREPARING.release, after_in_child=_PREPARING.release
    )


class Terms(NamedTuple):
    """How a question is decided under a calibration.

    Attributes:
        rule: what decides.
        notices: what the caller should know of it.
        measure: how responses are scored; None where nothing reads their scores.
        counted: whether votes are counted, whatever the confidence, and go on being counted.
    """

    rule: StoppingRule
    notices: tuple[str, ...]
    measure: Measure | None
    counted: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Options, checked and prepared once; a question that is being answered keeps the setup it began with.

    Attributes:
        options: a copy of the options.
        model: what is sampled.
        extract: finds the answer in a response.
        on_missing_confidence: what is done with a response without confidence; learning online needs none.
        calibration: what scores mean; None where there is none, or it is learned.
        mixture: learns a calibration from first responses alone, in a batch from all of them before any decision.
        online: learns a calibration from every question that is answered. Where neither is set, nothing is learned.
        prepared: whether :meth:`prepare` has been called.
    """

    options: Options
    model: PreparedModel
    extract: Extractor
    on_missing_confidence: OnMissing
    calibration: Calibration | None = None
    mixture: MixtureCalibrator | None = None
    online: ConsensusCalibrator | None = None
    prepared: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, options: Options, model: Runnable[LanguageModelInput, Any], *, quiet: bool) -> "Setup":
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
        known, learning = options.calibration, options.calibration in LEARNING
        if known is not None and not isinstance(known, Calibration):
            known = None if learning else load_calibration(known)
        measure = options.measure or (known.measure if known else None)
        _check_combination(options, measure)
        on_missing = "count" if options.calibration == "online" else options.on_missing_confidence
        prepared, measure = _prepared(options, model, known, measure, on_missing, quiet=quiet)
        setup = cls(
            options=options,
            model=prepared,
            extract=extractor(options.answer),
            on_missing_confidence=on_missing,
            calibration=known,
        )
        if learning or options.fixed_prompt is not None:
            running = setup.fingerprint  # which fails where the prompt is none
            setup = replace(setup, **_learner(options, measure, running, quiet=quiet))
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
        """Import and work out what the first decision needs; what is learned later is prepared where it is learned."""
        with _PREPARING:  # of all setups, which need much the same
            if not self.prepared.is_set():
                import_deferred()
                self.terms(self.learned).rule.prepare()
                self.prepared.set()

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
        calibrator = self.mixture or self.online
        return calibrator.calibration if calibrator else self.calibration

    def terms(self, calibration: Calibration | None, kind: str = "") -> Terms:
        """Return how a question of this kind of request is decided under a calibration."""
        options = self.options
        if options.rule is not None:
            return self._terms_of_rule(options.rule, calibration)
        confidence = options.confidence or DEFAULT_CONFIDENCE
        if calibration is not None:
            return self._terms_of(calibration, confidence, kind)
        if self.online:
            return Terms(ASC(confidence), (self.online.notice(None),), None, counted=False)
        if self.mixture:
            notice = "the calibration by mixture has seen too few responses yet: counting votes (ASC)"
            return Terms(ASC(confidence), (notice,), self.mixture.measure, counted=False)
        if options.confidence is not None:
            return Terms(ASC(confidence), ("no calibration: counting votes (ASC)",), None, counted=True)
        horizon = FiniteHorizon(budget=options.max_samples)
        return Terms(horizon, ("no calibration: counting votes (finite horizon)",), None, counted=True)

    def _terms_of_rule(self, rule: StoppingRule, calibration: Calibration | None) -> Terms:
        if not rule.reads_scores:
            return Terms(rule, (), None, counted=True)
        if calibration is None:
            return Terms(rule, (), self.options.measure, counted=False)
        notices = tuple[str, ...]()
        if calibration.counts(self.options.safeguard):
            why = calibration.fallback or calibration.unweighed
            notices = (f"the rule {rule.name} decides as given, where the calibration advises counting votes: {why}",)
        return Terms(rule, notices, calibration.measure, counted=False)

    def _terms_of(self, calibration: Calibration, confidence: float, kind: str) -> Terms:
        options, safeguard = self.options, self.options.safeguard
        rule = calibration.rule(
            confidence=confidence,
            on_missing_confidence=self.on_missing_confidence,
            budget=options.max_samples,
            worth=0 if options.worth is None and options.on_undecided != "answer" else options.worth,
            **({} if self.online else {"safeguard": safeguard}),
        )
        notices = (self.online.notice(calibration, kind),) if self.online else calibration.notices(safeguard)
        if options.worth and options.max_samples > LARGEST_HORIZON:
            off = f"worth={options.worth:g} is off: max_samples={options.max_samples} is above {LARGEST_HORIZON}"
            notices = (*notices, off)
        counted = not rule.reads_scores
        return Terms(rule, notices, calibration.measure, counted)

    def require_fit(
        self,
        calibration: Calibration,
        model: PreparedModel,
        messages: list[BaseMessage] | None = None,
        *,
        bound: bool = True,
    ) -> None:
        """Refuse a calibration that was measured on something else, as far as can be told.

        Args:
            calibration: the calibration.
            model: what is sampled.
            messages: the messages of a call.
            bound: whether all that it is asked besides a question is known; else tools and the like are yet to come.

        Raises:
            FingerprintMismatch: naming what differs.
        """
        options = self.options
        if not options.allow_fingerprint_mismatch:
            running = model.fingerprint(messages, prompt=options.fixed_prompt, answer=options.answer)
            check_fingerprint(calibration.fingerprint, running if bound else running.unbound())

    def require_confidence(self, model: PreparedModel) -> None:
        """Refuse a model that is known to give no logprobs, before anything is paid for.

        Raises:
            LogprobsUnavailable: confidence is needed.
        """
        if self.on_missing_confidence == "count":
            return
        known = self.calibrator or self.calibration
        if not (_is_stated(known.measure if known else self.options.measure) or self.terms(self.calibration).counted):
            raise LogprobsUnavailable(
                f"{model.no_logprobs}; or let it state its confidence (ask_confidence=True, calibrated so), or count "
                "votes with on_missing_confidence='count'"
            )

    def unknown_names(self, schemas: Schemas) -> list[str]:
        """Say what ``tool_votes`` names that none of the model's tools has; each is logged once."""
        votes = self.options.tool_votes
        found = votes.unknown_names(schemas)
        for text in found:
            warn_once(text, id(votes))
        return found

    def _require_probability(self, below: float) -> None:
        """Refuse to abstain by a probability that no calibration gives."""
        calibration, rule = self.calibration, self.terms(self.calibration).rule
        if probability_curves(calibration, rule):
            return
        known = calibration and (calibration.p_correct or calibration.p_agree)
        why = f"this one says it of {known.rule!r}, not of {rule.name!r}" if known else "here is none that does"
        raise ConfigurationError(
            f"abstain_below={below:g} needs a calibration that says how likely an answer is right (p_correct) or that "
            f"further responses agree with it (p_agree), and {why}; calibrate() with several samples of each labelled "
            "question tells p_correct, calibrate_unlabelled() tells p_agree"
        )


class PreparedOptions(Options):
    """Options that are checked and prepared when the object is made, and anew when one of them is assigned to."""

    _quiet: ClassVar[bool] = False
    """Whether the samples are parts of one model call, the only one that callbacks see."""
    _setup: Setup = PrivateAttr()
    _made: Runnable[LanguageModelInput, Any] | None = PrivateAttr(default=None)
    """The model that was made of a name."""

    @property
    def sampled(self) -> Runnable[LanguageModelInput, Any]:
        """The model itself, also where its name was given."""
        if not isinstance(self.model, str):
            return self.model
        self._made = self._made or model_of(self.model)
        return self._made

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        model = self.sampled
        if isinstance(model, Options) or any(isinstance(leaf.model, Options) for leaf in leaves(model, {})):
            raise ConfigurationError(
                f"model= is already a ReASC model ({model.get_name()}). Pass the chat model it wraps; nesting would "
                f"multiply the samples by {self.max_samples}"
            )
        self._setup = Setup.of(BaseModel.__copy__(self), model, quiet=self._quiet)
        # Not by assignment, which prepares anew; the constructor that LangChain calls again takes it from here.
        self.__dict__["calibrator"] = self._setup.mixture or self._setup.online
        return self

    def _recreate(self, fields: dict[str, Any]) -> Self:
        if self._made is None or fields["model"] != self.model:
            return super()._recreate(fields)
        copy = super()._recreate(fields | {"model": self._made})  # one model made of a name is enough
        copy.__dict__["model"], copy._made = self.model, self._made
        return copy

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Options.model_fields:
            changed = self.model_copy(update={name: value})
            self.__dict__.clear()  # of what was cached, too
            self.__dict__.update(changed.__dict__)
            self.model_fields_set.update(changed.model_fields_set)
            self._setup, self._made = changed._setup, changed._made
        else:
            super().__setattr__(name, value)


def probability_curves(calibration: Calibration | None, rule: StoppingRule) -> Mapping[str, SupportCurve]:
    """Return ``p_correct`` or ``p_agree`` -> what a calibration says of the answers of this rule, where it does."""
    known = {"p_correct": calibration.p_correct, "p_agree": calibration.p_agree} if calibration else {}
    return {name: curve for name, curve in known.items() if curve is not None and curve.holds_for(rule.name)}


def _check_combination(options: Options, measure: Measure | None) -> None:
    """Refuse options that contradict each other; ``measure`` is the one given, or that of the calibration."""
    rule, calibration = options.rule, options.calibration
    learning = calibration in LEARNING
    if rule is not None:
        _check_rule(rule, calibration if learning else None, measure)
    scored = rule is not None and rule.reads_scores
    if options.measure is not None and not learning and (calibration is not None or not scored):
        raise ConfigurationError(
            f"measure={str(measure)!r} goes with calibration='online' or 'mixture', or with a rule that reads scores; "
            "a calibration brings its own, and else no confidence is read"
        )
    if options.online_state is not None and calibration != "online":
        raise ConfigurationError(f"online_state={str(options.online_state)!r} goes with calibration='online'")


def _check_rule(rule: StoppingRule, learning: object, measure: Measure | None) -> None:
    """Refuse a rule beside a calibration that is ``learning``, or whose scores nothing gives."""
    if learning is not None:
        raise ConfigurationError(
            f"calibration={learning!r} makes its rule of what it learns, and takes no other: leave out the rule "
            f"{rule.name}, or the calibration"
        )
    if rule.reads_scores and measure is None:
        raise ConfigurationError(
            f"the rule {rule.name} reads the scores of responses, and nothing says how they are scored: give it "
            "measure=Measure(...), or a calibration that has a measure"
        )


def _prepared(
    options: Options,
    model: Runnable[LanguageModelInput, Any],
    known: Calibration | None,
    measure: Measure | None,
    on_missing: OnMissing,
    *,
    quiet: bool,
) -> tuple[PreparedModel, Measure | None]:
    """Return the model, asked for logprobs where they are read; and the measure, for a mixture one that it gives."""
    mixture, counted = options.calibration == "mixture", on_missing == "count"
    rule = options.rule or (known and known.rule(safeguard=options.safeguard))
    reads = rule.reads_scores if rule else options.calibration in LEARNING
    asking: dict[str, Any] = {
        "required": not counted and reads,
        "quiet": quiet,
        "ask_confidence": options.ask_confidence,
    }
    prepared = PreparedModel.of(model, logprobs=reads and not _is_stated(measure), **asking)
    if mixture and measure is None:
        measure = _default_measure(prepared)
        if _is_stated(measure):
            prepared = PreparedModel.of(model, **asking)
    if measure and not counted and (mixture or options.measure):
        _require_signal(measure, prepared)
    return prepared, measure


def _learner(options: Options, measure: Measure | None, running: Fingerprint, *, quiet: bool) -> dict[str, Any]:
    """Return the calibrator that was given, where it fits, or a new one, by its name in the setup."""
    if options.calibration == "mixture":
        return {"mixture": _mixture(options, measure or Measure(), running)}
    if options.calibration == "online":
        return {"online": _online(options, running.unbound() if quiet else running)}
    return {}


def _mixture(options: Options, measure: Measure, running: Fingerprint) -> MixtureCalibrator:
    given = options.calibrator
    if isinstance(given, ConsensusCalibrator):
        raise ConfigurationError("a ConsensusCalibrator goes with calibration='online'")
    if given is not None and given.learns_of == (measure, running):
        return given
    return MixtureCalibrator(measure=measure, fingerprint=running)


def _online(options: Options, running: Fingerprint) -> ConsensusCalibrator:
    given, path = options.calibrator, None if options.online_state is None else Path(options.online_state)
    if isinstance(given, MixtureCalibrator):
        raise ConfigurationError("a MixtureCalibrator goes with calibration='mixture'")
    if given is not None and given.learns_of == (options.measure, running, path):
        return given
    return ConsensusCalibrator(
        measure=options.measure,
        budget=options.max_samples,
        fingerprint=running,
        path=path,
        any_model=options.allow_fingerprint_mismatch,
    )


def _require_signal(measure: Measure, model: PreparedModel) -> None:
    """Refuse a measure of a signal that the model is known not to give."""
    if _is_stated(measure):
        if not model.ask_confidence:
            raise ConfigurationError(f"the measure {measure} needs a model that is asked: ask_confidence=True")
    elif model.signals is not None and measure.signal not in model.signals:
        raise ConfigurationError(
            f"the measure {measure} needs the signal {measure.signal!r}, which the model does not give (it gives: "
            f"{', '.join(model.signals) or 'none'}); name another measure, or with calibration='mixture' none"
        )


def _is_stated(measure: Measure | None) -> bool:
    """Return whether confidence is what the model states, and not read from its tokens."""
    return measure is not None and measure.signal == VERBALIZED


def _default_measure(model: PreparedModel) -> Measure:
    """Return the paper's measure, or the same score of the first signal that the model gives; else what it states."""
    paper = Measure()
    if model.ask_confidence and (model.no_logprobs or model.not_requested or model.signals == ()):
        return Measure(VERBALIZED, "mean")
    if not model.signals or paper.signal in model.signals:
        return paper
    return Measure(model.signals[0], paper.score, paper.window)

"""What the options of a :class:`~langchain_reasc.ReASCRunnable` stand for, checked before anything is paid for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from langchain_reasc.answers import AnswerSpec, extractor
from langchain_reasc.calibration import Calibration, Fingerprint, MixtureCalibrator, Safeguard, load_calibration
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import StoppingRule
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.event_loop import import_deferred, in_event_loop
from langchain_reasc.models.prepared import ModelOrName, PreparedModel
from langchain_reasc.runnable.consensus_calibrator import ConsensusCalibrator
from langchain_reasc.runnable.solver import Solver

__all__ = ["LEARNING", "prepared_solver", "refuse_swallowed"]

LEARNING: Final = ("online", "mixture")
"""Calibrations that are learned from what is answered."""


def prepared_solver(
    *,
    model: ModelOrName,
    calibration: Calibration | str | Path | None,
    answer: AnswerSpec,
    measure: Measure | None,
    calibrator: MixtureCalibrator | ConsensusCalibrator | None,
    on_missing_confidence: Literal["error", "count"],
    allow_fingerprint_mismatch: bool,
    fixed_prompt: FixedPrompt | None = None,
    rule: StoppingRule | None = None,
    ask_confidence: bool = False,
    online_state: str | Path | None = None,
    safeguard: Safeguard = "default",
    quiet: bool = False,
    **limits: Any,
) -> Solver:
    """What answers questions under the options of the same names.

    With ``quiet``, samples are parts of one model call: see :mod:`langchain_reasc.sampling.quiet`.

    Raises:
        ConfigurationError: options that contradict each other, or the model.
        CalibrationFileError: the calibration's file cannot be read.
        FingerprintMismatch: the calibration was measured on something else.
        LogprobsUnavailable: the model is known to give no confidence where one is needed.
    """
    scored = rule is not None and rule.reads_scores
    if rule is not None and calibration in LEARNING:
        raise ConfigurationError(
            f"calibration={calibration!r} makes its rule of what it learns, and takes no other: leave out the rule "
            f"{rule.name}, or the calibration"
        )
    if measure is not None and calibration not in LEARNING and (calibration is not None or not scored):
        raise ConfigurationError(
            f"measure={str(measure)!r} goes with calibration='online' or 'mixture', or with a rule that reads scores; "
            "a calibration brings its own, and else no confidence is read"
        )
    if online_state is not None and calibration != "online":
        raise ConfigurationError(f"online_state={str(online_state)!r} goes with calibration='online'")
    known = _calibration(calibration)
    reading = measure or (known.measure if known else None)
    if rule is not None and scored and reading is None:
        raise ConfigurationError(
            f"the rule {rule.name} reads the scores of responses, and nothing says how they are scored: give it "
            "measure=Measure(...), or a calibration that has a measure"
        )
    wanted = scored if rule is not None else calibration in LEARNING or reading is not None
    read = wanted and not _is_stated(reading)
    counted = on_missing_confidence == "count" or calibration == "online" or bool(known and known.counts(safeguard))
    asking: dict[str, Any] = {"required": not counted, "quiet": quiet, "ask_confidence": ask_confidence}
    prepared = PreparedModel.of(model, logprobs=read, **asking)
    if calibration == "mixture" and measure is None and _is_stated(measure := _measure_of(prepared)):
        prepared = PreparedModel.of(model, **asking)
    if rule is not None and measure is not None:
        _require_given(measure, prepared, counted=on_missing_confidence == "count")
    running = prepared.fingerprint(prompt=fixed_prompt, answer=answer)
    solver = Solver(
        model=prepared,
        extract=extractor(answer),
        answer=answer,
        fixed_prompt=fixed_prompt,
        calibration=known,
        calibrator=_calibrator(prepared, running, measure, calibrator, counted=on_missing_confidence == "count")
        if calibration == "mixture"
        else _online(
            running.unbound() if quiet else running,
            measure,
            calibrator,
            online_state,
            budget=limits["max_samples"],
            any_model=allow_fingerprint_mismatch,
        )
        if calibration == "online"
        else None,
        rule=rule,
        measure=None if rule is None else measure,
        on_missing_confidence=on_missing_confidence,
        allow_fingerprint_mismatch=allow_fingerprint_mismatch,
        safeguard=safeguard,
        **limits,
    )
    solver.require_fit(prepared, bound=not quiet)  # a chat model is bound to tools once it is made
    solver.require_confidence(prepared)
    solver.require_correctness()
    solver.misnamed(prepared)
    if not in_event_loop():  # else a thread of the first call does it
        import_deferred()
    return solver


def refuse_swallowed(kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that would go to the model and do nothing there.

    Raises:
        ConfigurationError: ``on_response`` where the caller gets no responses; a batch's budget where there is none.
    """
    if budgets := kwargs.keys() & {"total_tokens", "total_samples"}:
        raise ConfigurationError(
            f"{' and '.join(sorted(budgets))} bound a whole batch(); for one input, set token_budget or max_samples"
        )
    if "on_response" in kwargs:
        raise ConfigurationError(
            "on_response goes with solve() and asolve(), one input at a time; batch() takes progress=..., and "
            "batch_as_completed() gives each answer as it is found"
        )


def _calibration(given: Calibration | str | Path | None) -> Calibration | None:
    if given is None or given in LEARNING:
        return None
    return given if isinstance(given, Calibration) else load_calibration(given)


def _calibrator(
    model: PreparedModel,
    running: Fingerprint,
    measure: Measure | None,
    given: MixtureCalibrator | ConsensusCalibrator | None,
    *,
    counted: bool,
) -> MixtureCalibrator:
    measure = measure or _measure_of(model)
    _require_given(measure, model, counted=counted)
    if isinstance(given, ConsensusCalibrator):
        raise ConfigurationError("a ConsensusCalibrator goes with calibration='online'")
    if given is not None and given.goes_with(measure, running):
        return given
    return MixtureCalibrator(measure=measure, fingerprint=running)


def _online(
    running: Fingerprint,
    measure: Measure | None,
    given: MixtureCalibrator | ConsensusCalibrator | None,
    path: str | Path | None,
    *,
    budget: int,
    any_model: bool,
) -> ConsensusCalibrator:
    if isinstance(given, MixtureCalibrator):
        raise ConfigurationError("a MixtureCalibrator goes with calibration='mixture'")
    if given is not None and given.goes_with(measure, running, path):
        return given
    return ConsensusCalibrator(measure=measure, budget=budget, fingerprint=running, path=path, any_model=any_model)


def _require_given(measure: Measure, model: PreparedModel, *, counted: bool) -> None:
    """Refuse a measure of what the model is known not to give, unless responses without it are counted."""
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
    return measure is not None and measure.signal == VERBALIZED


def _measure_of(model: PreparedModel) -> Measure:
    """The paper's measure, or the same score of the first signal that the model gives; else what it states."""
    paper = Measure()
    if model.ask_confidence and (model.no_logprobs or model.unasked or model.signals == ()):
        return Measure(VERBALIZED, "mean")
    if model.signals is None or not model.signals or paper.signal in model.signals:
        return paper
    return Measure(model.signals[0], paper.score, paper.window)

"""Algorithm 1: calibrate on labelled first responses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.schema import AUROC, Calibration, Fingerprint, Gate, RejectedMeasure
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure

__all__ = ["auroc_of", "auroc_with_interval", "calibrate_offline"]

Scores = npt.NDArray[np.float64]


def calibrate_offline(
    scores: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    measure: Measure,
    p_target: float = 0.9,
    scale: float = 0.7,
    weight: str = "reasc",
    top_k: int | None = None,
    vocabulary_size: int | None = None,
    fingerprint: Fingerprint | None = None,
    rejected: Sequence[RejectedMeasure] = (),
    cross_validated: float | None = None,
    seed: int = 0,
) -> Calibration:
    """Algorithm 1: τ_gate = max(mean score of correct responses, smallest t with accuracy(S ≥ t) ≥ p_target).

    Args:
        scores: shape (n,), S(y) of one response per calibration question.
        correct: shape (n,), whether each was right; a response without an answer is wrong.
        measure: how the scores were made.
        p_target: accuracy asked of what the gate accepts.
        scale: λ of the evidence weight.
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        top_k: how many alternatives per token the signal was made of; recorded.
        vocabulary_size: the V that the signal was made of; recorded.
        fingerprint: what was measured.
        rejected: the measures that a selection did not choose; recorded.
        cross_validated: the held-out AUROC of that selection; recorded.
        seed: the seed of the bootstrap behind the AUROC interval.

    Returns:
        A calibration whose gate is closed, with the reason, where no threshold reaches ``p_target`` or nothing is
        correct, and which falls back to counting votes where the score does not separate right from wrong.

    Raises:
        CalibrationDataError: fewer than 2 responses, a score that is not finite, or all scores equal.
    """
    values, labels = checked_scores(scores, p_target), np.asarray(correct, dtype=bool)
    if labels.shape != values.shape:
        raise CalibrationDataError(f"{values.size} scores but {labels.size} labels; each response needs one of each")
    auroc = auroc_with_interval(values, labels, cross_validated=cross_validated, seed=seed)
    return Calibration.of_scores(
        values,
        measure,
        method="offline",
        top_k=top_k,
        vocabulary_size=vocabulary_size,
        lambda_=scale,
        weight=weight,
        p_target=p_target,
        gate=_gate(values, labels, p_target),
        fallback=_weak(auroc, labels),
        auroc=auroc,
        accuracy=float(labels.mean()),
        rejected=tuple(rejected),
        fingerprint=fingerprint or Fingerprint(),
    )


def checked_scores(scores: npt.ArrayLike, p_target: float) -> Scores:
    """The scores as an array from which μ > -∞ and σ > 0 can be had, or an error that says why not."""
    if not 0 < p_target < 1:
        raise ConfigurationError(f"p_target is an accuracy between 0 and 1, got {p_target}")
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise CalibrationDataError(f"a calibration takes one score per response, got shape {values.shape}")
    if values.size < 2:
        raise CalibrationDataError(f"a calibration needs at least 2 responses, got {values.size}; 128 is a good number")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise CalibrationDataError(f"score {at} is {values[at]}; drop that response or fix what it was computed from")
    # A spread below rounding is no spread, in whatever unit: z-scores of it would be noise blown up.
    if values.std() <= 1e-9 * np.abs(values).max():
        raise CalibrationDataError(
            f"all {values.size} scores equal {values[0]:g}; a constant score says nothing about correctness. "
            "Check that the model samples (temperature above 0), or use another signal"
        )
    return values


def _gate(scores: Scores, correct: npt.NDArray[np.bool_], p_target: float) -> Gate:
    if not correct.any():
        return Gate(threshold=None, closed_because=f"none of the {scores.size} calibration responses is correct")
    mean_correct = float(scores[correct].mean())
    thresholds, accuracy = _accuracy_above(scores, correct)
    reached = np.flatnonzero(accuracy >= p_target)
    if reached.size == 0:
        best = f"no threshold reaches p_target {p_target:g}; the best accuracy above any is {accuracy.max():.3f}"
        return Gate(threshold=None, mean_part=mean_correct, closed_because=best)
    target = float(thresholds[reached[0]])
    return Gate(threshold=max(mean_correct, target), mean_part=mean_correct, target_part=target)


def _accuracy_above(scores: Scores, correct: npt.NDArray[np.bool_]) -> tuple[Scores, Scores]:
    """For each distinct score t, ascending: the accuracy of the responses with S ≥ t."""
    order = np.argsort(scores, kind="stable")
    thresholds, first = np.unique(scores[order], return_index=True)
    right_above = np.cumsum(correct[order][::-1])[::-1][first]
    return thresholds, right_above / (scores.size - first)


def auroc_with_interval(
    scores: Scores, correct: npt.NDArray[np.bool_], *, cross_validated: float | None = None, seed: int = 0
) -> AUROC | None:
    """AUROC of the score for correctness with a 95 % bootstrap interval (2,000 resamples); None if a class is empty."""
    if correct.all() or not correct.any():
        return None
    from scipy.stats import bootstrap

    samples = (scores[correct], scores[~correct])
    value = float(auroc_of(*samples))
    if min(map(len, samples)) < 2:  # nothing to resample: the interval is all there is not to know
        return AUROC(value=value, low=0.0, high=1.0, cross_validated=cross_validated)
    interval = bootstrap(
        samples,
        auroc_of,
        n_resamples=2000,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
        batch=100,
    ).confidence_interval
    return AUROC(value=value, low=float(interval.low), high=float(interval.high), cross_validated=cross_validated)


def auroc_of(right: npt.NDArray[Any], wrong: npt.NDArray[Any], axis: int = -1) -> npt.NDArray[np.float64]:
    """P(S(right) > S(wrong)) + ½ P(equal), the Mann-Whitney form, over any leading axes."""
    from scipy.stats import rankdata

    m, n = right.shape[axis], wrong.shape[axis]
    ranks = rankdata(np.concatenate((right, wrong), axis=axis), axis=axis)
    statistic = np.take(ranks, range(m), axis=axis).sum(axis=axis) - m * (m + 1) / 2
    return np.asarray(statistic / (m * n))


def _weak(auroc: AUROC | None, correct: npt.NDArray[np.bool_]) -> str | None:
    """Weighing votes by a signal near chance is worse than counting them."""
    if auroc is None:
        return None if correct.all() else "no calibration response is correct, so the score's worth is unknown"
    if auroc.low <= 0.5:
        return (
            f"the score does not separate right from wrong: AUROC {auroc.value:.2f}, "
            f"95 % interval [{auroc.low:.2f}, {auroc.high:.2f}] reaches 0.5"
        )
    return None

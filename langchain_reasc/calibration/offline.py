"""Algorithm 1: calibrate on labelled first responses."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.gate import labelled_gate
from langchain_reasc.calibration.schema import AUROC, Calibration, Fingerprint, RejectedMeasure
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.evidence import check_weight

__all__ = [
    "WITHIN_NEEDED",
    "Z",
    "auroc_of",
    "auroc_with_interval",
    "auroc_within",
    "calibrate_offline",
    "checked_scores",
    "mean_with_interval",
    "newcombe",
]

WITHIN_NEEDED: Final = 0.6
"""What the lower end of the AUROC within questions must be above for Stage 2 to weigh votes under the safeguard."""
Z: Final = 1.959963984540054
"""The normal deviate of a 95 % interval."""

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
    within: AUROC | None = None,
) -> Calibration:
    """Algorithm 1: τ_gate = max(mean score of correct responses, smallest t with accuracy(S ≥ t) ≥ p_target).

    Beside the paper's, the record holds what a live run goes by unless it is told otherwise (``safeguard="paper"``): a
    gate that holds with 95 % (:func:`~langchain_reasc.calibration.gate.labelled_gate`), whether Stage 2 weighs votes,
    and whether the score is to be used at all.

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
        cross_validated: the held-out AUROC of that selection; by as much as it is lower, the choice flattered the
            measure.
        within: how well the score separates the responses to one question, see :func:`auroc_within`; None where that is
            not known, as with one response to each.

    Returns:
        A calibration whose gate is closed, with the reason, where no threshold reaches ``p_target`` or nothing is
        correct, and which falls back to counting votes where the score does not separate right from wrong.

    Raises:
        CalibrationDataError: fewer than 2 responses, a score that is not finite, or all scores equal.
        ConfigurationError: ``weight`` is unknown, or cannot be had of such scores.
    """
    values, labels = checked_scores(scores, p_target), np.asarray(correct, dtype=bool)
    if labels.shape != values.shape:
        raise CalibrationDataError(f"{values.size} scores but {labels.size} labels; each response needs one of each")
    check_weight(weight, float(values.mean()))
    auroc = auroc_with_interval(values, labels, cross_validated=cross_validated)
    return Calibration.of_scores(
        values,
        measure,
        method="offline",
        top_k=top_k,
        vocabulary_size=vocabulary_size,
        lambda_=scale,
        weight=weight,
        p_target=p_target,
        gate=labelled_gate(values, labels, p_target),
        fallback=_weak(auroc, labels),
        unweighed=_unweighed(within, weight, labels),
        auroc=auroc,
        within=within,
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


def auroc_with_interval(
    scores: Scores, correct: npt.NDArray[np.bool_], *, cross_validated: float | None = None
) -> AUROC | None:
    """AUROC of the score for correctness with a 95 % interval; None if a class is empty.

    The interval is method 5 of Newcombe (2006, Statistics in Medicine 25, 559-573): the θ for which
    |θ̂ - θ| = z √V(θ), V(θ) = θ(1 - θ)/(mn) · (1 + N((1 - θ)/(2 - θ) + θ/(1 + θ))), N = (m + n)/2 - 1. Unlike a
    bootstrap, it stays honest where few responses are right or wrong and all of them in order.
    """
    if correct.all() or not correct.any():
        return None
    value, sizes = float(auroc_of(scores[correct], scores[~correct])), (int(correct.sum()), int((~correct).sum()))
    low, high = newcombe(value, *sizes)
    return AUROC(value=value, low=low, high=high, cross_validated=cross_validated)


def newcombe(value: float, m: int, n: int) -> tuple[float, float]:
    """Newcombe's interval of an AUROC of ``m`` right responses against ``n`` wrong ones."""
    return _newcombe_low(value, m, n), 1.0 - _newcombe_low(1.0 - value, m, n)


def _newcombe_low(value: float, m: int, n: int) -> float:
    from scipy.optimize import brentq

    if value == 0.0:
        return 0.0

    def beyond(theta: float) -> float:
        spread = 1 + ((m + n) / 2 - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (value - theta) ** 2 - Z**2 * theta * (1 - theta) / (m * n) * spread

    return float(brentq(beyond, 0.0, min(value, 1.0 - 1e-12)))  # at 1 itself the variance vanishes


def auroc_within(scores: Sequence[npt.ArrayLike], correct: Sequence[npt.ArrayLike]) -> AUROC | None:
    """How well the score tells right from wrong responses to the same question, which is what weights of votes need.

    The mean, over the questions that have both, of P(S(right) > S(wrong)) + ½ P(equal), with the 95 % score interval of
    Wilson (1927): the variance of what lies between 0 and 1 is at most θ(1 - θ), so that it holds for such means too.

    Args:
        scores: per question, S(y) of the responses that vote.
        correct: per question, whether each of them was right.

    Returns:
        None where no question has both right and wrong responses.
    """
    rows = [(np.asarray(s, dtype=np.float64), np.asarray(c, dtype=bool)) for s, c in zip(scores, correct, strict=True)]
    found = [float(auroc_of(row[right], row[~right])) for row, right in rows if right.any() and not right.all()]
    return mean_with_interval(found)


def mean_with_interval(found: npt.ArrayLike) -> AUROC | None:
    """The mean of what lies between 0 and 1, one per question, with Wilson's interval; None of nothing."""
    each = np.asarray(found, dtype=np.float64)
    if not each.size:
        return None
    value, n = float(each.mean()), each.size
    middle = (value + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(value * (1 - value) / n + Z**2 / (4 * n**2))
    return AUROC(value=value, low=max(0.0, middle - half), high=min(1.0, middle + half))


def auroc_of(right: npt.NDArray[Any], wrong: npt.NDArray[Any], axis: int = -1) -> npt.NDArray[np.float64]:
    """P(S(right) > S(wrong)) + ½ P(equal), the Mann-Whitney form, over any leading axes."""
    from scipy.stats import rankdata

    m, n = right.shape[axis], wrong.shape[axis]
    ranks = rankdata(np.concatenate((right, wrong), axis=axis), axis=axis)
    statistic = np.take(ranks, range(m), axis=axis).sum(axis=axis) - m * (m + 1) / 2
    return np.asarray(statistic / (m * n))


def _weak(auroc: AUROC | None, correct: npt.NDArray[np.bool_]) -> str | None:
    """Weighing votes by a signal near chance is worse than counting them.

    A measure that was chosen among many looks better than it is by what held-out folds take from its AUROC.
    """
    if auroc is None:
        return None if correct.all() else "no calibration response is correct, so the score's worth is unknown"
    chosen_for = 0.0 if auroc.cross_validated is None else max(0.0, auroc.value - auroc.cross_validated)
    if auroc.low - chosen_for > 0.5:
        return None
    lowered = f" less {chosen_for:.2f}, by which choosing it flattered it," if chosen_for else ""
    return (
        f"the score does not separate right from wrong: AUROC {auroc.value:.2f}, "
        f"95 % interval [{auroc.low:.2f}, {auroc.high:.2f}]{lowered} reaches 0.5"
    )


def _unweighed(within: AUROC | None, weight: str, correct: npt.NDArray[np.bool_]) -> str | None:
    """Weights help only where the score separates the responses to one question; easy from hard ones is not enough."""
    if weight == "count" or (within is not None and within.low > WITHIN_NEEDED):
        return None
    if within is None and correct.all():
        return f"all {correct.size} responses are right, so nothing shows whether the score tells right from wrong ones"
    if within is None:
        return (
            "it is unknown whether the score separates the responses to one question; calibrate on four samples of "
            "each to know it"
        )
    return (
        f"the score hardly separates the responses to one question: AUROC {within.value:.2f}, 95 % interval "
        f"[{within.low:.2f}, {within.high:.2f}], of which the lower end must be above {WITHIN_NEEDED:g}"
    )

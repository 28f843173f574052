"""Calibration of a method's P(correct), and the risk at each coverage."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import fit_support_curve
from langchain_reasc.exceptions import CalibrationDataError

__all__ = ["BINS", "Risk", "likelihoods", "risk_of"]

BINS: Final = 10
"""The number of bins of the expected calibration errors."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Risk:
    """P(correct) of one method against what was right; means over the arrangements in
    which there is one.

    Attributes:
        arrangements: how many those are.
        ece_width: expected calibration error, Σ n_b/n · \\|accuracy_b - mean P_b\\|
            over 10 bins of equal width (Guo et al. 2017).
        ece_quantile: the same over 10 bins with equally many questions each (Nixon et
            al. 2019); of equal P in one.
        aurc: area under the risk-coverage curve: the mean of ``risk`` (Geifman et al.
            2019); lower is better.
        risk: shape (tested,), the share of wrong answers among the k likeliest, k = 1,
            ..., tested; of equal P, what an arbitrary order gives on average.
    """

    arrangements: int
    ece_width: float
    ece_quantile: float
    aurc: float
    risk: Array


def likelihoods(calibrating: Array, tested: Array) -> Array:
    """Return P(correct) of the tested questions from the labels of others, shape
    (questions,).

    Args:
        calibrating: shape (questions, 2), support and correctness of the decision on
            each calibration question, NaN elsewhere.
        tested: the same for the tested questions.

    Returns:
        NaN if a question was not tested, and everywhere if the calibration questions do
        not tell; 0 if a decision has no answer.
    """
    known = ~np.isnan(calibrating).any(axis=1)
    probabilities = np.where(np.isnan(tested[:, 1]), np.nan, 0.0)
    try:
        fitted = fit_support_curve(calibrating[known, 0], calibrating[known, 1])
    except CalibrationDataError:
        return np.full(len(tested), np.nan)
    for at in np.flatnonzero(~np.isnan(tested).any(axis=1)):
        probabilities[at] = fitted.probability(tested[at, 0])
    return probabilities


def risk_of(probabilities: Array, correct: Array) -> Risk | None:
    """Return how well P(correct) fits what was right.

    Args:
        probabilities: shape (shuffles, questions), NaN if there is none.
        correct: shape (shuffles, questions), 1 if the answer is right, 0 if it is not.

    Returns:
        None if no arrangement has any.
    """
    held = [
        (row[has], right[has])
        for row, right in zip(probabilities, correct, strict=True)
        if (has := row >= 0).any()
    ]
    if not held:
        return None
    even = np.linspace(0, 1, BINS + 1)[1:-1]
    curves = [_curve(p, right) for p, right in held]
    return Risk(
        arrangements=len(held),
        ece_width=float(np.mean([_ece(p, right, even) for p, right in held])),
        ece_quantile=float(
            np.mean([_ece(p, right, np.quantile(p, even)) for p, right in held])
        ),
        aurc=float(np.mean(curves)),
        risk=np.mean(curves, axis=0),
    )


def _ece(probabilities: Array, right: Array, edges: Array) -> float:
    bins = np.searchsorted(edges, probabilities, side="right")
    gaps = np.bincount(bins, weights=right - probabilities, minlength=BINS)
    return float(np.abs(gaps).sum() / probabilities.size)


def _curve(probabilities: Array, right: Array) -> Array:
    _, groups = np.unique(-probabilities, return_inverse=True)
    wrong = np.bincount(groups, weights=1 - right) / np.bincount(groups)
    return np.asarray(np.cumsum(wrong[np.sort(groups)]) / np.arange(1, right.size + 1))

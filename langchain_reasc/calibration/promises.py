"""What a calibration promises: how likely an answer is right."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.reliability import Share
from langchain_reasc.calibration.stored_rule import SupportCurve
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.decision import support
from langchain_reasc.method.stopping import StoppingRule, decide

__all__ = ["correctness_by_support", "correctness_curve", "fit_support_curve"]

_ENOUGH_DECISIONS: Final = 16  # decisions that a curve needs
# Outcomes of right answers, and of wrong ones, that a curve needs without labels.
_FEWEST_KNOWN: Final = 10
# Points of the stored curve. Interpolation is off by 0.05 at the steepest.
_POINTS: Final = 17
_NEAREST: Final = 1e-4
# On the square of the slope, which perfectly separated decisions would make infinite.
_PENALTY: Final = 0.1
_Z: Final = 1.959963984540054  # the normal deviate of a 95 % interval


def correctness_curve(
    rule: StoppingRule, questions: Sequence[Observation], row: int | None
) -> SupportCurve | None:
    """Return how likely an answer is right; None if too few are known to be right or
    wrong.

    16 labels are enough. Outcomes are reported for a biased choice of answers, such as
    wrong ones only, so at least 10 right and 10 wrong ones are required.

    Args:
        rule: the rule that decides.
        questions: the questions that it was fitted on.
        row: the row of scores that it reads; None if votes are counted.
    """
    pairs = correctness_by_support(rule, questions, row)
    if len(pairs) < 2:
        return None
    # One response to a question shows no vote.
    labelled = sum(
        bool(question.right) and len(question.answers) > 1 for question in questions
    )
    right = sum(right for _, right in pairs)
    fewer = min(right, len(pairs) - right)
    if labelled < _ENOUGH_DECISIONS and fewer < _FEWEST_KNOWN:
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name)


def correctness_by_support(
    rule: StoppingRule, questions: Iterable[Observation], row: int | None
) -> list[tuple[float, bool]]:
    """Return (support, right) of each decision whose answer is known to be right or
    wrong.
    """
    pairs: list[tuple[float, bool]] = []
    for question in questions:
        labels = question.known
        if len(question.answers) < 2 or not set(labels) - {None}:
            continue
        decision = decide(rule, question.responses(row))
        label_of = dict(zip(map(str, question.answers), labels, strict=True))
        share = support(decision)
        right = label_of.get(decision.answer or "")
        if share is not None and right is not None:
            pairs.append((share, right))
    return pairs


def fit_support_curve(
    statistics: npt.ArrayLike, right: npt.ArrayLike, *, rule: str | None = None
) -> SupportCurve:
    """Fit Platt scaling of the support:
    ``P(right) = 1 / (1 + exp(-(a + b · logit(support))))`` with b ≥ 0.

    A logistic curve on the logit is beta calibration with two equal exponents (Kull et
    al. 2017). On a few dozen to a few hundred decisions it predicts better than
    isotonic regression, whose steps follow the noise. Outside of the observed supports
    it is constant, and it stays as far from 0 and 1 as the rule of succession on n
    decisions. The intervals are Wald's, on the logit.

    Args:
        statistics: shape (n,), :func:`~langchain_reasc.method.decision.support` of one
            decision per question.
        right: shape (n,), whether each answer was right.
        rule: the name of the rule that decided, if the curve holds only for that.

    Raises:
        CalibrationDataError: fewer than 2 decisions, unequal numbers of both, or a
            support that is not in [0, 1].
    """
    shares = np.asarray(statistics, dtype=np.float64)
    labels = np.asarray(right, dtype=bool)
    if shares.ndim != 1 or shares.shape != labels.shape:
        raise CalibrationDataError(
            f"{shares.size} decisions but {labels.size} labels; each decision needs "
            "one of each"
        )
    if shares.size < 2:
        raise CalibrationDataError(
            f"a support curve needs at least 2 decisions, got {shares.size}"
        )
    outside = shares[~((shares >= 0) & (shares <= 1))]
    if outside.size:
        raise CalibrationDataError(
            f"a support is a share from 0 to 1, got {outside[0]}"
        )
    grid = np.unique(np.linspace(shares.min(), shares.max(), _POINTS))
    nearest = 1 / (shares.size + 2)
    fitted = _logistic(shares, labels, grid)
    if fitted is None:
        fitted = _constant(labels, grid)
    curve, low, high = (np.clip(part, nearest, 1 - nearest) for part in fitted)
    # An interval is not narrowed by that.
    low = np.minimum(fitted[1], low)
    high = np.maximum(fitted[2], high)
    return SupportCurve(
        points=tuple(zip(grid.tolist(), curve.tolist(), strict=True)),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        n=shares.size,
        right=float(labels.mean()),
        rule=rule,
    )


def _constant(right: Booleans, grid: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the rate (k + 1)/(n + 2), and the exact interval of k in n (Clopper and
    Pearson 1934), at each point.
    """
    hits = int(right.sum())
    low, high = Share(hits, right.size).interval
    rate = (hits + 1) / (right.size + 2)
    same = np.ones_like(grid)
    return rate * same, low * same, high * same


def _logistic(
    shares: Floats, right: Booleans, grid: Floats
) -> tuple[Floats, Floats, Floats] | None:
    """Return the fitted curve with its interval; None if no rising curve fits."""
    if right.all() or not right.any() or grid.size < 2:
        return None
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    fitted: Any = LogisticRegression(C=1 / _PENALTY).fit(_logit(shares), right)
    if fitted.coef_[0, 0] <= 0:
        return None
    design = np.insert(_logit(shares), 0, 1.0, axis=1)
    probability = fitted.predict_proba(_logit(shares))[:, 1]
    weight = probability * (1 - probability)
    information = design.T @ (weight[:, None] * design) + np.diag([0.0, _PENALTY])
    at = np.insert(_logit(grid), 0, 1.0, axis=1)
    variance = np.einsum("ij,jk,ik->i", at, np.linalg.inv(information), at)
    middle = fitted.decision_function(_logit(grid))
    half = _Z * np.sqrt(variance)
    return expit(middle), expit(middle - half), expit(middle + half)


def _logit(shares: Floats) -> Floats:
    # A heavy response may leave no share for others.
    clipped = np.clip(shares, _NEAREST, 1 - _NEAREST)
    return np.asarray(np.log(clipped / (1 - clipped)))[:, None]

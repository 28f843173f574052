"""AUROC of scores for right against wrong responses, over all questions and within
each.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.parts import AUROC

__all__ = [
    "Booleans",
    "Floats",
    "Judged",
    "auroc_of",
    "auroc_per_question",
    "auroc_with_interval",
    "mean_auroc",
]

Floats = npt.NDArray[np.float64]
"""An array of floats."""
Booleans = npt.NDArray[np.bool_]
"""An array of truth values."""
_Z: Final = 1.959963984540054  # the normal deviate of a 95 % interval


@dataclass(frozen=True, slots=True)
class Judged:
    """Responses that are right or wrong, by label or by consensus.

    Attributes:
        question: shape (n,), the question of each.
        right: shape (n,), whether it is right.
        scores: shape (measures, n), S(y) by each measure; finite.
    """

    question: npt.NDArray[np.intp]
    right: Booleans
    scores: Floats

    @property
    def both(self) -> bool:
        """Whether there are right and wrong responses."""
        return bool(self.right.any() and not self.right.all())


def auroc_of(right: npt.NDArray[Any], wrong: npt.NDArray[Any]) -> Floats:
    """Return P(S(right) > S(wrong)) + ½ P(equal), the Mann-Whitney form, along the last
    axis.
    """
    from scipy.stats import rankdata

    m, n = right.shape[-1], wrong.shape[-1]
    ranks = rankdata(np.concatenate((right, wrong), axis=-1), axis=-1)
    return np.asarray((ranks[..., :m].sum(axis=-1) - m * (m + 1) / 2) / (m * n))


def auroc_with_interval(
    scores: Floats,
    right: Booleans,
    question: npt.NDArray[np.intp] | None = None,
    **fields: Any,
) -> AUROC | None:
    """Return the AUROC of a score with a 95 % interval; None if one class is empty.

    For independent responses, the interval is method 5 of Newcombe (2006, Statistics in
    Medicine 25, 559-573): the θ for which |θ̂ - θ| = z √V(θ), V(θ) = θ(1 - θ)/(mn) · (1
    + N((1 - θ)/(2 - θ) + θ/(1 + θ))), N = (m + n)/2 - 1. Unlike a bootstrap, it is
    valid if few responses are right or wrong and the scores separate them perfectly.

    Responses to one question are correlated. Given ``question``, the variance is that
    of Obuchowski (1997, Biometrics 53, 567-578) for clustered data: the contributions
    of the responses are summed over each question. The interval is computed on the
    logit scale, so that it stays between 0 and 1. If the AUROC is 0 or 1, it is
    Newcombe's, with as many right and wrong responses as there are questions with such
    responses. A single question gives [0, 1].

    Args:
        scores: shape (n,), S(y) of each response.
        right: shape (n,), whether it is right.
        question: shape (n,), the question of each; None if every response belongs to
            another question.
        fields: other fields of :class:`AUROC`.
    """
    if right.all() or not right.any():
        return None
    value, (m, n) = (
        float(auroc_of(scores[right], scores[~right])),
        (int(right.sum()), int((~right).sum())),
    )
    if question is None:
        low, high = _newcombe(value, m, n)
    elif (questions := np.unique(question).size) == 1:
        low, high = 0.0, 1.0
    elif not 0 < value < 1:
        low, high = _newcombe(
            value, np.unique(question[right]).size, np.unique(question[~right]).size
        )
    else:
        from scipy.special import expit, logit

        adds = np.empty(scores.size)
        adds[right] = (_share_below(scores[right], scores[~right]) - value) / m
        adds[~right] = (1 - _share_below(scores[~right], scores[right]) - value) / n
        by_question = np.bincount(np.unique(question, return_inverse=True)[1], adds)
        error = np.sqrt(questions / (questions - 1) * (by_question**2).sum())
        low, high = expit(
            logit(value) + np.array([-_Z, _Z]) * error / (value * (1 - value))
        ).tolist()
    return AUROC(value=value, low=low, high=high, **fields)


def _newcombe(value: float, m: int, n: int) -> tuple[float, float]:
    from scipy.optimize import brentq

    def low(value: float) -> float:
        def beyond(theta: float) -> float:
            spread = 1 + ((m + n) / 2 - 1) * (
                (1 - theta) / (2 - theta) + theta / (1 + theta)
            )
            return (value - theta) ** 2 - _Z**2 * theta * (1 - theta) / (m * n) * spread

        # the variance vanishes at 1
        return float(brentq(beyond, 0.0, min(value, 1.0 - 1e-12))) if value else 0.0

    return low(value), 1.0 - low(1.0 - value)


def _share_below(scores: Floats, others: Floats) -> Floats:
    """Return for each score the share of the others below it; equal ones count half."""
    ordered = np.sort(others)
    left, through = (
        np.searchsorted(ordered, scores, "left"),
        np.searchsorted(ordered, scores, "right"),
    )
    return np.asarray((left + through) / (2 * others.size))


def auroc_per_question(judged: Judged) -> Floats:
    """Return the AUROC of each measure on each question with right and wrong responses;
    shape (measures, questions).

    Only this shows what weights on votes can do: a score may separate easy questions
    from hard ones, but not the responses to one question.
    """
    each = []
    for question in np.unique(judged.question):
        here = judged.question == question
        right, wrong = (
            judged.scores[:, here & judged.right],
            judged.scores[:, here & ~judged.right],
        )
        if right.shape[1] and wrong.shape[1]:
            each.append(auroc_of(right, wrong))
    return np.array(each).T if each else np.empty((len(judged.scores), 0))


def mean_auroc(each: npt.ArrayLike) -> AUROC | None:
    """Return the mean of the AUROCs of several questions, with the 95 % score interval
    of Wilson (1927).

    The variance of values between 0 and 1 is at most θ(1 - θ), so the interval is valid
    for such means too.

    Args:
        each: shape (questions,); if it is empty, the result is None.
    """
    values = np.asarray(each, dtype=np.float64)
    if not values.size:
        return None
    value, n = float(values.mean()), values.size
    middle = (value + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = (
        _Z / (1 + _Z**2 / n) * math.sqrt(value * (1 - value) / n + _Z**2 / (4 * n**2))
    )
    return AUROC(value=value, low=max(0.0, middle - half), high=min(1.0, middle + half))

"""AUROC of scores for right against wrong responses, over all questions and within
each.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.parts import AUROC

__all__ = [
    "Booleans",
    "Floats",
    "Judged",
    "auroc_of",
    "auroc_per_question",
    "auroc_with_interval",
    "judged_votes",
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


def judged_votes(questions: Iterable[Observation], row: int) -> Judged:
    """Return the responses with an answer, a score and a label.

    Args:
        questions: the questions.
        row: the row of their scores.
    """
    votes: list[tuple[int, bool, float]] = []
    for number, question in enumerate(questions):
        scores = question.scores[row].tolist()
        for right, score in zip(question.known, scores, strict=True):
            if right is not None and not math.isnan(score):
                votes.append((number, right, score))
    numbers, labels, values = np.array(votes, dtype=np.float64).reshape(-1, 3).T
    return Judged(numbers.astype(np.intp), labels.astype(bool), values[None])


def auroc_of(right: npt.NDArray[Any], wrong: npt.NDArray[Any]) -> Floats:
    """Return P(S(right) > S(wrong)) + ½ P(equal), the Mann-Whitney form, along the last
    axis.
    """
    from scipy.stats import rankdata

    m = right.shape[-1]
    n = wrong.shape[-1]
    ranks = rankdata(np.concatenate((right, wrong), axis=-1), axis=-1)
    wins = ranks[..., :m].sum(axis=-1) - m * (m + 1) / 2
    return np.asarray(wins / (m * n))


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
    value = float(auroc_of(scores[right], scores[~right]))
    if question is None:
        low, high = _newcombe(value, int(right.sum()), int((~right).sum()))
    elif np.unique(question).size == 1:
        # One question shows nothing of others.
        low, high = 0.0, 1.0
    elif not 0 < value < 1:
        # On the logit scale, 0 and 1 are infinite.
        m = np.unique(question[right]).size
        n = np.unique(question[~right]).size
        low, high = _newcombe(value, m, n)
    else:
        low, high = _obuchowski(value, scores, right, question)
    return AUROC(value=value, low=low, high=high, **fields)


def _obuchowski(
    value: float, scores: Floats, right: Booleans, question: npt.NDArray[np.intp]
) -> tuple[float, float]:
    from scipy.special import expit, logit

    of_right = scores[right]
    of_wrong = scores[~right]
    parts = np.empty(scores.size)
    wins = ranks_among(of_wrong, of_right) / of_wrong.size
    losses = ranks_among(of_right, of_wrong) / of_right.size
    parts[right] = (wins - value) / of_right.size
    parts[~right] = (1 - losses - value) / of_wrong.size
    _, numbers = np.unique(question, return_inverse=True)
    # Responses to one question count together, since they are correlated.
    by_question = np.bincount(numbers, parts)
    n = by_question.size
    error = np.sqrt(n / (n - 1) * (by_question**2).sum())
    half = np.array([-_Z, _Z]) * error / (value * (1 - value))
    low, high = expit(logit(value) + half).tolist()
    return low, high


def _newcombe(value: float, m: int, n: int) -> tuple[float, float]:
    from scipy.optimize import brentq

    def lower_end(value: float) -> float:
        def beyond(theta: float) -> float:
            odds = (1 - theta) / (2 - theta) + theta / (1 + theta)
            spread = 1 + ((m + n) / 2 - 1) * odds
            return (value - theta) ** 2 - _Z**2 * theta * (1 - theta) / (m * n) * spread

        if not value:
            return 0.0
        # The variance vanishes at 1.
        return float(brentq(beyond, 0.0, min(value, 1.0 - 1e-12)))

    return lower_end(value), 1.0 - lower_end(1.0 - value)


def ranks_among(reference: Floats, scores: Floats) -> Floats:
    """Return for each score how many of the reference are below it; equal ones count
    half.
    """
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, scores, "left")
    through = np.searchsorted(ordered, scores, "right")
    return np.asarray((below + through) / 2)


def auroc_per_question(judged: Judged) -> Floats:
    """Return the AUROC of each measure on each question with right and wrong responses;
    shape (measures, questions).

    Only this shows what weights on votes can do: a score may separate easy questions
    from hard ones, but not the responses to one question.
    """
    aurocs = []
    for question in np.unique(judged.question):
        of_question = judged.question == question
        right = judged.scores[:, of_question & judged.right]
        wrong = judged.scores[:, of_question & ~judged.right]
        if right.shape[1] and wrong.shape[1]:
            aurocs.append(auroc_of(right, wrong))
    return np.array(aurocs).reshape(len(aurocs), len(judged.scores)).T


def mean_auroc(aurocs: npt.ArrayLike) -> AUROC | None:
    """Return the mean of the AUROCs of several questions, with the 95 % score interval
    of Wilson (1927).

    The variance of values between 0 and 1 is at most θ(1 - θ), so the interval is valid
    for such means too.

    Args:
        aurocs: shape (questions,); if it is empty, the result is None.
    """
    values = np.asarray(aurocs, dtype=np.float64)
    n = values.size
    if not n:
        return None
    value = float(values.mean())
    scale = 1 + _Z**2 / n
    middle = (value + _Z**2 / (2 * n)) / scale
    half = _Z / scale * math.sqrt(value * (1 - value) / n + _Z**2 / (4 * n**2))
    return AUROC(value=value, low=max(0.0, middle - half), high=min(1.0, middle + half))

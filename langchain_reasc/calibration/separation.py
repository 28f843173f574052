"""How well scores tell right responses from wrong ones: of all questions together, and within each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.offline import Z, auroc_of, newcombe
from langchain_reasc.calibration.parts import AUROC

__all__ = ["Judged", "pooled", "pooled_with_intervals", "resampled", "within"]

Floats = npt.NDArray[np.float64]
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Judged:
    """Responses that are known to be right or wrong, or are taken to be.

    Attributes:
        question: shape (n,), to which question each belongs.
        right: shape (n,), whether it is right.
        scores: shape (measures, n), S(y) by each measure; finite.
    """

    question: npt.NDArray[np.intp]
    right: npt.NDArray[np.bool_]
    scores: Floats

    @property
    def both(self) -> bool:
        """Whether there are right ones and wrong ones."""
        return bool(self.right.any() and not self.right.all())


def pooled(judged: Judged) -> Floats:
    """AUROC of each measure over the responses of all questions; shape (measures,)."""
    return auroc_of(judged.scores[:, judged.right], judged.scores[:, ~judged.right])


def pooled_with_intervals(judged: Judged) -> list[AUROC]:
    """The same with 95 % intervals that know that responses to one question are alike.

    The variance is that of Obuchowski (1997, Biometrics 53, 567-578) for clustered data: what each response adds to the
    AUROC is summed over its question. The interval is taken on the logit's scale, so that it stays between 0 and 1.
    Where the AUROC is 0 or 1 itself, it is Newcombe's, with as many right and wrong as there are questions with such
    responses. One question alone says nothing of others.
    """
    number = np.unique(judged.question, return_inverse=True)[1]
    return [_with_interval(scores, judged.right, number) for scores in judged.scores]


def _with_interval(scores: Floats, right: npt.NDArray[np.bool_], question: npt.NDArray[np.intp]) -> AUROC:
    from scipy.special import expit, logit

    value, questions = float(auroc_of(scores[right], scores[~right])), int(question.max()) + 1
    if questions == 1:
        return AUROC(value=value, low=0.0, high=1.0)
    if not 0 < value < 1:
        sizes = np.unique(question[right]).size, np.unique(question[~right]).size
        low, high = newcombe(value, *sizes)
        return AUROC(value=value, low=low, high=high)
    adds = np.empty(scores.size)
    adds[right] = (_share_below(scores[right], scores[~right]) - value) / right.sum()
    adds[~right] = (1 - _share_below(scores[~right], scores[right]) - value) / (~right).sum()
    by_question = np.bincount(question, adds)
    error = np.sqrt(questions / (questions - 1) * (by_question**2).sum())
    low, high = expit(logit(value) + np.array([-Z, Z]) * error / (value * (1 - value)))
    return AUROC(value=value, low=float(low), high=float(high))


def _share_below(scores: Floats, others: Floats) -> Floats:
    """For each score, the share of the others below it, those that equal it by half."""
    ordered = np.sort(others)
    left, through = np.searchsorted(ordered, scores, "left"), np.searchsorted(ordered, scores, "right")
    return np.asarray((left + through) / (2 * others.size))


def within(judged: Judged) -> Floats:
    """AUROC of each measure on each question that has right and wrong responses; shape (measures, questions).

    Only this tells what a weight on votes can do: a score may tell easy questions from hard ones and be blind among the
    responses to any one of them.
    """
    each = []
    for question in np.unique(judged.question):
        here = judged.question == question
        right, wrong = judged.scores[:, here & judged.right], judged.scores[:, here & ~judged.right]
        if right.shape[1] and wrong.shape[1]:
            each.append(auroc_of(right, wrong))
    return np.array(each).T if each else np.empty((len(judged.scores), 0))


def resampled(values: Floats, rng: np.random.Generator, *, level: float) -> float:
    """The quantile at ``level`` of the mean over questions that are drawn again, a lower bound where it is small.

    Args:
        values: shape (questions,), at least one.
        rng: draws them.
        level: a share of the resamples.
    """
    drawn = values[rng.integers(0, values.size, (_RESAMPLES, values.size))]
    return float(np.quantile(drawn.mean(axis=1), level))

"""How well scores tell right responses from wrong ones: of all questions together, and within each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.offline import auroc_of

__all__ = ["Judged", "pooled", "resampled", "within"]

Floats = npt.NDArray[np.float64]


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


def resampled(values: Floats, rng: np.random.Generator, *, level: float, resamples: int = 2000) -> float:
    """The quantile at ``level`` of the mean over questions that are drawn again, a lower bound where it is small.

    Args:
        values: shape (questions,), at least one.
        rng: draws them.
        level: a share of the resamples.
        resamples: how often they are drawn.
    """
    drawn = values[rng.integers(0, values.size, (resamples, values.size))]
    return float(np.quantile(drawn.mean(axis=1), level))

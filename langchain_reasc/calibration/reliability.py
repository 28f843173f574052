"""How reliable ``p_correct`` is: predicted probabilities against the outcomes that were
reported later.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats
from langchain_reasc.calibration.observations import Observation

__all__ = ["Reliability", "Share", "binned", "reliability_of"]

_MOST_BINS: Final = 5
_IN_A_BIN: Final = 10  # answers at least, unless their probabilities are equal
_FEWEST: Final = 2 * _IN_A_BIN


class Share(NamedTuple):
    """A share of independent cases. Its text includes the exact 95 % interval (Clopper
    and Pearson 1934).

    Attributes:
        hits: the cases that count.
        cases: all cases, 1 or more.
    """

    hits: int
    cases: int

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.0%} [{low:.0%}, {high:.0%}]"

    @property
    def value(self) -> float:
        """The share itself."""
        return self.hits / self.cases

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval."""
        from scipy.special import betaincinv

        hits = self.hits
        misses = self.cases - hits
        low = 0.0
        high = 1.0
        if hits:
            low = float(betaincinv(hits, misses + 1, 0.025))
        if misses:
            high = float(betaincinv(hits + 1, misses, 0.975))
        return low, high


@dataclass(frozen=True, slots=True)
class Reliability:
    """Predicted probabilities compared with the outcomes that were reported later.

    Attributes:
        bins: mean probability and share of right answers, for groups of similar
            probabilities; ascending.
        brier: the mean of (probability − outcome)² (Brier 1950).
        brier_of_mean: the same if every prediction were the share of right answers.
        error: the expected calibration error Σ n_b/n · \\|right_b − said_b\\| over the
            bins (Nixon et al. 2019).
        by_chance: its expected value if every probability were true: Σ_b √(2/π · Σ p (1
            − p)) / n, by a normal approximation.
    """

    bins: tuple[tuple[float, Share], ...]
    brier: float
    brier_of_mean: float
    error: float
    by_chance: float

    @property
    def n(self) -> int:
        """How many answers there are."""
        return sum(share.cases for _, share in self.bins)


def reliability_of(questions: Iterable[Observation]) -> Reliability | None:
    """Compare ``p_correct``, as it was reported, with the outcomes; None for fewer than
    20 answers.
    """
    pairs = []
    for question in questions:
        if question.p_correct is not None and question.correct is not None:
            pairs.append((question.p_correct, question.correct))
    if len(pairs) < _FEWEST:
        return None
    predicted, right = np.array(pairs, dtype=np.float64).T
    # The best prediction that is the same for all answers.
    rate = float(right.mean())
    variance = predicted * (1 - predicted)
    error = by_chance = 0.0
    for group in _bins(predicted):
        error += abs(float((right - predicted)[group].sum()))
        by_chance += math.sqrt(2 / math.pi * float(variance[group].sum()))
    return Reliability(
        bins=tuple(binned(predicted, right)),
        brier=float(((predicted - right) ** 2).mean()),
        brier_of_mean=rate * (1 - rate),
        error=error / len(pairs),
        by_chance=by_chance / len(pairs),
    )


def binned(values: npt.ArrayLike, outcomes: npt.ArrayLike) -> list[tuple[float, Share]]:
    """Return mean value and share of true outcomes in up to 5 groups of similar values,
    of 10 or more each.

    Args:
        values: shape (n,).
        outcomes: shape (n,), true or false.
    """
    levels = np.asarray(values, dtype=np.float64)
    hits = np.asarray(outcomes, dtype=bool)
    groups = []
    for group in _bins(levels):
        share = Share(int(hits[group].sum()), int(group.sum()))
        groups.append((float(levels[group].mean()), share))
    return groups


def _bins(values: Floats) -> list[Booleans]:
    """Return the mask of each group; equal values are in one group."""
    count = max(1, min(_MOST_BINS, values.size // _IN_A_BIN))
    # Each group has about as many answers as another.
    bounds = np.quantile(values, np.arange(1, count) / count)
    numbers = np.searchsorted(bounds, values, side="right")
    return [numbers == number for number in np.unique(numbers)]

"""Confidence intervals: bootstrap over questions, and exact ones where all resamples would be equal."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["RESAMPLES", "Bootstrap", "Estimate", "exact", "ratio", "resampled_sums"]

RESAMPLES: Final = 2000
_BATCH: Final = 100  # resamples at a time, so that memory stays small on large pools

Array = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Means = Callable[[Any], Array]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def percent(self) -> "Estimate":
        """The same in per cent."""
        return Estimate(100 * self.value, 100 * self.low, 100 * self.high)

    def interval(self, style: str) -> str:
        """Return the interval as it is read, such as ``[65.6, 79.4]`` for ``".1f"``."""
        return f"[{self.low:{style}}, {self.high:{style}}]"


class Bootstrap:
    """Means of several columns over the same questions, and paired intervals of whatever is computed from them.

    A value is the mean over shuffles; its interval comes from resampling questions, each with all that it gave in the
    shuffles in which it was tested: a question that was tested twice counts twice in the value, and so it does in the
    interval. All columns share the resamples, so that differences and ratios are paired.

    Args:
        columns: name -> shape (shuffles, questions); a name is any key of a dictionary.
        tested: shape (shuffles, questions), which questions were tested; as many in each shuffle.
        seed: the seed of the resamples, which are the same for any columns of as many questions.
        resamples: how often the questions are drawn again.

    Attributes:
        questions: how many were tested at all.
    """

    def __init__(
        self, columns: Mapping[Any, Array], tested: Booleans, *, seed: int, resamples: int = RESAMPLES
    ) -> None:
        self._at = {name: at for at, name in enumerate(columns)}
        cells = np.stack(list(columns.values()), axis=-1)
        times = tested.sum(axis=0)
        sums = np.where(tested[:, :, None], cells, 0.0).sum(axis=0)
        self._value = np.asarray(sums.sum(axis=0) / times.sum())[None]
        self.questions = int((times > 0).sum())
        drawn = resampled_sums(np.column_stack([sums, times])[times > 0], resamples, seed=seed)
        self._resampled = drawn[:, :-1] / drawn[:, -1:]

    def estimate(self, of: Callable[[Means], Array]) -> Estimate:
        """Return a value and its interval.

        Args:
            of: computes it, given a function name -> means; on the means themselves and on those of the resamples, all
                at once.
        """
        value = float(of(lambda name: self._value[:, self._at[name]])[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where no resample has any, there is no interval
            drawn = of(lambda name: self._resampled[:, self._at[name]])
            low, high = np.nanpercentile(drawn, [2.5, 97.5])
        return Estimate(value, float(low), float(high))

    def resampled(self, name: Any) -> Estimate:
        """Return the mean of one column and its interval."""
        return self.estimate(lambda mean: mean(name))

    def mean(self, name: Any) -> float:
        """Return the mean alone."""
        return float(self._value[0, self._at[name]])

    def share(self, name: Any, *, among: Any = None, questions: int | None = None) -> Estimate:
        """Return a share of the questions; for 0 and 1 with the exact interval, as all resamples are the same.

        Args:
            name: a column of zeros and ones.
            among: a column of zeros and ones; the share of those that are one in it, which ``name`` then implies.
            questions: how many questions those are; all that were tested, if None.
        """
        estimate = self.estimate(lambda mean: mean(name) if among is None else ratio(mean(name), mean(among)))
        if estimate.value in (0.0, 1.0):
            n = self.questions if questions is None else questions
            return exact(round(estimate.value) * n, n)
        return estimate


@lru_cache(maxsize=1024)
def exact(right: int, questions: int) -> Estimate:
    """Return a share with the exact interval of Clopper and Pearson (1934), from quantiles of the Beta distribution."""
    from scipy.special import betaincinv

    wrong = questions - right
    low = float(betaincinv(right, wrong + 1, 0.025)) if right else 0.0
    high = float(betaincinv(right + 1, wrong, 0.975)) if wrong else 1.0
    return Estimate(right / questions, low, high)


def ratio(one: Array, other: Array) -> Array:
    """Return one mean divided by another; NaN where both are 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a pool of empty responses: 0 / 0
        return np.asarray(one / other)


def resampled_sums(cells: Array, resamples: int = RESAMPLES, *, seed: int) -> Array:
    """Return sums over as many questions, drawn with replacement: (questions, columns) -> (resamples, columns)."""
    n = len(cells)
    rng = np.random.default_rng([seed, resamples])
    sums = []
    for start in range(0, resamples, _BATCH):
        times_drawn = rng.multinomial(n, np.full(n, 1 / n), size=min(_BATCH, resamples - start))
        sums.append(times_drawn @ cells)
    return np.concatenate(sums)

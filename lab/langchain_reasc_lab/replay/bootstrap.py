"""Confidence intervals: a bootstrap over questions, exact ones for few questions and
for differences, and learning.

An interval is for new questions of the same kind. If a method learned something else in
each of several shuffles, the interval is also for new questions to learn from, in a new
order. In one arrangement, the calibration is fixed.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "RESAMPLES",
    "Bootstrap",
    "Estimate",
    "exact",
    "exact_of_alike",
    "ratio",
    "resampled_sums",
]

RESAMPLES: Final = 2000
"""The number of samples of a bootstrap interval."""
_FEW: Final = 10
_STEP: Final = 1e-6  # of a numerical derivative, as a share of the way to one answer
_BATCH: Final = 100  # resamples at a time, so that memory stays small on large pools

Array = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Means = Callable[[Any], Array]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; ``low`` and ``high`` are NaN if there is none."""

    value: float
    low: float
    high: float

    @property
    def rest(self) -> "Estimate":
        """The complement, 1 minus the value."""
        return Estimate(1 - self.value, 1 - self.high, 1 - self.low)

    @property
    def percent(self) -> "Estimate":
        """The estimate in per cent."""
        return Estimate(100 * self.value, 100 * self.low, 100 * self.high)

    def within(self, least: float, most: float) -> "Estimate":
        """Cut off the interval at the possible values."""
        return Estimate(self.value, max(self.low, least), min(self.high, most))

    def plus(self, other: "Estimate") -> "Estimate":
        """Add an independent estimate. The half widths of the intervals add up as
        squares.
        """
        value = self.value + other.value
        low = value - math.hypot(self.value - self.low, other.value - other.low)
        high = value + math.hypot(self.high - self.value, other.high - other.value)
        return Estimate(value, low, high)

    def interval(self, style: str) -> str:
        """Return the interval as it is read, such as ``[65.6, 79.4]`` for ``".1f"``;
        empty if there is none.
        """
        return (
            "" if math.isnan(self.low) else f"[{self.low:{style}}, {self.high:{style}}]"
        )

    @property
    def without_interval(self) -> "Estimate":
        """The value alone."""
        return Estimate(self.value, math.nan, math.nan)


class Bootstrap:
    """Means of several columns over the same questions, and paired intervals of
    whatever is computed from them.

    A value is the mean over shuffles; its interval comes from resampling questions,
    each with all that it gave in the shuffles in which it was tested: a question that
    was tested twice counts twice in the value, and so it does in the interval. All
    columns share the resamples, so that differences and ratios are paired.

    Where a method learned something else in each shuffle, that varies beside the
    questions. The resamples hold already that each of the J shuffles tests other
    questions, in another order of responses. So an analysis of variance leaves what was
    learned: the variance between shuffles once each question's mean is taken off, less
    that of the residuals, each as the square of its half interval (Student's t at J - 1
    degrees of freedom; normal). What is learned in shuffles of one recording is
    correlated, by ρ: 1/J + ρ/(1 - ρ) of it is added (Nadeau and Bengio 2003, Machine
    Learning 52, 239-281). One arrangement does not show this variance: there is no
    interval then.

    Args:
        columns: name -> shape (shuffles, questions); a name is any key of a dictionary.
        tested: shape (shuffles, questions), which questions were tested; as many in
            each shuffle.
        seed: the seed of the resamples, which are the same for any columns of as many
            questions.
        resamples: how often the questions are drawn again.

    Attributes:
        questions: how many were tested at all.
    """

    def __init__(
        self,
        columns: Mapping[Any, Array],
        tested: Booleans,
        *,
        seed: int,
        resamples: int = RESAMPLES,
    ) -> None:
        self._at = {name: at for at, name in enumerate(columns)}
        cells = np.where(
            tested[:, :, None], np.stack(list(columns.values()), axis=-1), 0.0
        )
        times, self._sums = tested.sum(axis=0), cells.sum(axis=0)
        self._value = np.asarray(self._sums.sum(axis=0) / times.sum())[None]
        self._cells, self._tested = cells, tested
        self.questions, self._times = int((times > 0).sum()), times
        drawn = resampled_sums(
            np.column_stack([self._sums, times])[times > 0], resamples, seed=seed
        )
        self._resampled = drawn[:, :-1] / drawn[:, -1:]

    def estimate(
        self, of: Callable[[Means], Array], *, learned: float = 0.0
    ) -> Estimate:
        """Return a value and its interval.

        Args:
            of: computes it, given a function name -> means; on the means themselves and
                on those of the resamples, all at once.
            learned: ρ, where a method in it learned something else in each shuffle;
                else 0.
        """
        value = float(of(lambda name: self._value[:, self._at[name]])[0])
        with warnings.catch_warnings():
            # where no resample has any, there is no interval
            warnings.simplefilter("ignore", RuntimeWarning)
            drawn = of(lambda name: self._resampled[:, self._at[name]])
            low, high = np.nanpercentile(drawn, [2.5, 97.5])
        alone = Estimate(value, float(low), float(high))
        return self._with_learned(alone, of, learned) if learned else alone

    def resampled(self, name: Any, *, learned: float = 0.0) -> Estimate:
        """Return the mean of one column and its interval; ``learned`` as of
        :meth:`estimate`.
        """
        return self.estimate(lambda mean: mean(name), learned=learned)

    def mean(self, name: Any) -> float:
        """Return the mean alone."""
        return float(self._value[0, self._at[name]])

    def share(self, name: Any, *, among: Any = None, learned: float = 0.0) -> Estimate:
        """Return a share of the questions; where few are, or few are not, with the
        exact interval.

        Of fewer than ten, resamples would cover too little; if there is none, all
        resamples are the same.

        Args:
            name: a column of zeros and ones.
            among: a column of zeros and ones; the share of those that are one in it,
                which ``name`` then implies.
            learned: as of :meth:`estimate`.
        """

        def of(mean: Means) -> Array:
            return mean(name) if among is None else ratio(mean(name), mean(among))

        estimate, asked = self.estimate(of), self._asked(among)
        if (some := asked > 0).any():
            are = self._sums[some, self._at[name]] / asked[some].mean()
            are_not = asked[some] / asked[some].mean() - are
            if min(are.sum(), are_not.sum()) < _FEW:
                seen = (
                    _share_of(are)
                    if are.sum() < are_not.sum()
                    else _share_of(are_not).rest
                )
                estimate = replace(seen, value=estimate.value)
        return (
            self._with_learned(estimate, of, learned) if learned else estimate
        ).within(0.0, 1.0)

    def _asked(self, among: Any) -> Array:
        """Return how often each question counts, shape (questions,)."""
        return np.asarray(
            self._times if among is None else self._sums[:, self._at[among]],
            dtype=np.float64,
        )

    def difference(
        self, one: Any, other: Any, *, among: Any = None, learned: float = 0.0
    ) -> Estimate:
        """Return by how much one share is larger than another, of the same questions.

        The questions on which only the one is right and those on which only the other
        is are two shares, each with its exact interval; where both are few, as between
        methods that hardly differ, resamples would cover too little. Zou and Donner
        (2008, Statistics in Medicine 27, 1693-1702) make the interval of their
        difference of these, with the correlation of two shares of the same questions.

        Args:
            one: a column of zeros and ones.
            other: another.
            among: a column of zeros and ones, on which questions shares are compared;
                None for all.
            learned: as of :meth:`estimate`.
        """
        asked = self._asked(among)
        ahead = (self._sums[:, self._at[one]] - self._sums[:, self._at[other]])[
            asked > 0
        ] / asked[asked > 0].mean()
        gained, lost = (
            _share_of(np.maximum(sign * ahead, 0.0), np.abs(ahead).max())
            for sign in (1, -1)
        )
        neither = (1 - gained.value) * (1 - lost.value)
        correlation = (
            -math.sqrt(gained.value * lost.value / neither) if neither > 0 else 0.0
        )

        def apart(one: float, other: float) -> float:
            return math.sqrt(one**2 + other**2 - 2 * correlation * one * other)

        value = gained.value - lost.value
        low = value - apart(gained.value - gained.low, lost.high - lost.value)
        high = value + apart(gained.high - gained.value, lost.value - lost.low)
        estimate = Estimate(value, low, high)
        if learned:

            def of(mean: Means) -> Array:
                return (
                    mean(one) - mean(other)
                    if among is None
                    else ratio(mean(one) - mean(other), mean(among))
                )

            estimate = self._with_learned(estimate, of, learned)
        return estimate.within(-1.0, 1.0)

    def _with_learned(
        self, alone: Estimate, of: Callable[[Means], Array], correlation: float
    ) -> Estimate:
        """Return the interval widened by the variance of what was learned, of this
        correlation between shuffles.
        """
        shuffles = len(self._cells)
        if shuffles < 2:
            return alone.without_interval
        from scipy.special import ndtri, stdtrit

        between, residual = self._variances(of)
        learned = max(
            0.0,
            stdtrit(shuffles - 1, 0.975) ** 2 * between - ndtri(0.975) ** 2 * residual,
        )
        half = math.sqrt(learned * (1 / shuffles + correlation / (1 - correlation)))
        return alone.plus(Estimate(0.0, -half, half))

    def _variances(self, of: Callable[[Means], Array]) -> tuple[float, float]:
        """Return the variance between shuffles without that of questions, and how much
        of it is residual.
        """

        def towards_each(name: Any) -> Array:
            mean = self._value[:, self._at[name]]
            return np.asarray(mean + _STEP * (self._cells[:, :, self._at[name]] - mean))

        value = of(lambda name: self._value[:, self._at[name]])
        moved = (
            of(towards_each) - value
        ) / _STEP  # the influence of each answer, shape (shuffles, questions)
        by_question = np.where(self._tested, moved, 0.0).sum(axis=0) / np.maximum(
            self._times, 1
        )
        apart = np.where(self._tested, moved - by_question, 0.0)
        tested = self._times.sum()
        each = tested / len(apart)
        between = ((apart.sum(axis=1) / each) ** 2).sum() / (len(apart) - 1)
        return float(between), float(
            (apart**2).sum() / max(tested - self.questions, 1) / each
        )


@lru_cache(maxsize=1024)
def exact(
    right: float, questions: float, squares: float | None = None, largest: float = 1.0
) -> Estimate:
    """Return a share with the exact interval of Clopper and Pearson (1934), from
    quantiles of the Beta distribution.

    Where questions count in part, as means over shuffles do, their sum is taken for one
    of equal parts with the same variance, and at the upper end one more part is added
    that was not seen, as Fay and Feuer (1997, Statistics in Medicine 16, 791-801) do
    for weighted Poisson counts.

    Args:
        right: how many are right, or the sum of their parts.
        questions: of how many.
        squares: the sum of the squares of the parts; ``right`` where all are whole.
        largest: the part that an unseen one may have.
    """
    from scipy.special import betaincinv

    low, high, squares = 0.0, 1.0, right if squares is None else squares
    if right > 0:
        part = squares / right
        low = float(betaincinv(right / part, (questions - right) / part + 1, 0.025))
    part = (squares + largest**2) / (right + largest)
    if (wrong := (questions - right - largest) / part + 1) > 0:
        high = float(betaincinv((right + largest) / part, wrong, 0.975))
    return Estimate(right / questions, low, high)


def exact_of_alike(right: Booleans, question: npt.NDArray[np.int64]) -> Estimate:
    """Return the share of right responses, where those to one question are alike.

    The interval is Clopper and Pearson's for as many independent responses as have the
    variance of the share between questions (Korn and Graubard 1998, Survey Methodology
    24, 193-201); where all are right, or all wrong, for as many as there are questions.

    Args:
        right: shape (n,), whether each response is right.
        question: shape (n,), the question of each.
    """
    share = float(right.mean())
    apart = np.bincount(np.unique(question, return_inverse=True)[1], right - share)
    variance = (
        float((apart**2).sum()) / right.size**2 * apart.size / max(1, apart.size - 1)
    )
    independent = (
        min(share * (1 - share) / variance, right.size) if variance > 0 else apart.size
    )
    return replace(exact(share * independent, independent), value=share)


def _share_of(parts: Array, largest: float | None = None) -> Estimate:
    """Return the share that these parts are of as many questions; if there is none, one
    may be whole.
    """
    largest = float(parts.max()) if largest is None else largest
    return exact(
        float(parts.sum()), parts.size, float((parts**2).sum()), float(largest) or 1.0
    )


def ratio(one: Array, other: Array) -> Array:
    """Return one mean divided by another; NaN where both are 0."""
    with warnings.catch_warnings():
        # a pool of empty responses: 0 / 0
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(one / other)


def resampled_sums(cells: Array, resamples: int = RESAMPLES, *, seed: int) -> Array:
    """Return sums over as many questions, drawn with replacement: (questions, columns)
    -> (resamples, columns).
    """
    n = len(cells)
    rng = np.random.default_rng([seed, resamples])
    sums = []
    for start in range(0, resamples, _BATCH):
        times_drawn = rng.multinomial(
            n, np.full(n, 1 / n), size=min(_BATCH, resamples - start)
        )
        sums.append(times_drawn @ cells)
    return np.concatenate(sums)

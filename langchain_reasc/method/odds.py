"""What a score says: the odds that a response is right, from S(y)."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.evidence import Standardizer

__all__ = ["LogisticOdds", "Odds", "PointOdds"]

_LARGEST_LOGIT = 50.0  # e^50 to one decides any vote already


class Odds(Protocol):
    """Maps a score to the log-odds of being right."""

    @property
    def average(self) -> float:
        """Logit p of a response of which nothing is known but that it is a response."""
        ...

    def __call__(self, score: float) -> float:
        """Logit p of a response with this score."""
        ...


@dataclass(frozen=True, slots=True)
class LogisticOdds:
    """logit p = slope · z + intercept, as a logistic regression on z = (S − μ) / σ finds it.

    Attributes:
        statistics: μ and σ of the scores.
        slope: what a standard deviation adds.
        intercept: the log-odds of a response with an average score.
    """

    statistics: Standardizer
    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not self.statistics.std > 0:
            raise ConfigurationError(f"σ must be above zero, got {self.statistics.std}")
        if not (math.isfinite(self.slope) and math.isfinite(self.intercept)):
            raise ConfigurationError(f"slope and intercept are finite numbers, got {self.slope} and {self.intercept}")

    @property
    def average(self) -> float:
        """The intercept."""
        return self.intercept

    def __call__(self, score: float) -> float:
        """Logit p; beyond e^50 to one either way it is cut."""
        logit = self.slope * self.statistics.z(score) + self.intercept
        return max(-_LARGEST_LOGIT, min(_LARGEST_LOGIT, logit))


@dataclass(frozen=True, slots=True)
class PointOdds:
    """Log-odds known at some scores, straight lines between them, level beyond the first and the last.

    It follows scores of any shape: those of token probabilities crowd below zero, with a long tail.

    Attributes:
        points: (score, logit p), scores strictly ascending.
        average: logit p of a response without a score.
    """

    points: tuple[tuple[float, float], ...]
    average: float

    def __post_init__(self) -> None:
        scores = [score for score, _ in self.points]
        if not scores or any(not later > earlier for earlier, later in pairwise(scores)):
            raise ConfigurationError(f"the scores of odds ascend strictly, got {scores[:5]}")

    def __call__(self, score: float) -> float:
        """Logit p."""
        points = self.points
        at = bisect_right(points, score, key=lambda point: point[0])
        if at == 0 or at == len(points):
            return points[min(at, len(points) - 1)][1]
        (left, low), (right, high) = points[at - 1 : at + 1]
        return low + (high - low) * (score - left) / (right - left)

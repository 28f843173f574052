"""The other weights of the paper's appendix, which Table 7 compares with
``max(1, exp(λ z))``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import ReASC, Standardizer

__all__ = ["OTHER_WEIGHTS", "OtherWeight"]

_LARGEST_EXPONENT: Final = (
    50.0  # e^50 decides any vote already; beyond it sums would overflow
)


def _exponential(score: float, by: Standardizer) -> float:
    return math.exp(min(by.scale * by.z(score), _LARGEST_EXPONENT))


def _mean_normalized(score: float, by: Standardizer) -> float:
    return max(0.0, score / by.mean)


def _sigmoid(score: float, by: Standardizer) -> float:
    exponent = max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, by.scale * by.z(score)))
    return 1.0 / (1.0 + math.exp(-exponent))


OTHER_WEIGHTS: Final[dict[str, Callable[[float, Standardizer], float]]] = {
    "exponential": _exponential,
    "mean": _mean_normalized,
    "sigmoid": _sigmoid,
}
"""Name -> score -> weight."""


@dataclass(frozen=True)
class OtherWeight(ReASC):
    """ReASC with another weight.

    Attributes:
        formula: a name in :data:`OTHER_WEIGHTS`.

    Raises:
        ConfigurationError: the formula divides by a mean score that is not above zero.
    """

    formula: str = "exponential"

    def __post_init__(self) -> None:
        super().__post_init__()
        mean = self.statistics.mean
        if self.formula == "mean" and mean <= 0:
            raise ConfigurationError(
                f"weight='mean' divides by the mean score, which is {mean:g}; it needs "
                "a signal above zero"
            )

    @classmethod
    def instead_of(cls, rule: ReASC, formula: str) -> "OtherWeight":
        """Return a rule that differs from this one in its weight alone."""
        return cls(
            rule.statistics,
            gate=rule.gate,
            confidence=rule.confidence,
            on_missing_confidence=rule.on_missing_confidence,
            formula=formula,
        )

    def weight_of(self, score: float) -> float:
        return OTHER_WEIGHTS[self.formula](score, self.statistics)

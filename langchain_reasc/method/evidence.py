"""Evidence: the weight of each vote, and the posterior that the leading answer stays
ahead (Stage 2 of ReASC).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError

__all__ = [
    "WEIGHTS",
    "Standardizer",
    "check_weight",
    "evidence_by_answer",
    "leader",
    "posterior",
    "two_largest",
]

_LARGEST_EXPONENT = 50.0  # e^50 decides any vote already; beyond it sums would overflow


@dataclass(frozen=True, slots=True)
class Standardizer:
    """Statistics of scores, to turn a score into ``z = (S - μ) / σ`` and into a weight.

    Attributes:
        mean: μ of the calibration's response scores.
        std: σ, greater than zero.
        scale: λ, how strongly confidence counts (0.7 in the paper).
    """

    mean: float
    std: float
    scale: float = 0.7

    def z(self, score: float) -> float:
        """Return the standardized score."""
        return (score - self.mean) / self.std


def _reasc(score: float, by: Standardizer) -> float:
    return max(1.0, math.exp(min(by.scale * by.z(score), _LARGEST_EXPONENT)))


WEIGHTS: Final[dict[str, Callable[[float, Standardizer], float]]] = {
    "reasc": _reasc,
    "count": lambda score, by: 1.0,
}
"""Score -> weight: the paper's ``max(1, exp(λ z))``, and ``count`` (ASC)."""


def check_weight(weight: str) -> None:
    """Require a name in :data:`WEIGHTS`.

    Raises:
        ConfigurationError: the weight is unknown.
    """
    if weight not in WEIGHTS:
        raise ConfigurationError(
            f"unknown weight {weight!r}; choose one of {', '.join(WEIGHTS)}"
        )


def evidence_by_answer(votes: Iterable[tuple[str | None, float]]) -> dict[str, float]:
    """Sum the weights per answer, in the order in which answers were first seen.

    Args:
        votes: (answer, weight) pairs; a response without an answer casts no vote.
    """
    evidence: dict[str, float] = {}
    for answer, weight in votes:
        if answer is not None:
            evidence[answer] = evidence.get(answer, 0.0) + weight
    return evidence


def leader(evidence: Mapping[str, float]) -> str | None:
    """Return ``argmax v``; ties go to the answer seen first."""
    return max(evidence, key=evidence.__getitem__, default=None)


def two_largest(evidence: Mapping[str, float]) -> tuple[float, float]:
    """Return v1 and v2, the evidence for the two leading answers; 0 for an answer that
    does not exist.
    """
    first, second = [*sorted(evidence.values(), reverse=True)[:2], 0.0, 0.0][:2]
    return first, second


def posterior(evidence: Mapping[str, float]) -> float:
    """Return P(p1 > p2 | V) = 1 - I_{1/2}(v1 + 1, v2 + 1) for the two leading answers
    (Eq. 5); 0.5 with no votes.
    """
    return _dominance(*two_largest(evidence))


@lru_cache(maxsize=4096)
def _dominance(first: float, second: float) -> float:
    a = first + 1.0
    b = second + 1.0
    # a normal distribution by then, to eleven digits; betainc may return NaN
    if a > 1e12:
        return float(_special().ndtr((a - b) / 2 / math.sqrt(a * (b / (a + b)))))
    # By symmetry 1 - I_{1/2}(a, b) = I_{1/2}(b, a), which loses no digits near one.
    return float(_special().betainc(b, a, 0.5))


@cache
def _special() -> Any:
    from scipy import special  # deferred: keeps `import langchain_reasc` light

    return special

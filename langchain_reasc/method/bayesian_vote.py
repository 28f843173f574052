"""Weigh votes by the log-odds of being right, and compute the posterior of the leading
answer.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import ClassVar

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Response, is_cut_off_alone
from langchain_reasc.method.evidence import evidence_by_answer, leader
from langchain_reasc.method.stopping import (
    OnMissing,
    StoppingRule,
    check_on_missing,
    check_probability,
    missing_score,
)

__all__ = ["BayesianVote", "PointOdds", "probability_of_leader"]


@dataclass(frozen=True, slots=True)
class PointOdds:
    """Log-odds interpolated linearly between known scores, and constant beyond the
    first and the last.

    This fits scores of any distribution; those of token probabilities crowd below zero,
    with a long tail.

    Attributes:
        points: (score, logit p), scores strictly ascending.
        average: the log-odds of a response without a score.
    """

    points: tuple[tuple[float, float], ...]
    average: float

    def __post_init__(self) -> None:
        scores = [score for score, _ in self.points]
        if not scores or any(
            not later > earlier for earlier, later in pairwise(scores)
        ):
            raise ConfigurationError(
                f"the scores of odds must be strictly ascending, got {scores[:5]}"
            )

    def __call__(self, score: float) -> float:
        """Return the log-odds of a response with this score."""
        points = self.points
        index = bisect_right(points, score, key=lambda point: point[0])
        if index == 0 or index == len(points):
            return points[min(index, len(points) - 1)][1]
        (left, low), (right, high) = points[index - 1 : index + 1]
        return low + (high - low) * (score - left) / (right - left)


@dataclass(frozen=True)
class BayesianVote(StoppingRule):
    """Stop when the leader is right with a probability of at least ``threshold``.

    A response that is right with probability p, and otherwise names each of K wrong
    answers equally often, multiplies the odds of its answer by K · p / (1 − p). With a
    lower bound c for the weight of a response::

        ℓ = max(c, logit p + log K)
        P(a) = exp(Σ ℓ of a) / (1 + Σ over answers b of exp(Σ ℓ of b))

    where the 1 stands for an answer that no response has given yet. This is the optimal
    vote of independent voters with known competence (Nitzan and Paroush 1982), with its
    posterior. The probability is correct if p is correct and responses err
    independently. If wrong answers agree with each other, it is too high.

    Attributes:
        odds: maps a score to the log-odds of being right.
        threshold: the P(leader) at which sampling stops.
        on_missing_confidence: ``"error"``, or ``"count"`` to count a response without a
            score as an average one.
        alternatives: K, the number of wrong answers that a wrong response may name.
        floor: c, the least weight of a response; never below zero.

    Raises:
        ConfigurationError: a parameter is out of range.
    """

    name: ClassVar[str] = "bayesian_vote"
    odds: PointOdds
    threshold: float = 0.99
    alternatives: float = 5.0
    floor: float = 0.5
    _: KW_ONLY
    on_missing_confidence: OnMissing = "error"

    def __post_init__(self) -> None:
        check_probability("threshold", self.threshold)
        check_on_missing(self.on_missing_confidence)
        if not 1 <= self.alternatives < math.inf:
            raise ConfigurationError(
                f"alternatives must be a finite number >= 1, got {self.alternatives}"
            )
        if not 0 <= self.floor < math.inf:
            raise ConfigurationError(
                f"floor must be a finite number >= 0, got {self.floor}"
            )

    @property
    def first_wave(self) -> int:
        return 1

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        answers = [response.answer for response in responses]
        evidence = evidence_by_answer(
            zip(answers, self.weights(responses), strict=True)
        )
        certain = probability_of_leader(evidence)
        stop = certain >= self.threshold and not is_cut_off_alone(responses)
        return Decision(
            stop,
            leader(evidence),
            "evidence" if stop else None,
            len(responses),
            evidence,
            posterior=certain,
        )

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return ℓ of each response; zero for a response without a vote."""
        return [self._weight(response) for response in responses]

    def _weight(self, response: Response) -> float:
        if response.answer is None or response.not_voted:
            return 0.0
        return max(self.floor, self._log_odds(response) + math.log(self.alternatives))

    def _log_odds(self, response: Response) -> float:
        """Return the log-odds of a response that votes; those of an average one if it
        is blank.
        """
        if response.blank:
            return self.odds.average
        if response.score is not None:
            return self.odds(response.score)
        if self.on_missing_confidence == "error":
            raise missing_score()
        return self.odds.average


def probability_of_leader(evidence: Mapping[str, float]) -> float:
    """Return ``max e^v / (1 + Σ e^v)``, without overflow; 0 with no votes.

    The 1 stands for an answer that no response has given yet.

    Args:
        evidence: answer -> summed log-weights.
    """
    if not evidence:
        return 0.0
    largest = max(evidence.values())
    scale = max(0.0, largest)
    total = math.exp(-scale) + math.fsum(
        math.exp(weight - scale) for weight in evidence.values()
    )
    return math.exp(largest - scale) / total

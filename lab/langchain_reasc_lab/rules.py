"""Weighted votes of other papers over the whole budget, for comparison: CISC and
DeepConf's filter.

They never stop by themselves, and are used as ``CISC() | Cap(16)``. The decision of
such a combination is what its rule says of the first 16 responses.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Decision, Response, StoppingRule
from langchain_reasc.method.stopping import OnMissing, check_on_missing, missing_score

__all__ = ["CISC", "DeepConfFilter"]


@dataclass(frozen=True)
class WeighedTogether(StoppingRule):
    """Base of the rules by which a response counts what its score is among those of all
    responses so far.

    Such a rule never stops by itself; combine it as ``CISC() | Cap(16)``. The posterior
    is the leader's share of the weight, 0 without votes.

    Attributes:
        on_missing_confidence: ``"error"``, or ``"count"`` to give a response without a
            score the mean of the others.

    Raises:
        ConfigurationError: a parameter out of range.
    """

    _: KW_ONLY
    on_missing_confidence: OnMissing = "error"

    def __post_init__(self) -> None:
        check_on_missing(self.on_missing_confidence)

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        return replace(votes, posterior=_share_of_leader(votes.evidence))

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return what each response counts among these; zero without a vote."""
        voting = [
            at
            for at, one in enumerate(responses)
            if one.answer is not None and not one.not_voted
        ]
        weights = [0.0] * len(responses)
        if voting:
            scores = self._scores([responses[at] for at in voting])
            for at, weight in zip(voting, self._together(scores), strict=True):
                weights[at] = weight
        return weights

    @abstractmethod
    def _together(self, scores: list[float]) -> list[float]:
        """Return the weights for the scores of the responses that vote, at least one,
        in launch order.
        """

    def _scores(self, voting: Sequence[Response]) -> list[float]:
        known = [one.score for one in voting if one.score is not None]
        missing = any(one.score is None and not one.blank for one in voting)
        if missing and self.on_missing_confidence == "error":
            raise missing_score()
        mean = math.fsum(known) / len(known) if known else 1.0
        return [mean if one.score is None else one.score for one in voting]


@dataclass(frozen=True)
class CISC(WeighedTogether):
    """Confidence-Informed Self-Consistency (Taubenfeld et al. 2025; arXiv 2502.06233).

    The vote is weighted by the softmax of the question's scores: w_t = exp(S_t / T) / Σ
    exp(S / T).

    Attributes:
        temperature: T > 0, in units of the score. The paper tunes it for each model and
            signal on held-out questions; a large T counts votes, a small one takes the
            answer of the highest score.
    """

    name: ClassVar[str] = "cisc"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise ConfigurationError(
                f"temperature is a finite number above 0, got {self.temperature}"
            )

    def _together(self, scores: list[float]) -> list[float]:
        highest = max(scores)
        powers = [math.exp((score - highest) / self.temperature) for score in scores]
        total = math.fsum(powers)
        return [power / total for power in powers]


@dataclass(frozen=True)
class DeepConfFilter(WeighedTogether):
    """DeepConf's offline vote (Fu et al. 2025; arXiv 2508.15260): the most confident η
    of all responses, weighted.

    A response votes with its score as weight where that is at least the (1 − η)
    quantile of the question's scores, interpolated linearly, as in the authors' code;
    the others do not vote.

    Attributes:
        keep: η; the paper shows 0.9 and 0.1, and 1 filters nothing.

    Raises:
        ConfigurationError: when it votes, of a score below zero; the paper's confidence
            is a mean negative log-probability and never is.
    """

    name: ClassVar[str] = "deepconf_filter"
    keep: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.keep <= 1:
            raise ConfigurationError(
                f"keep is a share above 0 and at most 1, got {self.keep}"
            )

    def _together(self, scores: list[float]) -> list[float]:
        if min(scores) < 0:
            raise ConfigurationError(
                f"{self.name} weighs by the score, and one is {min(scores):g}; it "
                "needs a signal that is never below zero"
            )
        least = float(np.quantile(scores, 1.0 - self.keep))
        return [score if score >= least else 0.0 for score in scores]


def _share_of_leader(evidence: Mapping[str, float]) -> float:
    """Return the largest weight as a share of all; 0 if there is none."""
    total = math.fsum(evidence.values())
    return max(evidence.values()) / total if total > 0 else 0.0

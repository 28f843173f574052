"""Weighted votes of other papers over the whole budget: CISC, DeepConf and DistriVoting."""

import math
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Decision, Response, StoppingRule, evidence_by_answer, leader
from langchain_reasc.method.stopping import OnMissing, check_on_missing, missing_score

Votes = Sequence[tuple[str, float]]
"""(answer, confidence) pairs, in launch order."""


@dataclass(frozen=True)
class WeighedTogether(StoppingRule):
    """Base of the rules by which a response counts what its score is among those of all responses so far.

    Such a rule never stops by itself; combine it as ``CISC() | Cap(16)``. The posterior is the leader's share of the
    weight, 0 without votes.

    Attributes:
        on_missing_confidence: ``"error"``, or ``"count"`` to give a response without a score the mean of the others.

    Raises:
        ConfigurationError: a parameter out of range.
    """

    _: KW_ONLY
    on_missing_confidence: OnMissing = "error"

    def __post_init__(self) -> None:
        check_on_missing(self.on_missing_confidence)

    @property
    def earliest(self) -> int:
        return sys.maxsize

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        return replace(votes, posterior=_share_of_leader(votes.evidence))

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return what each response counts among these; zero without a vote."""
        voting = [at for at, one in enumerate(responses) if one.answer is not None and not one.not_voted]
        weights = [0.0] * len(responses)
        if voting:
            scores = self._scores([responses[at] for at in voting])
            for at, weight in zip(voting, self._together(scores), strict=True):
                weights[at] = weight
        return weights

    @abstractmethod
    def _together(self, scores: list[float]) -> list[float]:
        """Return the weights for the scores of the responses that vote, at least one, in launch order."""

    def _never_negative(self, scores: Sequence[float]) -> None:
        """Refuse scores that cannot be weights."""
        if min(scores, default=0.0) < 0:
            raise ConfigurationError(
                f"{self.name} weighs by the score, and one is {min(scores):g}; it needs a signal that is never below "
                "zero"
            )

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

    The vote is weighted by the softmax of the question's scores: w_t = exp(S_t / T) / Σ exp(S / T).

    Attributes:
        temperature: T > 0, in units of the score. The paper tunes it for each model and signal on held-out questions;
            a large T counts votes, a small one takes the answer of the highest score.
    """

    name: ClassVar[str] = "cisc"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise ConfigurationError(f"temperature is a finite number above 0, got {self.temperature}")

    def _together(self, scores: list[float]) -> list[float]:
        highest = max(scores)
        powers = [math.exp((score - highest) / self.temperature) for score in scores]
        total = math.fsum(powers)
        return [power / total for power in powers]


@dataclass(frozen=True)
class DeepConfFilter(WeighedTogether):
    """DeepConf's offline vote (Fu et al. 2025; arXiv 2508.15260): the most confident η of all responses, weighted.

    A response votes with its score as weight where that is at least the (1 − η) quantile of the question's scores,
    interpolated linearly, as in the authors' code; the others do not vote.

    Attributes:
        keep: η; the paper shows 0.9 and 0.1, and 1 filters nothing.

    Raises:
        ConfigurationError: when it votes, of a score below zero; the paper's confidence is a mean negative
            log-probability and never is.
    """

    name: ClassVar[str] = "deepconf_filter"
    keep: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.keep <= 1:
            raise ConfigurationError(f"keep is a share above 0 and at most 1, got {self.keep}")

    def _together(self, scores: list[float]) -> list[float]:
        self._never_negative(scores)
        least = float(np.quantile(scores, 1.0 - self.keep))
        return [score if score >= least else 0.0 for score in scores]


@dataclass(frozen=True)
class DistriVoting(WeighedTogether):
    """DistriVoting (Yang et al. 2026; arXiv 2603.03872), without its way of generating (SelfStepConf).

    1. A mixture of two Gaussians of the question's scores; the responses of the upper one are V⁺, the others V⁻.
    2. A⁻ is what V⁻ votes for with negative confidences as weights, A⁺ what V⁺ votes for.
    3. Where these differ, the responses that say A⁻ are left out, the mixture is fitted again to those that remain, and
       the answer is the vote of its upper part; where they do not, it is A⁺.

    Each vote is hierarchical: the range of confidences is cut into ``intervals`` of equal length, a weighted majority
    is taken in each, and of these answers another, each weighted by its mean confidence in its interval (Eq. 17–23).

    It never stops by itself. The evidence is that of the last vote, between intervals. Fitting takes a few
    milliseconds, and is left out where all scores are equal. The paper has 128 responses to a question, and finds no
    gain with 8.

    Attributes:
        intervals: N_C.

    Raises:
        ConfigurationError: when it votes, of a score below zero, as by :class:`DeepConfFilter`.
    """

    name: ClassVar[str] = "distrivoting"
    intervals: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intervals < 1:
            raise ConfigurationError(f"there is at least 1 interval, got {self.intervals}")

    def __call__(self, responses: Sequence[Response]) -> Decision:
        voting = [one for one in responses if one.answer is not None and not one.not_voted]
        scores = self._scores(voting)
        self._never_negative(scores)
        evidence = self._decide([(str(one.answer), score) for one, score in zip(voting, scores, strict=True)])
        return Decision(False, leader(evidence), None, len(responses), evidence, _share_of_leader(evidence))

    def _together(self, scores: list[float]) -> list[float]:
        """Return one for the responses of V⁺; what they count in the end depends on all answers."""
        return [float(upper) for upper in _upper(tuple(scores))]

    def _decide(self, votes: Votes) -> dict[str, float]:
        upper, lower = _split(votes)
        kept = self._hierarchical(upper)
        rejected = leader(self._hierarchical([(answer, -confidence) for answer, confidence in lower]))
        remaining = [vote for vote in votes if vote[0] != rejected]
        if rejected is None or rejected == leader(kept) or not remaining:
            return kept
        return self._hierarchical(_split(remaining)[0])

    def _hierarchical(self, votes: Votes) -> dict[str, float]:
        """Return answers of the intervals -> summed mean confidences."""
        if not votes:
            return {}
        confidences = np.array([confidence for _, confidence in votes])
        edges = np.linspace(confidences.min(), confidences.max(), self.intervals + 1)
        interval = np.searchsorted(edges[1:-1], confidences, side="left")
        chosen = []
        for one in np.unique(interval):
            within = [vote for vote, where in zip(votes, interval, strict=True) if where == one]
            answer = leader(evidence_by_answer(within))
            chosen.append((answer, float(np.mean([value for given, value in within if given == answer]))))
        return evidence_by_answer(chosen)


def _split(votes: Votes) -> tuple[Votes, Votes]:
    """Return the votes in the upper component, and those in the lower one."""
    upper = _upper(tuple(confidence for _, confidence in votes))
    return (
        [vote for vote, above in zip(votes, upper, strict=True) if above],
        [vote for vote, above in zip(votes, upper, strict=True) if not above],
    )


@lru_cache(maxsize=1024)
def _upper(scores: tuple[float, ...]) -> tuple[bool, ...]:
    """Return which scores more likely belong to the mixture's component with the larger mean."""
    if len(set(scores)) < 2:
        return (True,) * len(scores)
    from sklearn.mixture import GaussianMixture  # deferred: keeps `import langchain_reasc` light

    values = np.array(scores)[:, None]
    scaled = (values - values.min()) / (values.max() - values.min())  # a variance of tiny scores would be zero
    mixture = GaussianMixture(2, random_state=0, max_iter=500).fit(scaled)
    return tuple(bool(one == np.argmax(mixture.means_[:, 0])) for one in mixture.predict(scaled))


def _share_of_leader(evidence: Mapping[str, float]) -> float:
    """Return the largest weight as a share of all; 0 if there is none."""
    total = math.fsum(evidence.values())
    return max(evidence.values()) / total if total > 0 else 0.0

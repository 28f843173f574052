"""DistriVoting: two Gaussians of the question's scores tell which responses vote, and which answer is left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.evidence import evidence_by_answer, leader
from langchain_reasc_lab.rules.weighted import WeighedTogether, share_of_leader

__all__ = ["DistriVoting"]

Votes = Sequence[tuple[str, float]]
"""(answer, confidence) pairs, in launch order."""


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
        ConfigurationError: when it votes, of a score below zero, as by :class:`~.weighted.DeepConfFilter`.
    """

    called: ClassVar[str] = "distrivoting"
    intervals: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intervals < 1:
            raise ConfigurationError(f"there is at least 1 interval, got {self.intervals}")

    def __call__(self, responses: Sequence[Response]) -> Decision:
        voting = [one for one in responses if one.answer is not None and not one.alone]
        scores = self._scores(voting)
        self._never_negative(scores)
        evidence = self._decide([(str(one.answer), score) for one, score in zip(voting, scores, strict=True)])
        return Decision(
            stop=False,
            answer=leader(evidence),
            reason=None,
            samples=len(responses),
            evidence=evidence,
            posterior=share_of_leader(evidence),
        )

    def _together(self, scores: list[float]) -> list[float]:
        """One for the responses of V⁺; what they count in the end depends on all answers."""
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
        """Answers of the intervals -> summed mean confidences."""
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
    """Those in the upper component, and those in the lower one."""
    upper = _upper(tuple(confidence for _, confidence in votes))
    return (
        [vote for vote, above in zip(votes, upper, strict=True) if above],
        [vote for vote, above in zip(votes, upper, strict=True) if not above],
    )


@lru_cache(maxsize=1024)
def _upper(scores: tuple[float, ...]) -> tuple[bool, ...]:
    """Which scores are more likely of the mixture's component with the larger mean."""
    if len(set(scores)) < 2:
        return (True,) * len(scores)
    from sklearn.mixture import GaussianMixture  # deferred: keeps `import langchain_reasc` light

    values = np.array(scores)[:, None]
    scaled = (values - values.min()) / (values.max() - values.min())  # a variance of tiny scores would be zero
    mixture = GaussianMixture(2, random_state=0, max_iter=500).fit(scaled)
    return tuple(bool(one == np.argmax(mixture.means_[:, 0])) for one in mixture.predict(scaled))

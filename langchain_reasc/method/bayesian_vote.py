"""Votes that weigh by the odds of being right, and the probability of the answer that they come to."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.checks import check_on_missing, check_probability, check_statistics, missing_score
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.evidence import Standardizer, evidence_by_answer, leader
from langchain_reasc.method.stopping import StoppingRule

__all__ = ["BayesianVote", "LogOddsVote", "probability_of_leader"]

_LARGEST_LOGIT = 50.0  # e^50 to one decides any vote already


@dataclass(frozen=True)
class LogOddsVote(StoppingRule):
    """Base of the rules that weigh a response by its odds of being right: logit p = slope · z + intercept.

    Attributes:
        statistics: μ and σ of the scores, for z = (S − μ) / σ.
        slope: of the logistic map, as a logistic regression on z finds it.
        intercept: likewise; the log-odds of a response with an average score.
        threshold: P(leader) at which it stops.
        on_missing_confidence: ``"error"``, or ``"count"`` to let a response without a score count as one with an
            average score, z = 0.

    Raises:
        ConfigurationError: a parameter out of range.
    """

    statistics: Standardizer
    slope: float
    intercept: float
    threshold: float = 0.99
    _: KW_ONLY
    on_missing_confidence: Literal["error", "count"] = "error"

    def __post_init__(self) -> None:
        check_statistics(self.statistics)
        check_probability("threshold", self.threshold)
        check_on_missing(self.on_missing_confidence)
        if not (math.isfinite(self.slope) and math.isfinite(self.intercept)):
            raise ConfigurationError(f"slope and intercept are finite numbers, got {self.slope} and {self.intercept}")

    @property
    def may_accept_first(self) -> bool:
        return True

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        answers = [response.answer for response in responses]
        evidence = evidence_by_answer(zip(answers, self._log_weights(responses), strict=True))
        certain = probability_of_leader(evidence, unseen=self._unseen(evidence))
        taken_alone = len(responses) == 1 and responses[0].cut_off  # which no cut-off response ever is
        stop = certain >= self.threshold and not taken_alone
        return Decision(
            stop=stop,
            answer=leader(evidence),
            reason="evidence" if stop else None,
            samples=len(responses),
            evidence=evidence,
            posterior=certain,
        )

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """The log-weight of each response, or zero where it speaks against its own answer."""
        return [max(0.0, weight) for weight in self._log_weights(responses)]

    def log_odds(self, response: Response) -> float:
        """Logit p of a response that votes; beyond e^50 to one either way it is cut.

        Raises:
            LogprobsUnavailable: it has no score, and ``on_missing_confidence`` is ``"error"``.
        """
        if response.score is None:
            if self.on_missing_confidence == "error":
                raise missing_score()
            return self.intercept
        logit = self.slope * self.statistics.z(response.score) + self.intercept
        return max(-_LARGEST_LOGIT, min(_LARGEST_LOGIT, logit))

    @abstractmethod
    def _log_weights(self, responses: Sequence[Response]) -> list[float]:
        """ℓ of each response; zero without a vote."""

    def _unseen(self, evidence: Mapping[str, float]) -> float:
        return 1.0


@dataclass(frozen=True)
class BayesianVote(LogOddsVote):
    """Stop when the leader is right with a probability of at least ``threshold``, every response being a witness.

    A response that is right with probability p, and otherwise names each of K wrong answers equally often, multiplies
    the odds of its answer by K · p / (1 − p). With a floor under what one response says::

        ℓ = max(c, logit p + log K)
        P(a) = exp(Σ ℓ of a) / (1 + Σ over answers b of exp(Σ ℓ of b))

    where the 1 stands for an answer that nobody has given yet. That is the optimal vote among independent voters of
    known competence (Nitzan and Paroush 1982), with its posterior. It promises a right answer as far as p is right and
    responses err independently: where wrong answers agree, it is too sure.

    Attributes:
        alternatives: K, wrong answers that a wrong response may name.
        floor: c, what a response counts at least; never below zero.
    """

    called: ClassVar[str] = "bayesian_vote"
    alternatives: float = 5.0
    floor: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.alternatives < math.inf:
            raise ConfigurationError(f"alternatives is a finite number of at least 1, got {self.alternatives}")
        if not 0 <= self.floor < math.inf:
            raise ConfigurationError(f"floor is a finite number of at least 0, got {self.floor}")

    def _log_weights(self, responses: Sequence[Response]) -> list[float]:
        return [0.0 if one.answer is None or one.alone else self._log_weight(one) for one in responses]

    def _log_weight(self, response: Response) -> float:
        return max(self.floor, self.log_odds(response) + math.log(self.alternatives))


def probability_of_leader(evidence: Mapping[str, float], *, unseen: float = 1.0) -> float:
    """``max e^v / (unseen + Σ e^v)``, without overflow; 0 with no votes.

    Args:
        evidence: answer -> summed log-weights.
        unseen: what answers that nobody has given weigh together, each as much as one without evidence.
    """
    if not evidence:
        return 0.0
    largest = max(evidence.values())
    scale = max(0.0, largest)
    total = unseen * math.exp(-scale) + math.fsum(math.exp(weight - scale) for weight in evidence.values())
    return math.exp(largest - scale) / total

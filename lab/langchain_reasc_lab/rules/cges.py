"""CGES: stop when the posterior of an answer, from the confidence in each response, is high enough."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.bayesian_vote import LogOddsVote
from langchain_reasc.method.decision import Response
from langchain_reasc.method.evidence import evidence_by_answer

__all__ = ["CGES"]


@dataclass(frozen=True)
class CGES(LogOddsVote):
    """Confidence-Guided Early Stopping (Aghazadeh et al. 2025; arXiv 2511.02603, OpenReview Xxw1L7H3fz).

    With C_t the confidence that response t is right, R_t its answer, and K answers that are possible::

        P(a) ∝ Π_t C_t if R_t = a, else (1 − C_t) / (K − 1)

    stops when it reaches the threshold γ. Divided by Π (1 − C_t) / (K − 1), that is a vote with ℓ = logit C +
    log(K − 1), which may speak against its own answer, and 1 for each answer without responses. Where the possible
    answers are not known, K is the number of those seen, and one more for all others.

    As described in the paper's summary and in a public implementation of its Algorithm 1 and Remark D.4; only an answer
    that was given can end it here. The paper's C is a token probability or a reward model's score; here it is the
    logistic map of the score, so that any signal may be used. γ = 0.95 is that implementation's.

    Attributes:
        answers: K where it is known, as with multiple choice; at least 2.
    """

    called: ClassVar[str] = "cges"
    threshold: float = 0.95
    answers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers is not None and self.answers < 2:
            raise ConfigurationError(f"there are at least 2 possible answers, got answers={self.answers}")

    def _log_weights(self, responses: Sequence[Response]) -> list[float]:
        voting = [one.answer is not None and not one.alone for one in responses]
        seen = evidence_by_answer((one.answer, 1.0) for one in responses)
        others = math.log(self._possible(seen) - 1) if seen else 0.0
        return [
            self.log_odds(one.score) + others if votes else 0.0 for one, votes in zip(responses, voting, strict=True)
        ]

    def _unseen(self, evidence: Mapping[str, float]) -> float:
        return float(self._possible(evidence) - len(evidence))

    def _possible(self, seen: Mapping[str, float]) -> int:
        return len(seen) + 1 if self.answers is None else max(self.answers, len(seen))

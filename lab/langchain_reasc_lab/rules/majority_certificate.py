"""A certificate, valid whenever one looks, that the leader is the answer which the model gives most often."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.stopping import StoppingRule

__all__ = ["MajorityCertificate"]


@dataclass(frozen=True)
class MajorityCertificate(StoppingRule):
    """Martingale Majority Certificate (Cordero-Encinar and Duncan 2025; arXiv 2510.17472).

    Before each response, the votes so far name a leader, a runner-up and ``contenders`` leading answers in all. The
    response is then one trial in each of two tests, or in none: of the leader against the runner-up, and of the leader
    against everything outside the contenders. With s trials won and f lost, the e-process against "the leader wins at
    most half of them", with a Beta(½, ½) prior cut off below one half, is::

        E = 2^(s + f) · B(s + ½, f + ½) · P(Beta(s + ½, f + ½) > ½) / (½ B(½, ½))

    It stops when both reach 1/δ, by Ville's inequality with an error of at most δ for each test, however often one
    looks; the posterior is 1 − 1/E of the smaller one, or 0. While one answer alone is known, every other one is the
    runner-up. It certifies the model's most frequent answer, not a right one, and goes on where two are as frequent.

    As described in the paper's summary and in public code of its authors' algorithm, whose sets of contenders this
    follows; that code puts a point where the prior is here.

    Attributes:
        error: δ, above 0 and below 0.5.
        contenders: leading answers that are not among "everything else"; at least 2.
    """

    called: ClassVar[str] = "majority_certificate"
    error: float = 0.05
    contenders: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.error < 0.5:
            raise ConfigurationError(f"error is a probability above 0 and below 0.5, got {self.error}")
        if self.contenders < 2:
            raise ConfigurationError(f"there are at least 2 contenders, got {self.contenders}")

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self._tally(responses)
        weaker = min(_log_e(*trials) for trials in self._trials(responses))
        certain = max(0.0, -math.expm1(-weaker))
        stop = weaker >= -math.log(self.error)
        return replace(tally, stop=stop, reason="evidence" if stop else None, posterior=certain)

    def _trials(self, responses: Sequence[Response]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Won and lost: against the runner-up, and against what is not among the contenders."""
        votes: dict[str, int] = {}
        won = to_runner_up = to_others = 0
        for answer in (response.answer for response in responses):
            if answer is None:
                continue
            ranked = sorted(votes, key=votes.__getitem__, reverse=True)  # stable: of equals, the one seen first
            if ranked and answer == ranked[0]:
                won += 1
            elif ranked:
                to_runner_up += len(ranked) == 1 or answer == ranked[1]
                to_others += answer not in ranked[: self.contenders]
            votes[answer] = votes.get(answer, 0) + 1
        return (won, to_runner_up), (won, to_others)


@lru_cache(maxsize=4096)
def _log_e(won: int, lost: int) -> float:
    from scipy.special import betainc, betaln  # deferred: keeps `import langchain_reasc` light

    a, b = won + 0.5, lost + 0.5
    above_half = float(betainc(b, a, 0.5))  # P(Beta(a, b) > ½), by symmetry
    if above_half == 0.0:
        return -math.inf
    return (won + lost + 1) * math.log(2) + float(betaln(a, b)) - math.log(math.pi) + math.log(above_half)

"""Stopping rules of other papers that certify the most frequent answer by e-processes: MMC and CITE.

An e-process is a wager against a hypothesis: while that is true, it exceeds 1/α with probability α at most, however
often one looks (Ville's inequality). What is certified is the model's most frequent answer, not a right one.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Decision, Odds, Response, StoppingRule
from langchain_reasc.method.stopping import OnMissing, check_on_missing, missing_score

Floats = npt.NDArray[np.float64]
_STAKES: Final = np.array([2.0**-k for k in range(1, 8)] + [1 - 2.0**-k for k in range(2, 9)])
"""λ, the shares of what was won so far that are wagered on the next response; each begins with as much."""


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

    name: ClassVar[str] = "majority_certificate"
    error: float = 0.05
    contenders: int = 3

    def __post_init__(self) -> None:
        _check_error(self.error)
        if self.contenders < 2:
            raise ConfigurationError(f"there are at least 2 contenders, got {self.contenders}")

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        weaker = min(_log_e(*trials) for trials in self._trials(responses))
        certain = max(0.0, -math.expm1(-weaker))
        stop = weaker >= -math.log(self.error)
        return replace(votes, stop=stop, reason="evidence" if stop else None, posterior=certain)

    def _trials(self, responses: Sequence[Response]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (won, lost) against the runner-up, and against what is not among the contenders."""
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


@dataclass(frozen=True)
class CITE(StoppingRule):
    """Certification by Intersection-union Testing with E-processes (Ota et al. 2026; arXiv 2605.05873).

    An answer r is certified when two wagers of its own have won, averaged over the stakes λ. The first is against every
    other answer a that was seen, so that only the weakest of these counts::

        min over a of mean over λ of Π (1 + λ W (1[X = r] − 1[X = a])) ≥ 3/ε

    The second says that r is more frequent than u, which no answer that was not seen can be::

        mean over λ of Π (1 + λ (W 1[X = r] / u − 1)) ≥ 3/ε,   (1 − u)^t = u ε/3

    X is the answer of one of t responses, and W its weight: 1, or by ``confidence`` how likely it is right, which
    certifies the answer of the largest weight. For one answer r that is named beforehand, a false certificate has a
    probability of at most ε. Here r is the leader, whichever that is. The posterior is 1 − 1/E, where E is the smaller
    of the two wagers, or 0.

    The three parts, their shares of ε and the weights are those of the paper, as others describe it; its equations and
    its stakes were not at hand, so that these may differ.

    Attributes:
        error: ε, above 0 and below 0.5.
        confidence: logit p of a response, from its score; None to count votes.
        on_missing_confidence: ``"error"``, or ``"count"`` to let a response without a score count as an average one.
    """

    name: ClassVar[str] = "cite"
    error: float = 0.05
    confidence: Odds | None = None
    _: KW_ONLY
    on_missing_confidence: OnMissing = "error"

    def __post_init__(self) -> None:
        _check_error(self.error)
        check_on_missing(self.on_missing_confidence)

    @property
    def reads_scores(self) -> bool:
        return self.confidence is not None

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        weighed = zip(responses, self.weights(responses), strict=True)
        voting = [(one.answer == votes.answer, one.answer, weight) for one, weight in weighed if one.answer is not None]
        if not voting:
            return replace(votes, posterior=0.0)
        leads, weights = np.array([own for own, _, _ in voting]), np.array([weight for _, _, weight in voting])
        unseen = _largest_unseen(len(voting), self.error / 3)
        weakest = _log_mean_won(leads * weights / unseen - 1)
        for rival in {answer for own, answer, _ in voting if not own}:
            against = np.array([answer == rival for _, answer, _ in voting])
            weakest = min(weakest, _log_mean_won((leads * 1.0 - against) * weights))
        stop = weakest >= math.log(3 / self.error)
        certain = max(0.0, -math.expm1(-weakest))
        return replace(votes, stop=stop, reason="evidence" if stop else None, posterior=certain)

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return W of each response.

        Raises:
            LogprobsUnavailable: a response that votes has no score, and ``on_missing_confidence`` is ``"error"``.
        """
        if self.confidence is None:
            return super().weights(responses)
        return [
            0.0 if one.answer is None or one.not_voted else _p(self._logit(one, self.confidence)) for one in responses
        ]

    def _logit(self, response: Response, confidence: Odds) -> float:
        if response.score is None and not response.blank and self.on_missing_confidence == "error":
            raise missing_score()
        return confidence.average if response.score is None else confidence(response.score)


def _log_mean_won(stake_wins: Floats) -> float:
    """Return log of what the wagers have won on average, by what each response pays per unit of stake."""
    won = np.log1p(_STAKES[:, None] * stake_wins).sum(axis=1)
    highest = won.max()
    return float(highest + np.log(np.exp(won - highest).mean()))


@lru_cache(maxsize=4096)
def _largest_unseen(responses: int, error: float) -> float:
    """Return u, the largest share that an answer may have which none of so many responses gave."""
    from scipy.optimize import brentq

    return float(brentq(lambda u: (1 - u) ** responses - error * u, 0.0, 1.0, xtol=1e-12))


def _p(logit: float) -> float:
    return (1 + math.tanh(logit / 2)) / 2  # without overflow


def _check_error(error: float) -> None:
    if not 0 < error < 0.5:
        raise ConfigurationError(f"error is a probability above 0 and below 0.5, got {error}")

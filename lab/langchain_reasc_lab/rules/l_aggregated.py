"""The L = 3 rule: the leader's posterior, from the two largest counts and a prior on how answers are distributed."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.checks import check_probability
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.stopping import StoppingRule

__all__ = ["LAggregated"]

Priors = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class LAggregated(StoppingRule):
    """The L-aggregated posterior with L = 3 (Huang, Ma and Zhou 2026; arXiv 2602.05395).

    The prior says with which probabilities p₁ ≥ p₂ ≥ … ≥ p_K a model answers, not which answer has which; where it is
    uncertain, each of several such p is as likely. Seen are the two largest counts, n₁ ≥ n₂, and how many responses
    there were beside them, m. With the leader of rank i and the runner-up of rank j, up to a constant::

        L(i, j | p) = p_i^n₁ · p_j^n₂ · Σ Π_k p_k^c_k / c_k! / C(t + e, t)

    over all counts c_k ≤ n₂ of the other ranks with Σ c_k = m, e of them equal to n₂; t is 2 where n₁ = n₂, else 1, and
    shares ties evenly. It stops when the leader is the first rank with probability ::

        Σ_p Σ_j L(1, j | p) / Σ_p Σ_i,j L(i, j | p) ≥ threshold

    Responses without an answer are left out; the paper's code counts them as one more answer.

    Attributes:
        priors: each p, which sum to one and do not rise. What no p allows is never stopped on.
        threshold: 1 − δ.

    Raises:
        ConfigurationError: no p, or one that is no such distribution.
    """

    called: ClassVar[str] = "l_aggregated"
    priors: Priors
    threshold: float = 0.95

    def __post_init__(self) -> None:
        check_probability("threshold", self.threshold)
        if not self.priors or not all(map(_falls_and_sums_to_one, self.priors)):
            raise ConfigurationError("priors are probabilities from the largest to the smallest that sum to one, each")

    @classmethod
    def of_counts(cls, counts: Iterable[Sequence[int]], threshold: float = 0.95) -> "LAggregated":
        """The rule whose priors are the observed shares of answers, one p for each question.

        Args:
            counts: for each question, how many responses gave each of its answers; questions without are left out.
            threshold: 1 − δ.

        Raises:
            CalibrationDataError: no question has an answer.
        """
        answered = [sorted(votes, reverse=True) for votes in counts if sum(votes)]
        if not answered:
            raise CalibrationDataError("no question has an answer to learn the distribution of answers from")
        return cls(tuple(tuple(n / sum(votes) for n in votes) for votes in answered), threshold)

    @property
    def may_accept_first(self) -> bool:
        return _first_rank_leads(self.priors, 1, 0, 0) >= self.threshold

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self._tally(responses)
        counts = sorted(map(int, tally.evidence.values()), reverse=True)
        first, second = [*counts, 0, 0][:2]
        certain = _first_rank_leads(self.priors, first, second, sum(counts[2:])) if counts else 0.0
        stop = certain >= self.threshold
        return replace(tally, stop=stop, reason="evidence" if stop else None, posterior=certain)


def _falls_and_sums_to_one(prior: Sequence[float]) -> bool:
    return (
        len(prior) > 0
        and all(larger >= smaller >= 0 for larger, smaller in zip(prior, [*prior[1:], 0.0], strict=True))
        and math.isclose(sum(prior), 1.0, abs_tol=1e-9)
    )


@lru_cache(maxsize=4096)
def _first_rank_leads(priors: Priors, first: int, second: int, beside: int) -> float:
    table, share = _table(priors)
    first_leads = float(share @ _likelihood(table[:, :1], table[:, 1:], first, second, beside))
    another_leads = float(share @ _likelihood(table[:, 1:], table[:, :1], first, second, beside))
    either = first_leads + another_leads
    return first_leads / either if either > 0 else 0.0


@lru_cache(maxsize=16)
def _table(priors: Priors) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Each different p, shape (priors, ranks), with at least two ranks; and its share of all."""
    times = Counter(priors)
    ranks = max(2, *map(len, times))
    table = np.array([[*prior, *[0.0] * (ranks - len(prior))] for prior in times])
    return table, np.array(list(times.values()), dtype=float) / len(priors)


def _likelihood(
    may_lead: npt.NDArray[np.float64], may_not: npt.NDArray[np.float64], first: int, second: int, beside: int
) -> npt.NDArray[np.float64]:
    """Σ L(i, j | p) over the leaders i of ``may_lead`` and all runners-up j; shape (priors,).

    Ranks are taken one by one. ``ways[:, leader, runner_up, e, c]`` is the weight of all ways to have given the ranks
    so far their counts: with the leader and the runner-up among them or not, e that equal n₂, and c responses in all.
    """
    ranks = np.concatenate([may_lead, may_not], axis=1)
    most_ties = min(ranks.shape[1] - 2, beside // second) if second else ranks.shape[1] - 2
    ways = np.zeros((len(ranks), 2, 2, most_ties + 1, beside + 1))
    ways[:, 0, 0, 0, 0] = 1.0
    for rank, p in enumerate(ranks.T):
        p = p[:, None, None, None]
        after = np.zeros_like(ways)
        for count in range(min(second, beside) + 1):
            taken = ways[..., : beside + 1 - count] * (p**count / math.factorial(count))[..., None]
            if count < second:
                after[..., count:] += taken
            else:
                after[..., 1:, count:] += taken[..., :-1, :]
        if rank < may_lead.shape[1]:
            after[:, 1] += ways[:, 0] * p**first
        after[:, :, 1] += ways[:, :, 0] * p**second
        ways = after
    drawn = 2 if first == second else 1
    shared = [1 / math.comb(drawn + ties, drawn) for ties in range(most_ties + 1)]
    return np.asarray(ways[:, 1, 1, :, beside] @ np.array(shared))

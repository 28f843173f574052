"""Stopping rules of other papers: CGES with its odds, L = 3, SPRT, ahead by k."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method import Decision, LogisticOdds, LogOddsVote, Response, StoppingRule, evidence_by_answer
from langchain_reasc.method.evidence import Standardizer, two_largest
from langchain_reasc.method.stopping import check_probability

Floats = npt.NDArray[np.float64]
Priors = tuple[tuple[float, ...], ...]


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

    name: ClassVar[str] = "cges"
    threshold: float = 0.95
    answers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers is not None and self.answers < 2:
            raise ConfigurationError(f"there are at least 2 possible answers, got answers={self.answers}")

    def _log_weights(self, responses: Sequence[Response]) -> list[float]:
        seen = evidence_by_answer((one.answer, 1.0) for one in responses)
        others = math.log(self._possible(seen) - 1) if seen else 0.0
        return [0.0 if one.answer is None or one.not_voted else self._log_odds_of(one) + others for one in responses]

    def _unseen(self, evidence: Mapping[str, float]) -> float:
        return float(self._possible(evidence) - len(evidence))

    def _possible(self, seen: Mapping[str, float]) -> int:
        return len(seen) + 1 if self.answers is None else max(self.answers, len(seen))


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
        ConfigurationError: no p, or one that is not such a distribution.
    """

    name: ClassVar[str] = "l_aggregated"
    priors: Priors
    threshold: float = 0.95

    def __post_init__(self) -> None:
        check_probability("threshold", self.threshold)
        if not self.priors or not all(map(_falls_and_sums_to_one, self.priors)):
            raise ConfigurationError("priors are probabilities from the largest to the smallest that sum to one, each")

    @classmethod
    def of_counts(cls, counts: Iterable[Sequence[int]], threshold: float = 0.95) -> "LAggregated":
        """Return the rule whose priors are the observed shares of answers, one p for each question.

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
        votes = self.tally(responses)
        counts = sorted(map(int, votes.evidence.values()), reverse=True)
        first, second = [*counts, 0, 0][:2]
        certain = _first_rank_leads(self.priors, first, second, sum(counts[2:])) if counts else 0.0
        stop = certain >= self.threshold
        return replace(votes, stop=stop, reason="evidence" if stop else None, posterior=certain)


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
def _table(priors: Priors) -> tuple[Floats, Floats]:
    """Return the different p, shape (priors, ranks), with at least two ranks; and the share of each."""
    times = Counter(priors)
    ranks = max(2, *map(len, times))
    table = np.array([[*prior, *[0.0] * (ranks - len(prior))] for prior in times])
    return table, np.array(list(times.values()), dtype=float) / len(priors)


def _likelihood(may_lead: Floats, may_not: Floats, first: int, second: int, beside: int) -> Floats:
    """Return Σ L(i, j | p) over the leaders i of ``may_lead`` and all runners-up j; shape (priors,).

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


@dataclass(frozen=True)
class AheadBy(StoppingRule):
    """Stop when the leader has k votes more than every other answer: MAKER (Meyerson et al. 2025; arXiv 2511.09030).

    Where each response is right with probability p and all wrong ones agree, this is the gambler's ruin, and the leader
    is right with probability 1 / (1 + ((1 − p) / p)^k). MAKER draws until it stops; its runs had k = 3. A response that
    MAKER would discard for its format has no answer here. The posterior is that of Eq. 5.

    Attributes:
        k: votes ahead, at least 1.
    """

    name: ClassVar[str] = "ahead_by"
    k: int = 3

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigurationError(f"the leader is ahead by at least 1 vote, got k={self.k}")

    @property
    def earliest(self) -> int:
        return self.k

    @property
    def may_accept_first(self) -> bool:
        return self.k == 1

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        first, second = two_largest(votes.evidence)
        return replace(votes, stop=True, reason="evidence") if first - second >= self.k else votes


@dataclass(frozen=True)
class SPRT(StoppingRule):
    """Wald's sequential probability ratio test of the two leading answers: ConSol (Lee et al. 2025; arXiv 2503.17587).

    With n₁ votes for the leader and n₂ for the runner-up, it tests "the leader has half of their votes" against "it has
    the share p₁", and stops for the leader, or because the two are equally likely, when ::

        n₁ ln 2p₁ + n₂ ln 2(1 − p₁) ≥ ln (1 − β) / α,  or  ≤ ln β / (1 − α)

    The second is an undecided stop, with the reason ``budget``. The posterior is that of Eq. 5.

    The parameters are those of the authors' code, whose β is so near 1 − α that the rule is :class:`AheadBy` with k = 3
    up to some 600 votes for each. α is no bound on its errors, as the leader is the answer that happens to lead: of two
    equally likely answers, one is 3 ahead within 16 responses in 87 % of cases.

    Attributes:
        alternative: p₁, above one half and below 1.
        alpha: α, above 0 and below 0.5.
        beta: β, above 0 and below 1 − α.
    """

    name: ClassVar[str] = "sprt"
    alternative: float = 0.5001
    alpha: float = 0.05
    beta: float = 1 - 0.05 - 0.000024

    def __post_init__(self) -> None:
        check_probability("alternative", self.alternative)
        if not 0 < self.alpha < 0.5:
            raise ConfigurationError(f"alpha is a probability above 0 and below 0.5, got {self.alpha}")
        if not 0 < self.beta < 1 - self.alpha:
            raise ConfigurationError(f"beta is a probability above 0 and below 1 - alpha, got {self.beta}")

    @property
    def may_accept_first(self) -> bool:
        return math.log(2 * self.alternative) >= math.log((1 - self.beta) / self.alpha)

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        first, second = two_largest(votes.evidence)
        ratio = first * math.log(2 * self.alternative) + second * math.log(2 * (1 - self.alternative))
        if ratio >= math.log((1 - self.beta) / self.alpha):
            return replace(votes, stop=True, reason="evidence")
        equal = ratio <= math.log(self.beta / (1 - self.alpha))
        return replace(votes, stop=True, reason="budget") if equal else votes


def fit_odds(scores: Sequence[float], correct: Sequence[bool]) -> LogisticOdds:
    """Fit a logistic regression of "is right" on z = (S − μ) / σ, with scikit-learn's penalty (C = 1).

    Args:
        scores: S(y) of n labelled responses, finite.
        correct: whether each is right.

    Raises:
        CalibrationDataError: all are right, or none is, or all scores are equal.
    """
    if len(set(correct)) < 2:
        raise CalibrationDataError(
            f"odds are learned from right and wrong responses; of {len(correct)}, {sum(correct)} are right. Label more"
        )
    mean, std = float(np.mean(scores)), float(np.std(scores))
    if not std > 0:
        raise CalibrationDataError(f"all {len(scores)} scores are {mean:g}, so they say nothing of being right")
    from sklearn.linear_model import LogisticRegression

    statistics = Standardizer(mean, std)
    fit = LogisticRegression().fit([[statistics.z(score)] for score in scores], correct)
    return LogisticOdds(statistics, float(fit.coef_[0, 0]), float(fit.intercept_[0]))

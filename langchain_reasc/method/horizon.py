"""Finite-horizon rules: can the remaining samples change the answer, and which question
gains most from the next one?

:class:`FiniteHorizon` and :class:`CannotCatchUp` look ahead to the end of the budget.
Both count votes; a response without a vote uses a call. :func:`most_gain_first` shares
one budget among many questions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.evidence import two_largest
from langchain_reasc.method.stopping import (
    DEFAULT_BUDGET,
    StoppingRule,
    check_budget,
    check_probability,
)

__all__ = [
    "CannotCatchUp",
    "FiniteHorizon",
    "expected_gain",
    "most_gain_first",
    "stays_ahead",
]


@dataclass(frozen=True)
class FiniteHorizon(StoppingRule):
    """Stop when the leader would most likely still be ahead of the runner-up at the end
    of the budget.

    Let v₁ and v₂ be the votes for the two leading answers and r = budget − calls used.
    Assume that each of the r remaining calls names one of these two, the leader with a
    probability distributed as Beta(v₁ + 1, v₂ + 1). Then X ~ BetaBinomial(r, v₁ + 1, v₂
    + 1) of them name the leader, and sampling stops when::

        P(v₁ + X > v₂ + r − X) + ½ P(v₁ + X = v₂ + r − X) ≥ φ

    ASC asks instead whether the leader would win with infinitely many samples, so it
    continues even if the remaining ones can hardly change the answer. This is
    stochastic curtailment of sequential trials (Lan, Simon and Halperin 1982), by
    predictive probability. It promises agreement with the whole budget, not a right
    answer. The posterior is that of Eq. 5. The rule itself does not stop at the end of
    the budget; combine it with :class:`~langchain_reasc.method.stopping.Cap`.

    Attributes:
        phi: φ, above 0.5 and below 1. At 0.95 it lost half a point on hard questions
            with two answers.
        budget: the most calls.

    Raises:
        ConfigurationError: φ or the budget is out of range.
    """

    name: ClassVar[str] = "finite_horizon"
    phi: float = 0.97
    budget: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_probability("phi", self.phi)
        check_budget(self.budget)

    @cached_property
    def first_wave(self) -> int:
        for votes in range(1, self.budget):
            if stays_ahead(votes, 0, self.budget - votes) >= self.phi:
                return votes
        return self.budget

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        left = self.budget - len(responses)
        if left <= 0:
            return votes
        first, second = two_largest(votes.evidence)
        stop = stays_ahead(int(first), int(second), left) >= self.phi
        return replace(votes, stop=stop, reason="agreement" if stop else None)


@dataclass(frozen=True)
class CannotCatchUp(StoppingRule):
    """Stop when no answer can overtake the leader with all the remaining calls.

    With r = budget − calls used, the leader is safe once it has at least r votes and
    every other answer is at least r votes behind. (An answer exactly r votes behind
    could draw level, and a tie goes to the answer seen first.) So the answer is always
    that of the whole budget. Combined with a rule that also counts votes, as in
    ``ASC() | CannotCatchUp(16)``, it saves calls and changes no answer. The posterior
    is that of Eq. 5. The rule itself does not stop at the end of the budget.

    Attributes:
        budget: the most calls.

    Raises:
        ConfigurationError: the budget is out of range.
    """

    name: ClassVar[str] = "cannot_catch_up"
    budget: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_budget(self.budget)

    @property
    def first_wave(self) -> int:
        return (self.budget + 1) // 2

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        left = self.budget - len(responses)
        if left <= 0:
            return votes
        stop = _is_final(votes, left)
        return replace(votes, stop=stop, reason="agreement" if stop else None)


@lru_cache(maxsize=4096)
def stays_ahead(first: int, second: int, left: int) -> float:
    """Return P(v₁ + X > v₂ + r − X) + ½ P(=) for X ~ BetaBinomial(r, v₁ + 1, v₂ + 1),
    in exact integers.

    P(X = x) = C(v₁ + x, x) · C(v₂ + r − x, r − x) / C(v₁ + v₂ + r + 1, r).

    Args:
        first: v₁, votes for the leader.
        second: v₂, votes for the runner-up.
        left: r, the remaining calls.
    """
    # Twice as many ways as there are, so that half of a tie is whole.
    ways = 0
    product = math.comb(second + left, left)
    for wins in range(left + 1):
        if wins:
            # The product of the two binomial coefficients, from the one before.
            grown = product * (first + wins) * (left - wins + 1)
            product = grown // (wins * (second + left - wins + 1))
        ahead = (first + wins) - (second + left - wins)
        if ahead > 0:
            ways += 2 * product
        elif ahead == 0:
            ways += product
    return ways / (2 * math.comb(first + second + left + 1, left))


def _is_final(votes: Decision, left: int) -> bool:
    lead = votes.evidence.get(votes.answer or "", 0.0)
    ahead_of_ties = False
    for answer, count in votes.evidence.items():
        if answer == votes.answer:
            # An answer that was first seen later loses a tie.
            ahead_of_ties = True
        elif count + left >= lead + ahead_of_ties:
            return False
    return ahead_of_ties and lead >= left


def expected_gain(decision: Decision, horizon: int) -> float:
    """Return the expected gain of one more sample, in share of responses that give the
    answer.

    If a model is right as often as it repeats itself, an answer with probability p
    among its responses is right with probability p, so sampling can raise E[p]. Let v1
    and v2 be the evidence for the two leading answers, and the share of the first be
    Beta(v1 + 1, v2 + 1). Of r more votes it gets X, which is beta-binomial. A single
    vote often cannot change the leader, so the gain per vote is computed for the best
    number of votes (the KG(*) policy of Frazier and Powell 2010):

        max over r ≤ horizon of (E[max(v1 + 1 + X, v2 + 1 + r - X)] / (v1 + v2 + 2 + r)
        - (v1 + 1) / (v1 + v2 + 2)) / r

    times ρ², where ρ = (v1 + v2 + 1) / (n + 1) is the share of responses that vote for
    one of the two. So a question with scattered answers does not use up the budget.

    Blend-ASC (Feng et al. 2025, arXiv 2511.12309) and UAB (Nguyen et al. 2026, arXiv
    2605.26849) also spend a budget on a whole data set. The gain here is the knowledge
    gradient's.

    Args:
        decision: the decision on the responses so far. For a decision in parts, the
            least certain part counts.
        horizon: samples that the question may still take.
    """
    while decision.parts:
        decision = min(decision.parts.values(), key=lambda part: part.posterior)
    first, second = two_largest(decision.evidence)
    responses = max(decision.samples, sum(decision.evidence.values()))
    share = (first + second + 1) / (responses + 1)
    return share**2 * _gain_per_vote(first, second, horizon)


def most_gain_first(
    decisions: Sequence[Decision], horizons: Sequence[int], costs: Sequence[float]
) -> list[int]:
    """Return the questions that another sample can still change, in descending order of
    gain per cost.

    Args:
        decisions: the decision on the responses to each question so far.
        horizons: samples that each question may still take.
        costs: expected cost of a sample of each question, in any unit, above zero.

    Returns:
        Indices into ``decisions``; ties are in the order of the questions.
    """
    rates = [
        expected_gain(decision, horizon) / cost
        for decision, horizon, cost in zip(decisions, horizons, costs, strict=True)
    ]
    return sorted(
        (index for index, rate in enumerate(rates) if rate > 0),
        key=lambda index: -rates[index],
    )


@lru_cache(maxsize=65536)
def _gain_per_vote(first: float, second: float, horizon: int) -> float:
    if horizon < 1:
        return 0.0
    # Deferred, which keeps `import langchain_reasc` light.
    from scipy.special import betaln, gammaln

    a = first + 1.0
    b = second + 1.0
    r = np.arange(1, horizon + 1)[:, None]
    x = np.arange(horizon + 1)[None, :]
    rest = np.maximum(r - x, 0)
    chosen = gammaln(r + 1) - gammaln(x + 1) - gammaln(rest + 1)
    likely = np.where(
        x <= r, np.exp(chosen + betaln(a + x, b + rest) - betaln(a, b)), 0.0
    )
    after = (likely * np.maximum(a + x, b + rest)).sum(axis=1) / (a + b + r[:, 0])
    gains = (after - a / (a + b)) / r[:, 0]
    best = float(gains.max())
    # Rounding leaves a little where nothing can change.
    return best if best > 1e-12 else 0.0

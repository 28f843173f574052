"""Rules that look ahead to the end of the budget: would the calls that are left still change the answer?

Both count votes. A response without an answer casts none, and uses a call all the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from langchain_reasc.method.checks import check_budget, check_probability
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule

__all__ = ["CannotCatchUp", "FiniteHorizon", "stays_ahead"]


@dataclass(frozen=True)
class FiniteHorizon(StoppingRule):
    """Stop when the leader would most likely be ahead of the runner-up at the end of the budget too.

    With v₁ and v₂ votes for the two leading answers and r = budget − calls used, the calls that are left are taken to
    name one of these two, the leader with a probability of which Beta(v₁ + 1, v₂ + 1) is known. Of them
    X ~ BetaBinomial(r, v₁ + 1, v₂ + 1) name the leader, and it stops when::

        P(v₁ + X > v₂ + r − X) + ½ P(v₁ + X = v₂ + r − X) ≥ φ

    ASC asks instead whether the leader would win without end, and so goes on where what is left can hardly change the
    answer. This is the stochastic curtailment of sequential trials (Lan, Simon and Halperin 1982), by predictive
    probability. It promises agreement with the whole budget, not a right answer. With the budget spent there is nothing
    to look ahead to, and that evidence ran out is no agreement: to stop then is left to
    :class:`~langchain_reasc.method.stopping.Cap`, and the posterior is that of Eq. 5, the limit of many calls left.

    Attributes:
        phi: φ, above 0.5 and below 1. At 0.95 it lost half a point on hard questions with two answers.
        budget: calls there may be in all.

    Raises:
        ConfigurationError: a φ or a budget out of range.
    """

    called: ClassVar[str] = "finite_horizon"
    phi: float = 0.97
    budget: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_probability("phi", self.phi)
        check_budget(self.budget)

    @property
    def may_accept_first(self) -> bool:
        return self.budget > 1 and stays_ahead(1, 0, self.budget - 1) >= self.phi

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally, left = self._tally(responses), self.budget - len(responses)
        if left <= 0:
            return tally
        ahead = stays_ahead(*_two_leading(tally.evidence), left)
        stop = ahead >= self.phi
        return replace(tally, stop=stop, reason="agreement" if stop else None, posterior=ahead)


@dataclass(frozen=True)
class CannotCatchUp(StoppingRule):
    """Stop when no answer could overtake the leader with all the calls that are left.

    With r = budget − calls used, the leader stays whatever comes as soon as it has r votes, and every other answer has
    at most r fewer: with exactly r fewer it could draw level, and a tie goes to the answer seen first. So the answer is
    that of the whole budget, always. Beside a rule that counts votes too, ``ASC() | CannotCatchUp(16)``, it saves calls
    and changes no answer. The posterior is that of :class:`FiniteHorizon`, or 1 where it stops. With the budget spent
    it does not stop.

    Attributes:
        budget: calls there may be in all.

    Raises:
        ConfigurationError: a budget out of range.
    """

    called: ClassVar[str] = "cannot_catch_up"
    budget: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_budget(self.budget)

    @property
    def may_accept_first(self) -> bool:
        return self.budget == 2

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally, left = self._tally(responses), self.budget - len(responses)
        if left <= 0:
            return tally
        stop = _is_final(tally, left)
        ahead = 1.0 if stop else stays_ahead(*_two_leading(tally.evidence), left)
        return replace(tally, stop=stop, reason="agreement" if stop else None, posterior=ahead)


@lru_cache(maxsize=4096)
def stays_ahead(first: int, second: int, left: int) -> float:
    """P(v₁ + X > v₂ + r − X) + ½ P(=) for X ~ BetaBinomial(r, v₁ + 1, v₂ + 1), in exact integers.

    P(X = x) = C(v₁ + x, x) · C(v₂ + r − x, r − x) / C(v₁ + v₂ + r + 1, r).

    Args:
        first: v₁, votes for the leader.
        second: v₂, votes for the runner-up.
        left: r, calls that are left.
    """
    ways = 0  # twice as many, so that half of a tie is whole
    for wins in range(left + 1):
        ahead = (first + wins) - (second + left - wins)
        if ahead >= 0:
            both = math.comb(first + wins, wins) * math.comb(second + left - wins, left - wins)
            ways += both if ahead == 0 else 2 * both
    return ways / (2 * math.comb(first + second + left + 1, left))


def _two_leading(evidence: Mapping[str, float]) -> tuple[int, int]:
    first, second = [*sorted(map(int, evidence.values()), reverse=True)[:2], 0, 0][:2]
    return first, second


def _is_final(tally: Decision, left: int) -> bool:
    if tally.answer is None:
        return False
    votes = tally.evidence[tally.answer]
    seen = list(tally.evidence)
    earlier = seen[: seen.index(tally.answer)]  # they win a tie
    return votes >= left and all(
        count + left < votes + (answer not in earlier)
        for answer, count in tally.evidence.items()
        if answer != tally.answer
    )

"""Which of several questions is sampled next, where one budget is spent on all of them.

Spending a budget on a whole data set instead of question by question is the subject of Blend-ASC (Feng et al. 2025,
arXiv 2511.12309), which allocates samples dynamically to find the mode of each question's answers, and of UAB (Nguyen
et al. 2026, arXiv 2605.26849), which maximises a concave gain greedily. The gain here is the knowledge gradient's.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from langchain_reasc.method.decision import Decision

__all__ = ["expected_gain", "most_gain_first"]


def expected_gain(decision: Decision, horizon: int) -> float:
    """How much one further sample is expected to add to the share of responses that give the answer.

    A model that is as often right as it repeats itself gives a right answer with the probability p of that answer
    among its responses, so E[p] is what sampling can raise. Of the two leading answers, with evidence v1 and v2, let
    the share of the first be Beta(v1 + 1, v2 + 1); of r further votes it then has X, which is beta-binomial. One vote
    alone often cannot change which answer leads, so the gain is averaged over as many as serve best (the KG(*) policy
    of Frazier and Powell 2010):

        max over r ≤ horizon of (E[max(v1 + 1 + X, v2 + 1 + r - X)] / (v1 + v2 + 2 + r) - (v1 + 1) / (v1 + v2 + 2)) / r

    times ρ², where ρ = (v1 + v2 + 1) / (n + 1) is the share of responses that vote for either: it makes such a vote
    rarer, and smaller what it decides. So a question whose answers scatter does not eat up the budget.

    Args:
        decision: what the responses so far come to. Of one in parts, its least certain part counts.
        horizon: samples that the question may still take.
    """
    while decision.parts:
        decision = min(decision.parts.values(), key=lambda part: part.posterior)
    first, second = [*sorted(decision.evidence.values(), reverse=True)[:2], 0.0, 0.0][:2]
    responses = max(decision.samples, sum(decision.evidence.values()))
    share = (first + second + 1) / (responses + 1)
    return share**2 * _gain_per_vote(first, second, horizon)


def most_gain_first(decisions: Sequence[Decision], horizons: Sequence[int], costs: Sequence[float]) -> list[int]:
    """The questions that a further sample can still do something for, the one with most gain for its cost first.

    Args:
        decisions: on the responses to each question so far.
        horizons: samples that each may still take.
        costs: what a sample of each is expected to cost, in any unit, above zero.

    Returns:
        Positions in ``decisions``; of equals the one that comes first.
    """
    rates = [
        expected_gain(decision, horizon) / cost
        for decision, horizon, cost in zip(decisions, horizons, costs, strict=True)
    ]
    return sorted((at for at, rate in enumerate(rates) if rate > 0), key=lambda at: -rates[at])


@lru_cache(maxsize=65536)
def _gain_per_vote(first: float, second: float, horizon: int) -> float:
    if horizon < 1:
        return 0.0
    from scipy.special import betaln, gammaln  # deferred: keeps `import langchain_reasc` light

    a, b = first + 1.0, second + 1.0
    r, x = np.arange(1, horizon + 1)[:, None], np.arange(horizon + 1)[None, :]
    rest = np.maximum(r - x, 0)
    chosen = gammaln(r + 1) - gammaln(x + 1) - gammaln(rest + 1)
    likely = np.where(x <= r, np.exp(chosen + betaln(a + x, b + rest) - betaln(a, b)), 0.0)
    after = (likely * np.maximum(a + x, b + rest)).sum(axis=1) / (a + b + r[:, 0])
    gains = (after - a / (a + b)) / r[:, 0]
    best = float(gains.max())
    return best if best > 1e-12 else 0.0  # what is left by rounding where nothing can change

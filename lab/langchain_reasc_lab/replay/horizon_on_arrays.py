"""The rules that look ahead to the end of the budget, on arrays; importing this lets ``decide_many`` know them."""

from functools import lru_cache

import numpy as np

from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon, stays_ahead
from langchain_reasc_lab.replay.array_rules import Verdicts, on_arrays
from langchain_reasc_lab.replay.vote_arrays import Floats, Integers, Votes, tally

__all__: list[str] = []


@on_arrays(FiniteHorizon)
def _finite_horizon(rule: FiniteHorizon, votes: Votes) -> Verdicts:
    counts, left = tally(votes), _left(rule.budget, votes.width)
    ahead = _ahead(votes.width, rule.budget)[counts.first.astype(int), counts.second.astype(int), left]
    return Verdicts.stopping(counts, (ahead >= rule.phi) & (left > 0), "agreement")


@on_arrays(CannotCatchUp)
def _cannot_catch_up(rule: CannotCatchUp, votes: Votes) -> Verdicts:
    counts, left = tally(votes), _left(rule.budget, votes.width)
    numbers = np.arange(counts.evidence.shape[2])
    earlier = numbers < counts.leader[:, :, None]  # they win a tie
    # What no response has said so far comes after the leader, and has 0 votes.
    others = np.where(numbers == counts.leader[:, :, None], -1.0, counts.evidence + earlier)
    last = left + np.maximum(others.max(axis=2, initial=-1.0), 0.0)
    final = (counts.leader >= 0) & (last <= counts.first) & (left > 0)
    return Verdicts.stopping(counts, final, "agreement")


def _left(budget: int, width: int) -> Integers:
    """Calls that are left after each response, shape (n,)."""
    return np.maximum(0, budget - np.arange(1, width + 1))


@lru_cache
def _ahead(most: int, budget: int) -> Floats:
    """:func:`stays_ahead` by v₁, v₂ and the calls that are left, where that can be."""
    table = np.zeros((most + 1, most + 1, budget + 1))
    for first in range(most + 1):
        for second in range(min(first, most - first) + 1):
            for left in range(max(0, budget - first - second) + 1):
                table[first, second, left] = stays_ahead(first, second, left)
    return table

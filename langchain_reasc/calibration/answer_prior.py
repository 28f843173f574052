"""How answers agree, learned from how often they did: the prior of the agreement rule, by expectation–maximisation."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from langchain_reasc.method.partitions import Prior, default_components, likelihoods

__all__ = ["counts_of", "fit_prior"]

_PSEUDO_QUESTIONS: Final = 8.0  # what the uniform mixture counts, so that a few questions rule nothing out
_ROUNDS: Final = 100


def counts_of(answers: Iterable[int | None]) -> tuple[int, ...]:
    """How often each answer was given, the most frequent first; responses without an answer do not count."""
    given = [answer for answer in answers if answer is not None]
    return tuple(sorted(np.unique(given, return_counts=True)[1].tolist(), reverse=True)) if given else ()


def fit_prior(counts: Sequence[Sequence[int]]) -> Prior:
    """The weights of the default components that make these counts most probable.

    Whether sampling went on may have depended on the counts: that cancels, as it says nothing beyond them.

    Args:
        counts: of each question how often each answer was given; questions without an answer say nothing.
    """
    grid = default_components()
    known = [tuple(one) for one in counts if one]
    weights = np.full(len(grid), 1 / len(grid))
    if known:
        distinct, times = np.unique(np.array([str(one) for one in known]), return_counts=True)
        of = {str(one): one for one in known}
        likely = likelihoods([of[name] for name in distinct.tolist()], grid)
        floor = _PSEUDO_QUESTIONS / len(grid)
        for _ in range(_ROUNDS):
            joint = likely * weights
            belongs = joint / joint.sum(axis=1, keepdims=True)
            weights = (times @ belongs + floor) / (len(known) + _PSEUDO_QUESTIONS)
    return Prior(grid, tuple((weights / weights.sum()).tolist()))

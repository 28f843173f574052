"""How often a rule that is neither better nor worse looks clearly worse."""

from typing import Final

import numpy as np

from langchain_reasc_lab.replay.bootstrap import Bootstrap
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import Replay

__all__ = ["FLIPS", "worse_by_chance"]

FLIPS: Final = 100
"""How often the signs of the differences are drawn."""


def worse_by_chance(run: Replay, row: Row) -> float:
    """Return how often chance alone puts the interval of a row's difference to always
    using the budget below 0, as a share of :data:`FLIPS` draws.

    A draw swaps the two methods on each question with probability 1/2, in all shuffles
    of it, as if neither were better. The interval is computed as that of the row.
    """
    outcomes = run.outcomes[row.method, row.spec]
    always = run.outcomes[run.settings.fixed_budget, None]
    right = np.stack([outcomes.column("correct"), always.column("correct")])
    if np.array_equal(right[0], right[1], equal_nan=True):
        return 0.0
    rng = np.random.default_rng([run.seed, FLIPS])
    below = 0
    for _ in range(FLIPS):
        swapped = rng.random(right.shape[-1]) < 0.5
        first, second = np.where(swapped, right[::-1], right)
        columns = {"first": first, "second": second}
        by_question = Bootstrap(columns, outcomes.tested, seed=0, resamples=1)
        difference = by_question.difference("first", "second", learned=outcomes.learned)
        below += difference.high < 0
    return below / FLIPS

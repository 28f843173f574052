"""What reading scores costs where they tell nothing, or the wrong thing:
``python -m benchmarks.null_scores``.

A rule learns from counts alone and from counts and scores, on the same simulated
questions, as sampling without a calibration leaves them. On 500 others, tokens are
relative to those of counts, and points are minus theirs; means over pools, with a
standard error over these.
"""

from collections.abc import Sequence
from itertools import count, islice
from typing import Final

import numpy as np
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from langchain_reasc_lab.simulation.signals import SIGNAL_KINDS

from benchmarks.command import parser_of
from benchmarks.configurations import NAMED
from benchmarks.simulated_pools import accuracy_and_tokens
from langchain_reasc.calibration import Observation, fit
from langchain_reasc.method import Cap, FiniteHorizon, decide

BUDGETS: Final = (8, 16, 40)
SIZES: Final = (16, 64, 256, 4096)
FRESH: Final = 500


def compared(index: int, budget: int, size: int, seed: int) -> tuple[float, float]:
    """Return the tokens of counts and scores relative to counts, and the points more.

    Args:
        index: the number of the pool.
        budget: responses to a question at most.
        size: questions that are learned from.
        seed: the seed of all pools.
    """
    pool = simulated_pool(index, seed=seed, questions=size + FRESH, budget=budget)
    asked = _as_sampled(pool.tested[:size], budget)
    others = pool.tested[size:]
    accuracy: list[float] = []
    tokens: list[int] = []
    for measures in ((), NAMED[:1]):
        rows = [
            Observation(answers, scores[: len(measures)]) for answers, scores in asked
        ]
        made = fit(rows, measures, budget=budget, explained=False)
        right, spent = accuracy_and_tokens(others, made.rule(budget=budget))
        accuracy.append(right)
        tokens.append(spent)
    return tokens[1] / tokens[0], 100 * (accuracy[1] - accuracy[0])


def _as_sampled(
    responses: Responses, budget: int
) -> list[
    tuple[tuple[int | None, ...], np.ndarray[tuple[int, int], np.dtype[np.float64]]]
]:
    """Return the answers and scores of each question, as far as it is sampled without a
    calibration.
    """
    rule = FiniteHorizon(budget=budget) | Cap(budget)
    rows = []
    for number in range(len(responses)):
        used = decide(rule, responses.to_question(number, None)).samples
        answers = responses.answers[number, :used].tolist()
        numbered = tuple(None if answer < 0 else answer for answer in answers)
        rows.append((numbered, responses.scores[:, number, :used]))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each budget and number of questions."""
    parser = parser_of("null_scores", __doc__)
    parser.add_argument("--signal", choices=SIGNAL_KINDS, default="none")
    parser.add_argument("--pools", type=int, default=10)
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    of_signal = (index for index in count() if kind_of(index).signal == given.signal)
    indices = list(islice(of_signal, given.pools))
    print(f"signal: {given.signal}, {given.pools} pools (seed {given.seed})")
    print("budget  questions  tokens  points")
    for budget in given.budgets:
        for size in given.sizes:
            figures = np.array(
                [compared(index, budget, size, given.seed) for index in indices]
            )
            tokens, points = figures.mean(axis=0)
            error = figures[:, 1].std(ddof=1) / len(figures) ** 0.5
            print(
                f"{budget:6} {size:10}  {tokens:.3f}   {points:+.2f} ± {error:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

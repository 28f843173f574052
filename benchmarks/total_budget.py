"""One budget for all questions against the same budget for each of them, on recorded responses.

python -m benchmarks.total_budget pool.sqlite                 2, 4, 6 and 8 samples per question on average
python -m benchmarks.total_budget pool.sqlite --shuffles 30

Every row spends equally much: SC takes k samples of each question; ASC is capped so that it takes k on average, and
where no cap does, some questions have the next one; one budget samples those that gain most, as ``batch`` does.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.pools import Pool, PoolScores, read_pool
from langchain_reasc_lab.replay.replay import splits

from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.stopping import ASC, Cap, decide
from langchain_reasc.runnable.total_budget import Sampled, TotalBudget

BUDGETS: Final = (2, 4, 6, 8)
RESAMPLES: Final = 2000
UNIFORM, CAPPED, ROUNDS, NARROW = "SC@k", "ASC, capped", "one budget, rounds of an eighth", "one budget, rounds of 16"

Array = npt.NDArray[np.float64]


def shared(questions: Sequence[Sequence[Response]], total: int, *, together: int | None = None) -> list[Decision]:
    """Return the decisions under one budget of ``total`` samples, in rounds of ``together`` (None: an eighth)."""
    rule, drawn = ASC(), [0] * len(questions)
    decisions: dict[int, Decision] = {}
    budget = TotalBudget(None, total, inputs=len(questions), together=together, concurrency=4)
    while sampled := budget.next_inputs():
        for index in sampled:
            drawn[index] += 1
            decision = decisions[index] = decide(rule, questions[index][: drawn[index]])
            remaining = len(questions[index]) - drawn[index]
            ended = decision.stop or remaining == 0
            budget.note_sample(index, Sampled(None if ended else decision, drawn[index], remaining, drawn[index]))
    return [decisions[index] for index in range(len(questions))]


def at_equal_cost(pool: Pool, shuffles: int, seed: int = 0) -> dict[str, Array]:
    """Method -> whether each question is answered rightly, mean over shuffles, shape (budgets, questions)."""
    recorded = PoolScores(pool).responses(None)
    right = [{one.answer: bool(one.correct) for one in reversed(q.responses)} for q in pool.questions]
    means = {name: np.zeros((len(BUDGETS), len(right))) for name in (UNIFORM, CAPPED, ROUNDS, NARROW)}
    for split in splits(pool, 0, shuffles=shuffles, seed=seed):
        questions = [[held[at] for at in order] for held, order in zip(recorded, split.orders, strict=True)]

        def graded(decisions: Sequence[Decision]) -> Array:
            return np.array([known.get(one.answer, False) for known, one in zip(right, decisions, strict=True)], float)

        capped = [[decide(ASC() | Cap(cap), one) for one in questions] for cap in range(1, 17)]
        spent = [float(np.mean([one.samples for one in decisions])) for decisions in capped]
        for row, k in enumerate(BUDGETS):
            total = k * len(questions)
            means[UNIFORM][row] += graded([decide(Cap(k), one) for one in questions])
            means[CAPPED][row] += _between([graded(one) for one in capped], spent, k)
            means[ROUNDS][row] += graded(shared(questions, total))
            means[NARROW][row] += graded(shared(questions, total, together=16))
    return {name: sums / max(1, shuffles) for name, sums in means.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print accuracy at equal cost, with the difference to ASC and its 95 % interval over questions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.total_budget", description=__doc__.splitlines()[0])
    parser.add_argument("pool", type=Path, help="recorded responses, as reasc record writes them")
    parser.add_argument("--shuffles", type=int, default=10, help="rearrangements of the responses (%(default)s)")
    given = parser.parse_args(arguments)
    pool = read_pool(given.pool)
    found = at_equal_cost(pool, given.shuffles)
    print(f"{len(pool.questions)} questions, {given.shuffles} shuffles: accuracy (%) by samples per question\n")
    print(f"| spent | {' | '.join(map(str, BUDGETS))} |\n|---|{'---|' * len(BUDGETS)}")
    for name, right in found.items():
        print(
            f"| {name} | {' | '.join(map(_cell, right, [None] * len(BUDGETS) if name == CAPPED else found[CAPPED]))} |"
        )
    return 0


def _between(right: Sequence[Array], spent: Sequence[float], samples: float) -> Array:
    """ASC at this many samples on average: some questions under one cap, the others under the next."""
    above = min(int(np.searchsorted(spent, samples)), len(spent) - 1)
    if above == 0 or spent[above] <= samples:
        return right[above]
    share = (samples - spent[above - 1]) / (spent[above] - spent[above - 1])
    return (1 - share) * right[above - 1] + share * right[above]


def _cell(right: Array, asc: Array | None) -> str:
    if asc is None:
        return f"{100 * right.mean():.1f}"
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(right.size, np.full(right.size, 1 / right.size), size=RESAMPLES) / right.size
    low, high = np.percentile(drawn @ (right - asc), [2.5, 97.5])
    shown = f"{100 * right.mean():.1f}"
    return (
        shown if right is asc else f"{shown} ({100 * (right - asc).mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}])"
    )


if __name__ == "__main__":
    sys.exit(main())

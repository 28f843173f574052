"""When sampling stops for calls that can never agree, and what that costs:
``python -m benchmarks.hopeless_calls``.

Simulated calls ``mail(to, body)``, all to the same person. Where bodies agree, the
right one has a share of the responses, and others divide the rest evenly among them.
They are words, or texts that have nothing in common. Where bodies all differ, the
number of responses is what counts.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.never_agrees import NeverAgrees
from langchain_reasc.method.stopping import (
    DEFAULT_BUDGET,
    Cap,
    Response,
    StoppingRule,
    decide,
)

SHARES = (0.3, 0.5, 0.7, 0.9)
OTHERS = (2, 4, 8, 16)
LENGTHS = (1, 5, 10, 20, 40, 80)  # words
_VOCABULARY = 1000


class Cost(NamedTuple):
    """What stopping early costs where bodies agree.

    Attributes:
        stopped: share of the questions in which it stopped early.
        without: share of right answers without stopping early.
        right: the same with it.
    """

    stopped: float
    without: float
    right: float


def cost(
    share: float,
    others: int,
    *,
    words: int,
    questions: int,
    seed: int = 0,
    budget: int = DEFAULT_BUDGET,
) -> Cost:
    """Questions to which the right body has this share of the responses."""
    rng = np.random.default_rng([seed, int(100 * share), others, words])
    drawn = rng.choice(
        others + 1, (questions, budget), p=[share, *[(1 - share) / others] * others]
    )
    rule = FiniteHorizon(budget=budget) | Cap(budget)
    found = [
        [
            _decided(one, row.tolist(), words)
            for one in (rule, NeverAgrees(rule, _parts, budget))
        ]
        for row in drawn
    ]
    stopped = [early[1] == "hopeless" for _, early in found]
    right = [[decided[0] == _text(0, words) for decided in pair] for pair in found]
    without, early = np.mean(right, axis=0).tolist()
    return Cost(float(np.mean(stopped)), without, early)


def samples(words: int, *, budget: int = DEFAULT_BUDGET, questions: int = 20) -> float:
    """Responses until it stops, where all bodies differ; the mean."""
    rule = NeverAgrees(FiniteHorizon(budget=budget) | Cap(budget), _parts, budget)
    return float(
        np.mean(
            [
                _decided(rule, range(at * budget, (at + 1) * budget), words)[2]
                for at in range(questions)
            ]
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=1000)
    given = parser.parse_args(arguments)
    console = Console()
    for words in (1, 5, 40):
        title = f"Bodies of {words} word{'s' * (words > 1)} that agree: % stopped early, accuracy without and with"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        table.add_column("Share")
        for others in OTHERS:
            table.add_column(f"{others} others", justify="right")
        for share in SHARES:
            costs = [
                cost(share, others, words=words, questions=given.questions)
                for others in OTHERS
            ]
            cells = (
                (
                    f"{100 * one.stopped:.1f}  {100 * one.without:.1f} "
                    f"{100 * one.right:.1f}"
                )
                for one in costs
            )
            table.add_row(f"{share:.1f}", *cells)
        console.print(table)
    table = Table(
        title="Bodies that all differ: responses until it stops",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("Budget")
    for words in LENGTHS:
        table.add_column(f"{words} word{'s' * (words > 1)}", justify="right")
    for budget in (8, 16, 32):
        table.add_row(
            str(budget), *(f"{samples(words, budget=budget):.1f}" for words in LENGTHS)
        )
    console.print(table)


def _decided(
    rule: StoppingRule, bodies: Sequence[int], words: int
) -> tuple[str | None, str | None, int]:
    decision = decide(rule, [Response(_text(body, words)) for body in bodies])
    return decision.answer, decision.reason, decision.samples


def _parts(answer: str) -> Mapping[str, str]:
    return {"to": "ann", "body": answer}


@lru_cache(maxsize=4096)
def _text(number: int, words: int) -> str:
    rng = np.random.default_rng(number)
    return " ".join(
        [
            f"v{number}",
            *(f"w{word}" for word in rng.integers(_VOCABULARY, size=words - 1)),
        ]
    )


if __name__ == "__main__":
    main()

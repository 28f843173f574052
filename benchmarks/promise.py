"""Whether what a calibration without labels promises is true:
``python -m benchmarks.promise``.

On simulated pools, each calibration says of how many questions, at most, the rule
answers otherwise than counting votes does (95 % sure). Here that is compared with other
questions of the same pool, with all responses to each.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from langchain_reasc_lab.simulation.answers import ANSWERS
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from benchmarks.command import parser_of
from benchmarks.configurations import NAMED, as_asc_left_it, decisions
from langchain_reasc.calibration import Observation, fit
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method import ASC, Cap, Measure, decide

SIZES = (64, 512, 2048)


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise beside the truth.

    Attributes:
        answers: the kind of answers.
        size: questions that were learned from.
        weighed: whether a measure weighs votes.
        bound: the share of questions that are answered otherwise at most, in percent.
        truth: their share among other questions, in percent.
    """

    answers: str
    size: int
    weighed: bool
    bound: float
    truth: float


def promises(
    index: int, *, sizes: Sequence[int], fresh: int, seed: int
) -> Iterator[Promise]:
    """Yield what is promised in the pool of this number, learned from so many questions
    and from answers or scores.
    """
    asked = simulated_pool(index, seed=seed, questions=max(sizes) + fresh).tested
    learned, others = list(as_asc_left_it(asked[: max(sizes)])), asked[max(sizes) :]
    counted = decisions(ASC(), others)[1]
    sufficient = np.flatnonzero(_sufficient(others))
    for size in sizes if sufficient.size else ():
        for measures in ((), NAMED):
            seen = [
                Observation(answers, scores[: len(measures)])
                for answers, scores in learned[:size]
            ]
            try:
                made = fit(seen, measures, budget=others.answers.shape[1])
            except CalibrationDataError:
                continue
            told = re.search(r"at most ([\d.]+)% of such", made.guarantee or "")
            # then it is what answers alone say
            if told is None or (measures and made.measure is None):
                continue
            answers = decisions(
                made.rule(budget=others.answers.shape[1]), others, _row(made.measure)
            )[1]
            otherwise = float((answers != counted)[sufficient].mean())
            yield Promise(
                kind_of(index).answers,
                size,
                bool(measures),
                float(told[1]),
                round(100 * otherwise, 1),
            )


def _row(measure: Measure | None) -> int:
    return 0 if measure is None else NAMED.index(measure)


def _sufficient(responses: Responses) -> list[bool]:
    """Whether counting votes decides each question within the budget."""
    rule = ASC() | Cap(responses.answers.shape[1])
    return [
        decide(rule, responses.to_question(at, None)).reason == "evidence"
        for at in range(len(responses))
    ]


def table(found: Sequence[Promise]) -> Table:
    """Return a row for each kind of answers and number of questions."""
    shown = Table(box=SIMPLE_HEAD)
    for heading in (
        "Answers",
        "Learned from",
        "Promises",
        "True",
        "Bound, %",
        "Truth, %",
        "at most",
    ):
        shown.add_column(heading, justify="left" if heading == "Answers" else "right")
    for kind in ANSWERS:
        for size in sorted({one.size for one in found}):
            if rows := [
                one for one in found if (one.answers, one.size) == (kind, size)
            ]:
                bounds, truths = (
                    [one.bound for one in rows],
                    [one.truth for one in rows],
                )
                true = f"{sum(one.truth <= one.bound for one in rows)}"
                figures = (
                    f"{np.mean(bounds):.1f}",
                    f"{np.mean(truths):.2f}",
                    f"{max(truths):.1f}",
                )
                shown.add_row(kind, str(size), str(len(rows)), true, *figures)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many promises are true, by kind of answers."""
    parser = parser_of("promise", __doc__)
    parser.add_argument(
        "--pools", type=int, default=100, help="simulated pools (%(default)s)"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="questions learned from"
    )
    parser.add_argument(
        "--fresh",
        type=int,
        default=4000,
        help="questions that show the truth (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    asked = {"sizes": given.sizes, "fresh": given.fresh, "seed": given.seed}
    found = [one for index in range(given.pools) for one in promises(index, **asked)]
    console = Console(width=100, highlight=False)
    console.print(
        f"{given.pools} pools (seed {given.seed}), {given.fresh:,} other questions of "
        "each"
    )
    console.print(table(found))
    true = sum(one.truth <= one.bound for one in found)
    low = binomtest(true, len(found)).proportion_ci().low if found else 0.0
    console.print(
        f"{true} of {len(found)} promises are true, {low:.1%} or more of such promises."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

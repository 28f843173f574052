"""Whether what a calibration promises is true: ``python -m benchmarks.promise``.

On simulated pools, a rule learns at a budget of half of their responses, from answers
alone or from scores, too. On other questions of the same pool, three promises of each
stop are compared with what comes: ``p_agree``, that one more response agrees,
``posterior``, that the answer is that of the whole budget (with scores, of twice the
budget), and ``p_correct``, learned from the right answers to the same questions, that
the answer is right.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from langchain_reasc_lab.simulation.answers import ANSWERS
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.command import parser_of
from benchmarks.configurations import NAMED, as_asc_left_it
from langchain_reasc.calibration import Calibration, Observation, fit
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method import Cap, decide, rule_in_use
from langchain_reasc.method.decision import support

SIZES = (64, 512, 2048)


@dataclass(frozen=True, slots=True)
class Promise:
    """The promises of a rule beside the truth, means over the questions on which it
    stopped, in percent.

    Attributes:
        answers: the kind of answers.
        size: questions that were learned from.
        is_scored: whether it reads scores.
        agrees: P(one more response agrees), as promised and as it came.
        stays: P(the answer is that of the budget), likewise.
        right: P(the answer is right), likewise; NaN if labels were too few.
    """

    answers: str
    size: int
    is_scored: bool
    agrees: tuple[float, float]
    stays: tuple[float, float]
    right: tuple[float, float]


def promises(
    index: int, *, sizes: Sequence[int], fresh: int, seed: int
) -> Iterator[Promise]:
    """Yield what is promised in the pool of this number, learned from so many questions
    and from answers or scores.
    """
    asked = simulated_pool(index, seed=seed, questions=max(sizes) + fresh).tested
    budget = asked.answers.shape[1] // 2
    learned = list(as_asc_left_it(asked[: max(sizes)]))
    others = asked[max(sizes) :]
    for size in sizes:
        for measures in ((), NAMED[:1]):
            unlabelled: list[Observation] = []
            labelled: list[Observation] = []
            for number, (answers, scores) in enumerate(learned[:size]):
                row = Observation(answers[:budget], scores[: len(measures), :budget])
                right = asked.correct[number, : len(row.answers)].tolist()
                unlabelled.append(row)
                labelled.append(replace(row, right=tuple(right)))
            try:
                made = fit(unlabelled, measures, budget=budget, explained=False)
                taught = fit(labelled, measures, budget=budget)
            except CalibrationDataError:
                continue
            is_scored = made.measure is not None
            if is_scored != bool(measures):
                continue
            stops = _stops(made, others, budget)
            decisions = _decisions(taught, others, budget)
            if not stops:
                continue
            agrees, agreed, stays, stayed = _percentages(stops)
            right = (math.nan, math.nan)
            if decisions:
                said, came = _percentages(decisions)
                right = (said, came)
            yield Promise(
                kind_of(index).answers,
                size,
                is_scored,
                (agrees, agreed),
                (stays, stayed),
                right,
            )


def _percentages(rows: Sequence[tuple[float, ...]]) -> list[float]:
    means: list[float] = (100 * np.array(rows).mean(axis=0)).tolist()
    return means


def _stops(
    calibration: Calibration, responses: Responses, budget: int
) -> list[tuple[float, bool, float, bool]]:
    """Return for each question on which the rule stops before the budget: both promises
    about further responses, each with whether it came true.
    """
    stops: list[tuple[float, bool, float, bool]] = []
    rule = rule_in_use(calibration.rule(budget=budget), budget)
    measure = None if calibration.measure is None else 0
    horizon = budget if measure is None else 2 * budget
    for number in range(len(responses)):
        question = responses.to_question(number, measure)
        decision = decide(rule, question[:budget])
        if decision.reason != "agreement" or decision.agrees is None:
            continue
        following = question[decision.samples].answer
        final = decide(Cap(horizon), question[:horizon]).answer
        stops.append(
            (
                decision.agrees,
                following == decision.answer,
                decision.posterior,
                final == decision.answer,
            )
        )
    return stops


def _decisions(
    calibration: Calibration, responses: Responses, budget: int
) -> list[tuple[float, bool]]:
    """Return for each question with an answer: P(correct), and whether the answer is
    right.
    """
    curve = calibration.p_correct
    decisions: list[tuple[float, bool]] = []
    if curve is None:
        return decisions
    rule = rule_in_use(calibration.rule(budget=budget), budget)
    measure = None if calibration.measure is None else 0
    for number in range(len(responses)):
        question = responses.to_question(number, measure)
        decision = decide(rule, question[:budget])
        supported = support(decision)
        if supported is None:
            continue
        is_right = decision.answer == str(responses.right[number])
        decisions.append((curve.probability(supported), is_right))
    return decisions


def table(found: Sequence[Promise]) -> Table:
    """Return a row for each kind of answers and number of questions."""
    shown = Table(box=SIMPLE_HEAD)
    promised = ("One more agrees", "True", "Stays", "True", "Is right", "True")
    for heading in ("Answers", "Learned from", *promised):
        shown.add_column(heading, justify="left" if heading == "Answers" else "right")
    for kind in ANSWERS:
        for size in sorted({promise.size for promise in found}):
            for is_scored in (False, True):
                rows = [
                    promise
                    for promise in found
                    if (promise.answers, promise.size, promise.is_scored)
                    == (kind, size, is_scored)
                ]
                if rows:
                    figures = np.nanmean(
                        [(*row.agrees, *row.stays, *row.right) for row in rows], axis=0
                    )
                    learned = f"{size}{', scores' if is_scored else ''}"
                    shown.add_row(kind, learned, *(f"{one:.1f} %" for one in figures))
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print promises beside the truth, by kind of answers."""
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
        default=1000,
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
    for name in ("agrees", "stays", "right"):
        for size in given.sizes:
            pairs = [getattr(row, name) for row in found if row.size == size]
            errors = np.array([came - said for said, came in pairs])
            errors = errors[np.isfinite(errors)]
            if errors.size:
                low, high = np.quantile(errors, (0.05, 0.95))
                console.print(
                    f"{name}, learned from {size}: true minus promised "
                    f"{errors.mean():+.1f} % in the mean, {low:+.1f} to {high:+.1f} % "
                    f"in 90 % of {errors.size}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())

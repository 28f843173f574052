"""Whether what a calibration without labels promises is true:
``python -m benchmarks.promise``.

On simulated pools, a rule learns at a budget of half of their responses, from answers
alone or from scores, too. On other questions of the same pool, two promises of each
stop are compared with what comes: ``p_agree``, that one more response agrees, and
``posterior``, that the answer is that of the whole budget (with scores, of twice the
budget).
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from langchain_reasc_lab.simulation.answers import ANSWERS
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.command import parser_of
from benchmarks.configurations import NAMED, as_asc_left_it
from langchain_reasc.calibration import Observation, fit
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method import Cap, StoppingRule, decide, rule_in_use

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
    """

    answers: str
    size: int
    is_scored: bool
    agrees: tuple[float, float]
    stays: tuple[float, float]


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
            seen = [
                Observation(answers[:budget], scores[: len(measures), :budget])
                for answers, scores in learned[:size]
            ]
            try:
                made = fit(seen, measures, budget=budget, explained=False)
            except CalibrationDataError:
                continue
            is_scored = made.measure is not None
            if is_scored != bool(measures):
                continue
            found = _stops(made.rule(budget=budget), others, budget, scored=is_scored)
            if found:
                said, came = np.array(found).reshape(-1, 2, 2).mean(axis=0)
                yield Promise(
                    kind_of(index).answers,
                    size,
                    is_scored,
                    (100 * float(said[0]), 100 * float(came[0])),
                    (100 * float(said[1]), 100 * float(came[1])),
                )


def _stops(
    rule: StoppingRule, responses: Responses, budget: int, *, scored: bool
) -> list[tuple[float, float, bool, bool]]:
    """Return for each question on which the rule stops before the budget: both promises,
    and whether they came true.
    """
    found = []
    horizon = 2 * budget if scored else budget
    for number in range(len(responses)):
        question = responses.to_question(number, 0 if scored else None)
        decision = decide(rule_in_use(rule, budget), question[:budget])
        if decision.reason != "agreement" or decision.agrees is None:
            continue
        following = question[decision.samples].answer
        final = decide(Cap(horizon), question[:horizon]).answer
        found.append(
            (
                decision.agrees,
                decision.posterior,
                following == decision.answer,
                final == decision.answer,
            )
        )
    return found


def table(found: Sequence[Promise]) -> Table:
    """Return a row for each kind of answers and number of questions."""
    shown = Table(box=SIMPLE_HEAD)
    headings = ("Answers", "Learned from", "One more agrees", "True", "Stays", "True")
    for heading in headings:
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
                    figures = np.mean(
                        [(*row.agrees, *row.stays) for row in rows], axis=0
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
    for name in ("agrees", "stays"):
        errors = [getattr(one, name)[1] - getattr(one, name)[0] for one in found]
        if errors:
            console.print(
                f"{name}: true minus promised {np.mean(errors):+.1f} % in the mean, "
                f"{np.quantile(errors, 0.05):+.1f} to {np.quantile(errors, 0.95):+.1f} % "
                f"in 90 % of {len(errors)}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

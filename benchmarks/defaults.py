"""Whether real models bear out the defaults: ``python -m benchmarks.defaults FOLDER``,
recordings as of reasc bench.

On each recording, up to 300 questions are asked in shuffled orders. Tokens are relative
to those of always using the budget; points are the difference in right answers to it.
Recordings of the same questions are not independent, so both are means over recordings
of a set of questions first, and then over sets. The sets are split into two halves at
random. A value other than the default would have to win on both, and to lose no more
in worlds where all questions are equally hard (:mod:`benchmarks.one_difficulty`).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from langchain_reasc_lab.pools import PoolScores
from langchain_reasc_lab.replay.arrangement import COLUMNS, Arrangement, RecordedPool
from langchain_reasc_lab.replay.methods import Method
from langchain_reasc_lab.replay.question_sets import mean_over_sets
from langchain_reasc_lab.replay.recordings import open_recording, recordings_in
from langchain_reasc_lab.replay.replay import budget_of, splits

from benchmarks.command import parser_of
from benchmarks.one_difficulty import BUDGETS, losses
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method import Cap, FiniteHorizon, FixedBudget, Lead, StoppingRule

CONFIDENCES: Final = (0.97, 0.85, 0.9, 0.95, 0.98, 0.99)
LEADS: Final = (2, 3, 4)
HORIZON: Final = "FiniteHorizon's confidence, or lead"
LEARNED: Final[dict[str, tuple[float, ...]]] = {
    "online: threshold": (0.975, 0.95, 0.96, 0.985, 0.99),
    "online: questions before it learns": (16, 8, 32),
}
VALUES: Final = {HORIZON: (*CONFIDENCES, *LEADS), **LEARNED}
"""Parameter -> its default, and other values."""
SETS: Final = {
    "otis": "OTIS Mock AIME",
    "aime": "AIME",
    "gsm": "GSM8K",
    "date": "Date",
    "gpqa": "GPQA Diamond",
    "cruxeval": "CRUXEval",
    "ranked_votes": "RankedVotingSC",
}
"""What the name of a recording contains -> its set of questions."""
QUESTIONS: Final = 300
Figures = npt.NDArray[np.float64]
"""The tokens and points of each value of a parameter, shape (values, 2)."""


def question_set(name: str) -> str:
    """Return the set of questions that a recording of this name asks; if it names none,
    the recording is a set of its own.
    """
    for part, title in SETS.items():
        if part in name:
            return title
    return name


def uncalibrated(value: float, budget: int) -> StoppingRule:
    """Return FiniteHorizon at a confidence, or the rule that stops at a lead of 1 vote
    or more.
    """
    if value >= 1:
        return Lead(int(value)) | Cap(budget)
    return FiniteHorizon(value, budget) | Cap(budget)


def ahead_of_horizon(figures: Figures) -> npt.NDArray[np.float64]:
    """Return the points of each lead minus those of FiniteHorizon at as many tokens,
    interpolated between its confidences.
    """
    of_horizon, of_leads = np.split(figures, [len(CONFIDENCES)])
    tokens, points = of_horizon[np.argsort(CONFIDENCES)].T
    return np.asarray(of_leads[:, 1] - np.interp(of_leads[:, 0], tokens, points))


def at_threshold(
    threshold: float, budget: int, calibration: Calibration
) -> StoppingRule:
    """Return the rule of a calibration at another threshold."""
    if (rule := calibration.rule_) is not None:
        changed = rule.model_copy(update={"threshold": threshold})
        calibration = calibration.model_copy(update={"rule_": changed})
    return calibration.rule(on_missing_confidence="count", budget=budget)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each parameter, and what uncalibrated rules lose where all
    questions are equally hard.
    """
    parser = parser_of("defaults", __doc__)
    parser.add_argument("folder", type=Path, help="a folder of recordings")
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    paths = recordings_in(given.folder)
    measured = partial(_measured, paths, shuffles=given.shuffles, seed=given.seed)
    sets = measured(HORIZON)
    if len(sets) < 4:
        parser.error(f"{given.folder} holds {len(sets)} sets of questions, not 4")
    order = np.random.default_rng(given.seed).permutation(sorted(sets)).tolist()
    half = len(order) // 2
    halves = {"first half": order[:half], "second half": order[half:], "all": order}
    print(
        f"{len(sets)} sets of questions, {given.shuffles} shuffles (seed {given.seed})"
    )
    for title, names in halves.items():
        print(f"  {title}: {', '.join(sorted(names))}")
    _print_halves(HORIZON, sets, halves)
    _print_leads(sets, halves)
    _print_sets(sets)
    _print_worlds()
    for parameter in LEARNED:
        _print_halves(parameter, measured(parameter), halves)


def _print_halves(
    parameter: str,
    sets: Mapping[str, Figures],
    halves: Mapping[str, Sequence[str]],
) -> None:
    print(f"\n{parameter:35}{''.join(f'{title:>30}' for title in halves)}")
    for at in range(len(VALUES[parameter])):
        cells = [
            _cell(np.array([sets[name][at] for name in names]))
            for names in halves.values()
        ]
        print(f"{_label(parameter, at)}{''.join(f'{cell:>30}' for cell in cells)}")


def _print_leads(
    sets: Mapping[str, Figures], halves: Mapping[str, Sequence[str]]
) -> None:
    print("\na lead's points, minus FiniteHorizon's at as many tokens")
    ahead = {name: ahead_of_horizon(figures) for name, figures in sets.items()}
    for at, lead in enumerate(LEADS):
        cells = [
            _interval(np.array([ahead[name][at] for name in names]))
            for names in halves.values()
        ]
        print(f"  {lead:<33}{''.join(f'{cell:>30}' for cell in cells)}")


def _print_sets(sets: Mapping[str, Figures]) -> None:
    print(f"\n{'tokens and points by set':35}{''.join(f'{name:>16}' for name in sets)}")
    for at in range(len(VALUES[HORIZON])):
        rows = [figures[at] for figures in sets.values()]
        cells = [f"{tokens:.2f} {points:+.2f}" for tokens, points in rows]
        print(f"{_label(HORIZON, at)}{''.join(f'{cell:>16}' for cell in cells)}")


def _print_worlds() -> None:
    heads = [f"of {budget}: tokens, worst points" for budget in BUDGETS]
    print(
        f"\n{'where all questions are equally hard':37}{''.join(f'{head:>28}' for head in heads)}"
    )
    for at, value in enumerate(VALUES[HORIZON]):
        cells = [_worst(value, budget) for budget in BUDGETS]
        print(f"{_label(HORIZON, at)}  {''.join(f'{cell:>28}' for cell in cells)}")


def _worst(value: float, budget: int) -> str:
    found = list(losses(uncalibrated(value, budget), budget))
    worst = min(found, key=lambda loss: loss.points)
    tokens = np.mean([loss.tokens for loss in found])
    return f"{tokens:.2f} {worst.points:+.2f} ({worst.world})"


def _label(parameter: str, at: int) -> str:
    said = f"{VALUES[parameter][at]:g}{' (default)' if at == 0 else ''}"
    return f"  {said:33}"


def _cell(rows: Figures) -> str:
    return f"{rows[:, 0].mean():.2f}  {_interval(rows[:, 1])}"


def _interval(points: npt.NDArray[np.float64]) -> str:
    mean = mean_over_sets(points.tolist(), range(len(points)))
    return f"{mean.value:+.2f} {mean.interval('+.2f')}"


def _measured(
    paths: Sequence[Path], parameter: str, *, shuffles: int, seed: int
) -> dict[str, Figures]:
    """Return each set of questions with the means over its recordings."""
    each = delayed(partial(_on, parameter=parameter, shuffles=shuffles, seed=seed))
    by_set: defaultdict[str, list[Figures]] = defaultdict(list)
    for path, figures in zip(paths, Parallel(n_jobs=-1)(map(each, paths)), strict=True):
        if figures is not None:
            by_set[question_set(path.stem)].append(figures)
    return {name: np.mean(some, axis=0) for name, some in by_set.items()}


def _on(path: Path, *, parameter: str, shuffles: int, seed: int) -> Figures | None:
    """Return the figures of a recording; None if it has nothing to vote on."""
    try:
        with open_recording(path) as pool:
            if (budget := budget_of([pool], None)) < 2:
                return None
            recorded = RecordedPool(pool, PoolScores(pool))
            runs = []
            for split in splits(pool, 0, shuffles=shuffles, seed=seed):
                asked = list(split.tested)[:QUESTIONS]
                arrangement = Arrangement(recorded, split, asked, budget)
                runs.append(_in(arrangement, parameter, asked, budget))
    except PoolError:
        return None
    return np.asarray(np.mean(runs, axis=0))


def _in(
    arrangement: Arrangement, parameter: str, asked: Sequence[int], budget: int
) -> Figures:
    """Return the figures of one arrangement, in which these questions are asked."""
    columns = [COLUMNS.index("tokens"), COLUMNS.index("correct")]
    outcomes = [arrangement.outcome(Method("SC", FixedBudget(budget)))]
    outcomes.extend(map(_outcomes(arrangement, budget)[parameter], VALUES[parameter]))
    means = [cells[asked][:, columns].mean(axis=0) for cells in outcomes]
    tokens, right = np.array(means).T
    return np.column_stack([tokens / tokens[0], 100 * (right - right[0])])[1:]


def _outcomes(
    arrangement: Arrangement, budget: int
) -> dict[str, Callable[[float], Figures]]:
    """Return for each parameter what a value of it does to the questions."""

    def learned(**changed: Any) -> Figures:
        stream = replace(arrangement.stream(()), **changed)
        return arrangement.outcome_of(stream)

    def fixed(value: float) -> Figures:
        rule = uncalibrated(value, budget)
        return arrangement.outcome(Method("", rule, in_use=True))

    threshold, warm_up = LEARNED
    return {
        HORIZON: fixed,
        threshold: lambda value: learned(rule=partial(at_threshold, value, budget)),
        warm_up: lambda value: learned(minimum=int(value)),
    }


if __name__ == "__main__":
    main()

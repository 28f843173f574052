"""Whether real models bear out the defaults: ``python -m benchmarks.defaults FOLDER``,
recordings as of reasc bench.

The recordings are split into two halves at random. A value other than the default would
have to win on both. On each recording, up to 300 questions are asked in shuffled
orders. Tokens are relative to those of the default; points are the difference in right
answers to always using the budget; both are means over recordings, and the intervals
are over them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from langchain_reasc_lab.pools import PoolScores
from langchain_reasc_lab.replay.arrangement import COLUMNS, Arrangement, RecordedPool
from langchain_reasc_lab.replay.methods import Method
from langchain_reasc_lab.replay.recordings import open_recording, recordings_in
from langchain_reasc_lab.replay.replay import budget_of, splits

from benchmarks.command import parser_of
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method import Cap, FiniteHorizon, FixedBudget, Lead, StoppingRule

VALUES: dict[str, tuple[Any, ...]] = {
    "FiniteHorizon's confidence, or lead": (0.97, 0.9, 0.95, 0.98, 0.99, 2, 3),
    "online: threshold": (0.975, 0.95, 0.96, 0.985, 0.99),
    "online: questions before it learns": (16, 8, 32),
}
"""Parameter -> its default, and other values."""
QUESTIONS = 300


def uncalibrated(value: float, budget: int) -> StoppingRule:
    """Return FiniteHorizon at a confidence, or the rule that stops at a lead of 1 vote
    or more.
    """
    return (Lead(int(value)) if value >= 1 else FiniteHorizon(value, budget)) | Cap(
        budget
    )


def at_threshold(
    threshold: float, budget: int, calibration: Calibration
) -> StoppingRule:
    """Return the rule of a calibration at another threshold."""
    if (rule := calibration.rule_) is not None:
        changed = rule.model_copy(
            update={"parameters": {**rule.parameters, "threshold": threshold}}
        )
        calibration = calibration.model_copy(update={"rule_": changed})
    return calibration.rule(on_missing_confidence="count", budget=budget)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each parameter."""
    parser = parser_of("defaults", __doc__)
    parser.add_argument("folder", type=Path, help="a folder of recordings")
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    each = delayed(partial(_measured, shuffles=given.shuffles, seed=given.seed))
    found = [
        one
        for one in Parallel(n_jobs=-1)(map(each, recordings_in(given.folder)))
        if one is not None
    ]
    order = np.random.default_rng(given.seed).permutation(len(found))
    halves = [[found[at] for at in sorted(half)] for half in np.array_split(order, 2)]
    print(
        f"{' and '.join(str(len(half)) for half in halves)} recordings, "
        f"{given.shuffles} shuffles (seed {given.seed})"
    )
    for parameter, values in VALUES.items():
        print(
            f"\n{parameter:35} {'first half: tokens, points':>30} {'second half':>30}"
        )
        for at, value in enumerate(values):
            shown = (
                "default"
                if value is None
                else f"{value:g}{' (default)' if at == 0 else ''}"
            )
            cells = (_cell([one[parameter] for one in half], at) for half in halves)
            print(f"  {shown:33} {' '.join(f'{cell:>30}' for cell in cells)}")


def _cell(rows: Sequence[npt.NDArray[np.float64]], at: int) -> str:
    tokens = np.array([row[at, 0] / row[0, 0] for row in rows])
    points = np.array([100 * row[at, 1] for row in rows])
    half = 1.96 * points.std(ddof=1) / len(points) ** 0.5
    return f"{tokens.mean():.2f}  {points.mean():+.2f} [{points.mean() - half:+.2f}, {points.mean() + half:+.2f}]"


def _measured(
    path: Path, *, shuffles: int, seed: int
) -> dict[str, npt.NDArray[np.float64]] | None:
    """Return for each parameter the tokens and the difference to the budget's accuracy,
    shape (values, 2).
    """
    try:
        with open_recording(path) as pool:
            if (budget := budget_of([pool], None)) < 2:
                return None
            recorded = RecordedPool(pool, PoolScores(pool))
            runs = [
                _on(Arrangement(recorded, split, asked, budget), asked, budget)
                for split in splits(pool, 0, shuffles=shuffles, seed=seed)
                if (asked := list(split.tested)[:QUESTIONS])
            ]
    except PoolError:
        return None
    return {name: np.mean([run[name] for run in runs], axis=0) for name in VALUES}


def _on(
    arrangement: Arrangement, asked: Sequence[int], budget: int
) -> dict[str, npt.NDArray[np.float64]]:
    columns = [COLUMNS.index("tokens"), COLUMNS.index("correct")]
    always = arrangement.outcome(Method("SC", FixedBudget(budget)))[asked][
        :, columns
    ].mean(axis=0)

    def beside(cells: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(cells[asked][:, columns].mean(axis=0) - [0, always[1]])

    def learned(**changed: Any) -> npt.NDArray[np.float64]:
        return beside(
            arrangement.outcome_of(replace(arrangement.stream(()), **changed))
        )

    horizon, threshold, warm_up = VALUES.values()
    rows = (
        [
            beside(
                arrangement.outcome(Method("", uncalibrated(one, budget), in_use=True))
            )
            for one in horizon
        ],
        [learned(rule=partial(at_threshold, one, budget)) for one in threshold],
        [learned(minimum=one) for one in warm_up],
    )
    return {name: np.array(one) for name, one in zip(VALUES, rows, strict=True)}


if __name__ == "__main__":
    main()

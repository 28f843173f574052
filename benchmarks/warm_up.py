"""What learning without labels costs and saves along a stream of questions:
``python -m benchmarks.warm_up POOL``.

The questions of a recorded pool are asked one after another, in shuffled orders, as
``calibration="online"`` would ask them: the first ones without a calibration, and then
by what was learned from them, which is learned anew each time their number has grown by a
quarter. Everything is counted: the first questions, and one more response in twenty
questions (audits). Beside that stands what runs without learning,
``FiniteHorizon(0.97)``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from langchain_reasc_lab.pools import PoolScores, read_pool
from langchain_reasc_lab.replay.arrangement import COLUMNS, Arrangement, RecordedPool
from langchain_reasc_lab.replay.methods import Method
from langchain_reasc_lab.replay.replay import splits
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.command import parser_of
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import DEFAULT_BUDGET

WARM_UPS = (16, 32, 64, 128, 256)
LENGTHS = (100, 300, 512)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_of("warm_up", __doc__)
    parser.add_argument(
        "pool", type=Path, help="a pool that `reasc record` or `reasc demo` made"
    )
    parser.add_argument("--shuffles", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    pool = read_pool(given.pool)
    scores = PoolScores(pool)
    recorded = RecordedPool(pool, scores)
    longest = min(max(LENGTHS), len(pool.questions))
    console = Console()
    console.print(
        f"{given.shuffles} shuffles (seed {given.seed}), the first {longest} questions "
        "of each\n"
    )
    for title, measures in (
        ("answers alone", ()),
        ("answers and token probabilities", scores.read_by_agreement()),
    ):
        if not measures and title != "answers alone":
            continue
        outcomes = _outcomes(recorded, measures, given.shuffles, given.seed, longest)
        console.print(_table(title, outcomes, longest))


def _outcomes(
    recorded: RecordedPool,
    measures: Sequence[Measure],
    shuffles: int,
    seed: int,
    longest: int,
) -> "dict[int, np.ndarray[tuple[int, int, int], np.dtype[np.float64]]]":
    """Warm-up -> shape (shuffles, questions, 4): correct and tokens of what was
    learned, and without learning.
    """
    correct, tokens = COLUMNS.index("correct"), COLUMNS.index("tokens")
    default = Method("Finite horizon", FiniteHorizon(budget=DEFAULT_BUDGET))
    outcomes: dict[int, list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]] = {
        one: [] for one in WARM_UPS
    }
    for split in splits(recorded.pool, 0, shuffles=shuffles, seed=seed):
        asked = list(split.tested)[:longest]
        arrangement = Arrangement(recorded, split, asked, DEFAULT_BUDGET)
        plain = arrangement.outcome(default)[asked]
        for warm_up in WARM_UPS:
            learned = arrangement.outcome_of(
                replace(arrangement.stream(measures), minimum=warm_up)
            )[asked]
            outcomes[warm_up].append(
                np.column_stack([one[:, [correct, tokens]] for one in (learned, plain)])
            )
    return {warm_up: np.array(rows) for warm_up, rows in outcomes.items()}


def _table(
    title: str,
    outcomes: "dict[int, np.ndarray[tuple[int, int, int], np.dtype[np.float64]]]",
    longest: int,
) -> Table:
    table = Table(
        title=f"Learned from {title}: tokens relative to those without learning",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("Warm-up", justify="right")
    for length in LENGTHS:
        table.add_column(f"of {length}", justify="right")
    table.add_column(f"Δ acc. of {longest}", justify="right", no_wrap=True)
    table.add_column("Pays after", justify="right")
    for warm_up, cells in outcomes.items():
        spent = cells[:, :, 1].cumsum(axis=1).mean(axis=0) / cells[:, :, 3].cumsum(
            axis=1
        ).mean(axis=0)
        each = 100 * (cells[:, :, 0] - cells[:, :, 2]).mean(axis=1)
        half = (
            1.96 * each.std(ddof=1) / len(each) ** 0.5
            if len(each) > 1
            else float("nan")
        )
        paid = np.flatnonzero(spent <= 0.9)
        table.add_row(
            str(warm_up),
            *(
                f"{spent[length - 1]:.2f}" if length <= longest else "-"
                for length in LENGTHS
            ),
            (
                f"{each.mean():+.2f} [{each.mean() - half:+.2f}, "
                f"{each.mean() + half:+.2f}]"
            ),
            str(paid[0] + 1) if paid.size else "never",
        )
    table.caption = (
        "Pays after so many questions: a tenth of the tokens is saved in all. Δ in "
        "points to FiniteHorizon(0.97), with a 95 % interval over shuffles of the same "
        "questions."
    )
    return table


if __name__ == "__main__":
    main()

"""How often a replay's 95 % intervals hold what they are for:
``python -m benchmarks.interval_coverage``.

Recordings are simulated: other questions of one pool, and so another calibration, order
and responses each time. Each is replayed. Over several shuffles, an interval is for the
mean of its row over all recordings. In one arrangement (``--shuffles 0``) it is for
what the row's own rule, calibrated as it is, does on 8,000 other questions; rows that
learn while they are tested have none there. Printed for each row and statistic: the
mean, how many recordings show an interval, the share of these intervals that hold their
value with the exact interval of that share, their mean width, and the spread: the width
that would do, 2 × 1.96 standard deviations of the value between recordings. Ten
shuffles of a recording take about 15 seconds of one processor.
"""

import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_lab.pools import Pool, PoolQuestion, PoolResponse
from langchain_reasc_lab.replay import (
    ASC_ROW,
    Estimate,
    MethodSettings,
    Row,
    exact,
    replay,
    summarize,
)
from langchain_reasc_lab.simulation.pools import Responses, simulated_pool
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.command import parser_of
from benchmarks.simulated_pools import accuracy_and_tokens

STATISTICS: Final = {
    "accuracy": "accuracy",
    "tokens_vs_sc": "tokens / SC",
    "tokens_vs_asc": "tokens / ASC",
    "accuracy_vs_sc": "Δ acc. to SC",
    "accuracy_vs_asc": "Δ acc. to ASC",
}
"""A field of a row -> its heading."""
OTHERS: Final = 8000
Intervals = dict[tuple[str, str], tuple[Estimate, float]]
"""(method, statistic) -> its interval in one recording, and what that is for; NaN for
the mean of all recordings.
"""


def recorded(responses: Responses) -> Pool:
    """Return simulated responses as a pool with the scores of the first measure."""
    values = (
        responses.answers,
        responses.tokens,
        responses.scores[0],
        responses.correct,
    )
    questions = (
        tuple(
            PoolResponse(
                None if answer < 0 else str(answer), tokens, score, correct=right
            )
            for answer, tokens, score, right in zip(*of_question, strict=True)
        )
        for of_question in zip(*(array.tolist() for array in values), strict=True)
    )
    return Pool(
        Path("simulated"),
        tuple(PoolQuestion(f"q{at}", (), one, "?") for at, one in enumerate(questions)),
    )


def intervals(
    responses: Responses, others: Responses, *, calibration: int, shuffles: int
) -> Intervals:
    """Return the intervals of every row of one recording's replay."""
    rows = summarize(
        replay(
            recorded(responses),
            ["recorded"],
            calibration_size=calibration,
            shuffles=shuffles,
        )
    )
    values: dict[tuple[str, str], float] = (
        {} if shuffles > 1 else _on_others(rows, others)
    )
    return {
        (row.method, name): (
            getattr(row, name),
            values.get((row.method, name), math.nan),
        )
        for row in rows
        for name in STATISTICS
    }


def _on_others(rows: Sequence[Row], others: Responses) -> dict[tuple[str, str], float]:
    """Return the statistics of each row whose rule stayed the same, on other questions."""
    rules = {
        row.method: rule
        for row in rows
        if (rule := row.outcomes.rules.get(0)) is not None
    }
    found = {
        method: accuracy_and_tokens(others, rule) for method, rule in rules.items()
    }
    sc, asc = found[MethodSettings().fixed_budget], found[ASC_ROW]
    return {
        (method, name): value
        for method, (right, tokens) in found.items()
        for name, value in zip(
            STATISTICS,
            (right, tokens / sc[1], tokens / asc[1], right - sc[0], right - asc[0]),
            strict=True,
        )
    }


def covered(
    found: Sequence[Intervals], row: tuple[str, str]
) -> tuple[float, int, Estimate, float, float] | None:
    """Return the mean value of a row, how many intervals it has, which share holds its
    value, their width, the spread.

    None if the row varies nowhere, or is missing in some of the recordings: the
    safeguard's, where it changes nothing; and where no recording shows an interval.
    """
    held = [one[row] for one in found if row in one]
    mean = float(np.mean([one.value for one, _ in held]))
    shown = [
        (one, mean if math.isnan(value) else value)
        for one, value in held
        if not math.isnan(one.low)
    ]
    if len(held) < len(found) or all(one.low == one.high for one, _ in shown):
        return None
    inside = sum(one.low <= value <= one.high for one, value in shown)
    width, spread = (
        np.mean([one.high - one.low for one, _ in shown]),
        3.92 * np.std([one.value for one, _ in held]),
    )
    return mean, len(shown), exact(inside, len(shown)), float(width), float(spread)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = parser_of("interval_coverage", __doc__)
    parser.add_argument(
        "--recordings", type=int, default=100, help="how many (%(default)s)"
    )
    parser.add_argument(
        "--questions", type=int, default=512, help="tested in each (%(default)s)"
    )
    parser.add_argument(
        "--calibration",
        type=int,
        default=128,
        help="others that calibrate (%(default)s)",
    )
    parser.add_argument(
        "--shuffles",
        type=int,
        default=10,
        help="of each; 0 for the recorded order (%(default)s)",
    )
    parser.add_argument(
        "--pool",
        type=int,
        default=12,
        help="number of the simulated pool (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)"
    )
    given = parser.parse_args(arguments)
    size = given.calibration + given.questions
    asked = given.recordings * size
    pool = simulated_pool(
        given.pool, seed=given.seed, questions=asked + OTHERS, measures=1
    )
    parts = [pool.tested[at : at + size] for at in range(0, asked, size)]
    work = partial(
        intervals,
        others=pool.tested[asked:],
        calibration=given.calibration,
        shuffles=given.shuffles,
    )
    shown = Console(stderr=True)
    with ProcessPoolExecutor(given.jobs) as processes:
        each = track(
            processes.map(work, parts),
            "Recordings",
            len(parts),
            console=shown,
            disable=not shown.is_terminal,
        )
        found = list(each)
    console = Console(width=100, highlight=False)
    console.print(
        f"{given.recordings} recordings of pool {given.pool} ({pool.kind.answers}; "
        f"signal: {pool.kind.signal}; seed {given.seed}):\n{given.questions} questions "
        f"tested, {given.calibration} others calibrate; {given.shuffles} shuffles\n"
    )
    console.print(_table(found))
    return 0


def _table(found: Sequence[Intervals]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("row")
    for heading in ("statistic", "mean %", "shown", "covered %", "width", "spread"):
        table.add_column(heading, justify="right" if heading != "statistic" else "left")
    for method, name in dict.fromkeys(key for one in found for key in one):
        if (result := covered(found, (method, name))) is not None:
            mean, shown, share, *widths = result
            holds = (
                f"{share.percent.value:.0f} {share.percent.interval('.0f')}".replace(
                    "[", r"\["
                )
            )
            ends = (f"{100 * width:.2f}" for width in widths)
            table.add_row(
                method, STATISTICS[name], f"{100 * mean:.2f}", str(shown), holds, *ends
            )
    return table


if __name__ == "__main__":
    sys.exit(main())

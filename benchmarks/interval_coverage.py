"""How often a replay's 95 % intervals hold the value of all recordings: ``python -m benchmarks.interval_coverage``.

Recordings are simulated: other questions of one pool, and so another calibration, order and responses each time. Each
is replayed, and the value to be covered is the mean of a row over all of them. Printed for each row and statistic: that
mean, the share of intervals that hold it with the exact interval of that share, and the intervals' mean width. Ten
shuffles of a recording take about 15 seconds of one processor.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_lab.replay import Estimate, exact, replay, summarize
from langchain_reasc_lab.simulation.pools import Responses, simulated_pool
from rich.console import Console
from rich.progress import track
from rich.table import Table

from langchain_reasc.pools import Pool, PoolQuestion, PoolResponse

STATISTICS: Final = {"accuracy": "accuracy", "tokens_vs_asc": "tokens / ASC", "accuracy_vs_asc": "Δ acc. to ASC"}
"""A field of a row -> its heading."""
Intervals = dict[tuple[str, str], Estimate]
"""(method, statistic) -> its interval in one recording."""


def recorded(responses: Responses) -> Pool:
    """Return simulated responses as a pool with the scores of the first measure."""
    values = (responses.answers, responses.tokens, responses.scores[0], responses.correct)
    questions = (
        tuple(
            PoolResponse(None if answer < 0 else str(answer), tokens, score, correct=right)
            for answer, tokens, score, right in zip(*of_question, strict=True)
        )
        for of_question in zip(*(array.tolist() for array in values), strict=True)
    )
    return Pool(Path("simulated"), tuple(PoolQuestion(f"q{at}", (), one, "?") for at, one in enumerate(questions)))


def intervals(responses: Responses, *, calibration: int, shuffles: int) -> Intervals:
    """Return the intervals of every row of one recording's replay."""
    rows = summarize(replay(recorded(responses), ["recorded"], calibration_size=calibration, shuffles=shuffles))
    return {(row.method, name): getattr(row, name) for row in rows for name in STATISTICS}


def covered(found: Sequence[Intervals], row: tuple[str, str]) -> tuple[float, Estimate, float] | None:
    """Return the mean value of a row, the share of intervals that hold it, and their mean width.

    None where the row varies nowhere, or is missing in some of the recordings: the safeguard's, where it changes
    nothing.
    """
    held = [one[row] for one in found if row in one]
    mean = float(np.mean([one.value for one in held]))
    if len(held) < len(found) or all(one.low == one.high for one in held):
        return None
    inside = sum(one.low <= mean <= one.high for one in held)
    return mean, exact(inside, len(held)), float(np.mean([one.high - one.low for one in held]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interval_coverage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--recordings", type=int, default=100, help="how many (%(default)s)")
    parser.add_argument("--questions", type=int, default=512, help="tested in each (%(default)s)")
    parser.add_argument("--calibration", type=int, default=128, help="others that calibrate (%(default)s)")
    parser.add_argument("--shuffles", type=int, default=10, help="of each; 0 for the recorded order (%(default)s)")
    parser.add_argument("--pool", type=int, default=12, help="number of the simulated pool (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    given = parser.parse_args(arguments)
    size = given.calibration + given.questions
    pool = simulated_pool(given.pool, seed=given.seed, questions=given.recordings * size, measures=1)
    parts = [pool.tested[at : at + size] for at in range(0, len(pool.tested), size)]
    work = partial(intervals, calibration=given.calibration, shuffles=given.shuffles)
    shown = Console(stderr=True)
    with ProcessPoolExecutor(given.jobs) as processes:
        each = track(processes.map(work, parts), "Recordings", len(parts), console=shown, disable=not shown.is_terminal)
        found = list(each)
    console = Console(width=100, highlight=False)
    console.print(
        f"{given.recordings} recordings of pool {given.pool} ({pool.kind.answers}; signal: {pool.kind.signal}; seed "
        f"{given.seed}):\n{given.questions} questions tested, {given.calibration} others calibrate; "
        f"{given.shuffles} shuffles\n"
    )
    console.print(_table(found))
    return 0


def _table(found: Sequence[Intervals]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("row")
    for heading in ("statistic", "mean %", "covered %", "width"):
        table.add_column(heading, justify="right" if heading != "statistic" else "left")
    for method, name in dict.fromkeys(key for one in found for key in one):
        if (result := covered(found, (method, name))) is not None:
            mean, share, width = result
            holds = f"{share.percent.value:.0f} {share.percent.interval('.0f')}".replace("[", r"\[")
            table.add_row(method, STATISTICS[name], f"{100 * mean:.2f}", holds, f"{100 * width:.2f}")
    return table


if __name__ == "__main__":
    sys.exit(main())

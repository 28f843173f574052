"""What rules cost and lose on recordings with scores: ``python -m benchmarks.frontier
[FOLDER]``, by default on the small pools beside this file.

The questions of a recording are asked one after another in shuffled orders, and what is
learned on the way is counted. Tokens are relative to those of always using the budget;
points are the difference in right answers to it, with a standard error over shuffles.

Three rules learn, at several thresholds: from counts alone, from counts and scores
(``calibration="online"``), and from the scores of other questions, which say nothing of
these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.pools import PoolScores
from langchain_reasc_lab.replay.arrangement import COLUMNS, Arrangement, RecordedPool
from langchain_reasc_lab.replay.methods import Method
from langchain_reasc_lab.replay.recordings import open_recording, recordings_in
from langchain_reasc_lab.replay.replay import budget_of, splits
from langchain_reasc_lab.replay.stream import Stream

from benchmarks.command import parser_of
from benchmarks.defaults import at_threshold
from langchain_reasc.method import (
    ASC,
    Cap,
    FiniteHorizon,
    FixedBudget,
    Lead,
    StoppingRule,
)

POOLS: Final = Path(__file__).with_name("pools")
QUESTIONS: Final = 640
COUNTED: Final = (0.95, 0.975, 0.985)
SCORED: Final = (0.9, 0.93, 0.95, 0.97, 0.98)
_TOKENS: Final = COLUMNS.index("tokens")
_CORRECT: Final = COLUMNS.index("correct")


@dataclass(frozen=True, slots=True)
class Point:
    """A rule on a recording.

    Attributes:
        rule: its name.
        tokens: relative to always using the budget.
        points: right answers minus those of always using the budget, in percent.
        error: the standard error of the points over shuffles.
    """

    rule: str
    tokens: float
    points: float
    error: float


def rules(budget: int) -> dict[str, StoppingRule]:
    """Return the rules that learn nothing, by name."""
    cap = Cap(budget)
    return {
        "Lead(2)": Lead(2) | cap,
        "Lead(3)": Lead(3) | cap,
        "FiniteHorizon(.9)": FiniteHorizon(0.9, budget) | cap,
        "FiniteHorizon(.97)": FiniteHorizon(0.97, budget) | cap,
        "ASC": ASC() | cap,
    }


def frontier(recorded: RecordedPool, *, shuffles: int, seed: int) -> list[Point]:
    """Return a point for each rule.

    Args:
        recorded: responses with scores of their own, or with token signals.
        shuffles: how often the questions and their responses are rearranged.
        seed: the seed of the shuffles.
    """
    budget = budget_of([recorded.pool], None)
    found: dict[str, list[tuple[float, float]]] = {}
    for split in splits(recorded.pool, 0, shuffles=shuffles, seed=seed):
        asked = list(split.tested)[:QUESTIONS]
        arrangement = Arrangement(recorded, split, asked, budget)
        always = _mean(arrangement.outcome(Method("", FixedBudget(budget))), asked)
        for name, rule in rules(budget).items():
            cells = arrangement.outcome(Method("", rule, in_use=True))
            found.setdefault(name, []).append(_beside(cells, asked, always))
        for name, stream, threshold in _streams(recorded, arrangement):
            rule_of = partial(at_threshold, threshold, budget)
            learned = replace(stream, rule=rule_of).run()
            drawn = np.array([decision.samples for decision in learned.decisions])
            drawn += learned.audited
            cells = arrangement.cells(learned.decisions, drawn)
            row = _beside(cells, asked, always)
            found.setdefault(f"{name} {threshold:g}", []).append(row)
    return [_point(name, np.array(rows)) for name, rows in found.items()]


def _streams(
    recorded: RecordedPool, arrangement: Arrangement
) -> list[tuple[str, Stream, float]]:
    scores = recorded.scores
    measures = scores.read_by_agreement() if scores.signals else ["recorded"]
    counted = arrangement.stream(())
    scored = arrangement.stream(measures)
    streams = [("counts", counted, threshold) for threshold in COUNTED]
    streams += [("counts and scores", scored, threshold) for threshold in SCORED]
    return [*streams, ("scores of other questions", _dealt(scored), SCORED[2])]


def _dealt(stream: Stream) -> Stream:
    """Return the stream with the scores of each question dealt to another one."""
    order = np.roll(np.arange(len(stream.scores[0])), 1)
    responses = stream.responses(stream.measures[0])
    dealt = []
    for question, other in zip(responses, order.tolist(), strict=True):
        scores = [response.score for response in responses[other]]
        dealt.append(
            [
                replace(response, score=score)
                for response, score in zip(question, scores, strict=False)
            ]
        )
    unscored = stream.responses(None)
    return replace(
        stream,
        responses=lambda measure: unscored if measure is None else dealt,
        scores=[values[order] for values in stream.scores],
    )


def _mean(cells: npt.NDArray[np.float64], asked: Sequence[int]) -> tuple[float, float]:
    tokens, correct = cells[list(asked)][:, [_TOKENS, _CORRECT]].mean(axis=0)
    return float(tokens), float(correct)


def _beside(
    cells: npt.NDArray[np.float64], asked: Sequence[int], always: tuple[float, float]
) -> tuple[float, float]:
    tokens, correct = _mean(cells, asked)
    return tokens / always[0], 100 * (correct - always[1])


def _point(name: str, rows: npt.NDArray[np.float64]) -> Point:
    tokens, points = rows.mean(axis=0).tolist()
    error = 0.0
    if len(rows) > 1:
        error = float(rows[:, 1].std(ddof=1)) / len(rows) ** 0.5
    return Point(name, tokens, points, error)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each recording."""
    parser = parser_of("frontier", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=POOLS)
    parser.add_argument("--only", nargs="+", default=None, help="names of recordings")
    parser.add_argument("--shuffles", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print(f"{given.shuffles} shuffles (seed {given.seed}); tokens / always, points")
    for path in recordings_in(given.folder):
        name = path.name.split(".")[0]
        if given.only is not None and name not in given.only:
            continue
        with open_recording(path) as pool:
            recorded = RecordedPool(pool, PoolScores(pool))
            points = frontier(recorded, shuffles=given.shuffles, seed=given.seed)
        print(f"\n{name}, {len(pool.questions)} questions")
        for point in points:
            figures = f"{point.tokens:.3f}  {point.points:+.2f} ± {point.error:.2f}"
            print(f"  {point.rule:32} {figures}", flush=True)


if __name__ == "__main__":
    main()

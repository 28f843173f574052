"""What is saved where samples in flight are cut off at the decision:
``python -m benchmarks.cutting [FOLDER]``, recordings as of reasc bench, by default the
small pools beside this file.

Each question is asked as a live run asks it. Samples are launched in waves, as many as
may be needed if the next ones agree, four at most. A response takes as long as it has
tokens. The rule decides in launch order, as soon as the responses before have ended.
Then the samples that still run are cut off, or run to their ends.

``default`` is the rule without a calibration. ``online`` is the rule that was learned
without labels from all of the questions. Tokens are relative to those of asking once.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_lab.pools import PoolScores
from langchain_reasc_lab.replay.arrangement import Arrangement, RecordedPool
from langchain_reasc_lab.replay.recordings import open_recording, recordings_in
from langchain_reasc_lab.replay.replay import budget_of, splits

from benchmarks.command import parser_of
from benchmarks.frontier import POOLS
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method import (
    FiniteHorizon,
    Measure,
    Response,
    StoppingRule,
    decide,
    rule_in_use,
)
from langchain_reasc.method.stopping import fewest_further

AT_ONCE: Final = 4
QUESTIONS: Final = 300


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens generated for questions.

    Attributes:
        once: the first response of each.
        cut: responses in flight are cut off at the decision.
        whole: they run to their ends.
    """

    once: float
    cut: float
    whole: float

    @property
    def saved(self) -> float:
        """Percent of the tokens of whole responses that are saved by cutting."""
        return 100 * (1 - self.cut / self.whole)


def spent(
    rule: StoppingRule, responses: Sequence[Response], tokens: Sequence[float]
) -> Spent:
    """Return the tokens of one question.

    Args:
        rule: as it is in use, within a budget.
        responses: responses in launch order.
        tokens: tokens of each.
    """
    before = 0
    while True:
        most = min(AT_ONCE, len(responses) - before)
        if not before and rule.first_wave is not None:
            most = min(most, rule.first_wave)
        launched = before + fewest_further(rule, responses[:before], most)
        for count in range(before + 1, launched + 1):
            decision = decide(rule, responses[:count], undecided=count - 1)
            if decision.stop or count == len(responses):
                decided = max(tokens[before:count])
                paid = sum(tokens[:count])
                rest = tokens[count:launched]
                cut = sum(min(length, decided) for length in rest)
                return Spent(tokens[0], paid + cut, paid + sum(rest))
        before = launched


def of_recording(path: Path, *, shuffles: int, seed: int) -> dict[str, Spent] | None:
    """Return what each rule spends per question on a recording; None if lengths were
    not recorded, or there is nothing to vote on.
    """
    with open_recording(path) as pool:
        budget = budget_of([pool], None)
        recorded = RecordedPool(pool, PoolScores(pool))
        if budget < 2 or recorded.tokens.max() <= 1:
            return None
        rows: defaultdict[str, list[Spent]] = defaultdict(list)
        for split in splits(pool, 0, shuffles=shuffles, seed=seed):
            asked = list(split.tested)[:QUESTIONS]
            arrangement = Arrangement(recorded, split, asked, budget)
            lengths = arrangement.arranged(recorded.tokens).tolist()
            stream = arrangement.stream(_measures(recorded))
            calibration = stream.run().calibration
            rules: dict[str, StoppingRule] = {"default": FiniteHorizon(budget=budget)}
            measure = None
            if calibration is not None:
                rules["online"] = calibration.rule(budget=budget)
                measure = calibration.measure
            for name, rule in rules.items():
                in_use = rule_in_use(rule, budget)
                read = stream.responses(measure if name == "online" else None)
                for responses, tokens in zip(read, lengths, strict=True):
                    rows[name].append(spent(in_use, responses[:budget], tokens))
    return {
        name: Spent(*np.mean([astuple(row) for row in of_rule], axis=0).tolist())
        for name, of_rule in rows.items()
    }


def _measures(recorded: RecordedPool) -> Sequence[Measure | str]:
    scores = recorded.scores
    if scores.signals:
        return scores.read_by_agreement()
    return ["recorded"] if recorded.pool.has_scores else []


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each recording and rule."""
    parser = parser_of("cutting", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=POOLS)
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print(f"{given.shuffles} shuffles (seed {given.seed})")
    head = f"{'recording':44} {'rule':8} {'length':>7} {'cut':>6} {'whole':>6}"
    print(f"{head} {'saved, %':>9}")
    for path in recordings_in(given.folder):
        try:
            rows = of_recording(path, shuffles=given.shuffles, seed=given.seed)
        except PoolError:
            continue
        for name, row in (rows or {}).items():
            figures = (
                f"{row.once:7.0f} {row.cut / row.once:6.2f} "
                f"{row.whole / row.once:6.2f} {row.saved:9.2f}"
            )
            print(f"{path.name.split('.')[0]:44} {name:8} {figures}", flush=True)


if __name__ == "__main__":
    main()

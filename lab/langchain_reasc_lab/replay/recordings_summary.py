"""Several recordings in numbers: what each rule cost, and lost to always asking."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pydantic import TypeAdapter

from langchain_reasc._version import __version__
from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.question_sets import mean_over_sets
from langchain_reasc_lab.replay.recordings import (
    LeftOut,
    RecordingResult,
    RuleResult,
)

__all__ = [
    "LARGE",
    "RuleSummary",
    "Spread",
    "Summary",
    "recordings_as_data",
    "summarized",
]

LARGE: Final = 150
"""Questions from which on a recording is large."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How a ratio varies between recordings: the median and the range of the middle
    80 %.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of_values(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of one value or more."""
        low, median, high = np.percentile(values, [10, 50, 90]).tolist()
        return cls(median, low, high)


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """One rule on all recordings.

    Attributes:
        method: its name.
        tokens_vs_once: its tokens relative to asking once.
        tokens_vs_once_large: likewise, on large recordings; None if there is none.
        tokens_vs_sc: its tokens relative to always using the budget.
        points_vs_sc: the difference in right answers to always using the budget, in
            points: the mean over the recordings of a set of questions first, and then
            over sets.
        a_point_lost: recordings on which it has more than one point fewer right
            answers.
        worse: the files on which it is clearly worse, so that the 95 % interval is
            below 0.
        worse_by_a_point: those of them on which the interval is below -1 point.
        worse_by_chance: on how many it would be clearly worse by chance alone, if it
            were neither better nor worse.
        better: the files on which it is clearly better.
    """

    method: str
    tokens_vs_once: Spread
    tokens_vs_once_large: Spread | None
    tokens_vs_sc: Spread
    points_vs_sc: Estimate
    a_point_lost: int
    worse: tuple[str, ...]
    worse_by_a_point: tuple[str, ...]
    worse_by_chance: float
    better: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """All recordings in numbers.

    Attributes:
        recordings: how many there are.
        large: how many of them have :data:`LARGE` questions or more.
        question_sets: how many sets of questions they are of.
        votes_help: on how many always using the budget is clearly better than asking
            once.
        votes_harm: on how many it is clearly worse.
        rules: each rule that was compared on all of them.
    """

    recordings: int
    large: int
    question_sets: int
    votes_help: int
    votes_harm: int
    rules: tuple[RuleSummary, ...]


def summarized(results: Sequence[RecordingResult]) -> Summary:
    """Return all recordings in numbers; there is one at least."""
    gains = [result.always.accuracy_vs_once for result in results]
    methods = [
        rule.method
        for rule in results[0].rules
        if all(result.rule(rule.method) for result in results)
    ]
    return Summary(
        recordings=len(results),
        large=sum(result.questions >= LARGE for result in results),
        question_sets=len({result.question_set for result in results}),
        votes_help=sum(gain.low > 0 for gain in gains),
        votes_harm=sum(gain.high < 0 for gain in gains),
        rules=tuple(_rule_summary(method, results) for method in methods),
    )


def _rule_summary(method: str, results: Sequence[RecordingResult]) -> RuleSummary:
    compared = list[tuple[RecordingResult, RuleResult]]()
    for result in results:
        if rule := result.rule(method):
            compared.append((result, rule))
    points = {result.file: rule.accuracy_vs_sc.percent for result, rule in compared}
    large = [
        rule.tokens_vs_once.value
        for result, rule in compared
        if result.questions >= LARGE
    ]
    return RuleSummary(
        method=method,
        tokens_vs_once=Spread.of_values(
            [rule.tokens_vs_once.value for _, rule in compared]
        ),
        tokens_vs_once_large=Spread.of_values(large) if large else None,
        tokens_vs_sc=Spread.of_values(
            [rule.tokens_vs_sc.value for _, rule in compared]
        ),
        points_vs_sc=mean_over_sets(
            [difference.value for difference in points.values()],
            [result.question_set for result, _ in compared],
        ),
        a_point_lost=sum(difference.value < -1 for difference in points.values()),
        worse=tuple(file for file, difference in points.items() if difference.high < 0),
        worse_by_a_point=tuple(
            file for file, difference in points.items() if difference.high < -1
        ),
        worse_by_chance=sum(rule.worse_by_chance for _, rule in compared),
        better=tuple(file for file, difference in points.items() if difference.low > 0),
    )


def recordings_as_data(
    results: Sequence[RecordingResult],
    left_out: Sequence[LeftOut],
    *,
    shuffles: int,
    seed: int,
) -> dict[str, Any]:
    """Return everything as plain data; numbers that do not exist are null."""
    data = {
        "recordings": results,
        "left_out": left_out,
        "summary": summarized(results) if results else None,
    }
    adapter = TypeAdapter[dict[str, Any]](dict[str, Any])
    plain = json.loads(adapter.dump_json(data))
    return {"library_version": __version__, "shuffles": shuffles, "seed": seed, **plain}

"""What a replay comes to, in sentences: ReASC beside asking once and beside always
asking all, for people.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import AGREEMENT, ASC_ROW, HORIZON
from langchain_reasc_lab.replay.metrics import Row, measure_data
from langchain_reasc_lab.replay.replay import Replay, live_rule

__all__ = ["PASS", "four_rows", "verdict", "verdict_as_data"]

PASS: Final = "pass@1"
_CLOSE: Final = 5.0
"""Points: a difference whose interval lies within these on both sides is called none; a
wider one, undecided.
"""
_LITTLE: Final = 2.0
"""Points: votes that may gain no more do not help."""
_FEWEST: Final = 30
"""Questions, below which resampled intervals are too narrow to conclude anything from.
"""


def four_rows(run: Replay, rows: Sequence[Row]) -> dict[str, Row]:
    """Return the rows that matter most: asking once, always asking all, ASC, and ReASC
    as it runs by default.

    That is the rule that is learned from the calibration questions or, where nothing is
    calibrated, the rule that needs none.
    """
    spec = next((row.spec for row in rows if row.spec is not None), None)
    name = ASC_ROW if spec is None else live_rule(run, spec)[0]
    by_key = {(row.method, row.spec): row for row in rows}
    held = max(
        len(question.responses)
        for question in run.pool.questions[run.pool.calibrating :]
    )
    return {
        "Asking once": by_key[PASS, None],
        f"Always {min(run.settings.max_samples, held)}": by_key[
            run.settings.fixed_budget, None
        ],
        "ASC": by_key[ASC_ROW, None],
        "ReASC": by_key[HORIZON, None] if name == ASC_ROW else by_key[name, spec],
    }


def verdict(run: Replay, rows: Sequence[Row]) -> list[str]:
    """Return the outcome on one pool, in sentences: what each way has right and costs,
    whether votes help, and what to do.
    """
    (_, once), (always, everything), _, (_, ours) = four_rows(run, rows).items()
    tested = int(ours.outcomes.tested.any(axis=0).sum())
    if everything.samples.value <= 1:
        return [
            f"Asking once: {_right(once)} right.",
            "One response to each question does not tell what votes do.",
            "What to do: record several responses to each (`reasc record --samples "
            "16`).",
        ]
    outcome = (
        f"Asking once: {_right(once)} right. ReASC: {_right(ours)}, for "
        f"{_times(ours)} the tokens. {always}: {_right(everything)}, for "
        f"{_times(everything)}."
    )
    if tested < _FEWEST:
        questions = "question does" if tested == 1 else "questions do"
        return [
            outcome,
            f"{tested} tested {questions} not tell methods apart.",
            *_without_calibration(ours, rows),
            f"What to do: record more questions, so that {_FEWEST} or more are tested.",
        ]
    return [
        outcome,
        _votes(everything, always),
        f"{_compared(ours, always)}, {_tokens(ours.tokens_vs_sc.value)}.",
        *_without_calibration(ours, rows),
        f"What to do: {_advice(ours, everything, always)}.",
    ]


def _without_calibration(ours: Row, rows: Sequence[Row]) -> list[str]:
    """Return what the row of ReASC is where nothing was calibrated."""
    if ours.method != HORIZON:
        return []
    learns = next(row for row in rows if row.method == AGREEMENT)
    return [
        'ReASC was not calibrated here; calibration="online" has '
        f"{_right(learns)}, for {_times(learns)}."
    ]


def _advice(ours: Row, everything: Row, always: str) -> str:
    """Return what to do, given what votes gain and what ReASC loses of that."""
    gained, lost = everything.accuracy_vs_once.percent, ours.accuracy_vs_sc.percent
    if gained.low <= 0 and gained.high < _LITTLE:
        return "ask once"
    if gained.low <= 0:
        return "record more questions, which tell whether votes pay"
    if lost.high < 0 and -lost.value > gained.value / 2:
        return (
            f"{always[0].lower()}{always[1:]}, as ReASC loses most of what votes gain"
        )
    if ours.method == HORIZON:
        return 'vote with ReASC as it is, or with calibration="online"'
    return "vote with ReASC, calibrated by `reasc pool calibrate`"


def verdict_as_data(run: Replay, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the sentences, and the figures of the first one with the row that each is
    of; null if there is none.
    """
    named = four_rows(run, rows)
    figures = {
        name: {
            "method": row.method,
            "measure": measure_data(row.spec),
            "accuracy": row.accuracy.value,
            "tokens_vs_once": _finite(row.tokens_vs_once.value),
        }
        for name, row in named.items()
    }
    return {"sentences": verdict(run, rows), "figures": figures}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _right(row: Row) -> str:
    return f"{100 * row.accuracy.value:.0f} %"


def _times(row: Row) -> str:
    ratio = row.tokens_vs_once.value
    if not math.isfinite(ratio):
        return "times that the pool does not tell"
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:.0f} times"


def _votes(everything: Row, always: str) -> str:
    """Return whether more than one response helps at all."""
    gained = everything.accuracy_vs_once
    interval = gained.percent.interval("+.1f").replace("[", "[95 %: ")
    found = (
        f"{always.lower()} has {gained.percent.value:+.1f} points {interval} to asking "
        "once"
    )
    if gained.low > 0:
        return f"Votes help: {found}."
    if gained.high < 0:
        return f"Votes do harm: {found}."
    if gained.percent.high < _LITTLE:
        return f"Votes do not help: {found}."
    return f"Whether votes help is not clear: {found}."


def _compared(row: Row, always: str) -> str:
    """Return whether accuracy is worse, better, the same within so many points, or
    undecided.
    """
    difference, all_samples = row.accuracy_vs_sc.percent, always.lower()
    reach = max(-difference.low, difference.high)
    if difference.low > 0 or difference.high < 0:
        low, high = sorted((abs(difference.low), abs(difference.high)))
        kind = "more" if difference.low > 0 else "less"
        points = f"{abs(difference.value):.1f} points [{low:.1f}, {high:.1f}]"
        return f"ReASC is {kind} accurate than {all_samples}, by {points}"
    if reach <= _CLOSE:
        return f"ReASC is as accurate as {all_samples}, within ±{reach:.1f} points"
    return f"Whether ReASC is as accurate as {all_samples} is not clear: {_points(row.accuracy_vs_sc)}"


def _points(share: Estimate) -> str:
    return (
        f"{share.percent.value:+.1f} points {share.percent.interval('+.1f')}".rstrip()
    )


def _tokens(ratio: float) -> str:
    """Return how tokens relate to another method's."""
    if not math.isfinite(ratio):
        return "for tokens that the pool does not tell"
    percent = round(100 * abs(ratio - 1))
    if percent == 0:
        return "for as many tokens"
    return f"for {percent} % {'fewer' if ratio < 1 else 'more'} tokens"

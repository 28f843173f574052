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
    """Return the outcome on one pool, in sentences with their 95 % intervals; the first
    says most.
    """
    (_, once), (always, everything), _, (_, ours) = four_rows(run, rows).items()
    tested = int(ours.outcomes.tested.any(axis=0).sum())
    sentences = [
        f"Asking once: {_right(once)} right. ReASC: {_right(ours)}, for {_times(ours, once)} the tokens. {always}: "
        f"{_right(everything)}, for {_times(everything, once)}."
    ]
    if tested < _FEWEST:
        count = f"{tested} question{' does' if tested == 1 else 's do'}"
        return [
            *sentences,
            f"{count} not tell methods apart: record {_FEWEST} or more.",
        ]
    sentences += [
        _votes(once, always),
        f"{_compared(ours, always)}, {_tokens(ours.tokens_vs_sc)}.",
    ]
    if ours.method != HORIZON:
        sentences.append(
            f"Beside ASC, which counts votes and needs no confidence, ReASC has {_points(ours.accuracy_vs_asc)}, "
            f"{_tokens(ours.tokens_vs_asc)}."
        )
    else:
        learns = next(row for row in rows if row.method == AGREEMENT)
        sentences.append(
            'ReASC was not calibrated here. If it learns while it answers (calibration="online"), it has '
            f"{_right(learns)} for {_times(learns, once)}."
        )
    return sentences


def verdict_as_data(run: Replay, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the sentences, and the figures of the first one with the row that each is
    of; null if there is none.
    """
    named = four_rows(run, rows)
    once = named["Asking once"]
    figures = {
        name: {
            "method": row.method,
            "measure": measure_data(row.spec),
            "accuracy": row.accuracy.value,
            "tokens_vs_once": ratio
            if math.isfinite(ratio := _ratio(row, once))
            else None,
        }
        for name, row in named.items()
    }
    return {"sentences": verdict(run, rows), "figures": figures}


def _ratio(row: Row, once: Row) -> float:
    return row.tokens.value / once.tokens.value if once.tokens.value else math.nan


def _right(row: Row) -> str:
    return f"{100 * row.accuracy.value:.0f} %"


def _times(row: Row, once: Row) -> str:
    ratio = _ratio(row, once)
    if not math.isfinite(ratio):
        return "times that the pool does not tell"
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:.0f} times"


def _votes(once: Row, always: str) -> str:
    """Return whether more than one response helps at all."""
    lost = once.accuracy_vs_sc
    gained = Estimate(0 - lost.value, 0 - lost.high, 0 - lost.low)
    found = f"beside asking once, {always.lower()} has {_points(gained)}"
    if gained.low > 0:
        return f"Votes help: {found}."
    if gained.percent.high < _LITTLE:
        return f"Votes do not help here: {found}. Asking once costs least."
    return f"Whether votes help here is not clear: {found}. More questions would tell."


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


def _tokens(ratio: Estimate) -> str:
    """Return how tokens relate to another method's."""
    if not math.isfinite(ratio.value):
        return "for tokens that the pool does not tell"
    if not math.isfinite(ratio.high - ratio.low):
        return f"for tokens that differ by {100 * (ratio.value - 1):+.0f} %"
    more = Estimate(ratio.value - 1, ratio.low - 1, ratio.high - 1).percent
    fewer = Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low).percent
    if fewer.low > 0:
        return f"for {fewer.value:.0f} % {fewer.interval('.0f')} fewer tokens"
    if more.low > 0:
        return f"for {more.value:.0f} % {more.interval('.0f')} more tokens"
    return f"for tokens that differ by {more.value:+.0f} % {more.interval('+.0f')}"

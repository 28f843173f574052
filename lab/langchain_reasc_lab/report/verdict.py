"""The conclusion of the main comparison on one pool, in sentences."""

import math
from typing import Final

from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import ASC_ROW, HORIZON
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import live_rule
from langchain_reasc_lab.report.study import Study

AS_ACCURATE: Final = 5.0
"""Points: a difference whose interval lies within these on both sides is called none; a wider one, undecided."""
FEWEST: Final = 30
"""Questions, below which resampled intervals are too narrow to conclude anything from."""


def verdict(study: Study) -> list[str]:
    """Return the outcome on one pool, in sentences with their 95 % intervals; the first says most.

    It is of the row that a live run would be: the offline calibration as it runs by default, or, where there is no
    calibration, the rule that needs none. It is compared with all samples (self-consistency), then with ASC, which
    counts votes and needs no confidence.
    """
    rows = {(row.method, row.spec): row for row in study.rows}
    name, why = (ASC_ROW, study.uncalibrated) if study.uncalibrated else live_rule(study.run, study.spec)
    row = rows[HORIZON, None] if name == ASC_ROW else rows[name, study.spec]
    most = min(study.settings.methods.max_samples, int(study.recorded.lengths[study.pool.calibrating :].max()))
    tested, samples, tokens = study.run.tested, f"all {most} samples", _tokens(row.tokens_vs_sc)
    if tested < FEWEST:
        right = row.accuracy.percent
        sentences = [
            f"{tested} question{'' if tested == 1 else 's'} cannot tell methods apart: {row.method} answers "
            f"{right.value:.1f} % {right.interval('.1f')} right, {_points(row.accuracy_vs_sc)} beside {samples} of "
            f"each question, {tokens}. Record {FEWEST} or more."
        ]
    else:
        sentences = [f"{_compared(row, samples, tested)}, {tokens}."]
        if row.method != HORIZON:
            sentences.append(
                f"Beside ASC, which counts votes and needs no confidence: {_points(row.accuracy_vs_asc)}, "
                f"{_tokens(row.tokens_vs_asc)}."
            )
        if (alone := rows["pass@1", None].accuracy_vs_sc).high >= 0:
            sentences.append(
                "Nor is it clear that more than one response helps here: the first alone is "
                f"{_points(alone)} beside {samples}."
            )
    return sentences + ([f"That counts votes, as ReASC could not be tried: {why}."] if name == ASC_ROW else [])


def _compared(row: Row, samples: str, tested: int) -> str:
    """Return whether accuracy is worse, better, the same within so many points, or undecided."""
    difference = row.accuracy_vs_sc.percent
    reach = max(-difference.low, difference.high)
    if difference.low > 0 or difference.high < 0:
        low, high = sorted((abs(difference.low), abs(difference.high)))
        return (
            f"{row.method} is {'more' if difference.low > 0 else 'less'} accurate than {samples} of each question, by "
            f"{abs(difference.value):.1f} points [{low:.1f}, {high:.1f}]"
        )
    if reach <= AS_ACCURATE:
        return f"{row.method} is as accurate as {samples} of each question, within ±{reach:.1f} points"
    return (
        f"{tested} questions cannot tell whether {row.method} is as accurate as {samples} of each: the difference is "
        f"{_points(row.accuracy_vs_sc)}"
    )


def _points(share: Estimate) -> str:
    return f"{share.percent.value:+.1f} points {share.percent.interval('+.1f')}"


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

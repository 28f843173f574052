"""What a report comes to: whether the rule of a live run answers as well as all samples do, and for how much less."""

import math
from collections.abc import Iterator
from typing import Final

from langchain_reasc.calibrating import MeasureSpec
from langchain_reasc_lab.replay.bootstrap import Estimate, exact
from langchain_reasc_lab.replay.methods import ASC_ROW, HORIZON
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import live_rule
from langchain_reasc_lab.report.parts import percent
from langchain_reasc_lab.report.study import Study

__all__ = ["AS_ACCURATE", "FEWEST", "verdict"]

AS_ACCURATE: Final = 5.0
"""Points: a difference whose interval is within these on both sides is called none; a wider one, undecided."""
FEWEST: Final = 30
"""Questions, below which resampled intervals are too narrow to conclude anything from."""


def verdict(study: Study) -> list[str]:
    """The outcome on one pool, in sentences with their 95 % intervals; the first says most.

    It is of the row that a live run would be: the offline calibration as it runs by default, or, where there is no
    calibration, the rule that needs none. It is compared with all samples (self-consistency), then with ASC, which
    counts votes and needs no confidence.
    """
    rows = {(row.method, row.spec): row for row in study.rows}
    name, spec, why = _live(study)
    row, single = rows[name, spec], rows["pass@1", None]
    lengths = study.recorded.lengths[study.pool.calibrating :]
    samples = f"all {min(study.settings.methods.max_samples, int(lengths.max()))} samples"
    return list(_sentences(row, single, samples, study.run.tested, why))


def _live(study: Study) -> tuple[str, MeasureSpec | None, str]:
    """The name and the measure of the row of a live run, and why it is not one of ReASC, where it is not."""
    if study.uncalibrated:
        return HORIZON, None, study.uncalibrated
    name, why = live_rule(study.run, study.spec)
    return (HORIZON, None, why) if name == ASC_ROW else (name, study.spec, "")


def _sentences(row: Row, single: Row, samples: str, tested: int, why: str) -> Iterator[str]:
    tokens = _tokens(row.tokens_vs_sc)
    if tested < FEWEST:
        right = percent(row.accuracy)
        yield (
            f"{tested} question{'' if tested == 1 else 's'} cannot tell methods apart: {row.method} answers "
            f"{right.value:.1f} % [{right.low:.1f}, {right.high:.1f}] right, {_points(row.accuracy_vs_sc)} beside "
            f"{samples} of each question, {tokens}. Record {FEWEST} or more."
        )
    else:
        yield f"{_compared(row, samples, tested)}, {tokens}."
        if row.method != HORIZON:
            yield (
                f"Beside ASC, which counts votes and needs no confidence: {_points(row.accuracy_vs_asc)}, "
                f"{_tokens(row.tokens_vs_asc)}."
            )
        if (alone := single.accuracy_vs_sc).high >= 0:
            yield (
                "Nor is it clear that more than one response helps here: the first alone is "
                f"{_points(alone)} beside {samples}."
            )
    if why:
        yield f"That counts votes, as ReASC could not be tried: {why}."


def _compared(row: Row, samples: str, tested: int) -> str:
    """Accuracy beside that of all samples: worse, better, the same within so many points, or not to be told."""
    difference = percent(row.accuracy_vs_sc)
    reach = max(-difference.low, difference.high, 100 * exact(0, tested).high)  # resamples of one difference say little
    if difference.high < 0:
        return f"{row.method} is less accurate than {samples} of each question, by {_apart(difference)}"
    if difference.low > 0:
        return f"{row.method} is more accurate than {samples} of each question, by {_apart(difference)}"
    if reach <= AS_ACCURATE:
        return f"{row.method} is as accurate as {samples} of each question, within ±{reach:.1f} points"
    return (
        f"{tested} questions cannot tell whether {row.method} is as accurate as {samples} of each: the difference is "
        f"{_points(row.accuracy_vs_sc)}"
    )


def _apart(difference: Estimate) -> str:
    low, high = sorted((abs(difference.low), abs(difference.high)))
    return f"{abs(difference.value):.1f} points [{low:.1f}, {high:.1f}]"


def _points(share: Estimate) -> str:
    difference = percent(share)
    return f"{difference.value:+.1f} points [{difference.low:+.1f}, {difference.high:+.1f}]"


def _tokens(ratio: Estimate) -> str:
    """Tokens relative to another method's."""
    if not all(map(math.isfinite, (ratio.value, ratio.low, ratio.high))):
        return "for tokens that the pool does not tell"
    saved = percent(Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low))
    if saved.low > 0:
        return f"for {saved.value:.0f} % [{saved.low:.0f}, {saved.high:.0f}] fewer tokens"
    if saved.high < 0:
        return f"for {-saved.value:.0f} % [{-saved.high:.0f}, {-saved.low:.0f}] more tokens"
    return f"for tokens that differ by {-saved.value:+.0f} % [{-saved.high:+.0f}, {-saved.low:+.0f}]"

"""A calibration in a few lines, as commands print it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_reasc.calibration import AUROC, Calibration

__all__ = ["explained"]


def explained(calibration: "Calibration") -> Iterator[str]:
    """A calibration in a few readable lines."""
    from langchain_reasc.method.confidence import Measure

    auroc, within = calibration.auroc, calibration.within
    if calibration.accuracy is not None:
        yield f"First responses     {calibration.n}, of which {calibration.accuracy:.1%} right"
    held_out = f", {auroc.cross_validated:.2f} held out" if auroc and auroc.cross_validated is not None else ""
    yield f"Confidence measure  {calibration.measure}"
    if auroc:
        yield f"                    AUROC of right against wrong {_with_interval(auroc)}{held_out}"
    if within:
        yield f"                    within a question {_with_interval(within)}"
    for other in calibration.rejected:
        measure = Measure(other.signal, other.score, other.window)
        yield f"  rather than       {measure}: AUROC {other.auroc:.2f} ({-other.behind:+.2f})"
    yield f"Scores              mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}"
    yield from _gate_explained(calibration)
    if known := calibration.p_correct:
        low, high = known.points[0], known.points[-1]
        yield (
            f"P(correct)          {low[1]:.2f} where {low[0]:.0%} of the votes support the answer, {high[1]:.2f} where "
            f"{high[0]:.0%} do; by labels of {known.n} questions"
        )
    if calibration.fallback:
        yield f"Safeguard           a live run counts votes (ASC) instead: {calibration.fallback}"
    elif calibration.unweighed:
        yield f"Stage 2             counts votes: {calibration.unweighed}"
    elif within:
        yield f"Stage 2             weighs votes by their confidence ({calibration.weight})"


def _with_interval(auroc: "AUROC") -> str:
    return f"{auroc.value:.2f} [{auroc.low:.2f}, {auroc.high:.2f}]"


def _gate_explained(calibration: "Calibration") -> Iterator[str]:
    gate = calibration.gate
    threshold, closed_because = gate.under("default")
    if threshold is None:
        yield f"Gate                closed: {closed_because}"
    else:
        yield f"Gate                accepts a first response scoring {threshold:.4g} or more"
    if gate.level is not None and gate.lower_bound is not None:
        yield (
            f"                    of the {gate.accepted} highest, {gate.lower_bound:.1%} or more are right, "
            f"{100 * gate.level:g} % sure"
        )
    if gate.threshold not in (None, threshold):
        yield f"                    the paper's would be {gate.threshold:.4g}, of which nothing is sure"

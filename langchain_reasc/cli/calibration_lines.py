"""Calibrations in a few lines, as commands print them."""

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_reasc.calibration import AUROC, Calibration

__all__ = ["calibration_lines", "consensus_lines"]


def calibration_lines(calibration: "Calibration") -> Iterator[str]:
    """Yield a calibration in a few readable lines."""
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
    yield from _gate_lines(calibration)
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


def _gate_lines(calibration: "Calibration") -> Iterator[str]:
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


def consensus_lines(calibration: "Calibration", *, asked: int, known: int) -> Iterator[str]:
    """Yield what was learned without labels, in a few readable lines.

    Args:
        calibration: the result.
        asked: how many questions there were.
        known: how many of them had a right answer.
    """
    left_out = f"; {asked - calibration.n} were left out" if calibration.n < asked else ""
    labels = f"the right answers to {known} of them" if known else "no right answer"
    yield from _folded("Questions", f"{calibration.n}, with {labels}{left_out}")
    if calibration.measure is None:
        yield from _folded("Measure", f"none, so answers are counted: {calibration.untrusted}")
    else:
        yield from _folded("Measure", str(calibration.measure))
        if calibration.auroc and calibration.within:
            yield from _folded(
                "",
                f"It tells responses that agree with the others from those that do not: AUROC "
                f"{calibration.auroc.value:.2f}, and {calibration.within.value:.2f} within a question",
            )
        yield from _folded("Scores", f"mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}")
    if calibration.guarantee:
        yield from _folded("Promise", calibration.guarantee)
    if curve := calibration.p_agree:
        (low, lowest), (high, highest) = curve.points[0], curve.points[-1]
        yield from _folded(
            "P(agree)",
            f"{lowest:.2f} where {low:.0%} of the votes support the answer, {highest:.2f} where {high:.0%} do: how "
            "likely further responses agree with it, which is not how likely it is right",
        )
    yield from _folded("In use", "sampling stops as soon as the answer is unlikely to change, were all responses drawn")


def _folded(name: str, text: str) -> list[str]:
    """Fold a text into a column beside its name."""
    return wrap(text, 79, initial_indent=f"{name:13}", subsequent_indent=" " * 13, break_on_hyphens=False)

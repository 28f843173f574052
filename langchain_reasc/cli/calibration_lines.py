"""Print a calibration in a few lines of 80 columns."""

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_reasc.calibration import AUROC, Calibration, Gate, SupportCurve

__all__ = ["calibration_lines", "consensus_lines", "folded"]

_INDENT = 13  # columns of the names


def calibration_lines(calibration: "Calibration") -> Iterator[str]:
    """Yield a calibration by labelled questions in a few readable lines."""
    from langchain_reasc.method.confidence import Measure

    auroc, within = calibration.auroc, calibration.within
    if calibration.accuracy is not None:
        yield from folded("Responses", f"the first to {calibration.n} questions, {calibration.accuracy:.1%} right")
    yield from folded("Measure", str(calibration.measure))
    if auroc:
        held_out = f", {auroc.cross_validated:.2f} held out" if auroc.cross_validated is not None else ""
        inner = f"; within a question {_with_interval(within)}" if within else ""
        yield from folded(
            "", f"AUROC {_with_interval(auroc)}{held_out}{inner}: how often a right response scores above a wrong one"
        )
    for other in calibration.rejected:
        measure = Measure(other.signal, other.score, other.window)
        yield from folded("", f"rather than {measure}: AUROC {other.auroc:.2f} ({-other.behind:+.2f})")
    yield _scores(calibration)
    if calibration.by_agreement():
        if calibration.untrusted:
            yield from folded("Votes", f"are counted, not weighed: {calibration.untrusted}")
        if calibration.fallback is None:
            yield from _gate_lines(calibration.gate)
        yield from _agreement_lines(calibration)
        return
    yield from _gate_lines(calibration.gate)
    if known := calibration.p_correct:
        yield from folded("P(correct)", f"{_support_range(known)}; by labels of {known.n} questions")
    if calibration.fallback:
        yield from folded("Votes", f"a live run counts them, without confidence: {calibration.fallback}")
    elif calibration.unweighed:
        yield from folded("Votes", f"are counted, not weighed: {calibration.unweighed}")
    elif within:
        yield from folded("Votes", f"are weighed by their confidence ({calibration.weight})")


def consensus_lines(calibration: "Calibration", *, asked: int, known: int) -> Iterator[str]:
    """Yield what was learned without labels, in a few readable lines.

    Args:
        calibration: the result.
        asked: how many questions there were.
        known: how many of them had a right answer.
    """
    left_out = f"; {asked - calibration.n} were left out" if calibration.n < asked else ""
    labels = f"the right answers to {known} of them" if known else "no right answer"
    yield from folded("Questions", f"{calibration.n}, with {labels}{left_out}")
    if calibration.measure is None:
        yield from folded("Measure", f"none, so answers are counted: {calibration.untrusted}")
    else:
        yield from folded("Measure", str(calibration.measure))
        if calibration.auroc and calibration.within:
            yield from folded(
                "",
                f"AUROC {calibration.auroc.value:.2f}, within a question {calibration.within.value:.2f}: how often a "
                "response that agrees with the others scores above one that does not",
            )
        yield _scores(calibration)
    yield from _agreement_lines(calibration)


def _agreement_lines(calibration: "Calibration") -> Iterator[str]:
    """Yield what the agreement rule promises, and when it stops."""
    if calibration.guarantee:
        yield from folded("Promise", calibration.guarantee)
    if curve := calibration.p_correct:
        yield from folded("P(correct)", f"{_support_range(curve)}; by labels of {curve.n} questions")
    if curve := calibration.p_agree:
        text = "how likely further responses agree with it, which is not how likely it is right"
        yield from folded("P(agree)", f"{_support_range(curve)}: {text}")
    stops = "sampling stops as soon as the answer is unlikely to change, were all responses drawn"
    parameters = calibration.rule_.parameters if calibration.rule_ else {}
    if worth := parameters.get("worth"):
        stops += f"; or where {worth:g} more samples would raise its share of the responses by less than a point"
    yield from folded("In use", stops)


def _gate_lines(gate: "Gate") -> Iterator[str]:
    threshold, closed_because = gate.under("default")
    if threshold is None:
        yield from folded("Gate", f"closed: {closed_because}")
    else:
        yield from folded("Gate", f"accepts a first response scoring {threshold:.4g} or more")
    if gate.level is not None and gate.lower_bound is not None:
        bound = f"{gate.lower_bound:.1%} or more are right, {100 * gate.level:g} % sure"
        yield from folded("", f"of the {gate.accepted} highest, {bound}")
    if gate.threshold not in (None, threshold):
        yield from folded("", f"the paper's would be {gate.threshold:.4g}, of which nothing is sure")


def _scores(calibration: "Calibration") -> str:
    return f"{'Scores':{_INDENT}}mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}"


def _with_interval(auroc: "AUROC") -> str:
    return f"{auroc.value:.2f} [{auroc.low:.2f}, {auroc.high:.2f}]"


def _support_range(curve: "SupportCurve") -> str:
    (low, lowest), (high, highest) = curve.points[0], curve.points[-1]
    return f"{lowest:.2f} where {low:.0%} of the votes support the answer, {highest:.2f} where {high:.0%} do"


def folded(name: str, text: str) -> list[str]:
    """Fold a text into a column beside its name."""
    indent = " " * _INDENT
    return wrap(text, 79, initial_indent=f"{name:{_INDENT}}", subsequent_indent=indent, break_on_hyphens=False)

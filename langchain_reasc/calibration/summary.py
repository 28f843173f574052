"""Describe a calibration, or a store of online learning, in lines of 80 columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.drift import ALARM
from langchain_reasc.calibration.escalation import Escalation
from langchain_reasc.calibration.learner import MINIMUM
from langchain_reasc.calibration.observations import Observation, Observations
from langchain_reasc.calibration.parts import AUROC, Gate
from langchain_reasc.calibration.reliability import Share, reliability_of
from langchain_reasc.calibration.stored_rule import SupportCurve
from langchain_reasc.method.confidence import Measure

__all__ = ["calibration_lines", "escalation_lines", "folded", "learning_knows"]

_INDENT: Final = 13  # columns of the names
_BAR: Final = 40  # characters
_SHOWN: Final = 5  # kinds of request
_MONITORS: Final = {"going on": "second votes", "audits": "audits", "separation": "confidence"}
"""Monitors of drift -> in words."""


def learning_knows(questions: Observations, calibration: Calibration | None) -> Iterator[str]:
    """Yield lines about what ``calibration="online"`` has learned."""
    if calibration is None:
        more = f"ask more questions: it learns from the {MINIMUM}th on"
        yield from plain_lines("Too little was seen to calibrate, so votes are counted.", more)
    else:
        yield from plain_lines(*calibration.plain_words())
    yield from folded("Seen", f"{questions.seen:,} questions; {len(questions)} kept")
    if alarms := len(questions.restarts):
        times = "once" if alarms == 1 else f"{alarms} times"
        why = f"because what was learned no longer held ({questions.drifted})"
        yield from folded("", f"all was forgotten {times}, {why}")
    if len(questions):
        drawn = sum(len(one.answers) for one in questions) / len(questions)
        yield from folded("Cost", f"{drawn:.1f} responses a question")
        yield from _picture(questions)
    yield from _kinds(questions)
    if questions.audits.seen:
        seen, agreed, expected = questions.audits
        yield from folded(
            "Audits",
            f"one more response gave the answer that was decided on {agreed} times of {seen}, which is "
            f"{Share(agreed, seen)}; {expected / seen:.0%} was expected",
        )
    if told := [one for one in questions if one.correct is not None]:
        right, others = sum(one.correct is True for one in told), [one for one in questions if one.correct is None]
        elsewhere = f" there, {_leading(others):.0%} elsewhere" if others else ""
        yield from folded(
            "Outcomes",
            f"{len(told)} of {len(questions)} were told: {right} right, {len(told) - right} wrong, which is "
            f"{Share(right, len(told))} right. That and what follows holds of questions like those that were told: "
            f"leading answers have {_leading(told):.0%} of the responses{elsewhere}",
        )
    if found := reliability_of(questions):
        yield from folded(
            "Reliability",
            f"p_correct, as it was said of {found.n} answers before their outcome was told, is off by "
            f"{found.error:.2f} on average ({found.by_chance:.2f} by chance alone); Brier score {found.brier:.3f} "
            f"({found.brier_of_mean:.3f} for the average alone)",
        )
    watched = ", ".join(f"{evidence:,.0f} of {_MONITORS[what]}" for what, evidence in questions.evidence.items())
    yield from folded("Drift", f"evidence {watched}; at {ALARM:,} all is forgotten")
    if calibration is not None:
        yield from _measured(calibration)


def _kinds(questions: Observations) -> Iterator[str]:
    """Yield lines about the kinds of request, if there are several."""
    if len(kinds := questions.kinds) < 2:
        return
    own = sum(count >= MINIMUM for count in kinds.values())
    yield from folded("Kinds", f"of request: {len(kinds)}, of which {own} with a calibration of their own")
    for name, count in list(kinds.items())[:_SHOWN]:
        known = [one for one in questions if one.kind == name]
        drawn = sum(len(one.answers) for one in known) / count
        leading = f"{_leading(known):.0%} give the leading answer"
        yield from folded("", f"{name or 'unnamed'}  {count:,} questions, {drawn:.1f} responses, of which {leading}")


def _leading(questions: Sequence[Observation]) -> float:
    """Return the share of responses with the leading answer, averaged over questions."""
    return sum(map(_share, questions)) / len(questions)


def _share(question: Observation) -> float:
    counts = Counter(answer for answer in question.answers if answer is not None)
    return max(counts.values(), default=0) / len(question.answers)


def _picture(questions: Observations) -> Iterator[str]:
    """Yield a histogram of the share of responses with the leading answer."""
    tenths = Counter(int(10 * _share(question)) for question in questions)
    yield from folded("Leader", "how many questions (bars) have their leading answer from how many of the responses")
    for tenth in sorted(tenths, reverse=True):
        share = "all" if tenth == 10 else f"{10 * tenth}-{10 * tenth + 9} %"
        bar = "#" * max(1, round(_BAR * tenths[tenth] / max(tenths.values())))
        yield f"{'':13}{share:>8} {bar} {tenths[tenth]}"


def escalation_lines(known: Escalation) -> Iterator[str]:
    """Yield lines about when the answer of a small model may stand without asking a large one."""
    small, large = known.costs
    yield from folded("Asked", f"{known.rows:,} questions, of both models, to learn which answers may stand")
    if known.restarts:
        yield from folded("", f"all was forgotten {known.restarts} times, because the small model got worse")
    if large:
        yield from folded("Price", f"a response of the small model costs {small / large:.1%} of one of the large model")
    what = "is wrong where the large model is right" if known.labelled else "contradicts the large model"
    yield from folded("Promise", f"on at most {known.within:.1%} of questions an answer {what}")
    yield from folded("Rules", "are tested in this order, and cost so much of asking the large model alone:")
    yield f"  {'':38}{'tested':>7}{'against':>9}{'at most':>9}{'cost':>6}"
    for name, rule in known.rules.items():
        stands = "  in use" if name == known.rule else "" if rule.admitted is None else "  may"
        seen = sum(rule.rows)
        numbers = f"{rule.contradicted:>9}{known.bound(name):>9.1%}{known.cost(name):>6.0%}" if seen else ""
        yield f"  {name:38}{seen:>7}{numbers}{stands}"
    yield from folded("In use", known.status)


def plain_lines(sentence: str, advice: str | None = None, use: str | None = None) -> Iterator[str]:
    """Yield what comes first: what to expect, and what to do next or else a command, before an empty line."""
    yield from wrap(sentence, 79)
    if advice:
        yield from wrap(f"Next: {advice}", 79)
    elif use:
        yield f"Next: {use}"
    yield ""


def calibration_lines(calibration: Calibration, use: str | None = None) -> Iterator[str]:
    """Yield lines about a calibration: what it will do, and what to do next, then what was measured.

    Args:
        calibration: the calibration.
        use: the command that uses it, if there is nothing better to do next.
    """
    yield from plain_lines(*calibration.plain_words(), use)
    yield from _measured(calibration)


def _measured(calibration: Calibration) -> Iterator[str]:
    if calibration.escalation is not None:
        yield from escalation_lines(calibration.escalation)
        return
    yield from _questions(calibration)
    yield from _measure(calibration)
    if calibration.by_agreement():
        if calibration.measure and calibration.untrusted:
            yield from folded("Votes", f"are counted, not weighed: {calibration.untrusted}")
        if calibration.method != "consensus" and calibration.fallback is None:
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
    elif calibration.within:
        yield from folded("Votes", f"are weighed by their confidence ({calibration.weight})")


def _questions(calibration: Calibration) -> Iterator[str]:
    if calibration.method == "consensus":
        known = calibration.p_correct.n if calibration.p_correct else 0
        labels = f"the right answers to {known} of them" if known else "no right answer"
        yield from folded("Questions", f"{calibration.n}, with {labels}")
    elif calibration.accuracy is not None:
        yield from folded("Responses", f"the first to {calibration.n} questions, {calibration.accuracy:.1%} right")


def _measure(calibration: Calibration) -> Iterator[str]:
    if calibration.measure is None:
        yield from folded("Measure", f"none, so answers are counted: {calibration.untrusted}")
        return
    yield from folded("Measure", str(calibration.measure))
    if auroc := calibration.auroc:
        held_out = f", {auroc.cross_validated:.2f} held out" if auroc.cross_validated is not None else ""
        inner = f"; within a question {_with_interval(calibration.within)}" if calibration.within else ""
        agreeing = "a response that agrees with the others scores above one that does not"
        above = agreeing if calibration.method == "consensus" else "a right response scores above a wrong one"
        yield from folded("", f"AUROC {_with_interval(auroc)}{held_out}{inner}: how often {above}")
    for other in calibration.rejected if calibration.method != "consensus" else ():
        measure = Measure(other.signal, other.score, other.window)
        yield from folded("", f"rather than {measure}: AUROC {other.auroc:.2f} ({-other.behind:+.2f})")
    yield f"{'Scores':{_INDENT}}mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}"


def _agreement_lines(calibration: Calibration) -> Iterator[str]:
    """Yield lines about the promise of the agreement rule, and when it stops."""
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
    if (block := calibration.rule_) and block.prior:
        alike = ", ".join(f"{block.agreement_prior.share([votes]):.0%} after {votes}" for votes in (1, 2, 4, 8))
        yield from folded("Agreement", f"of one more response with all so far, where these agree: {alike}")


def _gate_lines(gate: Gate) -> Iterator[str]:
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


def _with_interval(auroc: AUROC) -> str:
    return f"{auroc.value:.2f} [{auroc.low:.2f}, {auroc.high:.2f}]"


def _support_range(curve: SupportCurve) -> str:
    (low, lowest), (high, highest) = curve.points[0], curve.points[-1]
    return f"{lowest:.2f} where {low:.0%} of the votes support the answer, {highest:.2f} where {high:.0%} do"


def folded(name: str, text: str) -> list[str]:
    """Wrap a text into a column beside its name."""
    indent = " " * _INDENT
    return wrap(text, 79, initial_indent=f"{name:{_INDENT}}", subsequent_indent=indent, break_on_hyphens=False)

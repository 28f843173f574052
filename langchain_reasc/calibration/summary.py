"""Describe a calibration, or what was learned: entries, which can be printed as lines
of 80 columns.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.drift import ALARM
from langchain_reasc.calibration.escalation import LearnedEscalation
from langchain_reasc.calibration.learner import MINIMUM
from langchain_reasc.calibration.observations import Observation, Observations
from langchain_reasc.calibration.parts import AUROC, Gate
from langchain_reasc.calibration.reliability import Share, reliability_of
from langchain_reasc.calibration.stored_rule import SupportCurve
from langchain_reasc.method.confidence import Measure

__all__ = [
    "Description",
    "Entry",
    "describe_calibration",
    "describe_escalation",
    "describe_learning",
]

_INDENT: Final = 13  # columns of the names
_BAR: Final = 40  # characters
_SHOWN: Final = 5  # kinds of request
_MONITORS: Final = {
    "going on": "second votes",
    "audits": "audits",
    "separation": "confidence",
}
"""Monitors of drift -> in words."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that is known.

    Attributes:
        name: what it is known of; empty if that is what the entry above is of.
        text: what is known.
        bars: labels and numbers, drawn as bars below the text.
        table: rows of cells below the text; the first row is the head.
    """

    name: str
    text: str
    bars: Sequence[tuple[str, int]] = ()
    table: Sequence[Sequence[str]] = ()

    def lines(self) -> Iterator[str]:
        """Yield the entry as lines, the text in a column beside the name."""
        begins, goes_on = f"{self.name:{_INDENT}}", " " * _INDENT
        yield from wrap(
            self.text,
            79,
            initial_indent=begins,
            subsequent_indent=goes_on,
            break_on_hyphens=False,
        )
        most = max((number for _, number in self.bars), default=0)
        for label, number in self.bars:
            yield f"{goes_on}{label:>8} {'#' * max(1, round(_BAR * number / most))} {number}"
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        for first, *others in self.table:
            cells = (
                f"{cell:>{width}}"
                for cell, width in zip(others, widths[1:], strict=True)
            )
            yield "  ".join((f" {first:{widths[0]}}", *cells)).rstrip()


@dataclass(frozen=True, slots=True)
class Description:
    """What is known, in words for people.

    Attributes:
        sentence: what to expect.
        advice: what to do next; None if there is nothing better than to use it.
        entries: what was measured.
    """

    sentence: str
    advice: str | None
    entries: Sequence[Entry]

    def lines(self, use: str | None = None) -> Iterator[str]:
        """Yield the sentence, the advice, or else the command that is ``use``, an empty
        line, and the entries.
        """
        yield from wrap(self.sentence, 79)
        yield from (
            wrap(f"Next: {self.advice}", 79)
            if self.advice
            else [f"Next: {use}"]
            if use
            else []
        )
        yield ""
        for entry in self.entries:
            yield from entry.lines()


def describe_learning(
    questions: Observations, calibration: Calibration | None
) -> Description:
    """Describe what ``calibration="online"`` has learned."""
    more = f"ask more questions: it learns from the {MINIMUM}th on"
    few = "Too little was seen to calibrate, so votes are counted.", more
    return Description(
        *(calibration.plain_words() if calibration else few),
        [*_learned(questions, calibration)],
    )


def _learned(
    questions: Observations, calibration: Calibration | None
) -> Iterator[Entry]:
    yield Entry("Seen", f"{questions.seen:,} questions; {len(questions)} kept")
    if alarms := len(questions.restarts):
        times = "once" if alarms == 1 else f"{alarms} times"
        why = f"because what was learned no longer held ({questions.drifted})"
        yield Entry("", f"all was forgotten {times}, {why}")
    if len(questions):
        drawn = sum(len(one.answers) for one in questions) / len(questions)
        yield Entry("Cost", f"{drawn:.1f} responses a question")
        yield _leaders(questions)
    yield from _kinds(questions)
    if questions.audits.seen:
        seen, agreed, expected = questions.audits
        yield Entry(
            "Audits",
            f"one more response gave the answer that was decided on {agreed} times of "
            f"{seen}, which is {Share(agreed, seen)}; {expected / seen:.0%} was "
            "expected",
        )
    if told := [one for one in questions if one.correct is not None]:
        right, others = (
            sum(one.correct is True for one in told),
            [one for one in questions if one.correct is None],
        )
        elsewhere = f" there, {_leading(others):.0%} elsewhere" if others else ""
        yield Entry(
            "Outcomes",
            f"{len(told)} of {len(questions)} were told: {right} right, "
            f"{len(told) - right} wrong, which is {Share(right, len(told))} right. "
            "That and what follows holds of questions like those that were told: "
            f"leading answers have {_leading(told):.0%} of the responses{elsewhere}",
        )
    if found := reliability_of(questions):
        yield Entry(
            "Reliability",
            f"p_correct, as it was said of {found.n} answers before their outcome was "
            f"told, is off by {found.error:.2f} on average ({found.by_chance:.2f} by "
            f"chance alone); Brier score {found.brier:.3f} ({found.brier_of_mean:.3f} "
            "for the average alone)",
        )
    watched = ", ".join(
        f"{evidence:,.0f} of {_MONITORS[what]}"
        for what, evidence in questions.evidence.items()
    )
    yield Entry("Drift", f"evidence {watched}; at {ALARM:,} all is forgotten")
    if calibration is not None:
        yield from _measured(calibration)


def _kinds(questions: Observations) -> Iterator[Entry]:
    """Yield entries about the kinds of request, if there are several."""
    if len(kinds := questions.kinds) < 2:
        return
    own = sum(count >= MINIMUM for count in kinds.values())
    yield Entry(
        "Kinds",
        f"of request: {len(kinds)}, of which {own} with a calibration of their own",
    )
    for name, count in list(kinds.items())[:_SHOWN]:
        known = [one for one in questions if one.kind == name]
        drawn = sum(len(one.answers) for one in known) / count
        leading = f"{_leading(known):.0%} give the leading answer"
        yield Entry(
            "",
            (
                f"{name or 'unnamed'}  {count:,} questions, {drawn:.1f} responses, of "
                f"which {leading}"
            ),
        )


def _leading(questions: Sequence[Observation]) -> float:
    """Return the share of responses with the leading answer, averaged over questions."""
    return sum(map(_share, questions)) / len(questions)


def _share(question: Observation) -> float:
    counts = Counter(answer for answer in question.answers if answer is not None)
    return max(counts.values(), default=0) / len(question.answers)


def _leaders(questions: Observations) -> Entry:
    """Return a histogram of the share of responses with the leading answer."""
    tenths = Counter(int(10 * _share(question)) for question in questions)
    names = {
        tenth: "all" if tenth == 10 else f"{10 * tenth}-{10 * tenth + 9} %"
        for tenth in tenths
    }
    said = "how many questions (bars) have their leading answer from how many of the responses"
    return Entry(
        "Leader",
        said,
        [(names[tenth], tenths[tenth]) for tenth in sorted(tenths, reverse=True)],
    )


def describe_escalation(known: LearnedEscalation) -> Description:
    """Describe when the answer of a small model may stand without asking a large one."""
    return Description(*known.plain_words(), [*_escalation(known)])


def _escalation(known: LearnedEscalation) -> Iterator[Entry]:
    small, large = known.costs
    yield Entry(
        "Asked",
        f"{known.rows:,} questions, of both models, to learn which answers may stand",
    )
    if known.restarts:
        yield Entry(
            "",
            (
                f"all was forgotten {known.restarts} times, because the small model got "
                "worse"
            ),
        )
    if large:
        yield Entry(
            "Price",
            (
                f"a response of the small model costs {small / large:.1%} of one of the "
                "large model"
            ),
        )
    what = (
        "is wrong where the large model is right"
        if known.labelled
        else "contradicts the large model"
    )
    yield Entry(
        "Promise", f"on at most {known.within:.1%} of questions an answer {what}"
    )
    rows = [("", "tested", "against", "at most", "cost", "")]
    for name, rule in known.rules.items():
        stands = (
            "in use" if name == known.rule else "" if rule.admitted is None else "may"
        )
        seen = sum(rule.rows)
        numbers = (
            f"{rule.contradicted}",
            f"{known.bound(name):.1%}",
            f"{known.cost(name):.0%}",
        )
        rows.append((name, f"{seen}", *(numbers if seen else ("", "", "")), stands))
    said = "are tested in this order, and cost so much of asking the large model alone:"
    yield Entry("Rules", said, table=rows)
    yield Entry("In use", known.status)


def describe_calibration(calibration: Calibration) -> Description:
    """Describe a calibration: what it will do, and what was measured."""
    return Description(*calibration.plain_words(), [*_measured(calibration)])


def _measured(calibration: Calibration) -> Iterator[Entry]:
    if calibration.escalation is not None:
        yield from _escalation(calibration.escalation)
        return
    yield from _questions(calibration)
    yield from _measure(calibration)
    if calibration.by_agreement:
        if calibration.measure and calibration.untrusted:
            yield Entry("Votes", f"are counted, not weighed: {calibration.untrusted}")
        if calibration.method != "consensus" and calibration.fallback is None:
            yield from _gate_entries(calibration.gate)
        yield from _agreement_entries(calibration)
        return
    yield from _gate_entries(calibration.gate)
    if known := calibration.p_correct:
        yield Entry(
            "P(correct)", f"{_support_range(known)}; by labels of {known.n} questions"
        )
    if calibration.fallback:
        yield Entry(
            "Votes",
            f"a live run counts them, without confidence: {calibration.fallback}",
        )
    elif calibration.unweighed:
        yield Entry("Votes", f"are counted, not weighed: {calibration.unweighed}")
    elif calibration.within:
        yield Entry("Votes", f"are weighed by their confidence ({calibration.weight})")


def _questions(calibration: Calibration) -> Iterator[Entry]:
    if calibration.method == "consensus":
        known = calibration.p_correct.n if calibration.p_correct else 0
        labels = f"the right answers to {known} of them" if known else "no right answer"
        yield Entry("Questions", f"{calibration.n}, with {labels}")
    elif calibration.accuracy is not None:
        yield Entry(
            "Responses",
            f"the first to {calibration.n} questions, {calibration.accuracy:.1%} right",
        )


def _measure(calibration: Calibration) -> Iterator[Entry]:
    if calibration.measure is None:
        yield Entry("Measure", f"none, so answers are counted: {calibration.untrusted}")
        return
    yield Entry("Measure", str(calibration.measure))
    if auroc := calibration.auroc:
        held_out = (
            f", {auroc.cross_validated:.2f} held out"
            if auroc.cross_validated is not None
            else ""
        )
        inner = (
            f"; within a question {_with_interval(calibration.within)}"
            if calibration.within
            else ""
        )
        agreeing = (
            "a response that agrees with the others scores above one that does not"
        )
        above = (
            agreeing
            if calibration.method == "consensus"
            else "a right response scores above a wrong one"
        )
        yield Entry(
            "", f"AUROC {_with_interval(auroc)}{held_out}{inner}: how often {above}"
        )
    for other in calibration.rejected if calibration.method != "consensus" else ():
        measure = Measure(other.signal, other.score, other.window)
        yield Entry(
            "", f"rather than {measure}: AUROC {other.auroc:.2f} ({-other.behind:+.2f})"
        )
    yield Entry(
        "Scores",
        f"mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}",
    )


def _agreement_entries(calibration: Calibration) -> Iterator[Entry]:
    """Yield entries about the promise of the agreement rule, and when it stops."""
    if calibration.guarantee:
        yield Entry("Promise", calibration.guarantee)
    if curve := calibration.p_correct:
        yield Entry(
            "P(correct)", f"{_support_range(curve)}; by labels of {curve.n} questions"
        )
    if curve := calibration.p_agree:
        text = "how likely further responses agree with it, which is not how likely it is right"
        yield Entry("P(agree)", f"{_support_range(curve)}: {text}")
    stops = "sampling stops as soon as the answer is unlikely to change, were all responses drawn"
    yield Entry("In use", stops)
    if (block := calibration.rule_) and block.prior:
        alike = ", ".join(
            f"{block.agreement_prior.share([votes]):.0%} after {votes}"
            for votes in (1, 2, 4, 8)
        )
        yield Entry(
            "Agreement",
            f"of one more response with all so far, where these agree: {alike}",
        )


def _gate_entries(gate: Gate) -> Iterator[Entry]:
    threshold, closed_because = gate.in_use
    if threshold is None:
        yield Entry("Gate", f"closed: {closed_because}")
    else:
        yield Entry("Gate", f"accepts a first response scoring {threshold:.4g} or more")
    if gate.level is not None and gate.lower_bound is not None:
        bound = f"{gate.lower_bound:.1%} or more are right, {100 * gate.level:g} % sure"
        yield Entry("", f"of the {gate.accepted} highest, {bound}")
    if gate.threshold not in (None, threshold):
        yield Entry(
            "", f"the paper's would be {gate.threshold:.4g}, of which nothing is sure"
        )


def _with_interval(auroc: AUROC) -> str:
    return f"{auroc.value:.2f} [{auroc.low:.2f}, {auroc.high:.2f}]"


def _support_range(curve: SupportCurve) -> str:
    (low, lowest), (high, highest) = curve.points[0], curve.points[-1]
    return f"{lowest:.2f} where {low:.0%} of the votes support the answer, {highest:.2f} where {high:.0%} do"

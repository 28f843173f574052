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
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, Response

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
        indent = " " * _INDENT
        yield from wrap(
            self.text,
            79,
            initial_indent=f"{self.name:{_INDENT}}",
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        most = max((number for _, number in self.bars), default=0)
        for label, number in self.bars:
            bar = "#" * max(1, round(_BAR * number / most))
            yield f"{indent}{label:>8} {bar} {number}"
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        for row in self.table:
            # The first column is aligned to the left, the numbers to the right.
            cells = [f" {row[0]:{widths[0]}}"]
            cells += map(str.rjust, row[1:], widths[1:])
            yield "  ".join(cells).rstrip()


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
        if self.advice:
            yield from wrap(f"Next: {self.advice}", 79)
        elif use:
            yield f"Next: {use}"
        yield ""
        for entry in self.entries:
            yield from entry.lines()


def describe_learning(
    questions: Observations, calibration: Calibration | None
) -> Description:
    """Describe what ``calibration="online"`` has learned."""
    entries = list(_learned(questions, calibration))
    if calibration is not None:
        return Description(*calibration.plain_words(), entries)
    return Description(
        "Too little was seen to calibrate, so votes are counted.",
        f"ask more questions: it learns from the {MINIMUM}th on",
        entries,
    )


def _learned(
    questions: Observations, calibration: Calibration | None
) -> Iterator[Entry]:
    yield Entry("Seen", f"{questions.seen:,} questions; {len(questions)} kept")
    restarts = len(questions.restarts)
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        reason = f"because what was learned no longer held ({questions.drifted})"
        yield Entry("", f"all was forgotten {times}, {reason}")
    if len(questions):
        yield Entry(
            "Cost", f"{_mean_responses(list(questions)):.1f} responses a question"
        )
        yield _leaders(questions)
    yield from _kinds(questions)
    number, agreed, expected = questions.audits
    if number:
        yield Entry(
            "Audits",
            f"one more response gave the answer that was decided on {agreed} times of "
            f"{number}, which is {Share(agreed, number)}; {expected / number:.0%} was "
            "expected",
        )
    yield from _outcomes(questions)
    evidence = ", ".join(
        f"{value:,.0f} of {_MONITORS[name]}"
        for name, value in questions.evidence.items()
    )
    yield Entry("Drift", f"evidence {evidence}; at {ALARM:,} all is forgotten")
    if calibration is not None:
        yield from _measured(calibration)


def _outcomes(questions: Observations) -> Iterator[Entry]:
    """Yield entries about reported outcomes, and how well they were predicted."""
    with_outcome = [row for row in questions if row.correct is not None]
    number = len(with_outcome)
    if number:
        right = sum(row.correct is True for row in with_outcome)
        leading = f"{_leading(with_outcome):.0%} of the responses"
        # Outcomes may be told of easier questions than most.
        rest = [row for row in questions if row.correct is None]
        if rest:
            leading += f" there, {_leading(rest):.0%} elsewhere"
        yield Entry(
            "Outcomes",
            f"{number} of {len(questions)} were told: {right} right, "
            f"{number - right} wrong, which is {Share(right, number)} right. "
            "That and what follows holds of questions like those that were told: "
            f"leading answers have {leading}",
        )
    reliability = reliability_of(questions)
    if reliability:
        yield Entry(
            "Reliability",
            f"p_correct, as it was said of {reliability.n} answers before their "
            f"outcome was told, is off by {reliability.error:.2f} on average "
            f"({reliability.by_chance:.2f} by chance alone); Brier score "
            f"{reliability.brier:.3f} ({reliability.brier_of_mean:.3f} for the average "
            "alone)",
        )


def _kinds(questions: Observations) -> Iterator[Entry]:
    """Yield entries about the kinds of request, if there are several."""
    kinds = questions.kinds
    if len(kinds) < 2:
        return
    calibrated = sum(count >= MINIMUM for count in kinds.values())
    yield Entry(
        "Kinds",
        f"of request: {len(kinds)}, of which {calibrated} with a calibration of their "
        "own",
    )
    for name, count in list(kinds.items())[:_SHOWN]:
        rows = [row for row in questions if row.kind == name]
        yield Entry(
            "",
            f"{name or 'unnamed'}  {count:,} questions, {_mean_responses(rows):.1f} "
            f"responses, of which {_leading(rows):.0%} give the leading answer",
        )


def _mean_responses(questions: Sequence[Observation]) -> float:
    return sum(len(question.answers) for question in questions) / len(questions)


def _leading(questions: Sequence[Observation]) -> float:
    """Return the share of responses with the leading answer, averaged over questions."""
    return sum(map(_share, questions)) / len(questions)


def _share(question: Observation) -> float:
    counts = Counter(answer for answer in question.answers if answer is not None)
    return max(counts.values(), default=0) / len(question.answers)


def _leaders(questions: Observations) -> Entry:
    """Return a histogram of the share of responses with the leading answer."""
    tenths = Counter(int(10 * _share(question)) for question in questions)
    bars = []
    for tenth in sorted(tenths, reverse=True):
        label = "all" if tenth == 10 else f"{10 * tenth}-{10 * tenth + 9} %"
        bars.append((label, tenths[tenth]))
    return Entry(
        "Leader",
        "how many questions (bars) have their leading answer from how many of the "
        "responses",
        bars,
    )


def describe_escalation(learned: LearnedEscalation) -> Description:
    """Describe when the answer of a small model may stand without asking a large one."""
    return Description(*learned.plain_words(), [*_escalation(learned)])


def _escalation(learned: LearnedEscalation) -> Iterator[Entry]:
    small, large = learned.costs
    yield Entry(
        "Asked",
        f"{learned.rows:,} questions, of both models, to learn which answers may stand",
    )
    if learned.restarts:
        yield Entry(
            "",
            f"all was forgotten {learned.restarts} times, because a rule contradicted "
            "more often than it may",
        )
    if large:
        yield Entry(
            "Price",
            f"a response of the small model costs {small / large:.1%} of one of the "
            "large model",
        )
    failure = "contradicts the large model"
    if learned.labelled:
        failure = "is wrong where the large model is right"
    yield Entry(
        "Promise",
        f"on at most {learned.within:.1%} of questions, if they come in random order, "
        f"an answer {failure}",
    )
    table = [("", "tested", "against", "at most", "cost", "")]
    # A rule without rows has no figures yet.
    for name, rule in learned.rules.items():
        contradicted = bound = cost = state = ""
        number = sum(rule.rows)
        if number:
            contradicted = f"{rule.contradicted}"
            bound = f"{learned.bound(name):.1%}"
            cost = f"{learned.cost(name):.0%}"
        if name == learned.rule:
            state = "in use"
        elif rule.admitted is not None:
            state = "may"
        table.append((name, f"{number}", contradicted, bound, cost, state))
    yield Entry(
        "Rules",
        "are tested in this order, and cost so much of asking the large model alone:",
        table=table,
    )
    yield Entry("In use", learned.status)


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
        yield from _agreement_entries(calibration)
        return
    yield from _gate_entries(calibration.gate)
    yield from _p_correct(calibration)
    if calibration.fallback:
        yield Entry(
            "Votes",
            f"a live run counts them, without confidence: {calibration.fallback}",
        )
    elif calibration.unweighed:
        yield Entry("Votes", f"are counted, not weighed: {calibration.unweighed}")
    elif calibration.within:
        yield Entry("Votes", f"are weighed by their confidence ({calibration.weight})")


def _p_correct(calibration: Calibration) -> Iterator[Entry]:
    curve = calibration.p_correct
    if curve:
        yield Entry(
            "P(correct)", f"{_support_range(curve)}; by labels of {curve.n} questions"
        )


def _questions(calibration: Calibration) -> Iterator[Entry]:
    if calibration.method == "consensus":
        labels = "no right answer"
        if calibration.p_correct:
            labels = f"the right answers to {calibration.p_correct.n} of them"
        yield Entry("Questions", f"{calibration.n}, with {labels}")
    elif calibration.accuracy is not None:
        yield Entry(
            "Responses",
            f"the first to {calibration.n} questions, {calibration.accuracy:.1%} right",
        )


def _measure(calibration: Calibration) -> Iterator[Entry]:
    if calibration.measure is None:
        yield Entry(
            "Confidence", f"not read, so answers are counted: {calibration.untrusted}"
        )
        return
    yield Entry("Confidence", f"read as {calibration.measure}")
    auroc = calibration.auroc
    if auroc:
        value = f"AUROC {_with_interval(auroc)}"
        if auroc.cross_validated is not None:
            value += f", {auroc.cross_validated:.2f} held out"
        if calibration.within:
            value += f"; within a question {_with_interval(calibration.within)}"
        yield Entry("", f"{value}: how often a right response scores above a wrong one")
    for rejected in calibration.rejected:
        measure = Measure(rejected.signal, rejected.score, rejected.window)
        yield Entry(
            "",
            f"rather than {measure}: AUROC {rejected.auroc:.2f} "
            f"({-rejected.behind:+.2f})",
        )
    yield Entry(
        "Scores",
        f"mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}",
    )


def _agreement_entries(calibration: Calibration) -> Iterator[Entry]:
    """Yield entries about the promise of the agreement rule, and when it stops."""
    if calibration.guarantee:
        yield Entry("Promise", calibration.guarantee)
    yield from _p_correct(calibration)
    yield Entry(
        "In use",
        "sampling stops as soon as the answer is unlikely to change, were all "
        "responses drawn",
    )
    block = calibration.rule_
    if block is None:
        return
    rule = block.rule(budget=DEFAULT_BUDGET)
    shares = ", ".join(
        f"{_agrees(rule, [Response('')] * votes):.0%} after {votes}"
        for votes in (1, 2, 4, 8)
    )
    yield Entry(
        "Agreement",
        f"of one more response with all so far, where these agree: {shares}",
    )
    if block.scores is not None:
        knots = block.scores.knots
        low, middle, high = (knots[len(knots) * part // 10][0] for part in (1, 5, 9))
        after_one = ", ".join(
            f"{_agrees(rule, [Response('', score)]):.0%} if it scores {score:.3g}"
            for score in (low, middle, high)
        )
        yield Entry("", f"with its score, after 1: {after_one}")


def _agrees(rule: Agreement, responses: Sequence[Response]) -> float:
    """Return how likely one more response agrees with these, which all agree."""
    return rule(responses).agrees or 0.0


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
    low, high = curve.points[0][0], curve.points[-1][0]
    return (
        f"{_probability(curve, low)} where one more response would agree in {low:.0%} "
        f"of the cases, {_probability(curve, high)} where in {high:.0%}"
    )


def _probability(curve: SupportCurve, support: float) -> str:
    low, high = curve.interval(support)
    return f"{curve.probability(support):.2f} [{low:.2f}, {high:.2f}]"

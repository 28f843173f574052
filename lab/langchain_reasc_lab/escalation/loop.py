"""The loop that answers question after question by a small and a large model, and
learns: as live, on recordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from langchain_reasc.calibration import LearnedEscalation, Shadowed
from langchain_reasc.method import Decision, Response, StoppingRule, decide
from langchain_reasc_lab.escalation.joining import Answered, JoinedQuestion

__all__ = ["AUDITED", "Played", "learn", "play", "play_by"]

AUDITED: Final = 0.05
"""The share of questions that is shadowed once a rule decides."""


@dataclass(frozen=True, slots=True)
class Played:
    """How one question was answered.

    Attributes:
        cost: in answers of the large model.
        right: whether the answer is right.
        escalated: whether the large model answered.
        shadowed: whether both models were asked, to learn.
        differs: whether the answer is another than the large model's.
    """

    cost: float
    right: bool
    escalated: bool
    shadowed: bool = False
    differs: bool = False


def learn(
    questions: Sequence[JoinedQuestion],
    drawn: Sequence[float],
    known: LearnedEscalation,
    *,
    labelled: bool = False,
) -> tuple[list[Played], LearnedEscalation]:
    """Answer questions one after another, and learn from those that are shadowed.

    Args:
        questions: the questions in the order in which they are asked.
        drawn: a number from [0, 1) for each.
        known: what is known before the first.
        labelled: whether learning is told which answers are right.

    Returns:
        How each was answered, and what is known at the end.
    """
    played = []
    for question, number in zip(questions, drawn, strict=True):
        one, known = play(question, number, known, labelled=labelled)
        played.append(one)
    return played, known


def play(
    question: JoinedQuestion,
    drawn: float,
    known: LearnedEscalation,
    *,
    labelled: bool = False,
) -> tuple[Played, LearnedEscalation]:
    """Answer one question as what is known says, and return what is known then;
    arguments as of :func:`learn`.
    """
    course = known.course(drawn, AUDITED)
    if not course.shadowed:
        return play_by(course.rule, question), known
    small, large = question.small, question.large
    numbers: dict[str, int] = {}

    def numbered(one: Answered) -> int | None:
        return (
            None
            if one.answer is None or one.cut_off
            else numbers.setdefault(one.answer, len(numbers))
        )

    first = numbered(large[0])
    answers = tuple(map(numbered, small))
    rule = known.shadow_rule(None if first is None else str(first))
    samples = decide(
        rule, [Response(None if one is None else str(one)) for one in answers]
    ).samples
    row = Shadowed(
        answers[:samples],
        (first,),
        score=small[0].score,
        right=(small[0].right, large[0].right) if labelled else None,
        costs=(small[0].cost, large[0].cost),
    )
    cost = large[0].cost + sum(one.cost for one in small[:samples])
    if len(large) > 1 and known.asks_again(row):
        cost += large[1].cost
        row = Shadowed(
            row.small, (first, numbered(large[1])), row.score, row.right, row.costs
        )
    return Played(cost, large[0].right, escalated=True, shadowed=True), known.after(row)


def play_by(rule: StoppingRule | None, question: JoinedQuestion) -> Played:
    """Answer one question by a rule that accepts the small model's answer or escalates;
    None: by the large model.
    """
    large = question.large[0]
    if rule is None:
        return Played(large.cost, large.right, escalated=True)
    decision = decided(rule, question.small)
    cost = sum(one.cost for one in question.small[: decision.samples])
    if not decision.stop or decision.undecided or decision.reason == "contested":
        return Played(cost + large.cost, large.right, escalated=True)
    right = next(one.right for one in question.small if one.answer == decision.answer)
    return Played(cost, right, escalated=False, differs=decision.answer != large.answer)


def decided(rule: StoppingRule, given: Sequence[Answered]) -> Decision:
    """Return what a rule decides on recorded responses."""
    return decide(rule, [Response(one.answer, one.score, one.cut_off) for one in given])

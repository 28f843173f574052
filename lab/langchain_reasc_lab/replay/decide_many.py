"""Deciding on many questions at once: what ``decide`` does question by question, as arrays, and equal to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.correctness import support
from langchain_reasc.method.decision import Reason, Response
from langchain_reasc.method.stopping import Cap, Decision, StoppingRule, _after, _Either, decide
from langchain_reasc_lab.replay import agreement_on_arrays, horizon_on_arrays  # noqa: F401  (they register their rules)
from langchain_reasc_lab.replay.array_rules import GOES_ON, REASONS, after_each
from langchain_reasc_lab.replay.vote_arrays import Booleans, Floats, Integers, Votes

__all__ = ["Decisions", "decide_many"]

_AT_ONCE = 4096  # questions, so that memory stays small
_FIRST = 4  # responses that are looked at first: many a question is settled by then


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decision on each of Q questions.

    Attributes:
        samples: shape (Q,), responses the decision rests on.
        answers: shape (Q,), the answer as :class:`~.vote_arrays.Votes` numbers it; -1 where there is none.
        reasons: shape (Q,), why it stopped, as an index of :data:`~.array_rules.REASONS`; -1 where it goes on.
        support: shape (Q,), how strongly it is supported (:func:`~langchain_reasc.method.correctness.support`); NaN
            where there was no vote.
    """

    samples: Integers
    answers: Integers
    reasons: npt.NDArray[np.int8]
    support: Floats

    @classmethod
    def none(cls, questions: int) -> "Decisions":
        """None yet."""
        return cls(
            np.zeros(questions, dtype=np.int64),
            np.full(questions, -1),
            np.full(questions, GOES_ON, dtype=np.int8),
            np.full(questions, np.nan),
        )

    def enter(self, rows: Integers, decided: "Decisions") -> None:
        """Enter the decisions on some of the questions."""
        for name in ("samples", "answers", "reasons", "support"):
            getattr(self, name)[rows] = getattr(decided, name)

    def because(self, reason: Reason) -> Booleans:
        """Which ones stopped for this reason, shape (Q,)."""
        return np.asarray(self.reasons == REASONS.index(reason))


def decide_many(
    rule: StoppingRule,
    votes: Votes,
    responses: Callable[[int], Sequence[Response]],
    *,
    one_by_one: Booleans | None = None,
) -> Decisions:
    """The decision at the earliest prefix where the rule stops, or "go on" after all, for each question.

    Args:
        rule: the rule, the cap on samples included.
        votes: the responses to all questions.
        responses: the same ones to one question; called where arrays cannot tell what the rule says.
        one_by_one: shape (Q,), the questions whose responses have a kind or fields or are to be taken alone, which
            arrays do not show.
    """
    made = Decisions.none(len(votes))
    made.samples[:] = votes.lengths
    plain = np.flatnonzero(np.ones(len(votes), dtype=bool) if one_by_one is None else ~one_by_one)
    left = [] if one_by_one is None else [np.flatnonzero(one_by_one)]
    for start in range(0, plain.size, _AT_ONCE):
        rows = plain[start : start + _AT_ONCE]
        if not _decide(rule, votes, rows, made):
            left.append(rows)
    for row in np.concatenate(left).tolist() if left else []:
        _decide_one(rule, votes, responses(row), row, made)
    return made


def _decide(rule: StoppingRule, votes: Votes, rows: Integers, made: Decisions) -> bool:
    """Enter the decisions on these questions, looking at twice as many responses to those that are left each time."""
    width = min(_FIRST, votes.width)
    while rows.size and votes.width:
        seen = votes.of_questions(rows).first(width)
        verdicts = after_each(rule, seen)
        if verdicts is None:
            return False
        stops = (verdicts.reasons != GOES_ON) & (np.arange(width) < seen.lengths[:, None])
        stopped = stops.any(axis=1)
        last = np.where(stopped, stops.argmax(axis=1), seen.lengths - 1)
        held = seen.lengths > 0
        each = np.arange(rows.size)
        made.samples[rows] = last + 1
        made.answers[rows] = np.where(held, verdicts.answers[each, last], -1)
        made.reasons[rows] = np.where(stopped, verdicts.reasons[each, last], np.int8(GOES_ON))
        made.support[rows] = np.where(held, _support(verdicts.evidence[each, last], made.answers[rows]), np.nan)
        rows = rows[~stopped & (votes.lengths[rows] > width)]
        width = min(2 * width, votes.width)
    return True


def _decide_one(rule: StoppingRule, votes: Votes, responses: Sequence[Response], row: int, made: Decisions) -> None:
    decision = _at_the_end(rule, responses) or decide(rule, responses)
    numbers = {one.answer: int(number) for one, number in zip(responses, votes.answers[row], strict=False)}
    made.samples[row] = decision.samples
    made.answers[row] = numbers.get(decision.answer, -1)
    made.reasons[row] = GOES_ON if decision.reason is None else REASONS.index(decision.reason)
    supported = support(decision)
    made.support[row] = np.nan if supported is None else supported


def _at_the_end(rule: StoppingRule, responses: Sequence[Response]) -> Decision | None:
    """What a rule that never stops by itself says when the cap does, without its prefixes; None of other rules."""
    if not (type(rule) is _Either and rule.left.whole_budget and type(rule.right) is Cap):
        return None
    if any(one.alone for one in responses):
        return None
    return _after(rule, responses[: rule.right.samples])


def _support(evidence: Floats, answers: Integers) -> Floats:
    """``(v + 1) / (Σv + 2)`` of these answers, from evidence of shape (Q, K); NaN where there is no answer."""
    won = np.take_along_axis(evidence, np.maximum(answers, 0)[:, None], axis=1)[:, 0]
    return np.where(answers >= 0, (won + 1.0) / (evidence.sum(axis=1) + 2.0), np.nan)

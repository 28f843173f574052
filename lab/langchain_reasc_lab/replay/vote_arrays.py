"""The responses to many questions as arrays, and the evidence that they add up to, bit for bit as one by one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.decision import Response

__all__ = ["Tally", "Votes", "numbered", "tally"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Rows = Integers | Booleans
_MARGIN = 1e-6  # votes; far more than rounding


@dataclass(frozen=True, slots=True)
class Votes:
    """What rules read of the responses to Q questions, up to n each, in launch order.

    Attributes:
        answers: shape (Q, n), the answers of a question as 0, 1, 2, ... in the order in which they first appear; -1
            where a response has none, or where there is none.
        scores: shape (Q, n), S(y); NaN where there is none.
        cut_off: shape (Q, n), whether a response was cut off.
        lengths: shape (Q,), the number of responses to a question.
    """

    answers: Integers
    scores: Floats
    cut_off: Booleans
    lengths: Integers

    @classmethod
    def of(cls, questions: Sequence[Sequence[Response]]) -> Self:
        """Those of responses in launch order; what has a kind, fields or is alone is not told apart in arrays."""
        width = max(map(len, questions), default=0)
        answers = np.full((len(questions), width), -1)
        scores, cut_off = np.full(answers.shape, np.nan), np.zeros(answers.shape, dtype=bool)
        for row, responses in enumerate(questions):
            known: dict[str, int] = {}
            for at, one in enumerate(responses):
                answers[row, at] = -1 if one.answer is None else known.setdefault(one.answer, len(known))
                scores[row, at] = np.nan if one.score is None else one.score
                cut_off[row, at] = one.cut_off
        return cls(answers, scores, cut_off, np.array([len(responses) for responses in questions], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """The number n of responses that there is room for."""
        return int(self.answers.shape[1])

    def of_questions(self, rows: Rows) -> Self:
        """Those of some of the questions."""
        return replace(
            self,
            answers=self.answers[rows],
            scores=self.scores[rows],
            cut_off=self.cut_off[rows],
            lengths=self.lengths[rows],
        )

    def scored(self, scores: Floats) -> Self:
        """The same with these scores, shape (Q, n)."""
        return replace(self, scores=scores)

    def first(self, width: int) -> Self:
        """The first responses to each question alone."""
        return replace(
            self,
            answers=self.answers[:, :width],
            scores=self.scores[:, :width],
            cut_off=self.cut_off[:, :width],
            lengths=np.minimum(self.lengths, width),
        )


def numbered(labels: npt.NDArray[np.int64]) -> Integers:
    """Answers as :class:`Votes` has them, from any numbers that tell them apart, shape (Q, n); -1 stays -1."""
    if not labels.size:
        return labels
    answered = labels >= 0
    appeared = (labels[:, :, None] == labels[:, None, :]).argmax(axis=2)  # where an equal one came first
    new = answered & (appeared == np.arange(labels.shape[1]))
    return np.where(answered, np.take_along_axis(new.cumsum(axis=1) - 1, appeared, axis=1), -1)


@dataclass(frozen=True, slots=True)
class Tally:
    """The evidence after each response: what :mod:`langchain_reasc.method.evidence` computes of each prefix.

    Attributes:
        evidence: shape (Q, n, K), the accumulated weight of each answer after each response.
        leader: shape (Q, n), the answer that leads; of equals, the one seen first; -1 while there is none.
        first: shape (Q, n), the evidence for the leader, v1.
        second: shape (Q, n), that for the runner-up, v2.
    """

    evidence: Floats
    leader: Integers
    first: Floats
    second: Floats

    @property
    def posterior(self) -> Floats:
        """P(p1 > p2 | V) after each response (Eq. 5), shape (Q, n)."""
        return _dominance(self.first, self.second)

    def reaches(self, confidence: float) -> Booleans:
        """Whether the posterior is at least ``confidence``, above ½; shape (Q, n).

        With one lead the posterior is the lower the more the runner-up has, so a lead that is too small against none
        is too small: 1 - ½^(lead + 1) < confidence. Most leads are, and their posterior is not computed.
        """
        near = self.first - self.second >= -math.log2(1.0 - confidence) - 1.0 - _MARGIN
        reached = np.zeros(near.shape, dtype=bool)
        reached[near] = _dominance(self.first[near], self.second[near]) >= confidence
        return reached


def _dominance(first: Floats, second: Floats) -> Floats:
    from scipy.special import betainc

    return np.asarray(betainc(second + 1.0, first + 1.0, 0.5))


def tally(votes: Votes, weights: Floats | None = None) -> Tally:
    """Add up the weights of each answer.

    Args:
        votes: the responses.
        weights: shape (Q, n), 0 or more, what each response counts for; one without. Those of responses without an
            answer are not read.
    """
    answers = votes.answers[:, :, None]
    each = 1.0 if weights is None else weights[:, :, None]
    evidence = np.where(answers == np.arange(votes.answers.max(initial=0) + 1), each, 0.0)
    for at in range(1, votes.width):  # one after the other, as floating-point sums depend on their order
        evidence[:, at] += evidence[:, at - 1]
    best = evidence.argmax(axis=2, keepdims=True)  # the first of equals, which is the answer seen first
    first = np.take_along_axis(evidence, best, axis=2)[:, :, 0]
    others = evidence.copy()
    np.put_along_axis(others, best, 0.0, axis=2)
    voted = np.maximum.accumulate(votes.answers, axis=1) >= 0
    return Tally(evidence, np.where(voted, best[:, :, 0], -1), first, others.max(axis=2))

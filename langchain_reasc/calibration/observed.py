"""What is learned from without labels: questions as sampling left them, and which responses agree with the others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.decision import Response

__all__ = ["Observed", "alternatives", "consensus"]

_MOST_ALTERNATIVES: Final = 5.0
_PAIRS: Final = 4.0  # of agreeing wrong responses, before any was seen


@dataclass(frozen=True, slots=True)
class Observed:
    """One question, as sampling left it. No text is kept.

    Attributes:
        answers: in launch order; equal numbers for equal answers, None for a response without one.
        scores: shape (measures, responses), S(y) by each candidate measure; NaN where there is none.
        right: whether each response is right, where that is known; () where no label is.
        counted: whether votes were counted when it was sampled (ASC, or a budget), so that its answer shows what
            counting says.
    """

    answers: tuple[int | None, ...]
    scores: npt.NDArray[np.float64]
    right: tuple[bool | None, ...] = ()
    counted: bool = True

    @property
    def told(self) -> list[bool | None]:
        """Whether each response that votes is right, by its label alone."""
        right = self.right or (None,) * len(self.answers)
        return [known if answer is not None else None for known, answer in zip(right, self.answers, strict=True)]

    @property
    def judged(self) -> list[bool | None]:
        """Whether each response is right by its label, or else by the consensus of the others."""
        pairs = zip(self.told, consensus(self.answers), strict=True)
        return [agrees if known is None else known for known, agrees in pairs]

    def responses(self, measure: int | None) -> list[Response]:
        """What a rule reads of them, scored by the measure of this number; None scores none."""
        scores = np.full(len(self.answers), np.nan) if measure is None else self.scores[measure]
        return [
            Response(None if answer is None else str(answer), float(score) if np.isfinite(score) else None)
            for answer, score in zip(self.answers, scores, strict=True)
        ]


def consensus(answers: Sequence[int | None]) -> list[bool | None]:
    """Whether each response gives the answer that most of the others give; None where that cannot be told.

    It cannot of a response without an answer, of one without others, and where it is one of several leading answers.
    """
    return [_agrees(at, answers) for at in range(len(answers))]


def alternatives(questions: Sequence[Observed]) -> float:
    """K, how many wrong answers a wrong response chooses from: one over how often two to a question agree, 5 at most.

    Those count as wrong that their label says are, or that do not give the leading answer. Where hardly any are seen,
    all are taken to agree: a larger K lets fewer responses decide.
    """
    pairs = same = 0
    for question in questions:
        wrong = _wrong(question)
        pairs += wrong.total() * (wrong.total() - 1) // 2
        same += sum(n * (n - 1) // 2 for n in wrong.values())
    return min(_MOST_ALTERNATIVES, (pairs + _PAIRS) / (same + _PAIRS))


def _wrong(question: Observed) -> Counter[int]:
    votes = list(zip(question.answers, question.told, strict=True))
    given = Counter(answer for answer, _ in votes if answer is not None)
    leading = max(given, key=given.__getitem__, default=None)
    return Counter(one for one, right in votes if one is not None and (one != leading if right is None else not right))


def _agrees(at: int, answers: Sequence[int | None]) -> bool | None:
    own, others = answers[at], [answer for place, answer in enumerate(answers) if place != at and answer is not None]
    if own is None or not others:
        return None
    counts = [others.count(answer) for answer in set(others)]
    if others.count(own) < max(counts):
        return False
    return True if counts.count(max(counts)) == 1 else None

"""One question as an observation (which responses agree, and their scores), and what was learned of many.

No text is kept.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat

from langchain_reasc.calibration.drift import MONITORED
from langchain_reasc.calibration.record import Record
from langchain_reasc.method.decision import Response

__all__ = [
    "Audits",
    "Counts",
    "Drift",
    "MadeOf",
    "Observed",
    "ObservedQuestion",
    "OnlineState",
    "agrees_with_majority",
]

_DIGITS: Final = 6  # significant ones, of a score
Count = Annotated[int, Field(ge=0)]
Drift = Literal["agreement", "confidence"]
"""What is no longer as was learned: how responses agree, or what their scores tell."""
MadeOf = dict[str, dict[str, int | None]]
"""Signal -> the ``top_k`` and ``vocabulary_size`` that its scores are made of."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One question to learn from.

    Attributes:
        answers: in launch order; equal numbers for equal answers, None for a response without one.
        scores: shape (measures, responses), S(y) by each candidate measure; NaN where there is none.
        right: whether each response is right, where that is known; () without a label.
        counted: whether votes were counted when it was sampled (ASC, or a budget), so that its answer shows what
            counting says.
        decided: responses that the decision rests on; those after it are audits.
        answer: the answer that was decided on.
        id: names the question; None where nobody can tell its outcome.
        correct: its outcome, whether the answer that was decided on is right; None where that is not known.
        p_correct: how likely it was said to be right when it was decided on; None where nothing was said.
        kind: the kind of request that it was, see :attr:`~langchain_reasc.calibration.Fingerprint.kind`.
    """

    answers: tuple[int | None, ...]
    scores: npt.NDArray[np.float64]
    right: tuple[bool | None, ...] = ()
    counted: bool = True
    decided: int = 0
    answer: int | None = None
    id: str | None = None
    correct: bool | None = None
    p_correct: float | None = None
    kind: str = ""

    @property
    def labelled(self) -> list[bool | None]:
        """Whether each response that votes is right, by its label alone."""
        return self._of_votes(self.right or (None,) * len(self.answers))

    @property
    def known(self) -> list[bool | None]:
        """Whether each response that votes is right, by its label or the outcome; where one answer is, no other is.

        Outcomes are told of some questions rather than others, so they only say what is right; the rule is not learned
        from them.
        """
        others = False if self.correct and self.answer is not None else None
        told = tuple(self.correct if answer == self.answer else others for answer in self.answers)
        return self._of_votes(self.right or told)

    def _of_votes(self, right: Sequence[bool | None]) -> list[bool | None]:
        return [known if answer is not None else None for known, answer in zip(right, self.answers, strict=True)]

    @property
    def judged(self) -> list[bool | None]:
        """Whether each response is right by its label, or else by the consensus of the others."""
        pairs = zip(self.labelled, agrees_with_majority(self.answers), strict=True)
        return [agrees if known is None else known for known, agrees in pairs]

    def responses(self, measure: int | None) -> list[Response]:
        """Return what a rule reads, scored by the measure of this number; None scores none."""
        scores = np.full(len(self.answers), np.nan) if measure is None else self.scores[measure]
        return [
            Response(None if answer is None else str(answer), float(score) if np.isfinite(score) else None)
            for answer, score in zip(self.answers, scores, strict=True)
        ]


def agrees_with_majority(answers: Sequence[int | None]) -> list[bool | None]:
    """Return whether each response gives the answer that most of the others give.

    None for a response without an answer, without others, or with one of several leading answers.
    """
    agrees: list[bool | None] = []
    for at, own in enumerate(answers):
        others = Counter(answer for place, answer in enumerate(answers) if place != at and answer is not None)
        most = max(others.values(), default=0)
        leading = [answer for answer, count in others.items() if count == most]
        unknown = own is None or not others or (own in leading and len(leading) > 1)
        agrees.append(None if unknown else own in leading)
    return agrees


class ObservedQuestion(Record):
    """An :class:`Observed` as JSON: integers and scores, and never a text.

    Attributes:
        answers: equal numbers for equal answers, none: null.
        scores: for each measure those of all responses.
        counted: whether votes were counted (ASC), and not what was learned decided.
    """

    answers: tuple[Count | None, ...] = Field(min_length=1)
    scores: tuple[tuple[FiniteFloat | None, ...], ...]
    counted: bool

    @staticmethod
    def of(question: Observed, rows: Sequence[int]) -> "ObservedQuestion":
        """Return the question with the scores of these measures, to six digits."""
        kept = question.scores[list(rows)].tolist()
        scores = tuple(tuple(float(f"{x:.{_DIGITS}g}") if x == x else None for x in row) for row in kept)
        return ObservedQuestion.model_construct(answers=question.answers, scores=scores, counted=question.counted)

    def fits(self, measures: int) -> bool:
        """Whether it has a score of each response by so many measures."""
        return [len(row) for row in self.scores] == [len(self.answers)] * measures

    def observed(self, rows: Sequence[int | None], measures: int) -> Observed:
        """Return it with scores of shape (measures, responses); row i goes to ``rows[i]``, None: nowhere."""
        scores = np.full((measures, len(self.answers)), np.nan)
        for row, values in zip(rows, self.scores, strict=True):
            if row is not None:
                scores[row] = np.array(values, dtype=np.float64)
        return Observed(self.answers, scores, counted=self.counted)


class Audits(NamedTuple):
    """What responses that were paid for after the decision have said of answers that a calibration decided.

    Attributes:
        seen: how many there were.
        agreed: how many gave the answer that had been decided on.
        expected: of how many that was expected before they came.
    """

    seen: Count = 0
    agreed: Count = 0
    expected: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class Counts(Record):
    """How many questions there were.

    Attributes:
        seen: since it began, or began anew.
        fitted: how many of them at the last calibration; 0: there was none.
        outcomes: of how many somebody told whether the answer was right.
        fitted_outcomes: of how many at the last calibration.
    """

    seen: Count = 0
    fitted: Count = 0
    outcomes: Count = 0
    fitted_outcomes: Count = 0


class OnlineState(Counts):
    """What was learned, beside the questions and the calibrations made of them.

    Attributes:
        made_of: signal -> the k and V behind its scores.
        fitting_until: Unix time until which a process calibrates for all.
        alarms: how often it began anew, because what was learned no longer held.
        drifted: what did not hold the last time.
        drift: state of the monitors, in the order of :data:`~langchain_reasc.calibration.drift.MONITORED`.
        audits: since it began, or began anew.
        kinds: kind of request -> how many questions were of it.
    """

    made_of: MadeOf
    fitting_until: FiniteFloat = 0.0
    alarms: Count
    drifted: Drift | None = None
    drift: tuple[tuple[Annotated[FiniteFloat, Field(ge=0)], ...], ...]
    audits: Audits = Audits()
    kinds: dict[str, Counts] = Field(default_factory=dict)

    @property
    def evidence(self) -> dict[str, float]:
        """How strongly each monitor speaks for drift, by its name."""
        return {what: sum(bets) / len(bets) for what, bets in zip(MONITORED, self.drift, strict=False) if bets}

    @property
    def counts(self) -> Counts:
        """How many questions there were of all kinds."""
        return Counts(**{name: getattr(self, name) for name in Counts.model_fields})

"""Observations: one row for each question that was asked, and the rows that count.

Everything that is learned is a function of these rows: the calibrations
(:mod:`~langchain_reasc.calibration.learner`) and drift
(:mod:`~langchain_reasc.calibration.drift`). Rows contain numbers and no text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.drift import (
    Drift,
    DriftWatch,
    Prediction,
    responses_of,
)
from langchain_reasc.method.decision import Response

__all__ = [
    "KEPT",
    "KEPT_OF_KIND",
    "MOST_KINDS",
    "Audits",
    "Observation",
    "Observations",
    "SignalProvenance",
    "numbered",
]

KEPT: Final = 512
"""How many of the newest rows count."""
KEPT_OF_KIND: Final = 128
"""How many of each kind of request count at least."""
MOST_KINDS: Final = 64
"""How many kinds of request are distinguished."""
SignalProvenance = dict[str, dict[str, int | None]]
"""Signal -> the ``top_k`` and ``vocabulary_size`` behind its scores."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One question that was asked.

    Attributes:
        answers: in launch order; equal numbers for equal answers, None for a response
            without one.
        scores: shape (measures, responses), S(y) by each candidate measure; NaN if
            there is none.
        right: whether each response is right, None if unknown; () without a label.
        counted: whether it was decided without a calibration.
        decided: responses that the decision rests on; later ones are audits.
        answer: the winning answer.
        id: names the question; None if its outcome cannot be reported.
        correct: the outcome: whether the winning answer is right; None if unknown.
        p_correct: the probability of being right that was reported with the answer, if
            any.
        kind: the kind of request, see
            :attr:`~langchain_reasc.models.fingerprint.Fingerprint.kind`.
        predictions: what a calibration predicted about it, with what came.
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
    predictions: tuple[Prediction, ...] = ()

    @property
    def known(self) -> list[bool | None]:
        """Whether each response that votes is right, by its label or the outcome; if
        one answer is right, no other is.

        Outcomes are reported for a biased choice of questions. They show what is right,
        but the rule is not learned from them.
        """
        if self.right:
            labels = list(self.right)
        else:
            rest = False if self.correct and self.answer is not None else None
            labels = [
                self.correct if answer == self.answer else rest
                for answer in self.answers
            ]
        for index, answer in enumerate(self.answers):
            if answer is None:
                labels[index] = None
        return labels

    def responses(self, measure: int | None) -> list[Response]:
        """Return the responses as a rule reads them, scored by this row of ``scores``;
        None for no scores.
        """
        scores = None if measure is None else self.scores[measure]
        return responses_of(self.answers, scores)


def numbered(answers: Iterable[str | None]) -> tuple[int | None, ...]:
    """Return answers as numbers: equal numbers for equal answers, None for no answer."""
    numbers: dict[str, int] = {}
    return tuple(
        None if answer is None else numbers.setdefault(answer, len(numbers))
        for answer in answers
    )


class Audits(NamedTuple):
    """Responses that were drawn after the decision, compared with the winning answer.

    Attributes:
        seen: how many there were.
        agreed: how many gave the winning answer.
        expected: how many were expected to.
    """

    seen: int
    agreed: int
    expected: float


class Observations:
    """The rows that count, in the order in which they were asked.

    These are the last 512, and the last 128 of each of the 64 most frequent kinds of
    request. When a row shows drift, it and all rows
    before it are dropped: a restart.

    Attributes:
        rows: number -> row.
        restarts: number of the row that showed drift -> what had changed.
        last: number of the last row.
        provenance: signal -> the k and V behind its scores.
    """

    def __init__(
        self,
        restarts: Iterable[tuple[int, Drift]] = (),
        provenance: SignalProvenance | None = None,
    ) -> None:
        self.rows: dict[int, Observation] = {}
        self.provenance = dict(provenance or {})
        self.restarts: dict[int, Drift] = dict(restarts)
        self.last = max(self.restarts, default=0)
        self._watch = DriftWatch()

    def __iter__(self) -> Iterator[Observation]:
        return iter(self.rows.values())

    def __len__(self) -> int:
        return len(self.rows)

    def copy(self) -> "Observations":
        """Return a copy that does not change when rows are added here."""
        copied = copy(self)
        copied.rows = dict(self.rows)
        copied.restarts = dict(self.restarts)
        copied._watch = deepcopy(self._watch)
        return copied

    def append(self, row: Observation) -> Drift | None:
        """Add a row. If it shows drift, drop it and all rows before it, and return what
        has changed.
        """
        before = len(self.restarts)
        self.extend([(self.last + 1, row)])
        return self.drifted if len(self.restarts) > before else None

    def extend(self, rows: Iterable[tuple[int, Observation]]) -> list[int]:
        """Add rows with their numbers, in order. Return the numbers of old rows that
        were dropped.
        """
        for number, row in rows:
            self.rows[number] = row
            self.last = number
            drift = self._watch.observe(row.predictions)
            if drift is not None:
                self.restart(number, drift)
        return self._drop_old()

    def restart(self, number: int, drift: Drift) -> None:
        """Drop the rows up to this number, which showed drift."""
        later = [item for item in self.rows.items() if item[0] > number]
        self.rows = {}
        self._watch = DriftWatch()
        self.restarts[number] = drift
        self.last = max(self.last, number)
        self.extend(later)

    def _drop_old(self) -> list[int]:
        numbers = list(self.rows)
        if len(numbers) <= KEPT:
            return []
        kinds = self.kinds
        of_kind = Counter(row.kind for row in self.newest)
        dropped: list[int] = []
        # From the newest to the oldest, so that each kind keeps its newest rows.
        for number in reversed(numbers[:-KEPT]):
            row = self.rows[number]
            if row.kind in kinds and of_kind[row.kind] < KEPT_OF_KIND:
                of_kind[row.kind] += 1
            else:
                dropped.append(number)
                del self.rows[number]
        return dropped

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Store whether the answer to a question was right. Return False if the
        question is unknown.
        """
        numbers = [number for number, row in self.rows.items() if row.id == id]
        self.set_outcomes((number, correct) for number in numbers)
        return bool(numbers)

    def set_outcomes(self, outcomes: Iterable[tuple[int, bool]]) -> None:
        """Store outcomes, given as (number of a row, whether its answer was right)."""
        for number, correct in outcomes:
            row = self.rows.get(number)
            if row is not None and row.correct is not correct:
                self.rows[number] = replace(row, correct=correct)

    @property
    def newest(self) -> list[Observation]:
        """The last 512 rows."""
        return list(self.rows.values())[-KEPT:]

    @property
    def seen(self) -> int:
        """How many questions were asked since the last restart."""
        return self.last - max(self.restarts, default=0)

    @property
    def drifted(self) -> Drift | None:
        """What had changed at the last restart; None without a restart."""
        return self.restarts[max(self.restarts)] if self.restarts else None

    @property
    def outcomes(self) -> int:
        """How many rows have an outcome."""
        return sum(row.correct is not None for row in self)

    @property
    def kinds(self) -> dict[str, int]:
        """The 64 most frequent kinds of request -> how many rows are of them."""
        return dict(Counter(row.kind for row in self).most_common(MOST_KINDS))

    @property
    def audits(self) -> Audits:
        """The audits of the rows that a calibration decided."""
        audits = [
            prediction
            for row in self
            for prediction in row.predictions
            if prediction.monitor == "audits"
        ]
        agreed = int(sum(audit.came for audit in audits))
        return Audits(len(audits), agreed, sum(audit.expected for audit in audits))

    @property
    def evidence(self) -> dict[str, float]:
        """The evidence for drift of each monitor, by its name."""
        return self._watch.evidence

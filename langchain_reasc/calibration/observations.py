"""Observations: one row for each question that was asked, and the rows that count.

Everything that is learned is a function of these rows: calibrations (:mod:`~langchain_reasc.calibration.learner`), and
whether what was learned still holds (:mod:`~langchain_reasc.calibration.drift`). Rows hold numbers, and never a text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.drift import Drift, DriftWatch, Prediction
from langchain_reasc.method.decision import Response

__all__ = [
    "KEPT",
    "KEPT_COUNTED",
    "KEPT_OF_KIND",
    "MOST_KINDS",
    "Audits",
    "MadeOf",
    "Observation",
    "Observations",
    "agrees_with_majority",
    "numbered",
]

KEPT: Final = 512
"""How many of the newest rows count."""
KEPT_OF_KIND: Final = 128
"""How many of each kind of request count at least."""
KEPT_COUNTED: Final = 64
"""How many on which votes were counted are kept at least: only these show how likely further responses agree."""
MOST_KINDS: Final = 64
"""How many kinds of request are told apart."""
MadeOf = dict[str, dict[str, int | None]]
"""Signal -> the ``top_k`` and ``vocabulary_size`` that its scores are made of."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One question that was asked.

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
        predictions: what a calibration led to expect of it, beside what came.
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
        """Whether each response that votes is right, by its label or the outcome; where one answer is, no other is.

        Outcomes are told of some questions rather than others, so they only say what is right; the rule is not learned
        from them.
        """
        others = False if self.correct and self.answer is not None else None
        told = tuple(self.correct if answer == self.answer else others for answer in self.answers)
        given = zip(self.right or told, self.answers, strict=True)
        return [right if answer is not None else None for right, answer in given]

    def responses(self, measure: int | None) -> list[Response]:
        """Return what a rule reads, scored by the measure of this number; None scores none."""
        scores = np.full(len(self.answers), np.nan) if measure is None else self.scores[measure]
        return [
            Response(None if answer is None else str(answer), float(score) if np.isfinite(score) else None)
            for answer, score in zip(self.answers, scores, strict=True)
        ]


def numbered(answers: Iterable[str | None]) -> tuple[int | None, ...]:
    """Return answers as numbers, equal ones for equal answers and None for none."""
    numbers: dict[str, int] = {}
    return tuple(None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers)


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


class Audits(NamedTuple):
    """Responses that were paid for after the decision, compared with the answer that a calibration had decided on.

    Attributes:
        seen: how many there were.
        agreed: how many gave that answer.
        expected: of how many that was expected before they came.
    """

    seen: int
    agreed: int
    expected: float


class Observations:
    """The rows that count, in the order in which they were asked.

    These are the last 512, the last 128 of each of the 64 most frequent kinds of request, and the last 64 on which
    votes were counted. When a row shows drift, it and all rows before it are dropped: a restart.

    Attributes:
        rows: number -> row.
        restarts: number of the row at which drift was seen -> what had changed.
        last: number of the last row.
        made_of: signal -> the k and V that scores are made of.
    """

    def __init__(self, restarts: Iterable[tuple[int, Drift]] = (), made_of: MadeOf | None = None) -> None:
        self.rows: dict[int, Observation] = {}
        self.made_of = dict(made_of or {})
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
        copied.rows, copied.restarts, copied._watch = dict(self.rows), dict(self.restarts), deepcopy(self._watch)
        return copied

    def append(self, row: Observation) -> Drift | None:
        """Add a row. Return what it shows to have changed, in which case it and all before it are dropped."""
        before = len(self.restarts)
        self.extend([(self.last + 1, row)])
        return self.drifted if len(self.restarts) > before else None

    def extend(self, rows: Iterable[tuple[int, Observation]]) -> list[int]:
        """Add rows with their numbers, in order. Return the numbers of rows that are dropped because they are old."""
        for number, row in rows:
            self.rows[number], self.last = row, number
            if drift := self._watch.observe(row.predictions):
                self.restart(number, drift)
        return self._drop_old()

    def restart(self, number: int, drift: Drift) -> None:
        """Drop the rows up to this number, at which drift was seen."""
        later = [(at, row) for at, row in self.rows.items() if at > number]
        self.rows, self._watch, self.restarts[number] = {}, DriftWatch(), drift
        self.last = max(self.last, number)
        self.extend(later)

    def _drop_old(self) -> list[int]:
        numbers = list(self.rows)
        older, newest = numbers[:-KEPT], numbers[-KEPT:]
        if not older:
            return []
        often = self.kinds
        of_kind, dropped = Counter(self.rows[at].kind for at in newest), list[int]()
        counted = sum(self.rows[at].counted for at in newest)
        for at in reversed(older):
            row = self.rows[at]
            if (row.kind in often and of_kind[row.kind] < KEPT_OF_KIND) or (row.counted and counted < KEPT_COUNTED):
                of_kind[row.kind] += 1
                counted += row.counted
            else:
                dropped.append(at)
                del self.rows[at]
        return dropped

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Keep whether the answer to a question was right. Return False where the question is not known."""
        found = [at for at, row in self.rows.items() if row.id == id]
        self.set_outcomes((at, correct) for at in found)
        return bool(found)

    def set_outcomes(self, outcomes: Iterable[tuple[int, bool]]) -> None:
        """Keep number -> whether the answer was right."""
        for at, correct in outcomes:
            if at in self.rows and self.rows[at].correct is not correct:
                self.rows[at] = replace(self.rows[at], correct=correct)

    @property
    def newest(self) -> list[Observation]:
        """The last 512 rows."""
        return list(self.rows.values())[-KEPT:]

    @property
    def seen(self) -> int:
        """Questions since learning began, or began anew."""
        return self.last - max(self.restarts, default=0)

    @property
    def drifted(self) -> Drift | None:
        """What had changed at the last restart; None where there was none."""
        return self.restarts[max(self.restarts)] if self.restarts else None

    @property
    def outcomes(self) -> int:
        """Of how many rows somebody told whether the answer was right."""
        return sum(row.correct is not None for row in self)

    @property
    def kinds(self) -> dict[str, int]:
        """The 64 most frequent kinds of request -> how many rows are of them."""
        return dict(Counter(row.kind for row in self).most_common(MOST_KINDS))

    @property
    def audits(self) -> Audits:
        """What audits said of the rows that a calibration decided."""
        every = [one for row in self for one in row.predictions if one.monitor == "audits"]
        return Audits(len(every), int(sum(one.came for one in every)), sum(one.expected for one in every))

    @property
    def evidence(self) -> dict[str, float]:
        """How strongly each monitor speaks for drift, by its name."""
        return self._watch.evidence

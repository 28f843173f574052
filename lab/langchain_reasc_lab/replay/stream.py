"""``calibration="online"`` on recorded responses, one question after another.

The first ones are answered by plain ASC, and a calibration by consensus is made of them; it is made again each time
their number has grown by a quarter, as in a live run. What that costs is part of what is counted, and so are audits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import GROWTH, KEPT, MINIMUM, Calibration, Observed, calibrate_consensus
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method import ASC, Cap, Decision, Measure, Response, decide

__all__ = ["AUDITED", "Stream", "Streamed"]

AUDITED: Final = 20
"""One question of so many has one more response drawn when it is decided, as by default."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What was decided along a stream of Q questions.

    Attributes:
        decisions: the decision on each.
        audited: shape (Q,), whether one more response was drawn.
        alone: shape (Q,), whether the first response was launched alone, because a gate might have accepted it.
        calibration: the last one that was learned; None where there was none.
    """

    decisions: list[Decision]
    audited: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]
    calibration: Calibration | None


@dataclass(frozen=True, slots=True)
class Stream:
    """Q questions in the order in which they are asked.

    Attributes:
        responses: those to every question, scored by one of the measures, or by none.
        scores: for each candidate measure, shape (Q, n); NaN where there is none.
        measures: the candidates.
        budget: responses to each at most.
        minimum: questions before the first calibration.
    """

    responses: Callable[[Measure | None], Sequence[Sequence[Response]]]
    scores: Sequence[npt.NDArray[Any]]
    measures: Sequence[Measure]
    budget: int
    minimum: int = MINIMUM

    def run(self) -> Streamed:
        """Answer and learn, to the end."""
        unscored = self.responses(None)
        decisions: list[Decision] = []
        observed: list[Observed] = []
        audited, alone = np.zeros((2, len(unscored)), dtype=bool)
        calibration = None
        while (begin := len(decisions)) < len(unscored):
            end = min(max(begin, math.ceil(GROWTH * begin) if begin else self.minimum), len(unscored))
            if begin:
                calibration = self._learn(observed[-KEPT:])
            rule = calibration.rule(on_missing_confidence="count", budget=self.budget) if calibration else ASC()
            scored = self.responses(calibration.measure) if calibration and calibration.measure else unscored
            decisions += [decide(rule | Cap(self.budget), responses) for responses in scored[begin:end]]
            alone[begin:end] = rule.may_accept_first
            audited[begin:end] = (calibration is not None) & (np.arange(begin, end) % AUDITED == 0)
            observed += [
                self.observe(row, unscored[row][: decisions[row].samples], counted=row < self.minimum)
                for row in range(begin, end)
            ]
        return Streamed(decisions, audited, alone, calibration)

    def observe(self, row: int, responses: Sequence[Response], *, counted: bool) -> Observed:
        """Return a question as sampling left it after these responses."""
        numbers: dict[str, int] = {}
        given = [one.answer for one in responses]
        answers = tuple(None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in given)
        scores = np.array([one[row, : len(given)] for one in self.scores]).reshape(len(self.scores), len(given))
        return Observed(answers, scores, counted=counted)

    def _learn(self, questions: Sequence[Observed]) -> Calibration | None:
        try:
            return calibrate_consensus(questions, self.measures, budget=self.budget, explained=False)
        except CalibrationDataError:
            return None

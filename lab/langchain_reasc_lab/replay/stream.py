"""``calibration="online"`` on recorded responses: questions one after another, learned from as they are answered.

The first ones are answered by plain ASC, and a calibration by consensus is made of them; it is made again each time
their number has grown by a quarter, as in a live run. What that costs is part of what is counted, and so are audits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from langchain_reasc.calibration import GROWTH, KEPT, MINIMUM, Calibration, Observed, calibrate_observed
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, Response
from langchain_reasc_lab.replay.decide_many import Decisions, decide_many
from langchain_reasc_lab.replay.vote_arrays import Booleans, Floats, Votes

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

    decisions: Decisions
    audited: Booleans
    alone: Booleans
    calibration: Calibration | None


@dataclass(frozen=True, slots=True)
class Stream:
    """Q questions in the order in which they are asked.

    Attributes:
        votes: their responses, without scores.
        scores: for each candidate measure, shape (Q, n); NaN where there is none.
        measures: the candidates, by name.
        responses: those to one question under one of the measures, or None; for what arrays cannot show.
        one_by_one: shape (Q,), the questions of which arrays cannot show all.
        budget: responses to each at most.
        minimum: questions before the first calibration.
    """

    votes: Votes
    scores: Sequence[Floats]
    measures: Sequence[Measure]
    responses: Callable[[int, int | None], Sequence[Response]]
    one_by_one: Booleans
    budget: int
    minimum: int = MINIMUM

    def run(self) -> Streamed:
        """Answer and learn, to the end."""
        made = Decisions.none(len(self.votes))
        audited, alone = np.zeros((2, len(self.votes)), dtype=bool)
        calibration, begin = None, 0
        while begin < len(self.votes):
            fitted = max(begin, self.minimum if begin == 0 else math.ceil(GROWTH * begin))
            rows = np.arange(begin, min(fitted, len(self.votes)))
            alone[rows] = self._decide(calibration, rows, made)
            audited[rows] = (calibration is not None) & (rows % AUDITED == 0)
            begin = int(rows[-1]) + 1
            calibration = self._learned(made, begin) if begin < len(self.votes) else calibration
        return Streamed(made, audited, alone, calibration)

    def _decide(
        self, calibration: Calibration | None, rows: "np.ndarray[tuple[int], np.dtype[np.intp]]", made: Decisions
    ) -> bool:
        """Enter the decisions on these questions; whether the first response to each is launched alone."""
        rule = calibration.rule(on_missing_confidence="count", budget=self.budget) if calibration else ASC()
        measure = None if calibration is None or calibration.measure is None else self._at(calibration.measure)
        votes = self.votes if measure is None else self.votes.scored(self.scores[measure])
        decided = decide_many(
            rule | Cap(self.budget),
            votes.of_questions(rows),
            lambda row: self.responses(int(rows[row]), measure),
            one_by_one=self.one_by_one[rows],
        )
        made.enter(rows, decided)
        return rule.may_accept_first

    def _learned(self, made: Decisions, seen: int) -> Calibration | None:
        """What the last questions before this one tell."""
        rows = range(max(0, seen - KEPT), seen)
        questions = [self.observed(row, int(made.samples[row]), counted=row < self.minimum) for row in rows]
        try:
            return calibrate_observed(questions, self.measures, budget=self.budget, explained=False)
        except CalibrationDataError:
            return None

    def observed(self, row: int, used: int, *, counted: bool) -> Observed:
        """A question as sampling left it after ``used`` responses."""
        answers = tuple(None if answer < 0 else answer for answer in self.votes.answers[row, :used].tolist())
        scores = np.array([one[row, :used] for one in self.scores]).reshape(len(self.scores), used)
        return Observed(answers, scores, counted=counted)

    def _at(self, measure: Measure) -> int:
        return list(self.measures).index(measure)

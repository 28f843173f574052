"""``calibration="online"`` on recorded responses, one question after another.

The first ones are answered by plain ASC, and a calibration by consensus is made of them; it is made again each time
their number has grown by a quarter, as in a live run. What that costs is part of what is counted, and so are audits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import MINIMUM, Calibration, ConsensusLearner, Drift, Observed
from langchain_reasc.method import ASC, Cap, Decision, Measure, Response, StoppingRule, decide

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
        alarms: row of a question -> what was seen there to hold no longer, so that learning began anew.
    """

    decisions: list[Decision]
    audited: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]
    calibration: Calibration | None
    alarms: Mapping[int, Drift]


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
        learner = ConsensusLearner(self.measures, budget=self.budget, minimum=self.minimum, explained=False)
        decisions: list[Decision] = []
        audited, alone = np.zeros((2, len(unscored)), dtype=bool)
        alarms: dict[int, Drift] = {}
        calibration: Calibration | None = None
        rule, scored = self._decided_by(calibration)
        for row, responses in enumerate(unscored):
            if learner.calibration is not calibration:
                calibration = learner.calibration
                rule, scored = self._decided_by(calibration)
            decision = decide(rule, scored[row])
            decisions.append(decision)
            alone[row] = rule.may_accept_first
            audited[row] = calibration is not None and row % AUDITED == 0
            drawn = responses[: decision.samples + int(audited[row])]
            if learner.observe(self._observed(row, drawn, decision, counted=calibration is None)):
                alarms[row] = learner.drifted or "agreement"
            if learner.due:
                learner.adopt(learner.fit())
        return Streamed(decisions, audited, alone, learner.calibration, alarms)

    def _decided_by(self, calibration: Calibration | None) -> tuple[StoppingRule, Sequence[Sequence[Response]]]:
        """Return the rule, and all responses as it reads them."""
        rule = ASC() if calibration is None else calibration.rule(on_missing_confidence="count", budget=self.budget)
        return rule | Cap(self.budget), self.responses(calibration.measure if calibration else None)

    def _observed(self, row: int, responses: Sequence[Response], decision: Decision, *, counted: bool) -> Observed:
        """Return a question as sampling left it after these responses."""
        numbers: dict[str, int] = {}
        given = [one.answer for one in responses]
        answers = tuple(None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in given)
        scores = np.array([one[row, : len(given)] for one in self.scores]).reshape(len(self.scores), len(given))
        answer = None if decision.answer is None else numbers[decision.answer]
        return Observed(answers, scores, counted=counted, decided=decision.samples, answer=answer)

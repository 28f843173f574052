"""``calibration="online"`` on recorded responses, one question after another.

The first ones are decided by the rule without a calibration, and a calibration by
consensus is made of them; it is made again each time their number has grown by a
quarter, as in a live run.
What that costs is part of what is counted, and so are audits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import (
    MINIMUM,
    Calibration,
    Drift,
    Learner,
    Observation,
    numbered,
)
from langchain_reasc.method import (
    Decision,
    FiniteHorizon,
    Measure,
    Response,
    StoppingRule,
    decide,
    rule_in_use,
)
from langchain_reasc.method.decision import answer_among, joined

__all__ = ["AUDITED", "Stream", "Streamed"]

AUDITED: Final = 20
"""One question of so many has one more response drawn when it is decided, as by
default.
"""


@dataclass(frozen=True, slots=True)
class Streamed:
    """The decisions along a stream of Q questions.

    Attributes:
        decisions: the decision on each.
        audited: shape (Q,), whether one more response was drawn.
        calibration: the last one that was learned; None if there was none.
        measures: of each question the measure whose scores were read; None if votes
            were counted.
        alarms: row of a question -> what was seen there to hold no longer, so that
            learning began anew.
    """

    decisions: list[Decision]
    audited: npt.NDArray[np.bool_]
    calibration: Calibration | None
    measures: list[Measure | None]
    alarms: Mapping[int, Drift]


@dataclass(frozen=True, slots=True)
class Stream:
    """Q questions in the order in which they are asked.

    Attributes:
        responses: those to every question, scored by one of the measures, or by none.
        scores: for each candidate measure, shape (Q, n); NaN if there is none.
        measures: the candidates.
        budget: responses to each at most.
        minimum: questions before the first calibration.
        rule: makes the rule of a calibration; None for the rule by default.
    """

    responses: Callable[[Measure | None], Sequence[Sequence[Response]]]
    scores: Sequence[npt.NDArray[Any]]
    measures: Sequence[Measure]
    budget: int
    minimum: int = MINIMUM
    rule: Callable[[Calibration], StoppingRule] | None = None

    def run(self) -> Streamed:
        """Answer and learn, to the end."""
        unscored = self.responses(None)
        learner = Learner(
            self.measures, budget=self.budget, minimum=self.minimum, explained=False
        )
        decisions: list[Decision] = []
        audited = np.zeros(len(unscored), dtype=bool)
        measures: list[Measure | None] = []
        alarms: dict[int, Drift] = {}
        learned_by: Calibration | None = None
        rule, scored = self._decided_by(None)
        for row, responses in enumerate(unscored):
            calibration = learner.calibration
            if calibration is not learned_by:
                learned_by = calibration
                rule, scored = self._decided_by(calibration)
            decision = decide(rule, scored[row][: self.budget])
            decisions.append(decision)
            measures.append(calibration.measure if calibration else None)
            audited[row] = calibration is not None and row % AUDITED == 0
            given = [
                response.answer for response in joined(responses[: decision.samples])
            ]
            if audited[row] and len(responses) > decision.samples:
                given.append(
                    answer_among(
                        responses[: decision.samples], responses[decision.samples]
                    )
                )
            observed = self._observed(row, given, decision, counted=calibration is None)
            if drift := learner.observe(observed):
                alarms[row] = drift
        return Streamed(decisions, audited, learner.calibration, measures, alarms)

    def _decided_by(
        self, calibration: Calibration | None
    ) -> tuple[StoppingRule, Sequence[Sequence[Response]]]:
        """Return the rule, and all responses as it reads them."""
        if calibration is None:
            untrained = FiniteHorizon(budget=self.budget)
            return rule_in_use(untrained, self.budget), self.responses(None)
        if self.rule is not None:
            rule = self.rule(calibration)
        else:
            rule = calibration.rule(budget=self.budget)
        return rule_in_use(rule, self.budget), self.responses(calibration.measure)

    def _observed(
        self,
        row: int,
        given: Sequence[str | None],
        decision: Decision,
        *,
        counted: bool,
    ) -> Observation:
        """Return a question as sampling left it: with its first responses, which gave
        these answers.
        """
        answers = numbered(given)
        scores = np.array([one[row, : len(given)] for one in self.scores]).reshape(
            len(self.scores), len(given)
        )
        answer = (
            None if decision.answer is None else answers[given.index(decision.answer)]
        )
        return Observation(
            answers, scores, counted=counted, decided=decision.samples, answer=answer
        )

"""``calibration="online"`` on recorded responses, one question after another.

The first ones are answered by plain ASC, and a calibration by consensus is made of them; it is made again each time
their number has grown by a quarter, as in a live run. What that costs is part of what is counted, and so are audits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import DEFAULT_CUT_QUANTILE, MINIMUM, Calibration, ConsensusLearner, Drift, Observed
from langchain_reasc.method import (
    ASC,
    Cap,
    ConfidenceCut,
    Decision,
    Measure,
    Response,
    StoppingRule,
    decide_with_cuts,
)

__all__ = ["AUDITED", "Stream", "Streamed"]

AUDITED: Final = 20
"""One question of so many has one more response drawn when it is decided, as by default."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What was decided along a stream of Q questions.

    Attributes:
        decisions: the decision on each.
        launched: shape (Q,), the samples launched until then, those that were cut among them.
        cut: shape (Q, n), after how many tokens each of these was cut; 0 for never.
        audited: shape (Q,), whether one more response was drawn.
        alone: shape (Q,), whether the first response was launched alone, because a gate might have accepted it.
        calibration: the last one that was learned; None where there was none.
        measures: of each question the trusted measure that its votes were weighed by; None where they were counted.
        alarms: row of a question -> what was seen there to hold no longer, so that learning began anew.
    """

    decisions: list[Decision]
    launched: npt.NDArray[np.int64]
    cut: npt.NDArray[np.int64]
    audited: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]
    calibration: Calibration | None
    measures: list[Measure | None]
    alarms: Mapping[int, Drift]


@dataclass(frozen=True, slots=True)
class Stream:
    """Q questions in the order in which they are asked.

    Attributes:
        responses: those to every question, scored by one of the measures, or by none.
        scores: for each candidate measure, shape (Q, n); NaN where there is none.
        measures: the candidates.
        budget: responses to each at most.
        worth: samples that a question may cost for one more point of agreement; 0 for any number, None for the default.
        minimum: questions before the first calibration.
        cut_after: after how many tokens a weak sample is cut, shape (Q, n), 0 for never; None to cut none.
        cut_quantile: the share of first responses that are weak.
        kinds: the kind of request that each question is; None: all are of one kind.
    """

    responses: Callable[[Measure | None], Sequence[Sequence[Response]]]
    scores: Sequence[npt.NDArray[Any]]
    measures: Sequence[Measure]
    budget: int
    worth: float | None = None
    minimum: int = MINIMUM
    cut_after: Callable[[ConfidenceCut], npt.NDArray[np.int64]] | None = None
    cut_quantile: float = DEFAULT_CUT_QUANTILE
    kinds: Sequence[str] | None = None

    def run(self) -> Streamed:
        """Answer and learn, to the end."""
        unscored = self.responses(None)
        quantile = self.cut_quantile if self.cut_after else 0.0
        learner = ConsensusLearner(
            self.measures, budget=self.budget, minimum=self.minimum, explained=False, cut_quantile=quantile
        )
        decisions: list[Decision] = []
        audited, alone = np.zeros((2, len(unscored)), dtype=bool)
        measures: list[Measure | None] = []
        alarms: dict[int, Drift] = {}
        after = self._cut_after(None)
        launched, cut = np.zeros(len(unscored), dtype=np.int64), np.zeros_like(after)
        in_use = dict[str, tuple[Calibration | None, tuple[StoppingRule, Any], npt.NDArray[np.int64]]]()
        for row, responses in enumerate(unscored):
            kind = self.kinds[row] if self.kinds else ""
            calibration = learner.calibration_of(kind) or learner.calibration
            if kind not in in_use or in_use[kind][0] is not calibration:
                in_use[kind] = (calibration, self._decided_by(calibration), self._cut_after(calibration))
            _, (rule, scored), after = in_use[kind]
            decided = decide_with_cuts(rule, scored[row], (after[row] > 0).tolist(), self.budget)
            decisions.append(decided.decision)
            measures.append(calibration.measure if calibration else None)
            launched[row], alone[row] = decided.launched, rule.may_accept_first
            cut[row, list(decided.cut)] = after[row, list(decided.cut)]
            audited[row] = calibration is not None and row % AUDITED == 0
            drawn = [at for at in range(min(launched[row] + audited[row], len(responses))) if not cut[row, at]]
            given = [responses[at].answer for at in drawn]
            observed = self._observed(row, drawn, given, decided.decision, counted=calibration is None)
            if learner.observe(replace(observed, kind=kind)):
                alarms[row] = learner.drifted or "agreement"
            if learner.due:
                learner.adopt(learner.fit())
        return Streamed(decisions, launched, cut, audited, alone, learner.calibration, measures, alarms)

    def _decided_by(self, calibration: Calibration | None) -> tuple[StoppingRule, Sequence[Sequence[Response]]]:
        """Return the rule, and all responses as it reads them."""
        rule: StoppingRule = ASC()
        if calibration is not None:
            rule = calibration.rule(on_missing_confidence="count", budget=self.budget, worth=self.worth)
        return rule | Cap(self.budget), self.responses(calibration.measure if calibration else None)

    def _cut_after(self, calibration: Calibration | None) -> npt.NDArray[np.int64]:
        """Return after how many tokens each sample falls below the threshold under this calibration; 0: never."""
        if self.cut_after is None or calibration is None or calibration.cut is None:
            held = self.responses(None)
            return np.zeros((len(held), max(map(len, held), default=0)), dtype=np.int64)
        return self.cut_after(calibration.cut)

    def _observed(
        self, row: int, places: Sequence[int], given: Sequence[str | None], decision: Decision, *, counted: bool
    ) -> Observed:
        """Return a question as sampling left it: with the responses in these places, which gave these answers."""
        numbers: dict[str, int] = {}
        answers = tuple(None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in given)
        scores = np.array([one[row, places] for one in self.scores]).reshape(len(self.scores), len(given))
        answer = None if decision.answer is None else numbers[decision.answer]
        return Observed(answers, scores, counted=counted, decided=decision.samples, answer=answer)

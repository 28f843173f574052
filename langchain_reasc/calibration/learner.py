"""The state that ``calibration="online"`` learns, without threads and files, and forgets where that has drifted."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, Self

import numpy as np

from langchain_reasc.calibration import consensus
from langchain_reasc.calibration.drift import (
    AgreementRates,
    DriftMonitor,
    Expected,
    NextResponse,
    mean_separation,
    next_responses,
    separation,
)
from langchain_reasc.calibration.online_state import Drift, MadeOf, Observed, ObservedQuestion, OnlineState
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule, decide

__all__ = ["KEPT", "MINIMUM", "ConsensusLearner"]

MINIMUM: Final = 16
KEPT: Final = 512
GROWTH: Final = 1.25
Fit = tuple[Calibration | None, Expected, int]
"""The calibration of the questions seen (None: they determine none), what to expect of the next questions under it, and
how many there were."""


class ConsensusLearner:
    """Learns from the last 512 questions, anew each time their number has grown by a quarter.

    Args:
        measures: candidates for the measure, a row of scores each.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        seed: the seed of everything random in a calibration.
        explained: whether calibrations also say what they promise; no decision needs it.
        cut_quantile: the share of first responses that are weak, see
            :func:`~langchain_reasc.calibration.calibrate_consensus`; 0 to learn nothing of them.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        *,
        budget: int = DEFAULT_BUDGET,
        minimum: int = MINIMUM,
        fingerprint: Fingerprint | None = None,
        seed: int = 0,
        explained: bool = True,
        cut_quantile: float = consensus.DEFAULT_CUT_QUANTILE,
    ) -> None:
        self.measures, self.minimum, self.fingerprint = tuple(measures), minimum, fingerprint or Fingerprint()
        self._budget, self._seed, self._explained, self._cut_quantile = budget, seed, explained, cut_quantile
        self.alarms = 0
        self.drifted: Drift | None = None
        self._begin()

    def _begin(self) -> None:
        self._questions: deque[Observed] = deque(maxlen=KEPT)
        self.made_of: MadeOf = {}
        self.seen = self._fitted = 0
        self.calibration: Calibration | None = None
        self._expected: Expected | None = None
        self._monitors = {what: DriftMonitor() for what in ("going on", "audits", "separation")}

    def observe(self, question: Observed) -> bool:
        """Learn from a question. Return True where what was learned no longer holds, and all is forgotten."""
        if self.calibration and not question.counted and (drift := self._drift_shown_by(question, self.calibration)):
            self._begin()
            self.alarms, self.drifted = self.alarms + 1, drift
            return True
        self._questions.append(question)
        self.seen += 1
        return False

    @property
    def due(self) -> bool:
        """Whether it is time to calibrate."""
        return self.seen >= max(self.minimum, math.ceil(GROWTH * self._fitted))

    def fit(self) -> Fit:
        """Calibrate on the questions seen. It changes nothing, and may take seconds."""
        questions, seen = list(self._questions), self.seen
        try:
            calibration = consensus.calibrate_consensus(
                questions,
                self.measures,
                budget=self._budget,
                made_of=self.made_of,
                fingerprint=self.fingerprint,
                seed=self._seed,
                explained=self._explained,
                cut_quantile=self._cut_quantile,
            )
        except CalibrationDataError:
            return None, Expected(None, AgreementRates(()), None), seen  # nothing to learn from these yet
        return calibration, self._expect(questions, calibration), seen

    def adopt(self, fit: Fit) -> None:
        """Use the calibration made of the questions."""
        self.calibration, self._expected, self._fitted = fit

    def postpone(self) -> None:
        """Calibrate no sooner than after a quarter more questions: it failed on these."""
        self._fitted = self.seen

    def state(self) -> OnlineState:
        """Return all that it has learned."""
        scored = [np.isfinite(question.scores).any(axis=1) for question in self._questions]
        rows = np.flatnonzero(np.any(scored, axis=0)).tolist() if scored else []
        return OnlineState(
            fingerprint=self.fingerprint,
            measures=tuple((one.signal, one.score, one.window) for one in (self.measures[row] for row in rows)),
            made_of=self.made_of,
            seen=self.seen,
            fitted=self._fitted,
            alarms=self.alarms,
            drifted=self.drifted,
            drift=tuple(monitor.state for monitor in self._monitors.values()),
            calibration=self.calibration,
            questions=tuple(ObservedQuestion.of(question, rows) for question in self._questions),
        )

    def restore(self, state: OnlineState) -> None:
        """Go on from a state. Scores by measures that are no candidates here are left out."""
        self._begin()
        known = {measure: row for row, measure in enumerate(self.measures)}
        rows = [known.get(Measure(*measure)) for measure in state.measures]
        self._questions.extend(one.observed(rows, len(self.measures)) for one in state.questions)
        self.made_of = {signal: dict(made) for signal, made in state.made_of.items()}
        self.seen, self._fitted = state.seen, state.fitted
        self.alarms, self.drifted = state.alarms, state.drifted
        self.calibration = state.calibration
        if self.calibration:
            self._rule(self.calibration).prepare()
        self._monitors |= {
            what: DriftMonitor(state=kept) for what, kept in zip(self._monitors, state.drift, strict=False)
        }

    def merged(self, others: OnlineState | None, own: Iterable[Observed]) -> Self:
        """Return a learner of what others have learned, and then of these questions; the later calibration of both.

        Scores of these questions whose signal is made of another k or V there are left out.
        """
        together = copy(self)
        together._begin()
        if others is not None:
            together.restore(others)
        if together._fitted < self._fitted and together.alarms <= self.alarms:  # else others saw that it had drifted
            together.calibration, together._expected, together._fitted = self.calibration, self._expected, self._fitted
        together.made_of = {**self.made_of, **together.made_of}
        differs = [together.made_of.get(one.signal) != self.made_of.get(one.signal) for one in self.measures]
        for question in own:
            scores = np.where(np.array(differs)[:, None], np.nan, question.scores)
            together.observe(replace(question, scores=scores))
        return together

    def _drift_shown_by(self, question: Observed, calibration: Calibration) -> Drift | None:
        """Compare a question with what was expected of it. Return what is no longer so."""
        if self._expected is None:  # the calibration was read from a file
            self._expected = self._expect(self._questions, calibration)
        expected, drifts = self._expected, list[Drift]()
        for response in next_responses(question.answers, question.decided, question.answer):
            if (predicted := expected.rates.predict(response)) is not None:
                monitor = self._monitors["audits" if response.decided else "going on"]
                if monitor.observe(predicted[0], response.agreed, margin=predicted[1]):
                    drifts.append("agreement")
        if expected.separation is not None and expected.row is not None:
            mean, margin = expected.separation
            for separated in separation(question.answers[: question.decided], question.scores[expected.row]):
                if self._monitors["separation"].observe(mean, separated, margin=margin, lower_only=True):
                    drifts.append("confidence")
        return next(iter(drifts), None)

    def _rule(self, calibration: Calibration) -> StoppingRule:
        return calibration.rule(on_missing_confidence="count", budget=self._budget)

    def _expect(self, questions: Iterable[Observed], calibration: Calibration) -> Expected:
        """Return what these questions, decided by this calibration's rule, say of those to come."""
        rule, measure = self._rule(calibration), calibration.measure
        row = self.measures.index(measure) if measure in self.measures else None
        following, separations = list[NextResponse](), list[float]()
        for question in questions:
            decision = decide(rule, question.responses(row))
            answer = None if decision.answer is None else int(decision.answer)
            following += next_responses(question.answers, decision.samples, answer)
            if row is not None:
                separations += separation(question.answers[: decision.samples], question.scores[row])
        return Expected(row, AgreementRates(following), mean_separation(separations))

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
    MONITORED,
    AgreementRates,
    DriftMonitor,
    Expected,
    NextResponse,
    mean_separation,
    next_responses,
    separation,
)
from langchain_reasc.calibration.online_state import Audits, Drift, MadeOf, Observed, OnlineState
from langchain_reasc.calibration.online_store import KEPT
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule, decide

__all__ = ["MINIMUM", "ConsensusLearner"]

MINIMUM: Final = 16
GROWTH: Final = 1.25
FEWEST_OUTCOMES: Final = 20
Fit = tuple[Calibration | None, Expected, int, int]
"""The calibration of the questions seen (None: they determine none), what to expect of the next questions under it, how
many there were, and of how many the outcome was known."""


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
        self.seen = self.outcomes = self._fitted = self._fitted_outcomes = 0
        self.fitting_until = 0.0  # Unix time until which a process calibrates for all
        self.calibration: Calibration | None = None
        self._expected: Expected | None = None
        self.audits = Audits()
        self._monitors = {what: DriftMonitor() for what in MONITORED}

    def observe(self, question: Observed) -> bool:
        """Learn from a question. Return True where what was learned no longer holds, and all is forgotten."""
        if self.calibration and not question.counted and (drift := self._drift_shown_by(question)):
            self._begin()
            self.alarms, self.drifted = self.alarms + 1, drift
            return True
        self._questions.append(question)
        self.seen += 1
        return False

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Keep whether the answer to a question was right. Return False where it is not among the last 512."""
        for at, question in enumerate(self._questions):
            if question.id == id:
                self.outcomes += question.correct is None
                self._questions[at] = replace(question, correct=correct)
                return True
        return False

    @property
    def due(self) -> bool:
        """Whether it is time to calibrate: for questions seen, or for outcomes told."""
        return self.seen >= max(self.minimum, math.ceil(GROWTH * self._fitted)) or (
            self.outcomes >= max(FEWEST_OUTCOMES, GROWTH * self._fitted_outcomes) and self.seen >= self.minimum
        )

    def fit(self) -> Fit:
        """Calibrate on the questions seen. It changes nothing, and may take seconds."""
        questions, seen, outcomes = list(self._questions), self.seen, self.outcomes
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
            return None, Expected(None, AgreementRates(()), None), seen, outcomes  # nothing to learn from these yet
        return calibration, self._expect(questions, calibration), seen, outcomes

    def adopt(self, fit: Fit) -> None:
        """Use the calibration made of the questions."""
        self.calibration, self._expected, self._fitted, self._fitted_outcomes = fit
        self.fitting_until = 0.0

    def postpone(self) -> None:
        """Calibrate no sooner than after a quarter more questions: it failed on these."""
        self._fitted, self._fitted_outcomes, self.fitting_until = self.seen, self.outcomes, 0.0

    @property
    def questions(self) -> tuple[Observed, ...]:
        """The questions that it knows, the last 512."""
        return tuple(self._questions)

    def state(self) -> OnlineState:
        """Return what it has learned, beside questions and calibration."""
        return OnlineState(
            made_of=self.made_of,
            seen=self.seen,
            fitted=self._fitted,
            outcomes=self.outcomes,
            fitted_outcomes=self._fitted_outcomes,
            fitting_until=self.fitting_until,
            alarms=self.alarms,
            drifted=self.drifted,
            drift=tuple(monitor.state for monitor in self._monitors.values()),
            audits=self.audits,
        )

    def copy(self) -> Self:
        """Return a learner that goes on from here by itself."""
        other = copy(self)
        other._questions, other.made_of = self._questions.copy(), dict(self.made_of)
        other._monitors = {what: copy(monitor) for what, monitor in self._monitors.items()}
        return other

    def follow(
        self, state: OnlineState, calibration: Calibration | None, questions: Iterable[Observed], *, anew: bool
    ) -> None:
        """Go on where others have come to. A calibration of its own stays where it was made of more questions.

        Args:
            state: what they have learned.
            calibration: their latest one.
            questions: what they know; all of it, or with ``anew=False`` what has come since it followed last.
            anew: whether its own questions are forgotten.
        """
        own = (self.calibration, self._expected, self._fitted, self._fitted_outcomes)
        later = self._fitted > state.fitted and self.alarms == state.alarms  # else others saw that it had drifted
        made_of = {**self.made_of, **state.made_of}
        if anew:
            self._begin()
        self._questions.extend(questions)
        self.made_of = made_of
        self.seen, self.outcomes, self.alarms, self.drifted = state.seen, state.outcomes, state.alarms, state.drifted
        self.fitting_until, self.audits = 0.0 if later else state.fitting_until, state.audits
        expected = own[1] if calibration == own[0] else None
        made = own if later else (calibration, expected, state.fitted, state.fitted_outcomes)
        self.calibration, self._expected, self._fitted, self._fitted_outcomes = made
        kept = zip(self._monitors, state.drift, strict=False)
        self._monitors |= {what: DriftMonitor(state=of_monitor) for what, of_monitor in kept}

    def prepare(self) -> None:
        """Work out what the rule of the calibration looks ahead to, which may take a second."""
        if self.calibration:
            self._rule(self.calibration).prepare()

    def is_behind(self, state: OnlineState) -> bool:
        """Whether others have a calibration of more questions, or have seen that all has changed."""
        return (state.alarms, state.fitted) > (self.alarms, self._fitted)

    def expect(self) -> None:
        """Work out what a calibration that others made leads to expect of the next questions; it takes seconds."""
        if self.calibration and self._expected is None:
            self.prepare()
            self._expected = self._expect(self._questions, self.calibration)

    def fitting(self, question: Observed, made_of: MadeOf) -> Observed:
        """Return a question without the scores whose signal was made of another k or V than here."""
        differs = [self.made_of.get(one.signal) != made_of.get(one.signal) for one in self.measures]
        if not any(differs):
            return question
        return replace(question, scores=np.where(np.array(differs)[:, None], np.nan, question.scores))

    def _drift_shown_by(self, question: Observed) -> Drift | None:
        """Compare a question with what was expected of it. Return what is no longer so."""
        self.expect()
        assert self._expected is not None
        expected, drifts = self._expected, list[Drift]()
        for response in next_responses(question.answers, question.decided, question.answer):
            if (predicted := expected.rates.predict(response)) is not None:
                if response.decided:
                    seen, agreed, expected_to = self.audits
                    self.audits = Audits(seen + 1, agreed + response.agreed, expected_to + predicted[0])
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

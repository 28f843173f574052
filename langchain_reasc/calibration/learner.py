"""What ``calibration="online"`` learns, without its threads and files."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, Self

import numpy as np

from langchain_reasc.calibration import consensus
from langchain_reasc.calibration.drift import AgreementRates, DriftMonitor, NextResponse, next_responses
from langchain_reasc.calibration.observed import MadeOf, Observed, ObservedQuestion
from langchain_reasc.calibration.online_state import OnlineState
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, decide

__all__ = ["GROWTH", "KEPT", "MINIMUM", "ConsensusLearner"]

MINIMUM: Final = 32
KEPT: Final = 512
GROWTH: Final = 1.25
Fit = tuple[Calibration | None, AgreementRates, int]
"""The calibration of the questions seen (None: they determine none), how often the next response agrees, and how many
questions there were."""


class ConsensusLearner:
    """Learns from the last 512 questions, anew each time their number has grown by a quarter.

    Args:
        measures: candidates for the measure, a row of scores each.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        seed: the seed of everything random in a calibration.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        *,
        budget: int = DEFAULT_BUDGET,
        minimum: int = MINIMUM,
        fingerprint: Fingerprint | None = None,
        seed: int = 0,
    ) -> None:
        self.measures, self.minimum, self.fingerprint = tuple(measures), minimum, fingerprint or Fingerprint()
        self._budget, self._seed = budget, seed
        self.alarms = 0
        self._begin()

    def _begin(self) -> None:
        self._questions: deque[Observed] = deque(maxlen=KEPT)
        self.made_of: MadeOf = {}
        self.seen = self._fitted = 0
        self.calibration: Calibration | None = None
        self._rates: AgreementRates | None = None
        self._monitors = {decided: DriftMonitor() for decided in (False, True)}

    def observe(self, question: Observed) -> bool:
        """Learn from a question. Return True where what was learned no longer holds, and all is forgotten."""
        if self.calibration and not question.counted:
            following = next_responses(question.answers, question.decided, question.answer)
            if any([self._is_drift(response) for response in following]):
                self._begin()
                self.alarms += 1
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
            )
        except CalibrationDataError:
            return None, AgreementRates(()), seen  # nothing to learn from these yet
        return calibration, AgreementRates(self._replay(questions, calibration)), seen

    def adopt(self, fit: Fit) -> None:
        """Use the calibration made of the questions."""
        self.calibration, self._rates, self._fitted = fit

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
        self.seen, self._fitted, self.alarms = state.seen, state.fitted, state.alarms
        self.calibration = state.calibration
        self._monitors |= {
            decided: DriftMonitor(state=kept) for decided, kept in zip(self._monitors, state.drift, strict=False)
        }

    def merged(self, others: OnlineState | None, own: Iterable[Observed]) -> Self:
        """Return a learner of what others have learned, and then of these questions; the later calibration of both.

        Scores of these questions whose signal is made of another k or V there are left out.
        """
        together = copy(self)
        together._begin()
        if others is not None:
            together.restore(others)
        if together._fitted < self._fitted:
            together.calibration, together._rates, together._fitted = self.calibration, self._rates, self._fitted
        together.made_of = {**self.made_of, **together.made_of}
        differs = [together.made_of.get(one.signal) != self.made_of.get(one.signal) for one in self.measures]
        for question in own:
            scores = np.where(np.array(differs)[:, None], np.nan, question.scores)
            together.observe(replace(question, scores=scores))
        return together

    def _is_drift(self, response: NextResponse) -> bool:
        if self._rates is None and self.calibration:  # which was read from a file
            self._rates = AgreementRates(self._replay(self._questions, self.calibration))
        if self._rates is None or (predicted := self._rates.predict(response)) is None:
            return False
        probability, margin = predicted
        return self._monitors[response.decided].observe(probability, response.agreed, margin=margin)

    def _replay(self, questions: Iterable[Observed], calibration: Calibration) -> Iterator[NextResponse]:
        """Yield what the questions show of agreement before and after the decision of this calibration's rule."""
        rule = calibration.rule(on_missing_confidence="count", budget=self._budget)
        measure = calibration.measure
        row = self.measures.index(measure) if measure in self.measures else None
        for question in questions:
            decision = decide(rule, question.responses(row))
            answer = None if decision.answer is None else int(decision.answer)
            yield from next_responses(question.answers, decision.samples, answer)

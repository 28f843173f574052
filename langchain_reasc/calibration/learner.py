"""``calibration="online"`` without its threads and files: what is learned from questions as they are answered."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np

from langchain_reasc.calibration.consensus import MadeOf, Observed, calibrate_observed
from langchain_reasc.calibration.drift import AgreementRates, DriftMonitor, NextResponse, next_responses
from langchain_reasc.calibration.online_state import ObservedQuestion, OnlineState
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, decide

__all__ = ["GROWTH", "KEPT", "MINIMUM", "ConsensusLearner", "Fit", "Taken"]

MINIMUM: Final = 32
KEPT: Final = 512
GROWTH: Final = 1.25


class Taken(NamedTuple):
    """A question to learn from.

    Attributes:
        question: its answers and scores.
        decided: responses that the decision rests on; those after it are audits.
        answer: the one that was decided on.
        learned: whether the rule that was learned decided, and not plain ASC.
    """

    question: Observed
    decided: int
    answer: int | None
    learned: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """What was made of the questions seen.

    Attributes:
        calibration: None where they determine none.
        rates: how often the next response agrees, under its rule.
        seen: how many questions had been seen.
    """

    calibration: Calibration | None
    rates: AgreementRates
    seen: int


class ConsensusLearner:
    """Learns from the last 512 questions, anew each time their number has grown by a quarter.

    Args:
        measures: candidates for the measure, a row of scores each.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        seed: of what is random in a calibration.
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

    def observe(self, question: Observed, *, decided: int, answer: int | None, learned: bool) -> bool:
        """Take in a question, see :class:`Taken`; True where what was learned no longer holds, and all is forgotten."""
        coming = list(next_responses(question.answers, decided, answer)) if learned and self.calibration else []
        if any([self._surprised(one) for one in coming]):
            self._begin()
            self.alarms += 1
            return True
        self._questions.append(replace(question, counted=not learned))
        self.seen += 1
        return False

    @property
    def due(self) -> bool:
        """Whether a calibration is to be made."""
        return self.seen >= max(self.minimum, math.ceil(GROWTH * self._fitted))

    def fit(self) -> Fit:
        """Calibrate on the questions seen. It changes nothing, and may take seconds."""
        questions, seen = list(self._questions), self.seen
        try:
            calibration = calibrate_observed(
                questions,
                self.measures,
                budget=self._budget,
                made_of=self.made_of,
                fingerprint=self.fingerprint,
                seed=self._seed,
            )
        except CalibrationDataError:
            return Fit(None, AgreementRates(()), seen)  # nothing to learn from these yet
        return Fit(calibration, AgreementRates(self._replayed(questions, calibration)), seen)

    def adopt(self, fit: Fit) -> None:
        """Use what was made of the questions."""
        self.calibration, self._rates, self._fitted = fit.calibration, fit.rates, fit.seen

    def postpone(self) -> None:
        """Calibrate no sooner than after a quarter more questions: it failed on these."""
        self._fitted = self.seen

    def state(self) -> OnlineState:
        """All that it has learned."""
        held = np.array([np.isfinite(question.scores).any(axis=1) for question in self._questions])
        rows = np.flatnonzero(held.any(axis=0)).tolist() if self._questions else []
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
        """Go on from there. Scores by measures that are no candidates here are left out."""
        self._begin()
        known = {measure: row for row, measure in enumerate(self.measures)}
        rows = [known.get(Measure(*measure)) for measure in state.measures]
        self._questions.extend(one.observed(rows, len(self.measures)) for one in state.questions)
        self.made_of = {signal: dict(made) for signal, made in state.made_of.items()}
        self.seen, self._fitted, self.alarms = state.seen, state.fitted, state.alarms
        self.calibration = state.calibration
        for decided, monitor in zip(self._monitors, state.drift, strict=False):
            self._monitors[decided] = DriftMonitor(state=monitor)

    def on_top_of(self, others: OnlineState | None, own: Iterable[Taken]) -> Self:
        """What others have learned, if anything, and then these questions; the later calibration of both.

        Scores of these questions whose signal is made of another k or V there are left out.
        """
        together = copy(self)
        together._begin()
        if others is not None:
            together.restore(others)
        if together._fitted < self._fitted:
            together.calibration, together._rates, together._fitted = self.calibration, self._rates, self._fitted
        there = {**self.made_of, **together.made_of}
        odd = [there.get(one.signal) != self.made_of.get(one.signal) for one in self.measures]
        together.made_of = there
        for question, decided, answer, learned in own:
            scores = np.where(np.array(odd)[:, None], np.nan, question.scores)
            together.observe(replace(question, scores=scores), decided=decided, answer=answer, learned=learned)
        return together

    def _surprised(self, one: NextResponse) -> bool:
        if self._rates is None and self.calibration:  # which was read from a file
            self._rates = AgreementRates(self._replayed(list(self._questions), self.calibration))
        if self._rates is None or (predicted := self._rates.predicted(one)) is None:
            return False
        return self._monitors[one.decided].observe(predicted, one.agreed, margin=self._rates.margin(one))

    def _replayed(self, questions: Sequence[Observed], calibration: Calibration) -> Iterator[NextResponse]:
        """What the questions seen tell of agreement before and after the decision of this calibration's rule."""
        rule = calibration.rule(on_missing_confidence="count", budget=self._budget)
        measure = calibration.measure
        row = self.measures.index(measure) if measure in self.measures else None
        for question in questions:
            decision = decide(rule, question.responses(row))
            answer = None if decision.answer is None else int(decision.answer)
            yield from next_responses(question.answers, decision.samples, answer)

"""What ``calibration="online"`` learns, without its threads and files, and its JSON."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Annotated, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from langchain_reasc.calibration.consensus import MadeOf, Observed, calibrate_observed
from langchain_reasc.calibration.drift import AgreementRates, DriftMonitor, NextResponse, next_responses
from langchain_reasc.calibration.record import Calibration, Fingerprint, Record
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, decide

__all__ = ["GROWTH", "KEPT", "MINIMUM", "ConsensusLearner", "ObservedQuestion", "OnlineState", "Taken"]

MINIMUM: Final = 32
KEPT: Final = 512
GROWTH: Final = 1.25
_DIGITS: Final = 6  # significant ones, of a score
Count = Annotated[int, Field(ge=0)]


class ObservedQuestion(Record):
    """An :class:`~langchain_reasc.calibration.consensus.Observed` as JSON: integers and scores, and never a text."""

    answers: tuple[Count | None, ...] = Field(min_length=1, description="Equal numbers for equal answers, none: null.")
    scores: tuple[tuple[FiniteFloat | None, ...], ...] = Field(description="For each measure those of all responses.")
    counted: bool = Field(description="Whether votes were counted (ASC), and not what was learned decided.")

    @classmethod
    def of(cls, question: Observed, rows: Sequence[int]) -> "ObservedQuestion":
        """Return the question with the scores of these measures, to six digits."""
        kept = question.scores[list(rows)].tolist()
        scores = (tuple(float(f"{x:.{_DIGITS}g}") if x == x else None for x in row) for row in kept)
        return cls.model_construct(answers=question.answers, scores=tuple(scores), counted=question.counted)

    def observed(self, rows: Sequence[int | None], measures: int) -> Observed:
        """Return it with scores of shape (measures, responses); row i goes to ``rows[i]``, None: nowhere."""
        scores = np.full((measures, len(self.answers)), np.nan)
        for row, values in zip(rows, self.scores, strict=True):
            if row is not None:
                scores[row] = np.array(values, dtype=np.float64)
        return Observed(self.answers, scores, counted=self.counted)


class OnlineState(Record):
    """All that was learned: questions as sampling left them, the calibration made of them, and how far they drift."""

    kind: Literal["reasc-online"] = "reasc-online"
    schema_version: Literal[1] = 1
    fingerprint: Fingerprint
    measures: tuple[tuple[str, str, int], ...] = Field(description="Signal, score, window behind each row of scores.")
    made_of: MadeOf = Field(description="Signal -> the k and V behind its scores.")
    seen: Count = Field(description="Questions since it began, or began anew.")
    fitted: Count = Field(description="How many of them there were at the last calibration.")
    alarms: Count = Field(description="How often it began anew, because responses agreed otherwise than was learned.")
    drift: tuple[tuple[Annotated[FiniteFloat, Field(ge=0)], ...], ...] = Field(
        description="State of the monitors: of questions that went on, and of audits."
    )
    calibration: Calibration | None
    questions: tuple[ObservedQuestion, ...]

    @model_validator(mode="after")
    def _of_one_shape(self) -> Self:
        for at, question in enumerate(self.questions):
            shape = [len(row) for row in question.scores]
            if shape != [len(question.answers)] * len(self.measures):
                raise ValueError(
                    f"question {at} has {len(question.answers)} answers and scores of lengths {shape}, by "
                    f"{len(self.measures)} measures"
                )
        for measure in self.measures:
            Measure(*measure)
        return self


class Taken(NamedTuple):
    """A question to learn from.

    Attributes:
        question: its answers and scores.
        decided: responses that the decision rests on; those after it are audits.
        answer: the answer of the decision.
        learned: whether the learned rule decided, and not plain ASC.
    """

    question: Observed
    decided: int
    answer: int | None
    learned: bool


class Fit(NamedTuple):
    """The calibration of the questions seen (None: they determine none), and how often the next response agrees."""

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

    def observe(self, taken: Taken) -> bool:
        """Take in a question. Return True where what was learned no longer holds, and all is forgotten."""
        question, decided, answer, learned = taken
        following = next_responses(question.answers, decided, answer) if learned and self.calibration else ()
        if any([self._is_drift(response) for response in following]):
            self._begin()
            self.alarms += 1
            return True
        self._questions.append(replace(question, counted=not learned))
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
        """Use the calibration made of the questions."""
        self.calibration, self._rates, self._fitted = fit.calibration, fit.rates, fit.seen

    def postpone(self) -> None:
        """Calibrate no sooner than after a quarter more questions: it failed on these."""
        self._fitted = self.seen

    def state(self) -> OnlineState:
        """Return all that it has learned."""
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
        """Go on from a state. Scores by measures that are no candidates here are left out."""
        self._begin()
        known = {measure: row for row, measure in enumerate(self.measures)}
        rows = [known.get(Measure(*measure)) for measure in state.measures]
        self._questions.extend(one.observed(rows, len(self.measures)) for one in state.questions)
        self.made_of = {signal: dict(made) for signal, made in state.made_of.items()}
        self.seen, self._fitted, self.alarms = state.seen, state.fitted, state.alarms
        self.calibration = state.calibration
        for decided, monitor in zip(self._monitors, state.drift, strict=False):
            self._monitors[decided] = DriftMonitor(state=monitor)

    def merged(self, others: OnlineState | None, own: Iterable[Taken]) -> Self:
        """Return a learner of what others have learned, and then of these questions; the later calibration of both.

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
        for taken in own:
            scores = np.where(np.array(odd)[:, None], np.nan, taken.question.scores)
            together.observe(taken._replace(question=replace(taken.question, scores=scores)))
        return together

    def _is_drift(self, response: NextResponse) -> bool:
        if self._rates is None and self.calibration:  # which was read from a file
            self._rates = AgreementRates(self._replayed(list(self._questions), self.calibration))
        if self._rates is None or (predicted := self._rates.predicted(response)) is None:
            return False
        margin = self._rates.margin(response)
        return self._monitors[response.decided].observe(predicted, response.agreed, margin=margin)

    def _replayed(self, questions: Sequence[Observed], calibration: Calibration) -> Iterator[NextResponse]:
        """What the questions show of agreement before and after the decision of this calibration's rule."""
        rule = calibration.rule(on_missing_confidence="count", budget=self._budget)
        measure = calibration.measure
        row = self.measures.index(measure) if measure in self.measures else None
        for question in questions:
            decision = decide(rule, question.responses(row))
            answer = None if decision.answer is None else int(decision.answer)
            yield from next_responses(question.answers, decision.samples, answer)

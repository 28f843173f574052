"""The state that ``calibration="online"`` learns, without threads and files, and forgets where that has drifted."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Self

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
from langchain_reasc.calibration.online_state import Audits, Counts, Drift, MadeOf, Observed, OnlineState
from langchain_reasc.calibration.online_store import KEPT, KEPT_OF_KIND
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule, decide

__all__ = ["MINIMUM", "MOST_KINDS", "ConsensusLearner"]

MINIMUM: Final = 16
MOST_KINDS: Final = 64
GROWTH: Final = 1.25
FEWEST_OUTCOMES: Final = 20
_NONE: Final = Counts()


class Fitted(NamedTuple):
    """What was made of questions.

    Attributes:
        calibration: their calibration; None: they determine none.
        expected: what to expect of the next ones under it; None where that is yet to be worked out.
        counts: how many there were.
    """

    calibration: Calibration | None
    expected: Expected | None
    counts: Counts


Fit = dict[str | None, Fitted]
"""Kind of request, or None for all of them -> what was made of its questions."""


@dataclass(slots=True)
class _Learned:
    """What was learned of one kind of request, or of all of them; see :class:`Fitted`."""

    counts: Counts = _NONE
    calibration: Calibration | None = None
    expected: Expected | None = None

    def count(self, **new: int) -> None:
        self.counts = self.counts.model_copy(update={name: getattr(self.counts, name) + n for name, n in new.items()})

    def adopt(self, fitted: Fitted) -> None:
        self.calibration, self.expected = fitted.calibration, fitted.expected
        self.postpone(fitted.counts)

    def postpone(self, made_of: Counts) -> None:
        at = {"fitted": made_of.seen, "fitted_outcomes": made_of.outcomes}
        self.counts = self.counts.model_copy(update=at)

    def is_due(self, minimum: int) -> bool:
        """Return whether it is time to calibrate: for questions seen, or for outcomes told."""
        counts = self.counts
        return counts.seen >= max(minimum, math.ceil(GROWTH * counts.fitted)) or (
            counts.outcomes >= max(FEWEST_OUTCOMES, GROWTH * counts.fitted_outcomes) and counts.seen >= minimum
        )

    def follow(self, counts: Counts, calibration: Callable[[], Calibration | None], *, anew: bool) -> None:
        """Take over a calibration of more questions, or with ``anew`` any; its own of more questions stays."""
        own, self.counts = self.counts, counts
        if own.fitted > counts.fitted and not anew:
            self.postpone(own.model_copy(update={"seen": own.fitted, "outcomes": own.fitted_outcomes}))
        elif anew or own.fitted < counts.fitted or self.calibration is None:
            known, self.calibration = self.calibration, calibration()
            if self.calibration != known:
                self.expected = None


class ConsensusLearner:
    """Learns from the last 512 questions, anew each time their number has grown by a quarter.

    Where there are several kinds of request, each also gets a calibration of its own, which borrows from that of all
    while it is of a few questions. The 64 kinds that were seen most are told apart, and of each the last 128 questions
    are kept in any case.

    Args:
        measures: candidates for the measure, a row of scores each.
        budget: responses to a question at most.
        minimum: questions before the first calibration, of all and of each kind.
        fingerprint: what is measured.
        seed: the seed of everything random in a calibration.
        explained: whether calibrations also say what they promise; no decision needs it.
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
    ) -> None:
        self.measures, self.minimum, self.fingerprint = tuple(measures), minimum, fingerprint or Fingerprint()
        self._budget, self._seed, self._explained = budget, seed, explained
        self.alarms = 0
        self.drifted: Drift | None = None
        self._begin()

    def _begin(self) -> None:
        self._questions: list[Observed] = []
        self.made_of: MadeOf = {}
        self.fitting_until = 0.0  # Unix time until which a process calibrates for all
        self._all, self._kinds = _Learned(), dict[str, _Learned]()
        self.audits = Audits()
        self._monitors = {what: DriftMonitor() for what in MONITORED}

    def observe(self, question: Observed) -> bool:
        """Learn from a question. Return True where what was learned no longer holds, and all is forgotten."""
        if self.calibration and not question.counted and (drift := self._drift_shown_by(question)):
            self._begin()
            self.alarms, self.drifted = self.alarms + 1, drift
            return True
        for learned in (self._all, self._kinds.setdefault(question.kind, _Learned())):
            learned.count(seen=1, outcomes=int(question.correct is not None))
        if len(self._kinds) > MOST_KINDS:
            others = (name for name in self._kinds if name != question.kind)
            del self._kinds[min(others, key=lambda name: self._kinds[name].counts.seen)]
        self._keep([*self._questions, question])
        return False

    def _keep(self, questions: Sequence[Observed]) -> None:
        """Keep the last 512, and of those before them what is among the last 128 of its kind."""
        newest, older = list(questions[-KEPT:]), list[Observed]()
        count = Counter(one.kind for one in newest)
        for one in reversed(questions[:-KEPT]):
            if one.kind in self._kinds and count[one.kind] < KEPT_OF_KIND:
                count[one.kind] += 1
                older.append(one)
        self._questions = [*reversed(older), *newest]

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Keep whether the answer to a question was right. Return False where it does not know the question."""
        for at, question in enumerate(self._questions):
            if question.id == id:
                for learned in (self._all, self._kinds.get(question.kind)):
                    if learned and question.correct is None:
                        learned.count(outcomes=1)
                self._questions[at] = replace(question, correct=correct)
                return True
        return False

    @property
    def seen(self) -> int:
        """Questions since it began."""
        return self._all.counts.seen

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of all kinds of request."""
        return self._all.calibration

    def calibration_of(self, kind: str | None = None) -> Calibration | None:
        """Return the calibration of one kind of request, None where it has none of its own; or, for None, of all."""
        learned = self._all if kind is None else self._kinds.get(kind)
        return learned.calibration if learned else None

    @property
    def due(self) -> bool:
        """Whether it is time to calibrate."""
        return self._all.is_due(self.minimum) or bool(self._kinds_due())

    def _kinds_due(self) -> list[str]:
        """Return the kinds of request that it is time to calibrate for; a single one is all."""
        several = len(self._kinds) > 1
        return [name for name, kind in self._kinds.items() if several and kind.is_due(self.minimum)]

    def fit(self) -> Fit:
        """Calibrate on the questions seen. It changes nothing, and may take seconds."""
        due, newest, counts = self._kinds_due(), self._questions[-KEPT:], self._all.counts
        if self._all.is_due(self.minimum) or not due:
            whole = self._calibrated(newest, self.calibration)
        else:
            whole = self.calibration
            counts = counts.model_copy(update={"seen": counts.fitted, "outcomes": counts.fitted_outcomes})
        made: Fit = {name: self._fit_kind(name, whole) for name in due if whole}
        own = {name: kind.calibration for name, kind in self._kinds.items()}
        own |= {str(name): fitted.calibration for name, fitted in made.items()}
        rest = [one for one in newest if own.get(one.kind) is None]
        return {**made, None: Fitted(whole, self._expect(rest, whole), counts)}

    def _fit_kind(self, name: str, whole: Calibration | None) -> Fitted:
        questions = [one for one in self._questions if one.kind == name][-KEPT:]
        calibration = self._calibrated(questions, self.calibration_of(name), whole)
        return Fitted(calibration, self._expect(questions, calibration), self._kinds[name].counts)

    def _calibrated(
        self, questions: Sequence[Observed], before: Calibration | None, whole: Calibration | None = None
    ) -> Calibration | None:
        """Calibrate on questions; ``before`` is what was made of them and earlier ones the last time."""
        try:
            made = consensus.calibrate_consensus(
                questions,
                self.measures,
                budget=self._budget,
                made_of=self.made_of,
                fingerprint=self.fingerprint,
                seed=self._seed,
                explained=self._explained,
                whole=whole,
            )
        except CalibrationDataError:
            return None  # there is nothing to learn from these yet
        if made.p_agree is None and before is not None:
            # It takes questions on which votes were counted, the last of which may be long ago.
            return made.model_copy(update={"p_agree": before.p_agree})
        return made

    def adopt(self, fit: Fit) -> None:
        """Use what was made of the questions."""
        self.fitting_until = 0.0
        for name, fitted in fit.items():
            if (learned := self._all if name is None else self._kinds.get(name)) is not None:
                learned.adopt(fitted)

    def postpone(self) -> None:
        """Calibrate no sooner than after a quarter more questions: it failed on these."""
        self.fitting_until = 0.0
        for learned in (self._all, *self._kinds.values()):
            if learned.is_due(self.minimum):
                learned.postpone(learned.counts)

    @property
    def questions(self) -> tuple[Observed, ...]:
        """The questions that it knows: the last 512, and the last 128 of each kind of request."""
        return tuple(self._questions)

    def state(self) -> OnlineState:
        """Return what it has learned, beside questions and calibrations."""
        return OnlineState(
            **dict(self._all.counts),
            made_of=self.made_of,
            fitting_until=self.fitting_until,
            alarms=self.alarms,
            drifted=self.drifted,
            drift=tuple(monitor.state for monitor in self._monitors.values()),
            audits=self.audits,
            kinds={name: kind.counts for name, kind in self._kinds.items()},
        )

    def copy(self) -> Self:
        """Return a learner that goes on from here by itself."""
        other = copy(self)
        other._questions, other.made_of = self._questions[:], dict(self.made_of)
        other._all, other._kinds = copy(self._all), {name: copy(kind) for name, kind in self._kinds.items()}
        other._monitors = {what: copy(monitor) for what, monitor in self._monitors.items()}
        return other

    def follow(
        self,
        state: OnlineState,
        calibration: Callable[[str | None], Calibration | None],
        questions: Iterable[Observed],
        *,
        anew: bool,
    ) -> None:
        """Go on where others have come to. A calibration of its own stays where it was made of more questions.

        Args:
            state: what they have learned.
            calibration: returns their latest one, of a kind of request or, for None, of all.
            questions: what they know; all of it, or with ``anew=False`` what has come since it followed last.
            anew: whether its own questions are forgotten.
        """
        drifted, made_of = state.alarms != self.alarms, {**self.made_of, **state.made_of}
        known = [] if anew else self._questions
        every, kinds = self._all, self._kinds
        if anew:
            self._begin()
        self._all, self.made_of = every, made_of
        self._kinds = {name: kinds.get(name) or _Learned() for name in state.kinds}
        later = every.counts.fitted > state.fitted and not drifted
        self.fitting_until = 0.0 if later else state.fitting_until
        self.alarms, self.drifted, self.audits = state.alarms, state.drifted, state.audits
        every.follow(state.counts, partial(calibration, None), anew=drifted)
        for name, kind in self._kinds.items():
            kind.follow(state.kinds[name], partial(calibration, name), anew=drifted)
        self._keep([*known, *questions])
        kept = zip(self._monitors, state.drift, strict=False)
        self._monitors |= {what: DriftMonitor(state=of_monitor) for what, of_monitor in kept}

    def prepare(self) -> None:
        """Work out what the rules of calibrations look ahead to, which may take a second for each."""
        for learned in (self._all, *self._kinds.values()):
            if learned.calibration:
                self._rule(learned.calibration).prepare()

    def is_behind(self, state: OnlineState) -> bool:
        """Whether others have a calibration of more questions, or have seen that all has changed."""
        if state.alarms != self.alarms:
            return state.alarms > self.alarms
        fitted = {name: kind.counts.fitted for name, kind in self._kinds.items()}
        later = (counts.fitted > fitted.get(name, 0) for name, counts in state.kinds.items())
        return state.fitted > self._all.counts.fitted or any(later)

    def expect(self) -> None:
        """Work out what calibrations that others made lead to expect of the next questions; it takes seconds."""
        if (whole := self.calibration) and self._all.expected is None:
            self.prepare()
            rest = [one for one in self._questions[-KEPT:] if self.calibration_of(one.kind) is None]
            self._all.expected = self._expect(rest, whole)
        for name, kind in self._kinds.items():
            if kind.calibration and kind.expected is None:
                own = [one for one in self._questions if one.kind == name]
                kind.expected = self._expect(own, kind.calibration)

    def fitting(self, question: Observed, made_of: MadeOf) -> Observed:
        """Return a question without the scores whose signal was made of another k or V than here."""
        differs = [self.made_of.get(one.signal) != made_of.get(one.signal) for one in self.measures]
        if not any(differs):
            return question
        return replace(question, scores=np.where(np.array(differs)[:, None], np.nan, question.scores))

    def _drift_shown_by(self, question: Observed) -> Drift | None:
        """Compare a question with what was expected of its kind. Return what is no longer so."""
        self.expect()
        own = self._kinds.get(question.kind)
        expected, drifts = (own if own and own.calibration else self._all).expected, list[Drift]()
        assert expected is not None
        for response in next_responses(question.answers, question.decided, question.answer):
            if (predicted := expected.rates.predict(response)) is not None:
                one, audits = int(response.decided), self.audits
                agreed, expected_to = audits.agreed + one * response.agreed, audits.expected + one * predicted[0]
                self.audits = Audits(audits.seen + one, agreed, expected_to)
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

    def _expect(self, questions: Iterable[Observed], calibration: Calibration | None) -> Expected:
        """Return what these questions, decided by this calibration's rule, say of those to come."""
        if calibration is None:
            return Expected(None, AgreementRates(()), None)
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

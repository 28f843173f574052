"""Calibrations from observations: one for all of them, and one for each kind of
request.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.drift import (
    Drift,
    Expected,
    mean_separation,
    separation,
)
from langchain_reasc.calibration.fitting import fit
from langchain_reasc.calibration.observation_file import ObservationStore
from langchain_reasc.calibration.observations import (
    KEPT,
    KEPT_OF_KIND,
    Observation,
    Observations,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import (
    DEFAULT_BUDGET,
    StoppingRule,
    decide,
    warm_up,
)
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["MINIMUM", "Learner"]

MINIMUM: Final = 16
"""The number of questions after which a learner fits for the first time."""
GROWTH: Final = 1.25
FEWEST_OUTCOMES: Final = 20


class _Counts(NamedTuple):
    """How many questions were seen, and how many rows have an outcome."""

    seen: int
    outcomes: int


@dataclass(frozen=True, slots=True)
class _KindFit:
    """The calibration of one kind of request.

    Attributes:
        calibration: the calibration; None if the rows do not determine one.
        expected: what to expect of the next questions under it; None for nothing.
        counts: how many rows there were.
        last: the number of the last row.
    """

    calibration: Calibration | None
    expected: Expected | None
    counts: _Counts
    last: int


class Learner:
    """Makes calibrations from rows, again each time the rows have grown by a quarter.

    If there are several kinds of request, each kind also gets a calibration of its own,
    which borrows from that of all kinds while its rows are few.

    Args:
        measures: candidates for the measure, one for each row of scores.
        budget: responses to a question at most.
        minimum: questions before the first calibration, of all and of each kind.
        fingerprint: the model, sampling and prompt.
        seed: the seed of a calibration.
        explained: whether calibrations also say what they promise. No decision needs
            it.

    Attributes:
        observations: the rows; may be replaced.
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
        self.measures = tuple(measures)
        self.minimum = minimum
        self.fingerprint = fingerprint or Fingerprint()
        self.observations = Observations()
        self._budget = budget
        self._seed = seed
        self._explained = explained
        # By kind of request; None for all kinds.
        self._fits: dict[str | None, _KindFit] = {}
        # How often the rows had shown drift before the fits.
        self._restarts = 0

    @classmethod
    def from_store(cls, store: ObservationStore) -> Self:
        """Return a learner with the rows of a store, calibrated if there are enough."""
        learner = cls(store.measures(), fingerprint=store.fingerprint)
        learner.observations = store.observations()
        if learner.due:
            learner.calibrate()
        return learner

    def frozen(self) -> Self:
        """Return a copy with the same calibrations, whose rows do not change."""
        frozen = copy(self)
        frozen.observations = self.observations.copy()
        return frozen

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of all kinds of request."""
        return self.calibration_of(None)

    def calibration_of(self, kind: str | None) -> Calibration | None:
        """Return the calibration of a kind of request, if it has its own; ``None``
        stands for all kinds.
        """
        fitted = self._current.get(kind)
        return fitted.calibration if fitted else None

    @property
    def _current(self) -> dict[str | None, _KindFit]:
        """The calibrations, unless the rows have shown drift since."""
        if self._restarts != len(self.observations.restarts):
            return {}
        return self._fits

    def observe(self, row: Observation) -> Drift | None:
        """Add a row, and calibrate if that is due. Return what has changed if the row
        shows drift.
        """
        drift = self.observations.append(self.with_predictions(row))
        if self.due:
            self.calibrate()
        return drift

    def with_predictions(self, row: Observation) -> Observation:
        """Return the row with the predictions about it, if a calibration decided it."""
        fitted = self._current.get(row.kind)
        if fitted is None or fitted.calibration is None:
            fitted = self._current.get(None)
        if row.counted or fitted is None or fitted.expected is None:
            return row
        predictions = fitted.expected.predictions(
            row.answers, row.scores, row.decided, row.answer
        )
        return replace(row, predictions=tuple(predictions))

    @property
    def due(self) -> bool:
        """Whether it is time to calibrate, for all kinds of request or for one."""
        return bool(self._due(self._counts()))

    def _counts(self) -> dict[str | None, _Counts]:
        """Count the questions of all kinds (None), and of each kind if there are
        several.
        """
        observations = self.observations
        counts: dict[str | None, _Counts] = {
            None: _Counts(observations.seen, observations.outcomes)
        }
        kinds = observations.kinds
        if len(kinds) < 2:
            return counts
        current = self._current
        questions = Counter[str]()
        outcomes = Counter[str]()
        for number, row in observations.rows.items():
            fitted = current.get(row.kind)
            questions[row.kind] += fitted is None or number > fitted.last
            outcomes[row.kind] += row.correct is not None
        for kind in kinds:
            if kind in current:
                questions[kind] += current[kind].counts.seen
            counts[kind] = _Counts(questions[kind], outcomes[kind])
        return counts

    def _due(self, counts: Mapping[str | None, _Counts]) -> list[str | None]:
        return [
            kind
            for kind, of_kind in counts.items()
            if of_kind.seen >= self.minimum and self._has_grown(kind, of_kind)
        ]

    def _has_grown(self, kind: str | None, counts: _Counts) -> bool:
        """Return whether there are a quarter more questions, or outcomes, than at the
        last calibration.
        """
        fitted = self._current.get(kind)
        if fitted is None:
            return True
        before = fitted.counts
        questions = math.ceil(GROWTH * before.seen)
        if kind is not None:
            # A rare kind may never have more rows than that.
            questions = min(questions, before.seen + KEPT_OF_KIND)
        outcomes = max(FEWEST_OUTCOMES, GROWTH * before.outcomes)
        return counts.seen >= questions or counts.outcomes >= outcomes

    def calibrate(self) -> None:
        """Calibrate for all kinds of request and for each kind that is due. This may
        take seconds.
        """
        observations = self.observations
        last = observations.last
        counts = self._counts()
        due = self._due(counts)
        fits = dict(self._current)
        if None in due or None not in fits:
            calibration = self._calibrated(observations.newest)
            fits[None] = _KindFit(calibration, None, counts[None], last)
        whole = fits[None].calibration
        if whole is not None:
            for kind in due:
                if kind is not None:
                    rows = [row for row in observations if row.kind == kind][-KEPT:]
                    calibration = self._calibrated(rows, whole)
                    expected = self._expect(rows, calibration)
                    fits[kind] = _KindFit(calibration, expected, counts[kind], last)
        # The calibration of all kinds decides where a kind has none of its own.
        rest = [
            row
            for row in observations.newest
            if row.kind not in fits or fits[row.kind].calibration is None
        ]
        fits[None] = replace(fits[None], expected=self._expect(rest, whole))
        for fitted in fits.values():
            if fitted.calibration:
                # Or the next question would wait for the tables of the rule.
                warm_up(self._rule(fitted.calibration))
        self._fits = fits
        self._restarts = len(observations.restarts)

    def postpone_fits(self) -> None:
        """After a failure, do not calibrate before there are a quarter more questions."""
        last = self.observations.last
        counts = self._counts()
        fits = dict(self._current)
        for kind in self._due(counts):
            fitted = fits.get(kind) or _KindFit(None, None, counts[kind], 0)
            # The old calibration goes on, as if it had been made of these rows.
            fits[kind] = replace(fitted, counts=counts[kind], last=last)
        self._fits = fits
        self._restarts = len(self.observations.restarts)

    def adopt_fits(self, frozen: Self) -> None:
        """Use the calibrations of a copy from :meth:`frozen`."""
        self._fits = frozen._fits
        self._restarts = frozen._restarts

    def _calibrated(
        self, rows: Sequence[Observation], whole: Calibration | None = None
    ) -> Calibration | None:
        try:
            return fit(
                rows,
                self.measures,
                budget=self._budget,
                provenance=self.observations.provenance,
                fingerprint=self.fingerprint,
                seed=self._seed,
                explained=self._explained,
                whole=whole,
            )
        except CalibrationDataError:
            return None

    def _rule(self, calibration: Calibration) -> StoppingRule:
        return calibration.rule(budget=self._budget)

    def _expect(
        self, rows: Iterable[Observation], calibration: Calibration | None
    ) -> Expected | None:
        """Return what to expect of the next questions, given these rows and this
        calibration's rule; None without an agreement rule.
        """
        if calibration is None or calibration.rule_ is None:
            return None
        rule = self._rule(calibration)
        measure = calibration.measure
        scored_by = self.measures.index(measure) if measure in self.measures else None
        separations: list[float] = []
        if scored_by is not None:
            for row in rows:
                decision = decide(rule, row.responses(scored_by))
                separations += separation(
                    row.answers[: decision.samples], row.scores[scored_by]
                )
        return Expected(rule, scored_by, calibration.n, mean_separation(separations))

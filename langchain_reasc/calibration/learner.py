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
    AgreementRates,
    Drift,
    Expected,
    NextResponse,
    mean_separation,
    next_responses,
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
from langchain_reasc.calibration.promises import agreement_curve
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
NOTHING_EXPECTED: Final = Expected(None, AgreementRates(()), None)


class _Counts(NamedTuple):
    """How many questions were seen, and how many rows have an outcome."""

    seen: int
    outcomes: int


@dataclass(frozen=True, slots=True)
class _KindFit:
    """The calibration of one kind of request.

    Attributes:
        calibration: the calibration; None if the rows do not determine one.
        expected: what to expect of the next questions under it.
        counts: how many rows there were.
        last: the number of the last row.
    """

    calibration: Calibration | None
    expected: Expected
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
        self.measures, self.minimum, self.fingerprint = (
            tuple(measures),
            minimum,
            fingerprint or Fingerprint(),
        )
        self._budget, self._seed, self._explained = budget, seed, explained
        self.observations = Observations()
        self._fits: dict[
            str | None, _KindFit
        ] = {}  # by kind of request; None for all kinds
        self._restarts = 0  # restarts before the fits

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
        return self._fits if self._restarts == len(self.observations.restarts) else {}

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
        own, every = self._current.get(row.kind), self._current.get(None)
        fitted = own if own and own.calibration else every
        if row.counted or fitted is None:
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
        known, current = self.observations, self._current
        counts: dict[str | None, _Counts] = {None: _Counts(known.seen, known.outcomes)}
        if len(kinds := known.kinds) < 2:
            return counts
        seen = Counter(
            {kind: current[kind].counts.seen for kind in kinds if kind in current}
        )
        outcomes = Counter[str]()
        for at, row in known.rows.items():
            seen[row.kind] += row.kind not in current or at > current[row.kind].last
            outcomes[row.kind] += row.correct is not None
        return counts | {kind: _Counts(seen[kind], outcomes[kind]) for kind in kinds}

    def _due(self, counts: Mapping[str | None, _Counts]) -> list[str | None]:
        return [
            kind
            for kind, own in counts.items()
            if own.seen >= self.minimum and self._has_grown(kind, own)
        ]

    def _has_grown(self, kind: str | None, counts: _Counts) -> bool:
        """Return whether there are a quarter more questions, or outcomes, than at the
        last calibration.
        """
        if (fitted := self._current.get(kind)) is None:
            return True
        more = math.ceil(GROWTH * fitted.counts.seen) - fitted.counts.seen
        if kind is not None:
            more = min(
                more, KEPT_OF_KIND
            )  # a rare kind may never have more rows than that
        told = max(FEWEST_OUTCOMES, GROWTH * fitted.counts.outcomes)
        return counts.seen >= fitted.counts.seen + more or counts.outcomes >= told

    def calibrate(self) -> None:
        """Calibrate for all kinds of request and for each kind that is due. This may
        take seconds.
        """
        known, counts = self.observations, self._counts()
        due, fits = self._due(counts), dict(self._current)
        if None in due or None not in fits:
            fits[None] = _KindFit(
                self._calibrated(known.newest),
                NOTHING_EXPECTED,
                counts[None],
                known.last,
            )
        whole = fits[None].calibration
        for kind in due if whole else ():
            if kind is not None:
                rows = [row for row in known if row.kind == kind][-KEPT:]
                calibration = self._calibrated(rows, whole)
                fits[kind] = _KindFit(
                    calibration,
                    self._expect(rows, calibration),
                    counts[kind],
                    known.last,
                )
        rest = [
            row
            for row in known.newest
            if row.kind not in fits or fits[row.kind].calibration is None
        ]
        fits[None] = replace(fits[None], expected=self._expect(rest, whole))
        for fitted in fits.values():
            if fitted.calibration:
                warm_up(self._rule(fitted.calibration))
        self._fits, self._restarts = fits, len(known.restarts)

    def postpone_fits(self) -> None:
        """After a failure, do not calibrate before there are a quarter more questions."""
        counts, fits = self._counts(), dict(self._current)
        for kind in self._due(counts):
            known = fits.get(kind, _KindFit(None, NOTHING_EXPECTED, counts[kind], 0))
            fits[kind] = replace(
                known, counts=counts[kind], last=self.observations.last
            )
        self._fits, self._restarts = fits, len(self.observations.restarts)

    def adopt_fits(self, other: Self) -> None:
        """Use the calibrations of a copy from :meth:`frozen`."""
        self._fits, self._restarts = other._fits, other._restarts

    def _calibrated(
        self, rows: Sequence[Observation], whole: Calibration | None = None
    ) -> Calibration | None:
        try:
            made = fit(
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
        if (
            made.p_agree is None and self._explained
        ):  # older rows with counted votes may determine it
            p_agree = agreement_curve(
                made, self.measures, [*self.observations], budget=self._budget
            )
            return made.model_copy(update={"p_agree": p_agree})
        return made

    def _rule(self, calibration: Calibration) -> StoppingRule:
        return calibration.rule(on_missing_confidence="count", budget=self._budget)

    def _expect(
        self, rows: Iterable[Observation], calibration: Calibration | None
    ) -> Expected:
        """Return what to expect of the next questions, given these rows and this
        calibration's rule.
        """
        if calibration is None:
            return NOTHING_EXPECTED
        rule, measure = self._rule(calibration), calibration.measure
        scored_by = self.measures.index(measure) if measure in self.measures else None
        following, separations = list[NextResponse](), list[float]()
        for row in rows:
            decision = decide(rule, row.responses(scored_by))
            answer = None if decision.answer is None else int(decision.answer)
            following += next_responses(row.answers, decision.samples, answer)
            if scored_by is not None and calibration.rule_ and calibration.rule_.odds:
                separations += separation(
                    row.answers[: decision.samples], row.scores[scored_by]
                )
        return Expected(
            scored_by, AgreementRates(following), mean_separation(separations)
        )

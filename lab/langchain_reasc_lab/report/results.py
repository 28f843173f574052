"""The results of methods on one pool as cells of tables: accuracy, cost and
differences; and how they were had.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc_lab.replay.bootstrap import Bootstrap, Estimate
from langchain_reasc_lab.replay.methods import (
    ASC_AT_ONCE,
    CALIBRATED,
    EQUAL_COST,
    OFFLINE,
)
from langchain_reasc_lab.replay.metrics import Row, difference, tflops
from langchain_reasc_lab.replay.replay import Outcomes, Replay, RowKey
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Column

ACCURACY: Final = Column(
    "Accuracy %", ".1f", "Share of the tested questions that are answered right."
)
_COLUMNS: Final = ("correct", "tokens")

Cells = npt.NDArray[np.float64]


def number(value: float) -> float | None:
    """Return a cell's number; None if it is not finite."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Cost:
    """The unit in which a table says what answering a question costs.

    Attributes:
        flops: whether that is TFLOPs (2N per generated token, Kaplan et al. 2020), or
            tokens, where the number of parameters of any model is unknown.
        decimals: how many digits tell such costs apart.
    """

    flops: bool
    decimals: int = 0

    @classmethod
    def of(cls, studies: Sequence[Study]) -> "Cost":
        """Return the unit in which all of these pools can be compared."""
        if not studies or any(study.parameters is None for study in studies):
            return cls(flops=False)
        unit = cls(flops=True)
        most = max(
            unit(study, float(study.recorded.tokens.sum(axis=1).mean()))
            for study in studies
        )
        return cls(flops=True, decimals=_decimals(most))

    def __call__(self, study: Study, tokens: float) -> float:
        """Return what so many tokens cost, in this unit."""
        if self.flops and study.parameters:
            return tflops(study.parameters.count, tokens)
        return tokens

    def efficiency(self, study: Study, accuracy: float, tokens: float) -> float | None:
        """Return per cent of right answers per unit of cost, or per 1,000 tokens; None
        if nothing was spent.
        """
        spent = self(study, tokens) / (1 if self.flops else 1000)
        return 100 * accuracy / spent if spent > 0 else None

    @property
    def column(self) -> Column:
        """The column of costs."""
        style = f",.{self.decimals}f"
        if self.flops:
            return Column(
                "TFLOPs",
                style,
                "10¹² floating-point operations per question: 2N per generated token.",
            )
        return Column(
            "Tokens",
            style,
            "Tokens generated per question, in the responses that a method used.",
        )

    @property
    def per_cost(self) -> Column:
        """The column of accuracy per cost, as the paper has it."""
        name, per = ("Acc/TF", "TFLOP") if self.flops else ("Acc/kTok", "1,000 tokens")
        style = ",.2f" if self.decimals <= 3 else ",.0f"
        return Column(name, style, f"Accuracy in per cent, per {per} and question.")

    def note(self, study: Study) -> str:
        """Return what N is and who says so, in a sentence."""
        if study.parameters is None:
            return (
                f"Nothing says how many parameters the model of {study.name} has, so "
                "costs are in tokens; --parameters N gives them in FLOPs."
            )
        n = f"{study.parameters.count:,.0f}"
        if not self.flops:
            return f"Costs are in tokens, as N is not known of all models; of {study.name} it is {n}."
        return f"TFLOPs of {study.name}: 2N per generated token, N = {n}, {study.parameters.source}."


def _decimals(most: float) -> int:
    """Return how many digits tell costs of up to this apart."""
    if most <= 0:
        return 2
    return max(2, 2 - math.floor(math.log10(most)))


class Results:
    """Methods side by side on the same questions of one pool.

    Args:
        study: the pool.
        outcomes: the outcomes of the methods, on the same arrangements.
        cost: the unit of costs.
        among: shape (shuffles, questions), 1 on the questions that count; all that were
            tested, if None.

    Attributes:
        questions: how many different questions count.
    """

    def __init__(
        self,
        study: Study,
        outcomes: Mapping[RowKey, Outcomes],
        cost: Cost,
        *,
        among: Cells | None = None,
    ) -> None:
        tested = next(iter(outcomes.values())).tested
        self._study, self._outcomes, self._unit = study, outcomes, cost
        self._among = tested if among is None else tested & (among == 1)
        self.questions = int(self._among.any(axis=0).sum())
        columns: dict[Any, Cells] = {
            (key, name): np.where(self._among, each.column(name), 0.0)
            for key, each in outcomes.items()
            for name in _COLUMNS
        }
        columns["among"] = self._among.astype(np.float64)
        self._by_question = Bootstrap(columns, tested, seed=study.settings.seed)

    def share(self, key: RowKey) -> Estimate:
        """Return the share of the tested questions that count, in per cent, where this
        method says which.

        None or all in every shuffle have no interval: other calibrations may count
        some.
        """
        outcomes = self._outcomes[key]
        share = self._by_question.share("among", learned=outcomes.learned).percent
        return (
            share.without_interval
            if outcomes.calibrated_anew and share.value in (0, 100)
            else share
        )

    def accuracy(self, key: RowKey) -> Estimate | None:
        """Return right answers in per cent; None if no question counts."""
        if not self.questions:
            return None
        learned = self._outcomes[key].learned
        return self._by_question.share(
            (key, "correct"), among="among", learned=learned
        ).percent

    def cost(self, key: RowKey) -> float | None:
        """Return what a question costs."""
        return number(self._unit(self._study, self._mean(key, "tokens")))

    def efficiency(self, key: RowKey) -> float | None:
        """Return accuracy per cost."""
        return self._unit.efficiency(
            self._study, self._mean(key, "correct"), self._mean(key, "tokens")
        )

    def more_than(self, other: RowKey, key: RowKey) -> float | None:
        """Return by how many per cent a method costs more than the other one, below
        zero where it costs less.

        None for the other method itself, and where that spends nothing.
        """
        spent = self._mean(other, "tokens")
        if not spent or key == other:
            return None
        return number(100 * (self._mean(key, "tokens") / spent - 1))

    def minus(self, one: RowKey, other: RowKey) -> Estimate | None:
        """Return how many points more accurate one is than another, paired.

        None for a method and itself, and where no question counts.
        """
        if not self.questions or one == other:
            return None
        return difference(
            self._by_question, self._outcomes, one, other, among="among"
        ).percent

    def _mean(self, key: RowKey, column: str) -> float:
        return (
            self._by_question.mean((key, column)) / self._by_question.mean("among")
            if self.questions
            else math.nan
        )


def methods_shown(study: Study) -> list[Row]:
    """Return the methods of the comparison, without the controls."""
    controls = {ASC_AT_ONCE, *EQUAL_COST.values()}
    return [row for row in study.rows if row.method not in controls]


def how_tested(study: Study) -> str:
    """Return on what methods are compared, in a sentence."""
    run = study.run
    tested = (
        f"{study.name}: {run.tested} question{'s' if run.tested > 1 else ''} tested"
    )
    others = ""
    if run.calibration_size:
        of_file = (
            f" in {run.pool.calibration_path}" if run.pool.calibration_path else ""
        )
        others = f", calibrated on {run.calibration_size} others{of_file}"
    alone = ""
    if others and (run.arrangements == 1 or run.pool.calibrating):
        alone = "; the intervals hold for this one calibration, and leave out how others would differ"
    if not run.shuffles:
        return f"{tested} in recorded order{others}{alone}."
    return (
        f"{tested}{others}; means over {run.shuffles} "
        f"shuffle{'s' if run.shuffles > 1 else ''} of questions and responses (seed "
        f"{run.seed}){alone}. What calibration responses cost is not counted."
    )


def how_compared(study: Study, cost: Cost) -> list[str]:
    """Return on what methods are compared, by what ReASC weighs, and the unit of costs,
    in sentences.
    """
    return [how_tested(study), *how_calibrated(study), cost.note(study)]


def how_calibrated(study: Study) -> Iterator[str]:
    """Yield by what ReASC weighs and what became of its calibrations, in sentences."""
    yield from (
        f"{study.name}: {note}."
        for note in study.run.notes
        if note not in study.pool.notes
    )
    if study.uncalibrated:
        yield study.uncalibrated + "."
        return
    yield from _weighed_by(study)
    for (name, _), outcomes in study.run.outcomes.items():
        if outcomes.problems:
            yield f"{name} counted votes {_often(outcomes.problems, study.run)}: {outcomes.problems[0]}."
        gates = [calibration.gate for calibration in outcomes.calibrations]
        if name == CALIBRATED:
            continue  # which has no gate
        gates = [gate.as_in_paper() for gate in gates]
        closed = [reason for _, reason in (gate.in_use for gate in gates) if reason]
        if closed:
            yield f"The gate of {name} was closed {_often(closed, study.run)}: {closed[0]}."


def _weighed_by(study: Study) -> Iterator[str]:
    chosen = study.run.outcomes[OFFLINE, study.spec].chosen
    if study.spec != "auto":
        yield f"ReASC weighs by {'the recorded score' if study.spec == 'recorded' else study.spec}."
    elif chosen:
        best, times = chosen.most_common(1)[0]
        often = (
            f", most often {best} (in {times} of {chosen.total()})"
            if study.run.shuffles
            else f", {best}"
        )
        yield (
            "ReASC (offline) weighs by the measure that is chosen on the labelled "
            f"calibration responses alone{often}; ReASC (calibrated) and (online) read "
            "the mean log-probability."
        )


def _often(reasons: Sequence[str], run: Replay) -> str:
    return (
        f"in {len(reasons)} of {run.arrangements} arrangements"
        if run.arrangements > 1
        else "here"
    )

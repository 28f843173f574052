"""The results of methods on one pool as cells of tables: accuracy, cost and differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc_lab.pools.costs import Bill, Prices, read_prices
from langchain_reasc_lab.replay.bootstrap import Bootstrap, Estimate
from langchain_reasc_lab.replay.metrics import Row, difference, tflops
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Column

ACCURACY: Final = Column("Accuracy %", ".1f", "Share of the tested questions that are answered right.")
_COLUMNS: Final = ("correct", "tokens")

Cells = npt.NDArray[np.float64]


def accuracy_per_tflop(accuracy: float, tflops: float) -> float:
    """Return Acc/TF: accuracy in per cent, per 10¹² operations of the average question."""
    return accuracy / tflops


def change(value: float, reference: float) -> float:
    """Return how much more than the reference, in per cent; below zero where it is less."""
    return 100 * (value / reference - 1)


def number(value: float) -> float | None:
    """Return a cell's number; None if it is not finite."""
    return value if math.isfinite(value) else None


def _decimals(most: float) -> int:
    """Return how many digits tell costs of up to this apart."""
    return max(2, 2 - math.floor(math.log10(most))) if most > 0 else 2


@dataclass(frozen=True, slots=True)
class Cost:
    """The unit in which a table says what answering a question costs.

    Attributes:
        flops: whether that is TFLOPs (2N per generated token, Kaplan et al. 2020), or tokens, where the number of
            parameters of any model is unknown.
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
        most = max(unit(study, float(study.recorded.tokens.sum(axis=1).mean())) for study in studies)
        return cls(flops=True, decimals=_decimals(most))

    def __call__(self, study: Study, tokens: float) -> float:
        """Return what so many tokens cost, in this unit."""
        return tflops(study.parameters.count, tokens) if self.flops and study.parameters else tokens

    def efficiency(self, study: Study, accuracy: float, tokens: float) -> float | None:
        """Return per cent of right answers per unit of cost, or per 1,000 tokens; None if nothing was spent."""
        spent = self(study, tokens) / (1 if self.flops else 1000)
        return accuracy_per_tflop(100 * accuracy, spent) if spent > 0 else None

    @property
    def column(self) -> Column:
        """The column of costs."""
        style = f",.{self.decimals}f"
        if self.flops:
            return Column("TFLOPs", style, "10¹² floating-point operations per question: 2N per generated token.")
        return Column("Tokens", style, "Tokens generated per question, in the responses that a method used.")

    @property
    def per_cost(self) -> Column:
        """The column of accuracy per cost, as the paper has it."""
        name, per = ("Acc/TF", "TFLOP") if self.flops else ("Acc/kTok", "1,000 tokens")
        style = ",.2f" if self.decimals <= 3 else ",.0f"
        return Column(name, style, f"Accuracy in per cent, per {per} and question.", best="high")

    def note(self, study: Study) -> str:
        """Return what N is and who says so, in a sentence."""
        if study.parameters is None:
            return (
                f"Nothing says how many parameters the model of {study.name} has, so costs are in tokens; --parameters "
                "N gives them in FLOPs."
            )
        n = f"{study.parameters.count:,.0f}"
        if not self.flops:
            return f"Costs are in tokens, as N is not known of all models; of {study.name} it is {n}."
        return f"TFLOPs of {study.name}: 2N per generated token, N = {n}, {study.parameters.source}."


@dataclass(frozen=True, slots=True)
class Money:
    """The cost of a thousand questions, by the user's prices.

    Attributes:
        prices: of the models of all pools.
        decimals: how many digits tell such costs apart.
    """

    prices: Prices
    decimals: int = 2

    @classmethod
    def of(cls, studies: Sequence[Study]) -> "Money | None":
        """Return None if nobody gave prices, or no pool tells how long its prompts were."""
        if not studies or (path := studies[0].settings.prices) is None:
            return None
        unrounded = cls(read_prices(path))
        costs = [cost for study in studies for row in study.rows if (cost := unrounded(study, row)) is not None]
        return cls(unrounded.prices, _decimals(max(costs))) if costs else None

    def __call__(self, study: Study, row: Row) -> float | None:
        """Return what a method costs; None if the pool does not say how long its prompts were."""
        if row.prompt_tokens is None:
            return None
        spent = Bill(prompt=round(1000 * row.prompt_tokens), completion=round(1000 * row.tokens.value))
        return self.prices.price_of(str(study.pool.model)).cost_of(spent)

    @property
    def column(self) -> Column:
        """The column of costs."""
        meaning = "What 1,000 questions cost: prompt and generated tokens of the responses that a method used."
        return Column(f"{self.prices.currency}/1,000", f",.{self.decimals}f", meaning)

    def note(self, study: Study) -> str:
        """Return what is in it, in a sentence."""
        if not study.pool.has_prompt_tokens:
            return f"{study.name} does not say how long its prompts were, so nothing tells what it costs in money."
        return "Each response pays for its whole prompt; what a provider reads from a cache would cost less."


class Results:
    """Methods side by side on the same questions of one pool.

    Args:
        study: the pool.
        outcomes: the outcomes of the methods, on the same arrangements.
        cost: the unit of costs.
        among: shape (shuffles, questions), 1 on the questions that count; all that were tested, if None.

    Attributes:
        questions: how many different questions count.
    """

    def __init__(
        self, study: Study, outcomes: Mapping[RowKey, Outcomes], cost: Cost, *, among: Cells | None = None
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
        """Return the share of the tested questions that count, in per cent, where this method says which.

        None or all in every shuffle have no interval: other calibrations may count some.
        """
        outcomes = self._outcomes[key]
        share = self._by_question.share("among", learned=outcomes.learned).percent
        return share.without_interval if outcomes.calibrated_anew and share.value in (0, 100) else share

    def accuracy(self, key: RowKey) -> Estimate | None:
        """Return right answers in per cent; None if no question counts."""
        if not self.questions:
            return None
        learned = self._outcomes[key].learned
        return self._by_question.share((key, "correct"), among="among", learned=learned).percent

    def cost(self, key: RowKey) -> float | None:
        """Return what a question costs."""
        return number(self._unit(self._study, self._mean(key, "tokens")))

    def efficiency(self, key: RowKey) -> float | None:
        """Return accuracy per cost."""
        return self._unit.efficiency(self._study, self._mean(key, "correct"), self._mean(key, "tokens"))

    def more_than(self, other: RowKey, key: RowKey) -> float | None:
        """Return by how many per cent a method costs more than the other one, below zero where it costs less.

        None for the other method itself, and where that spends nothing.
        """
        spent = self._mean(other, "tokens")
        return number(change(self._mean(key, "tokens"), spent)) if spent and key != other else None

    def minus(self, one: RowKey, other: RowKey) -> Estimate | None:
        """Return how many points more accurate one is than another, paired.

        None for a method and itself, and where no question counts.
        """
        if not self.questions or one == other:
            return None
        return difference(self._by_question, self._outcomes, one, other, among="among").percent

    def _mean(self, key: RowKey, column: str) -> float:
        return self._by_question.mean((key, column)) / self._by_question.mean("among") if self.questions else math.nan

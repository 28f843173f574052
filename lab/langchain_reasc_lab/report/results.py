"""What methods did on one pool, as the cells of tables: accuracies, what they cost, and paired differences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc_lab.pools.costs import Bill, Prices, read_prices
from langchain_reasc_lab.replay.bootstrap import Bootstrap, Estimate, exact, ratio
from langchain_reasc_lab.replay.metrics import Row, never_differs, tflops
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.parts import Column, percent
from langchain_reasc_lab.report.quotients import accuracy_per_tflop, change
from langchain_reasc_lab.report.study import Study

__all__ = ["ACCURACY", "Cost", "Money", "Results", "number"]

ACCURACY: Final = Column("Accuracy %", ".1f", "Share of the tested questions that are answered right.")
_COLUMNS: Final = ("correct", "tokens", "samples", "gated")

Cells = npt.NDArray[np.float64]


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
        """The unit in which all of these pools can be compared."""
        known = [study for study in studies if study.parameters is not None]
        if len(known) < len(studies) or not known:
            return cls(flops=False)
        most = max(_tflops(study, float(study.recorded.tokens.sum(axis=1).mean())) for study in known)
        return cls(flops=True, decimals=max(2, 2 - math.floor(math.log10(most))) if most > 0 else 2)

    def __call__(self, study: Study, tokens: float) -> float:
        """What so many tokens cost, in this unit."""
        return _tflops(study, tokens) if self.flops else tokens

    def efficiency(self, study: Study, accuracy: float, tokens: float) -> float | None:
        """Per cent of right answers per unit of cost; per 1,000 tokens. None where nothing was spent."""
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
        """What N is and who says so, in a sentence."""
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
    """What a thousand questions cost, by prices that the user gave.

    Attributes:
        prices: of the models of all pools.
        decimals: how many digits tell such costs apart.
    """

    prices: Prices
    decimals: int

    @classmethod
    def of(cls, studies: Sequence[Study]) -> "Money | None":
        """None where nobody gave prices, or no pool tells how long its prompts were."""
        if not studies or (path := studies[0].settings.prices) is None:
            return None
        prices = read_prices(path)
        unrounded = cls(prices, 2)
        most = max((cost for study in studies for row in study.rows if (cost := unrounded(study, row))), default=None)
        return None if most is None else cls(prices, max(2, 2 - math.floor(math.log10(most))))

    def __call__(self, study: Study, row: Row) -> float | None:
        """What a method costs; None where the pool does not say how long its prompts were."""
        if row.prompt_tokens is None:
            return None
        spent = Bill(prompt=round(1000 * row.prompt_tokens), completion=round(1000 * row.tokens.value))
        return self.prices.of(str(study.pool.model)).of(spent)

    @property
    def column(self) -> Column:
        """The column of costs."""
        told = "What 1,000 questions cost: prompt and generated tokens of the responses that a method used."
        return Column(f"{self.prices.currency}/1,000", f",.{self.decimals}f", told)

    def notes(self, study: Study) -> Iterator[str]:
        """What is in it."""
        if not study.pool.has_prompt_tokens:
            yield f"{study.name} does not say how long its prompts were, so nothing tells what it costs in money."
        else:
            yield "Each response pays for its whole prompt; what a provider reads from a cache would cost less."


class Results:
    """Methods side by side on the same questions of one pool.

    Args:
        study: the pool.
        outcomes: what methods did, on the same arrangements.
        cost: the unit of costs.
        among: shape (shuffles, questions), 1 on the questions that count; all that were tested, if None.

    Attributes:
        outcomes: the same.
        questions: how many different questions count.
    """

    def __init__(
        self, study: Study, outcomes: Mapping[RowKey, Outcomes], cost: Cost, *, among: Cells | None = None
    ) -> None:
        tested = next(iter(outcomes.values())).tested
        self.study, self.outcomes, self.unit = study, outcomes, cost
        self._among = tested if among is None else tested & (among == 1)
        self.questions = int(self._among.any(axis=0).sum())
        columns: dict[Any, Cells] = {
            (key, name): np.where(self._among, held.column(name), 0.0)
            for key, held in outcomes.items()
            for name in _COLUMNS
        }
        columns["among"] = self._among.astype(np.float64)
        self._by_question = Bootstrap(columns, tested, seed=study.settings.seed)

    @property
    def share(self) -> Estimate:
        """The share of the tested questions that count, in per cent."""
        return percent(self._by_question.share("among"))

    def accuracy(self, key: RowKey) -> Estimate | None:
        """Right answers in per cent; None where no question counts."""
        if not self.questions:
            return None
        return percent(self._by_question.share((key, "correct"), among="among", questions=self.questions))

    def mean(self, key: RowKey, column: str) -> float:
        """The mean of one of the columns ``correct``, ``tokens``, ``samples`` and ``gated``."""
        return self._by_question.mean((key, column)) / self._by_question.mean("among") if self.questions else math.nan

    def cost(self, key: RowKey) -> float | None:
        """What a question costs."""
        return number(self.unit(self.study, self.mean(key, "tokens")))

    def efficiency(self, key: RowKey) -> float | None:
        """Accuracy per cost."""
        return self.unit.efficiency(self.study, self.mean(key, "correct"), self.mean(key, "tokens"))

    def cheaper(self, key: RowKey, than: RowKey) -> float | None:
        """By how many per cent a method costs more than another; below zero where it costs less."""
        spent = self.mean(than, "tokens")
        return number(change(self.mean(key, "tokens"), spent)) if spent else None

    def minus(self, one: RowKey, other: RowKey) -> Estimate | None:
        """How many points more accurate one is than another, paired; None where no question counts.

        Where they never differed the interval is the exact one of a share that was never seen.
        """
        if not self.questions:
            return None
        if self._same(one, other):
            most = 100 * exact(0, self.questions).high
            return Estimate(0.0, -most, most)
        difference = self._by_question.estimate(
            lambda mean: ratio(mean((one, "correct")) - mean((other, "correct")), mean("among"))
        )
        return percent(difference)

    def _same(self, one: RowKey, other: RowKey) -> bool:
        first, second = self.outcomes[one], self.outcomes[other]
        if never_differs(first, second):
            return True
        differ = first.column("correct") != second.column("correct")
        return first.rules != second.rules and not (differ & self._among).any()


def number(value: float) -> float | None:
    """A cell's number; nothing where it is none."""
    return value if math.isfinite(value) else None


def _tflops(study: Study, tokens: float) -> float:
    return tflops(study.parameters.count, tokens) if study.parameters else math.nan

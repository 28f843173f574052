"""The rows of tables: what methods did on each pool, their accuracy and cost, and ReASC with a part changed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError, PoolError, ReASCError
from langchain_reasc.method.stopping import ASC, Cap, ReASC, StoppingRule
from langchain_reasc_lab.pools.costs import Bill, Prices, read_prices
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Bootstrap, Estimate, exact, ratio
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE, SAFEGUARDED, Calibrated, Method, Split
from langchain_reasc_lab.replay.metrics import Row, never_differs, tflops
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table, percent

INTERVALS: Final = (
    f"[..] are 95 % intervals from {RESAMPLES:,} bootstrap resamples over questions, each with all its shuffles, "
    "paired where they are of differences; of none, of all and of methods that never differed they are exact (Clopper "
    "and Pearson)."
)


Block = tuple[Sequence[Sequence[Cell]], Sequence[str]]
"""The part of a table that is about one pool: its rows, without the column that names the pool, and its notes."""


def table_of(
    studies: Sequence[Study],
    columns: Sequence[Column],
    block: Callable[[Study], Block],
    *,
    notes: Sequence[str] = (INTERVALS,),
    named: bool = True,
) -> Table:
    """A block for each pool; a pool that cannot have one is named in a note.

    Args:
        studies: the pools.
        columns: the columns of a block. Where there are several pools, one before them says which.
        block: makes the block of one pool.
        notes: what holds for all pools.
        named: whether to say in a column which pool it is, where there are several.

    Raises:
        PoolError: no pool can have one, with all reasons.
    """
    named = named and len(studies) > 1
    rows: list[Sequence[Cell]] = []
    lines: list[str] = []
    reasons: list[str] = []
    refused: list[str] = []
    for study in studies:
        try:
            of_study, notes_of_study = block(study)
        except ReASCError as error:
            why = str(error).rstrip(".") + "."
            reasons.append(why)
            refused.append(why if why.startswith(study.name) else f"{study.name}: no row, because {why}")
            continue
        rows += [(study.name, *row) for row in of_study] if named else of_study
        lines += notes_of_study
    if not rows:
        raise PoolError(" ".join(dict.fromkeys(reasons or lines)) or "there is no pool")
    return Table(
        (Column("Pool"), *columns) if named else columns, rows, tuple(dict.fromkeys((*lines, *refused, *notes)))
    )


def how_tested(study: Study) -> str:
    """On what methods are compared, in a sentence."""
    run = study.run
    questions = f"{run.tested} question" + ("s" if run.tested > 1 else "")
    of_file = f" in {run.pool.calibration_path}" if run.pool.calibration_path else ""
    others = f", calibrated on the first responses to {run.calibration_size} others{of_file}"
    others = others if run.calibration_size else ""
    if not run.shuffles:
        alone = (
            "; the intervals hold for this one calibration, and leave out how others would differ"
            if run.calibration_size
            else ""
        )
        return f"{study.name}: {questions} tested in recorded order{others}{alone}."
    return (
        f"{study.name}: {questions} tested{others}; means over {run.shuffles} shuffle"
        f"{'s' if run.shuffles > 1 else ''} of questions and responses (seed {run.seed}). What calibration responses "
        "cost is not counted."
    )


def how_compared(study: Study, cost: "Cost") -> list[str]:
    """On what methods are compared, by what ReASC weighs, and the unit of costs, in sentences."""
    return [how_tested(study), *how_calibrated(study), cost.note(study)]


def how_calibrated(study: Study) -> Iterator[str]:
    """By what ReASC weighs and what became of its calibrations, in sentences."""
    yield from (f"{study.name}: {note}." for note in study.run.notes if note not in study.pool.notes)
    if study.uncalibrated:
        yield study.uncalibrated + "."
        return
    offline = study.run.outcomes[OFFLINE, study.spec]
    if study.spec == "auto" and offline.chosen:
        best, times = offline.chosen.most_common(1)[0]
        often = f", most often {best} (in {times} of {offline.chosen.total()})" if study.run.shuffles else f", {best}"
        yield (
            f"ReASC weighs by the measure that is chosen on the labelled calibration responses alone{often}; ReASC "
            "(online) chooses its own without labels."
        )
    elif study.spec != "auto":
        yield f"ReASC weighs by {'the recorded score' if study.spec == 'recorded' else study.spec}."
    for (name, _), outcomes in study.run.outcomes.items():
        yield from _calibration_problems(name, outcomes, study.run.arrangements)


def _calibration_problems(name: str, outcomes: Outcomes, arrangements: int) -> Iterator[str]:
    often = f"in {{}} of {arrangements} arrangements" if arrangements > 1 else "here"
    if outcomes.problems:
        yield f"{name} counted votes {often.format(len(outcomes.problems))}: {outcomes.problems[0]}."
    closed = [
        why
        for one in outcomes.calibrations
        if (why := one.gate.under("paper" if name != SAFEGUARDED else "default")[1])
    ]
    if closed:
        yield f"The gate of {name} was closed {often.format(len(closed))}: {closed[0]}."


def loss(name: str, against: str, difference: Estimate | None) -> Iterator[str]:
    """Where a control answers more questions right, a sentence that says so.

    Args:
        name: the method that is compared.
        against: the control.
        difference: the method's accuracy minus the control's, in points.
    """
    if difference is None or not difference.value < 0:
        return
    points = f"{-difference.value:.1f} points" if difference.value <= -0.05 else "less than 0.1 points"
    sure = "" if difference.high < 0 else ", which may be chance"
    yield (
        f"{against} answers {points} more right than {name}: the difference is "
        f"[{-difference.high:+.1f}, {-difference.low:+.1f}]{sure}."
    )


def accuracy_per_tflop(accuracy: float, tflops: float) -> float:
    """Acc/TF: accuracy in per cent, per 10¹² operations of the average question."""
    return accuracy / tflops


def change(value: float, reference: float) -> float:
    """How much more than the reference, in per cent; below zero where it is less."""
    return 100 * (value / reference - 1)


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
            (key, name): np.where(self._among, each.column(name), 0.0)
            for key, each in outcomes.items()
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

    def beside(self, key: RowKey, other: RowKey) -> tuple[Cell, Cell, Cell, Cell]:
        """Accuracy and cost, how much more is spent than by another method, and the difference in accuracy.

        The last two are None for the other method itself.
        """
        itself = key == other
        more, gained = (None, None) if itself else (self.cheaper(key, other), self.minus(key, other))
        return self.accuracy(key), self.cost(key), more, gained

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


GATE_ALONE: Final = "Gate, then counting"
STAGE_2: Final = "Stage 2 alone"

Change = Callable[[ReASC], StoppingRule]


def gate_alone(rule: ReASC) -> StoppingRule:
    """Stage 1, after which votes are counted."""
    return replace(rule, weight="count")


def stage_2(rule: ReASC) -> StoppingRule:
    """Stage 2 for all questions."""
    return replace(rule, gate=None)


def calibrations(study: Study) -> dict[str, str]:
    """The rows of the paper's ReASC that some arrangement could be calibrated for -> how they are calibrated.

    Raises:
        PoolError: there is none, and why.
    """
    run, names = study.run, {OFFLINE: "offline", MIXTURE: "mixture"}
    possible = {row: how for row, how in names.items() if not impossible(run.outcomes[row, study.spec])}
    if not possible:
        why = run.outcomes[OFFLINE, study.spec].problems[0]
        raise PoolError(f"nothing could be calibrated on {study.name}: {why}")
    return possible


def impossible(outcomes: Outcomes) -> bool:
    """Whether a method could be had in no arrangement, and counted votes instead."""
    return len(outcomes.problems) == len(outcomes.cells)


def variant_key(study: Study, row: str, name: str) -> RowKey:
    """By what the outcomes of a variant are known."""
    return f"{row}: {name}", study.measure


def variants(study: Study, changes: Mapping[str, Change]) -> dict[RowKey, Outcomes]:
    """What the changes make of the paper's rule, by either calibration.

    Args:
        study: the pool.
        changes: name -> what becomes of the rule, without the cap on samples. One that raises
            :class:`~langchain_reasc.exceptions.ConfigurationError` cannot be had; its outcomes then have a problem.

    Raises:
        PoolError: ReASC cannot be studied on this pool.
    """

    def methods_of(split: Split) -> Iterator[Method]:
        made = study.calibrated(split)
        for row, calibration in ((OFFLINE, made.offline), (MIXTURE, made.mixture)):
            for name, change in changes.items():
                yield changed(study, variant_key(study, row, name), made, calibration or made.offline, change)

    return study.compare(methods_of)


def changed(
    study: Study, named: RowKey, made: Calibrated, calibration: Calibration | Exception, change: Change
) -> Method:
    """The paper's rule of a calibration with a change; without either, counting votes with the reason."""
    cap = Cap(study.settings.methods.max_samples)
    name, spec = named
    try:
        if isinstance(calibration, Exception):
            raise calibration
        rule = calibration.rule(safeguard="paper", on_missing_confidence="count")
        assert isinstance(rule, ReASC)  # the paper's, of either algorithm
        return Method(name, change(rule) | cap, spec, made.measure, calibration)
    except (CalibrationDataError, ConfigurationError) as error:
        return Method(name, ASC() | cap, spec, problem=str(error))

"""The main comparison: every method on every pool, what it costs, and how sure its accuracy is."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Bootstrap, exact
from langchain_reasc_lab.replay.methods import ASC_AT_ONCE, ASC_ROW, EQUAL_COST, MIXTURE, OFFLINE, ONLINE
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import RowKey, live_rule
from langchain_reasc_lab.report.blocks import INTERVALS, Block, how_calibrated, how_tested, loss, table_of
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Cell, Column, Table, percent
from langchain_reasc_lab.report.results import ACCURACY, Cost, Money, Results, number
from langchain_reasc_lab.report.study import Study

__all__ = ["PASS", "intervals", "main", "methods_shown", "tasks"]

PASS: Final = "pass@1"
_TO_ASC: Final = Column("Δ to ASC", "+.1f", "Accuracy minus that of ASC on the same responses, in points.")
_SAMPLES: Final = Column("Samples", ".2f", "Responses used per question.")
_TOKENS: Final = Column("Tokens", ",.0f", "Tokens generated per question, in the responses that a method used.")
_SAVED: Final = Column("vs SC %", "+.1f", "Tokens more (+) or fewer (-) than self-consistency's, at the whole budget.")
_NO_RATIO: Final = (
    "pass@1 has no accuracy per cost: of one response it would be the highest of any table, whatever is answered."
)


@table("main", "Main comparison", paper="Table 1")
def main(studies: Sequence[Study]) -> Table:
    """Accuracy, samples, tokens and money, and what they come to together, of every method."""
    cost, bill = Cost.of(studies), Money.of(studies)

    def block(study: Study) -> Block:
        sc = study.settings.methods.fixed_budget
        rows = [
            (
                row.method,
                percent(row.accuracy),
                percent(row.accuracy_vs_asc),
                row.samples.value,
                row.tokens.value,
                None if row.method == sc else number(100 * (row.tokens_vs_sc.value - 1)),
                *((bill(study, row),) if bill else ()),
                *(
                    (cost(study, row.tokens.value), None if row.method == PASS else _efficiency(cost, study, row))
                    if cost.flops
                    else ()
                ),
            )
            for row in methods_shown(study)
        ]
        notes = [how_tested(study), *how_calibrated(study), cost.note(study), *(bill.notes(study) if bill else ())]
        return Block(rows, [*notes, *_live(study), *_losses(study)])

    columns = [Column("Method"), ACCURACY, _TO_ASC, _SAMPLES, _TOKENS, _SAVED]
    columns += [bill.column] if bill else []
    columns += [cost.column, cost.per_cost] if cost.flops else []
    budgets = dict.fromkeys(study.settings.methods.max_samples for study in studies)
    told = (*map(_methods_told, budgets), *((_NO_RATIO,) if cost.flops else ()), INTERVALS)
    return table_of(studies, columns, block, notes=told)


@table("tasks", "Beyond mathematics: the main methods on each pool", paper="Table 12")
def tasks(studies: Sequence[Study]) -> Table:
    """The methods of the paper on each pool.

    Raises:
        PoolError: there is one pool, and nothing to put side by side.
    """
    if len(studies) == 1:
        raise PoolError("it puts several pools side by side; the main comparison has the methods on this one")
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        results = Results(study, study.run.outcomes, cost)
        shown = {study.settings.methods.fixed_budget, "ESC (w=4)", ASC_ROW, OFFLINE, MIXTURE, ONLINE}
        keys = [key for key in _methods(study) if key[0] in shown]
        rows = [(study.name, key[0], results.accuracy(key), results.cost(key), results.efficiency(key)) for key in keys]
        return Block(rows, [how_tested(study), *how_calibrated(study), cost.note(study)])

    columns = [Column("Pool"), Column("Method"), ACCURACY, cost.column, cost.per_cost]
    return table_of(studies, columns, block, named=False)


@table("intervals", "Accuracy with its interval, resampled and exact", paper="Table 10")
def intervals(studies: Sequence[Study]) -> Table:
    """Every method's accuracy on one arrangement, with the paper's bootstrap and with an exact interval."""

    def block(study: Study) -> Block:
        verdicts = {key: study.run.outcomes[key].column("correct")[:1] for key in _methods(study)}
        tested = ~np.isnan(verdicts[PASS, None])
        drawn = Bootstrap(verdicts, tested, seed=study.settings.seed)
        rows: list[tuple[Cell, ...]] = []
        for key, held in verdicts.items():
            resampled = percent(drawn.resampled(key))
            alone = percent(exact(int(held[tested].sum()), drawn.questions))
            rows.append((key[0], resampled, alone.low, alone.high, drawn.questions))
        arranged = (
            f"of the first of {study.run.shuffles} shuffles, so that the values are not the means that main has"
            if study.run.shuffles > 1
            else "of one shuffle"
            if study.run.shuffles
            else "in recorded order"
        )
        return Block(rows, [f"{study.name}: {drawn.questions} questions {arranged}.", *how_calibrated(study)])

    columns = [
        Column("Method"),
        Column("Accuracy %", ".2f", "Right answers, with the 2.5th and the 97.5th percentile of the resamples."),
        Column("Exact low", ".2f", "Lower end of Clopper and Pearson's interval."),
        Column("Exact high", ".2f", "Upper end of Clopper and Pearson's interval."),
        Column("Questions", ",.0f", "How many were tested."),
    ]
    note = (
        f"[..] is the paper's interval: a non-parametric bootstrap over the tested questions, {RESAMPLES:,} resamples "
        "of one arrangement. Beside it stands the exact binomial one (Clopper and Pearson, 95 %), which does not "
        "shrink to a point where no answer, or every answer, is right."
    )
    return table_of(studies, columns, block, notes=(note,))


def _methods_told(budget: int) -> str:
    """What each method does, in sentences."""
    return (
        f"pass@1 takes the first response, SC@{budget} the majority of {budget}. ESC stops when the four responses of "
        "a window agree, ASC when the leading answer is ahead with 95 %, Finite horizon when it wins the vote of the "
        "whole budget with 97 %, Agreement when it does so with 97.5 %, as the questions before have taught it. ReASC "
        "weighs votes by confidence, and may stop after one: offline is calibrated on labelled questions, and "
        "safeguarded is what runs by default; mixture is fitted to the first responses to all tested questions, and "
        "online learns from one tested question after the other, both without labels."
    )


def methods_shown(study: Study) -> list[Row]:
    """The methods of the comparison, without the controls."""
    controls = {ASC_AT_ONCE, *EQUAL_COST.values()}
    return [row for row in study.rows if row.method not in controls]


def _methods(study: Study) -> list[RowKey]:
    return [(row.method, row.spec) for row in methods_shown(study)]


def _efficiency(cost: Cost, study: Study, row: Row) -> float | None:
    return cost.efficiency(study, row.accuracy.value, row.tokens.value)


def _live(study: Study) -> Iterator[str]:
    if not study.uncalibrated:
        name, why = live_rule(study.run, study.spec)
        yield f"A live run with an offline calibration is the row '{name}': {why}."


def _losses(study: Study) -> Iterator[str]:
    """Where a row of ReASC is less accurate than one that counts votes, or costs more."""
    for row in study.rows:
        if row.method in (OFFLINE, MIXTURE, ONLINE):
            yield from loss(row.method, ASC_ROW, percent(row.accuracy_vs_asc))
            dearer = 100 * (row.tokens_vs_asc.value - 1)
            if dearer > 0:
                yield f"{row.method} costs {dearer:.1f} % more than ASC."

"""Tables that compare methods: all of them, the two stages of ReASC, and what the same responses could have given."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.stopping import ASC, Cap, ReASC, StoppingRule
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Bootstrap, exact
from langchain_reasc_lab.replay.methods import (
    ASC_AT_ONCE,
    ASC_ROW,
    EQUAL_COST,
    MIXTURE,
    OFFLINE,
    ONLINE,
    SAFEGUARDED,
    Method,
    Split,
)
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import Outcomes, RowKey, live_rule
from langchain_reasc_lab.report.report import table
from langchain_reasc_lab.report.rows import (
    ACCURACY,
    GATE_ALONE,
    INTERVALS,
    STAGE_2,
    Block,
    Cost,
    Money,
    Results,
    calibrations,
    gate_alone,
    how_calibrated,
    how_compared,
    how_tested,
    impossible,
    loss,
    number,
    stage_2,
    table_of,
    variant_key,
    variants,
)
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table, percent
from langchain_reasc_lab.rules import CISC

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

    def cells(study: Study, row: Row) -> list[Cell]:
        tokens, sc = row.tokens.value, study.settings.methods.fixed_budget
        more = None if row.method == sc else number(100 * (row.tokens_vs_sc.value - 1))
        cells: list[Cell] = [
            row.method,
            percent(row.accuracy),
            percent(row.accuracy_vs_asc),
            row.samples.value,
            tokens,
            more,
        ]
        if bill:
            cells.append(bill(study, row))
        if cost.flops:
            efficiency = None if row.method == PASS else cost.efficiency(study, row.accuracy.value, tokens)
            cells += [cost(study, tokens), efficiency]
        return cells

    def block(study: Study) -> Block:
        notes = [*how_compared(study, cost), *(bill.notes(study) if bill else ())]
        return [cells(study, row) for row in methods_shown(study)], [*notes, *_live(study), *_losses(study)]

    columns = [Column("Method"), ACCURACY, _TO_ASC, _SAMPLES, _TOKENS, _SAVED]
    columns += [bill.column] if bill else []
    columns += [cost.column, cost.per_cost] if cost.flops else []
    budgets = dict.fromkeys(study.settings.methods.max_samples for study in studies)
    explanations = (*map(_methods_told, budgets), *((_NO_RATIO,) if cost.flops else ()), INTERVALS)
    return table_of(studies, columns, block, notes=explanations)


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
        return rows, how_compared(study, cost)

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
        return rows, [f"{study.name}: {drawn.questions} questions {arranged}.", *how_calibrated(study)]

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


_ASC: Final[RowKey] = (ASC_ROW, None)
_POINTS: Final = "+.1f"


@table("stage1", "Stage 1: what the gate accepts, and how much of it is right", paper="Table 2")
def stage1(studies: Sequence[Study]) -> Table:
    """The share of questions that one response answers, and what the whole budget makes of the same questions."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        rows, notes = [], [how_tested(study), *how_calibrated(study)]
        budget = study.settings.methods.fixed_budget, None
        for row in _with_gate(study):
            accepted = Results(study, study.run.outcomes, cost, among=study.run.outcomes[row].column("gated"))
            lost = accepted.minus(row, budget)
            rows.append((row[0], accepted.share, accepted.accuracy(row), accepted.accuracy(budget), lost))
            notes += loss(f"the gate of {row[0]}", f"On the questions that it accepts, {budget[0]}", lost)
            notes += [] if accepted.questions else [f"The gate of {row[0]} accepts nothing."]
        return rows, notes

    columns = [
        Column("Method"),
        Column("Accepted %", ".1f", "Share of the tested questions that the first response answers."),
        Column("Accuracy %", ".1f", "Of those, the share that it answers right."),
        Column(
            "Majority %", ".1f", "The share of the same questions that the majority of the whole budget answers right."
        ),
        Column("Gate - majority", _POINTS, "The difference, in points: what accepting one response loses or gains."),
    ]
    return table_of(studies, columns, block)


@table("stage2", "Stage 2: the questions that the gate does not accept", paper="Table 3")
def stage2(studies: Sequence[Study]) -> Table:
    """Counting votes against weighing them, where one response was not enough."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for row, calibration in calibrations(study).items():
            ours = row, study.spec
            left = Results(study, study.run.outcomes, cost, among=1 - study.run.outcomes[ours].column("gated"))
            if not left.questions:
                notes.append(f"The gate of {row} accepts every question, and leaves none to Stage 2.")
                continue
            for name, at in (("ASC (counts votes)", _ASC), ("ReASC (weighs them)", ours)):
                rows.append((calibration, name, left.share, *left.beside(at, _ASC)))
            notes += loss(f"{row} on these questions", ASC_ROW, left.minus(ours, _ASC))
        return rows, notes

    columns = [
        Column("Calibration"),
        Column("Method"),
        Column("Left %", ".1f", "Share of the tested questions that the gate does not accept; all else is of them."),
        Column("Accuracy %", ".1f", "Share of these questions that are answered right."),
        cost.column,
        Column("vs ASC %", _POINTS, "What is spent more (+) or less (-) than by ASC on these questions."),
        Column("Δ to ASC", _POINTS, "Accuracy minus that of ASC on these questions, in points."),
    ]
    return table_of(studies, columns, block)


@table("ablation", "Ablation: each stage alone", paper="Table 4")
def ablation(studies: Sequence[Study]) -> Table:
    """ASC, each stage alone, and both."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        outcomes = study.run.outcomes | variants(study, {GATE_ALONE: gate_alone, STAGE_2: stage_2})
        results = Results(study, outcomes, cost)
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for row, calibration in calibrations(study).items():
            ours = row, study.spec
            alone = {name: variant_key(study, row, name) for name in (STAGE_2, GATE_ALONE)}
            for name, at in {ASC_ROW: _ASC, **alone, "ReASC": ours}.items():
                rows.append((calibration, name, *results.beside(at, _ASC)))
            for name in (GATE_ALONE, STAGE_2):
                notes += loss(row, f"{name} by the same calibration", results.minus(ours, alone[name]))
        return rows, notes

    columns = [
        Column("Calibration"),
        Column("Method"),
        ACCURACY,
        cost.column,
        Column("vs ASC %", _POINTS, "What is spent more (+) or less (-) than by ASC."),
        Column("Δ to ASC", _POINTS, "Accuracy minus that of ASC, in points."),
    ]
    meaning = (
        f"{STAGE_2}: votes are weighed, and no question is answered by one response. {GATE_ALONE}: one response "
        "answers what the gate accepts, and the votes on all else are counted."
    )
    return table_of(studies, columns, block, notes=(meaning, INTERVALS))


def _with_gate(study: Study) -> list[RowKey]:
    """The rows of ReASC that have a gate of their own."""
    calibrations(study)  # or there is none, and an error says why
    outcomes = study.run.outcomes
    keys: list[RowKey] = [(name, study.spec) for name in (OFFLINE, SAFEGUARDED, MIXTURE)]
    return [key for key in keys if key in outcomes and not impossible(outcomes[key])]


_EQUAL_COST: Final = {**EQUAL_COST, SAFEGUARDED: "ASC at equal cost (offline, safeguarded)"}
_TOGETHER: Final = "Weighted majority of all"


@table("controls", "Controls: what else the same responses could have given")
def controls(studies: Sequence[Study]) -> Table:
    """Each row of ReASC, and below it what it has to be compared with."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        results = Results(study, study.run.outcomes | _outcomes(study), cost)
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for name in (OFFLINE, SAFEGUARDED, ONLINE, MIXTURE):
            ours: RowKey = (name, study.spec)
            if ours not in study.run.outcomes or impossible(study.run.outcomes[ours]):
                continue
            rows.append((name, "(itself)", results.accuracy(ours), results.cost(ours), None))
            for against, control in _against(study, name):
                if impossible(results.outcomes[control]):
                    continue
                gained = results.minus(ours, control)
                rows.append((name, against, results.accuracy(control), results.cost(control), gained))
                notes += loss(name, against, gained)
        return rows, [*notes, _equal(study)]

    columns = [
        Column("Method"),
        Column("Against"),
        ACCURACY,
        cost.column,
        Column("Δ", "+.1f", "Accuracy of the method minus that of the control on the same responses, in points."),
    ]
    return table_of(studies, columns, block, notes=(_MEANING, INTERVALS))


_MEANING: Final = (
    "Best of N takes the answer of the response with the highest score, and the weighted majority weighs all N by "
    "ReASC's own weights; both pay for all of them. The gate alone goes on by counting votes, and Stage 2 alone has no "
    "gate."
)


def _outcomes(study: Study) -> dict[RowKey, Outcomes]:
    """What the controls do that a replay does not have."""
    budget = study.settings.methods.max_samples

    def weigh_all(rule: ReASC) -> StoppingRule:
        return stage_2(rule) & Cap(budget)

    def others(split: Split) -> Iterator[Method]:
        made = study.calibrated(split)
        # With a temperature next to nothing, all the weight is on the highest score.
        best = CISC(temperature=sys.float_info.min, on_missing_confidence="count")
        name, spec = _best(study)
        why = str(made.offline) if made.measure is None else None
        yield _counted(study, name, why) if why else Method(name, best | Cap(budget), spec, made.measure)
        if isinstance(made.offline, Calibration):
            rule = made.offline.rule(on_missing_confidence="count") | Cap(budget)
            yield Method(SAFEGUARDED, rule, spec, made.measure)
        else:
            yield _counted(study, SAFEGUARDED, str(made.offline))

    made = study.compare(others, equal_cost={SAFEGUARDED: _EQUAL_COST[SAFEGUARDED]})
    return made | variants(study, {GATE_ALONE: gate_alone, STAGE_2: stage_2, _TOGETHER: weigh_all})


def _counted(study: Study, name: str, why: str) -> Method:
    return Method(name, ASC() | Cap(study.settings.methods.max_samples), study.spec, problem=why)


def _against(study: Study, row: str) -> Iterator[tuple[str, RowKey]]:
    """The controls of one row of ReASC: their names, and by what their outcomes are known."""
    yield "ASC at equal cost", (_EQUAL_COST[row], study.spec)
    if row in (OFFLINE, MIXTURE):
        for name in (GATE_ALONE, STAGE_2, _TOGETHER):
            yield name, variant_key(study, row, name)
    yield _best(study)[0], _best(study)
    for name in (study.settings.methods.fixed_budget, ASC_ROW, PASS):
        yield name, (name, None)


def _best(study: Study) -> RowKey:
    return f"Best of {study.settings.methods.max_samples} by score", study.spec


def _equal(study: Study) -> str:
    chosen = [one for name in EQUAL_COST.values() for one in study.run.outcomes[name, study.spec].confidences]
    found = " to ".join(dict.fromkeys(f"{one:.4g}" for one in (min(chosen), max(chosen))))
    return (
        f"{study.name}: ASC costs the same at a confidence of {found} in place of 0.95, found on the tested questions, "
        "in its favour; what it spends rises by steps."
    )

"""Tables that compare methods: all of them, the two stages of ReASC, and controls."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.stopping import Cap, ReASC, StoppingRule
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
    method_by,
    safeguarded_rule,
)
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import Outcomes, RowKey, live_rule
from langchain_reasc_lab.replay.verdict import PASS, four_rows
from langchain_reasc_lab.report.blocks import (
    INTERVALS,
    Block,
    how_calibrated,
    how_compared,
    how_tested,
    loss,
    table_of,
)
from langchain_reasc_lab.report.results import ACCURACY, Cost, Money, Results, number
from langchain_reasc_lab.report.study import Change, Study
from langchain_reasc_lab.report.tables import Cell, Column, Table
from langchain_reasc_lab.rules import CISC

_ASC: Final[RowKey] = (ASC_ROW, None)
_POINTS: Final = "+.1f"
_NO_RATIO: Final = (
    "pass@1 has no accuracy per cost: of one response it would be the highest of any table, whatever is answered."
)


def short(studies: Sequence[Study]) -> Table:
    """Return asking once, always asking all, ASC, and ReASC as it runs by default."""
    bill = Money.of(studies)

    def block(study: Study) -> Block:
        shown = four_rows(study.run, study.rows)
        once = shown["Asking once"].tokens.value
        rows = [
            (
                name,
                row.accuracy.percent,
                row.samples.value,
                number(row.tokens.value / once) if once else None,
                *([bill(study, row)] if bill else []),
            )
            for name, row in shown.items()
        ]
        ours = f"{study.name}: ReASC is the row '{shown['ReASC'].method}' of the main comparison."
        return rows, [how_tested(study), ours, *([bill.note(study)] if bill else [])]

    columns = [
        Column("Method"),
        Column("Right %", ".1f", "Share of the tested questions that are answered right."),
        Column("Samples", ".1f", "Responses used per question."),
        Column("Tokens ×", ".1f", "Generated tokens, as a multiple of those of asking once."),
        *([bill.column] if bill else []),
    ]
    return table_of(studies, columns, block)


def main(studies: Sequence[Study]) -> Table:
    """Return accuracy, samples, tokens and money, and what they come to together, of every method."""
    cost, bill = Cost.of(studies), Money.of(studies)
    shown: list[tuple[Column, Callable[[Study, Row], Cell]]] = [
        (Column("Method"), lambda study, row: row.method),
        (ACCURACY, lambda study, row: row.accuracy.percent),
        (
            Column("Δ to ASC", _POINTS, "Accuracy minus that of ASC on the same responses, in points."),
            lambda study, row: row.accuracy_vs_asc.percent,
        ),
        (Column("Samples", ".2f", "Responses used per question."), lambda study, row: row.samples.value),
        (Cost(flops=False).column, lambda study, row: row.tokens.value),
        (
            Column("vs SC %", _POINTS, "Tokens more (+) or fewer (-) than self-consistency's, at the whole budget."),
            lambda study, row: (
                None
                if row.method == study.settings.methods.fixed_budget
                else number(100 * (row.tokens_vs_sc.value - 1))
            ),
        ),
    ]
    if bill:
        shown.append((bill.column, bill))
    if cost.flops:
        shown.append((cost.column, lambda study, row: cost(study, row.tokens.value)))
        shown.append(
            (
                cost.per_cost,
                lambda study, row: (
                    None if row.method == PASS else cost.efficiency(study, row.accuracy.value, row.tokens.value)
                ),
            )
        )

    def block(study: Study) -> Block:
        notes = [*how_compared(study, cost), *([bill.note(study)] if bill else [])]
        if not study.uncalibrated:
            name, why = live_rule(study.run, study.spec)
            notes.append(f"A live run with an offline calibration is the row '{name}': {why}.")
        rows = [[cell(study, row) for _, cell in shown] for row in methods_shown(study)]
        return rows, [*notes, *_losses(study)]

    budgets = dict.fromkeys(study.settings.methods.max_samples for study in studies)
    explanations = (*map(_methods_explained, budgets), *([_NO_RATIO] if cost.flops else []), INTERVALS)
    return table_of(studies, [column for column, _ in shown], block, notes=explanations)


def _methods_explained(budget: int) -> str:
    return (
        f"pass@1 takes the first response, SC@{budget} the majority of {budget}. ESC stops when the four responses of "
        "a window agree, ASC when the leading answer is ahead with 95 %, Finite horizon when it wins the vote of the "
        "whole budget with 97 %, Agreement when it does so with 97.5 %, as the questions before have taught it, or "
        "when more samples would hardly help, as ReASC (online) does too. ReASC weighs votes by confidence, and may "
        "stop after one: offline is calibrated on labelled questions, and safeguarded is what runs by default; mixture "
        "is fitted to the first responses to all tested questions, and online learns from one tested question after "
        "the other, both without labels."
    )


def methods_shown(study: Study) -> list[Row]:
    """Return the methods of the comparison, without the controls."""
    controls = {ASC_AT_ONCE, *EQUAL_COST.values()}
    return [row for row in study.rows if row.method not in controls]


def _losses(study: Study) -> Iterator[str]:
    """Yield where a row of ReASC is less accurate than one that counts votes, or costs more."""
    for row in study.rows:
        if row.method in (OFFLINE, MIXTURE, ONLINE):
            yield from loss(row.method, ASC_ROW, row.accuracy_vs_asc.percent)
            dearer = 100 * (row.tokens_vs_asc.value - 1)
            if dearer > 0:
                yield f"{row.method} costs {dearer:.1f} % more than ASC."


def tasks(studies: Sequence[Study]) -> Table:
    """Return the methods of the paper on each pool.

    Raises:
        PoolError: there is one pool, and nothing to put side by side.
    """
    if len(studies) == 1:
        raise PoolError("it puts several pools side by side; the main comparison has the methods on this one")
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        results = Results(study, study.run.outcomes, cost)
        shown = {study.settings.methods.fixed_budget, "ESC (w=4)", ASC_ROW, OFFLINE, MIXTURE, ONLINE}
        keys = [(row.method, row.spec) for row in study.rows if row.method in shown]
        rows = [(study.name, key[0], results.accuracy(key), results.cost(key), results.efficiency(key)) for key in keys]
        return rows, how_compared(study, cost)

    columns = [Column("Pool"), Column("Method"), ACCURACY, cost.column, cost.per_cost]
    return table_of(studies, columns, block, named=False)


def intervals(studies: Sequence[Study]) -> Table:
    """Return every method's accuracy on one arrangement, with the paper's bootstrap and with an exact interval."""

    def block(study: Study) -> Block:
        correct = {row.method: row.outcomes.column("correct")[:1] for row in methods_shown(study)}
        learning = {row.method: row.outcomes.learned for row in methods_shown(study) if not row.outcomes.rules}
        tested = ~np.isnan(correct[PASS])
        drawn = Bootstrap(correct, tested, seed=study.settings.seed)
        rows: list[tuple[Cell, ...]] = []
        for method, right in correct.items():
            alone = exact(int(right[tested].sum()), drawn.questions).percent
            ends = (None, None) if method in learning else (alone.low, alone.high)
            rows.append(
                (method, drawn.resampled(method, learned=learning.get(method, 0.0)).percent, *ends, drawn.questions)
            )
        shuffles = study.run.shuffles
        arranged = "of one shuffle" if shuffles else "in recorded order"
        if shuffles > 1:
            arranged = f"of the first of {shuffles} shuffles, so that the values are not the means that main has"
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
        "shrink to a point where no answer, or every answer, is right. Methods that learn while they are tested have "
        "neither: one arrangement does not show what another would teach."
    )
    return table_of(studies, columns, block, notes=(note,))


def stage1(studies: Sequence[Study]) -> Table:
    """Return the share of questions that one response answers, and what the whole budget makes of the same ones."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        study.calibrations()  # or there is none, and an error says why
        rows, notes = [], [how_tested(study), *how_calibrated(study)]
        budget = study.settings.methods.fixed_budget, None
        for name in (OFFLINE, SAFEGUARDED, MIXTURE):
            row: RowKey = (name, study.spec)
            if (outcomes := study.run.outcomes.get(row)) is None or outcomes.impossible:
                continue
            accepted = Results(study, study.run.outcomes, cost, among=outcomes.column("gated"))
            lost = accepted.minus(row, budget)
            rows.append((name, accepted.share(row), accepted.accuracy(row), accepted.accuracy(budget), lost))
            notes += loss(f"the gate of {name}", f"On the questions that it accepts, {budget[0]}", lost)
            notes += [] if accepted.questions else [f"The gate of {name} accepts nothing."]
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


def stage2(studies: Sequence[Study]) -> Table:
    """Return counting votes against weighing them, where one response was not enough."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for row, calibration in study.calibrations().items():
            ours = row, study.spec
            left = Results(study, study.run.outcomes, cost, among=1 - study.run.outcomes[ours].column("gated"))
            if not left.questions:
                notes.append(f"The gate of {row} accepts every question, and leaves none to Stage 2.")
                continue
            for name, key in (("ASC (counts votes)", _ASC), ("ReASC (weighs them)", ours)):
                rows.append((calibration, name, left.share(ours), *_beside_asc(left, key)))
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


def _beside_asc(results: Results, key: RowKey) -> tuple[Cell, ...]:
    return results.accuracy(key), results.cost(key), results.more_than(_ASC, key), results.minus(key, _ASC)


GATE_ALONE: Final = "Gate, then counting"
STAGE_2: Final = "Stage 2 alone"
_ALONE: Final[dict[str, Change]] = {
    GATE_ALONE: lambda rule: replace(rule, weight="count"),
    STAGE_2: lambda rule: replace(rule, gate=None),
}


def ablation(studies: Sequence[Study]) -> Table:
    """Return ASC, each stage alone, and both."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        results = Results(study, study.run.outcomes | study.variants(_ALONE), cost)
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for row, calibration in study.calibrations().items():
            ours = row, study.spec
            alone = {name: study.variant_key(row, name) for name in (STAGE_2, GATE_ALONE)}
            for name, key in {ASC_ROW: _ASC, **alone, "ReASC": ours}.items():
                rows.append((calibration, name, *_beside_asc(results, key)))
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


_EQUAL_COST: Final = {**EQUAL_COST, SAFEGUARDED: "ASC at equal cost (offline, safeguarded)"}
_TOGETHER: Final = "Weighted majority of all"


def controls(studies: Sequence[Study]) -> Table:
    """Return each row of ReASC, and below it what it has to be compared with."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        outcomes = study.run.outcomes | _controls(study)
        results = Results(study, outcomes, cost)
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for name in (OFFLINE, SAFEGUARDED, ONLINE, MIXTURE):
            ours: RowKey = (name, study.spec)
            if ours not in study.run.outcomes or outcomes[ours].impossible:
                continue
            rows.append((name, "(itself)", results.accuracy(ours), results.cost(ours), None))
            for against, control in _against(study, name):
                if not outcomes[control].impossible:
                    gained = results.minus(ours, control)
                    rows.append((name, against, results.accuracy(control), results.cost(control), gained))
                    notes += loss(name, against, gained)
        chosen = [one for name in EQUAL_COST.values() for one in study.run.outcomes[name, study.spec].confidences]
        found = " to ".join(dict.fromkeys(f"{one:.4g}" for one in (min(chosen), max(chosen))))
        notes.append(
            f"{study.name}: ASC costs the same at a confidence of {found} in place of 0.95, found on the tested "
            "questions, in its favour; what it spends rises by steps."
        )
        return rows, notes

    columns = [
        Column("Method"),
        Column("Against"),
        ACCURACY,
        cost.column,
        Column("Δ", _POINTS, "Accuracy of the method minus that of the control on the same responses, in points."),
    ]
    meaning = (
        "Best of N takes the answer of the response with the highest score, and the weighted majority weighs all N by "
        "ReASC's own weights; both pay for all of them. The gate alone goes on by counting votes, and Stage 2 alone "
        "has no gate."
    )
    return table_of(studies, columns, block, notes=(meaning, INTERVALS))


def _controls(study: Study) -> dict[RowKey, Outcomes]:
    """Return what the controls do that a replay does not have."""
    settings, (best, spec) = study.settings.methods, _best(study)
    cap = Cap(settings.max_samples)

    def methods_of(split: Split) -> Iterator[Method]:
        made = study.calibrated(split)
        if made.measure is None:
            yield method_by(made.offline, best, spec, None, settings)
        else:  # with a temperature next to nothing, all the weight is on the highest score
            rule = CISC(temperature=sys.float_info.min, on_missing_confidence="count")
            yield Method(best, rule | cap, spec, made.measure)
        yield method_by(made.offline, SAFEGUARDED, spec, made.measure, settings, safeguarded_rule)

    def weigh_all(rule: ReASC) -> StoppingRule:
        return _ALONE[STAGE_2](rule) & cap

    made = study.compare(methods_of, equal_cost={SAFEGUARDED: _EQUAL_COST[SAFEGUARDED]})
    return made | study.variants({**_ALONE, _TOGETHER: weigh_all})


def _against(study: Study, row: str) -> Iterator[tuple[str, RowKey]]:
    """Yield the controls of one row of ReASC: their names, and by what their outcomes are known."""
    yield "ASC at equal cost", (_EQUAL_COST[row], study.spec)
    if row in (OFFLINE, MIXTURE):
        for name in (GATE_ALONE, STAGE_2, _TOGETHER):
            yield name, study.variant_key(row, name)
    yield _best(study)[0], _best(study)
    for name in (study.settings.methods.fixed_budget, ASC_ROW, PASS):
        yield name, (name, None)


def _best(study: Study) -> RowKey:
    return f"Best of {study.settings.methods.max_samples} by score", study.spec

"""Tables that compare methods: all of them, the two stages of ReASC, and controls."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from langchain_reasc.method.stopping import Cap, ReASC, StoppingRule
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Bootstrap, exact
from langchain_reasc_lab.replay.methods import (
    ASC_ROW,
    CALIBRATED,
    EQUAL_COST,
    MIXTURE,
    OFFLINE,
    ONLINE,
    Method,
    Split,
    method_by,
    method_by_agreement,
)
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import Outcomes, RowKey, live_rule
from langchain_reasc_lab.replay.table import methods_explained
from langchain_reasc_lab.replay.verdict import PASS
from langchain_reasc_lab.report.drawing import SIZES, Accepted, draw_acceptance
from langchain_reasc_lab.report.results import (
    ACCURACY,
    Cost,
    Results,
    how_calibrated,
    how_compared,
    how_tested,
    methods_shown,
    number,
)
from langchain_reasc_lab.report.study import Change, Study, parameters_of
from langchain_reasc_lab.report.tables import (
    INTERVALS,
    Block,
    Cell,
    Column,
    Table,
    table_of,
)
from langchain_reasc_lab.rules import CISC

_ASC: Final[RowKey] = (ASC_ROW, None)
_POINTS: Final = "+.1f"
_NO_RATIO: Final = (
    "pass@1 has no accuracy per cost: of one response it would be the highest of any "
    "table, whatever is answered."
)


def main(studies: Sequence[Study]) -> Table:
    """Return accuracy, samples and tokens, and what they come to together, of every
    method.
    """
    cost = Cost.of(studies)
    columns = [
        Column("Method"),
        ACCURACY,
        Column(
            "Δ to ASC",
            _POINTS,
            "Accuracy minus that of ASC on the same responses, in points.",
        ),
        Column("Samples", ".2f", "Responses used per question."),
        Cost(flops=False).column,
        Column(
            "vs SC %",
            _POINTS,
            (
                "Tokens more (+) or fewer (-) than self-consistency's, at the whole "
                "budget."
            ),
        ),
    ]
    budget = studies[0].settings.methods.max_samples
    notes = [methods_explained(budget, by_confidence=True)]
    if cost.flops:
        columns += [cost.column, cost.per_cost]
        notes.append(_NO_RATIO)

    def block(study: Study) -> Block:
        notes = how_compared(study, cost)
        if not study.uncalibrated:
            name, reason = live_rule(study.run, study.spec)
            notes.append(
                f"A live run with an offline calibration is the row '{name}': {reason}."
            )
        return [_main_cells(study, row, cost) for row in methods_shown(study)], notes

    return table_of(studies, columns, block, notes=(*notes, INTERVALS))


def _main_cells(study: Study, row: Row, cost: Cost) -> tuple[Cell, ...]:
    saved = None
    if row.method != study.settings.methods.fixed_budget:
        saved = number(100 * (row.tokens_vs_sc.value - 1))
    tokens = row.tokens.value
    cells = (
        row.method,
        row.accuracy.percent,
        row.accuracy_vs_asc.percent,
        row.samples.value,
        tokens,
        saved,
    )
    if not cost.flops:
        return cells
    efficiency = (
        None
        if row.method == PASS
        else cost.efficiency(study, row.accuracy.value, tokens)
    )
    return (*cells, cost(study, tokens), efficiency)


def intervals(studies: Sequence[Study]) -> Table:
    """Return every method's accuracy on one arrangement, with the paper's bootstrap and
    with an exact interval.
    """

    def block(study: Study) -> Block:
        correct = {
            row.method: row.outcomes.column("correct")[:1]
            for row in methods_shown(study)
        }
        learning = {
            row.method: row.outcomes.learned
            for row in methods_shown(study)
            if not row.outcomes.rules
        }
        tested = ~np.isnan(correct[PASS])
        drawn = Bootstrap(correct, tested, seed=study.settings.seed)
        rows: list[tuple[Cell, ...]] = []
        for method, right in correct.items():
            alone = exact(int(right[tested].sum()), drawn.questions).percent
            ends = (None, None) if method in learning else (alone.low, alone.high)
            rows.append(
                (
                    method,
                    drawn.resampled(method, learned=learning.get(method, 0.0)).percent,
                    *ends,
                    drawn.questions,
                )
            )
        shuffles = study.run.shuffles
        arranged = "of one shuffle" if shuffles else "in recorded order"
        if shuffles > 1:
            arranged = f"of the first of {shuffles} shuffles, so that the values are not the means that main has"
        return rows, [
            f"{study.name}: {drawn.questions} questions {arranged}.",
            *how_calibrated(study),
        ]

    columns = [
        Column("Method"),
        Column(
            "Accuracy %",
            ".2f",
            "Right answers, with the 2.5th and the 97.5th percentile of the resamples.",
        ),
        Column("Exact low", ".2f", "Lower end of Clopper and Pearson's interval."),
        Column("Exact high", ".2f", "Upper end of Clopper and Pearson's interval."),
        Column("Questions", ",.0f", "How many were tested."),
    ]
    note = (
        "[..] is the paper's interval: a non-parametric bootstrap over the tested "
        f"questions, {RESAMPLES:,} resamples of one arrangement. Beside it stands the "
        "exact binomial one (Clopper and Pearson, 95 %), which does not shrink to a "
        "point where no answer, or every answer, is right. Methods that learn while "
        "they are tested have neither: one arrangement does not show what another "
        "would teach."
    )
    return table_of(studies, columns, block, notes=(note,))


def stage1(studies: Sequence[Study]) -> Table:
    """Return the share of questions that one response answers, and what the whole
    budget makes of the same ones.
    """
    cost = Cost.of(studies)
    drawn: list[Accepted] = []

    def block(study: Study) -> Block:
        study.calibrations()  # raises an error that says why, if there is none
        rows, notes = [], [how_tested(study), *how_calibrated(study)]
        budget = study.settings.methods.fixed_budget, None
        for name in (OFFLINE, MIXTURE):
            row: RowKey = (name, study.spec)
            outcomes = study.run.outcomes.get(row)
            if outcomes is None or outcomes.impossible:
                continue
            results = Results(
                study, study.run.outcomes, cost, among=outcomes.column("gated")
            )
            share = results.share(row)
            rows.append(
                (
                    name,
                    share,
                    results.accuracy(row),
                    results.accuracy(budget),
                    results.minus(row, budget),
                ),
            )
            if not results.questions:
                notes.append(f"The gate of {name} accepts nothing.")
            size = (
                study.parameters
                if len(studies) == 1
                else parameters_of(study.pool.metadata)
            )
            drawn.append(
                Accepted(study.name, name, size.count if size else None, share)
            )
        return rows, notes

    columns = [
        Column("Method"),
        Column(
            "Accepted %",
            ".1f",
            "Share of the tested questions that the first response answers.",
        ),
        Column("Accuracy %", ".1f", "Of those, the share that it answers right."),
        Column(
            "Majority %",
            ".1f",
            (
                "The share of the same questions that the majority of the whole budget "
                "answers right."
            ),
        ),
        Column(
            "Gate - majority",
            _POINTS,
            "The difference, in points: what accepting one response loses or gains.",
        ),
    ]
    table = table_of(studies, columns, block, notes=(INTERVALS, SIZES))
    return replace(table, draw=partial(draw_acceptance, drawn))


def stage2(studies: Sequence[Study]) -> Table:
    """Return counting votes against weighing them, where one response was not enough."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for row, calibration in study.calibrations().items():
            ours = row, study.spec
            left = Results(
                study,
                study.run.outcomes,
                cost,
                among=1 - study.run.outcomes[ours].column("gated"),
            )
            if not left.questions:
                notes.append(
                    f"The gate of {row} accepts every question, and leaves none to "
                    "Stage 2."
                )
                continue
            for name, key in (
                ("ASC (counts votes)", _ASC),
                ("ReASC (weighs them)", ours),
            ):
                rows.append(
                    (calibration, name, left.share(ours), *_beside_asc(left, key))
                )
        return rows, notes

    columns = [
        Column("Calibration"),
        Column("Method"),
        Column(
            "Left %",
            ".1f",
            (
                "Share of the tested questions that the gate does not accept; all else is "
                "of them."
            ),
        ),
        Column(
            "Accuracy %", ".1f", "Share of these questions that are answered right."
        ),
        cost.column,
        Column(
            "vs ASC %",
            _POINTS,
            "What is spent more (+) or less (-) than by ASC on these questions.",
        ),
        Column(
            "Δ to ASC",
            _POINTS,
            "Accuracy minus that of ASC on these questions, in points.",
        ),
    ]
    return table_of(studies, columns, block)


def _beside_asc(results: Results, key: RowKey) -> tuple[Cell, ...]:
    return (
        results.accuracy(key),
        results.cost(key),
        results.more_than(_ASC, key),
        results.minus(key, _ASC),
    )


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
            alone = {
                name: study.variant_key(row, name) for name in (STAGE_2, GATE_ALONE)
            }
            for name, key in {ASC_ROW: _ASC, **alone, "ReASC": ours}.items():
                rows.append((calibration, name, *_beside_asc(results, key)))
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
        f"{STAGE_2}: votes are weighed, and no question is answered by one response. "
        f"{GATE_ALONE}: one response answers what the gate accepts, and the votes on "
        "all else are counted."
    )
    return table_of(studies, columns, block, notes=(meaning, INTERVALS))


_EQUAL_COST: Final = {
    **EQUAL_COST,
    CALIBRATED: "ASC at equal cost (calibrated)",
}
_TOGETHER: Final = "Weighted majority of all"


def controls(studies: Sequence[Study]) -> Table:
    """Return the rows of ReASC, each followed by its baselines."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        outcomes = study.run.outcomes | _controls(study)
        results = Results(study, outcomes, cost)
        rows: list[tuple[Cell, ...]] = []
        notes = how_compared(study, cost)
        for name in (OFFLINE, CALIBRATED, ONLINE, MIXTURE):
            ours: RowKey = (name, study.spec)
            if ours not in study.run.outcomes or outcomes[ours].impossible:
                continue
            rows.append(
                (name, "(itself)", results.accuracy(ours), results.cost(ours), None)
            )
            for against, control in _against(study, name):
                if not outcomes[control].impossible:
                    accuracy, difference = (
                        results.accuracy(control),
                        results.minus(ours, control),
                    )
                    rows.append(
                        (name, against, accuracy, results.cost(control), difference)
                    )
        confidences = [
            confidence
            for name in EQUAL_COST.values()
            for confidence in study.run.outcomes[name, study.spec].confidences
        ]
        ends = " to ".join(
            dict.fromkeys(f"{end:.4g}" for end in (min(confidences), max(confidences)))
        )
        notes.append(
            f"{study.name}: ASC costs the same at a confidence of {ends} in place of "
            "0.95, chosen on the tested questions, in its favour; what it spends rises "
            "by steps."
        )
        return rows, notes

    columns = [
        Column("Method"),
        Column("Against"),
        ACCURACY,
        cost.column,
        Column(
            "Δ",
            _POINTS,
            (
                "Accuracy of the method minus that of the control on the same responses, "
                "in points."
            ),
        ),
    ]
    meaning = (
        "Best of N takes the answer of the response with the highest score, and the "
        "weighted majority weighs all N by ReASC's own weights; both pay for all of "
        "them. The gate alone goes on by counting votes, and Stage 2 alone has no gate."
    )
    return table_of(studies, columns, block, notes=(meaning, INTERVALS))


def _controls(study: Study) -> dict[RowKey, Outcomes]:
    """Return what the controls do that a replay does not have."""
    settings, (best, spec) = study.settings.methods, _best(study)
    cap = Cap(settings.max_samples)

    def methods_of(split: Split) -> Iterator[Method]:
        calibrated = study.calibrated(split)
        if calibrated.measure is None:
            yield method_by(calibrated.offline, best, spec, None, settings)
        else:
            # with a temperature next to nothing, all the weight is on the highest score
            rule = CISC(temperature=sys.float_info.min, on_missing_confidence="count")
            yield Method(best, rule | cap, spec, calibrated.measure)
        yield method_by_agreement(calibrated.agreement, study.spec, settings)

    def weigh_all(rule: ReASC) -> StoppingRule:
        return _ALONE[STAGE_2](rule) & cap

    outcomes = study.compare(
        methods_of, equal_cost={CALIBRATED: _EQUAL_COST[CALIBRATED]}
    )
    return outcomes | study.variants({**_ALONE, _TOGETHER: weigh_all})


def _against(study: Study, row: str) -> Iterator[tuple[str, RowKey]]:
    """Yield the controls of one row of ReASC: their names, and by what their outcomes
    are known.
    """
    yield "ASC at equal cost", (_EQUAL_COST[row], study.spec)
    if row in (OFFLINE, MIXTURE):
        for name in (GATE_ALONE, STAGE_2, _TOGETHER):
            yield name, study.variant_key(row, name)
    yield _best(study)[0], _best(study)
    for name in (study.settings.methods.fixed_budget, ASC_ROW, PASS):
        yield name, (name, None)


def _best(study: Study) -> RowKey:
    return f"Best of {study.settings.methods.max_samples} by score", study.spec

"""What each of ReASC's two stages contributes: the gate, the weights, and both together."""

from collections.abc import Sequence
from typing import Final

from langchain_reasc_lab.replay.methods import ASC_ROW, MIXTURE, OFFLINE, SAFEGUARDED
from langchain_reasc_lab.replay.replay import RowKey
from langchain_reasc_lab.report.blocks import INTERVALS, Block, how_calibrated, how_tested, loss, table_of
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Cell, Column, Table
from langchain_reasc_lab.report.results import ACCURACY, Cost, Results
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.variants import (
    GATE_ALONE,
    STAGE_2,
    calibrations,
    gate_alone,
    impossible,
    key,
    stage_2,
    variants,
)

__all__ = ["ablation", "stage1", "stage2"]

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
        return Block(rows, notes)

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
        notes = [how_tested(study), *how_calibrated(study), cost.note(study)]
        for row, calibration in calibrations(study).items():
            ours = row, study.spec
            left = Results(study, study.run.outcomes, cost, among=1 - study.run.outcomes[ours].column("gated"))
            if not left.questions:
                notes.append(f"The gate of {row} accepts every question, and leaves none to Stage 2.")
                continue
            gained = left.minus(ours, _ASC)
            asc = left.accuracy(_ASC), left.cost(_ASC)
            rows.append((calibration, "ASC (counts votes)", left.share, *asc, None, None))
            weighed = left.accuracy(ours), left.cost(ours)
            rows.append((calibration, "ReASC (weighs them)", left.share, *weighed, left.cheaper(ours, _ASC), gained))
            notes += loss(f"{row} on these questions", ASC_ROW, gained)
        return Block(rows, notes)

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
        notes = [how_tested(study), *how_calibrated(study), cost.note(study)]
        for row, calibration in calibrations(study).items():
            ours = row, study.spec
            for name, at in {
                ASC_ROW: _ASC,
                STAGE_2: key(study, row, STAGE_2),
                GATE_ALONE: key(study, row, GATE_ALONE),
                "ReASC": ours,
            }.items():
                gained = None if at == _ASC else results.minus(at, _ASC)
                saved = None if at == _ASC else results.cheaper(at, _ASC)
                rows.append((calibration, name, results.accuracy(at), results.cost(at), saved, gained))
            notes += loss(
                row, f"{GATE_ALONE} by the same calibration", results.minus(ours, key(study, row, GATE_ALONE))
            )
            notes += loss(row, f"{STAGE_2} by the same calibration", results.minus(ours, key(study, row, STAGE_2)))
        return Block(rows, notes)

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

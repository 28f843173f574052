"""Whether ReASC's gains are its own: against ASC at equal cost, each stage alone, and other uses of the same scores."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from langchain_reasc.calibration import Calibration
from langchain_reasc.method.stopping import ASC, Cap, ReASC, StoppingRule
from langchain_reasc_lab.replay.methods import (
    ASC_ROW,
    EQUAL_COST,
    MIXTURE,
    OFFLINE,
    ONLINE,
    SAFEGUARDED,
    Method,
    Split,
)
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.blocks import INTERVALS, Block, how_calibrated, how_tested, loss, table_of
from langchain_reasc_lab.report.comparisons import PASS
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Cell, Column, Table
from langchain_reasc_lab.report.results import ACCURACY, Cost, Results
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.variants import GATE_ALONE, STAGE_2, gate_alone, impossible, key, stage_2, variants
from langchain_reasc_lab.rules import CISC

__all__ = ["controls"]

_EQUAL_COST: Final = {**EQUAL_COST, SAFEGUARDED: "ASC at equal cost (offline, safeguarded)"}
_TOGETHER: Final = "Weighted majority of all"


@table("controls", "Controls: what else the same responses could have given")
def controls(studies: Sequence[Study]) -> Table:
    """Each row of ReASC, and below it what it has to be compared with."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        results = Results(study, study.run.outcomes | _outcomes(study), cost)
        rows: list[tuple[Cell, ...]] = []
        notes = [how_tested(study), *how_calibrated(study), cost.note(study)]
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
        return Block(rows, [*notes, _equal(study)])

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
            yield name, key(study, row, name)
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

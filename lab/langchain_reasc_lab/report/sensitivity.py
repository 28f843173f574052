"""Sensitivity to the weight, the gate's target, λ, and the number of calibration
questions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.evidence import WEIGHTS
from langchain_reasc.method.stopping import ReASC, StoppingRule
from langchain_reasc_lab.replay.methods import (
    ASC_ROW,
    OFFLINE,
    Calibrated,
    Method,
    Split,
    calibrated_on,
    counting,
    method_by,
)
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.drawing import draw_sweep
from langchain_reasc_lab.report.results import ACCURACY, Cost, Results, how_compared
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import (
    INTERVALS,
    Block,
    Cell,
    Column,
    Table,
    table_of,
)
from langchain_reasc_lab.report.weights import OtherWeight

P_TARGETS: Final = (0.9, 0.95, 0.99)
SCALES: Final = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.2)
SIZES: Final = (16, 32, 64, 128, 256)
_ASC: Final[RowKey] = (ASC_ROW, None)
_CHOICE: Final = (
    "All rows are of the tested questions: to take the best of them would be a choice "
    "made on those, which promises less for others than it shows here."
)
_FORMULAS: Final = {
    "reasc": "max(1, exp(λz))",
    "exponential": "exp(λz)",
    "mean": "S / μ",
    "sigmoid": "1 / (1 + exp(-λz))",
    "count": "1",
}


def mappings(studies: Sequence[Study]) -> Table:
    """Return the paper's weight and its alternatives, behind the same gate."""
    cost = Cost.of(studies)
    shown = {name: f"{name}: {formula}" for name, formula in _FORMULAS.items()}

    def weighed(rule: ReASC, weight: str) -> StoppingRule:
        if weight in WEIGHTS:
            return replace(rule, weight=weight)
        return OtherWeight.instead_of(rule, weight)

    def block(study: Study) -> Block:
        outcomes = study.variants(
            {name: partial(weighed, weight=name) for name in _FORMULAS}
        )
        rows, notes = _rows(study, cost, outcomes, shown)
        asc = _cells(Results(study, study.run.outcomes, cost), study.run.outcomes, _ASC)
        return [("none", "ASC: 1, without a gate", *asc), *rows], notes

    columns = [Column("Calibration"), Column("Mapping"), *_columns(cost)]
    note = "All mappings stand behind the same gate, so that count is the gate alone; ASC has none."
    return table_of(studies, columns, block, notes=(note, _CHOICE, INTERVALS))


def p_target(studies: Sequence[Study]) -> Table:
    """Return the gate at other targets; all else is the same."""
    cost = Cost.of(studies)
    shown = {f"{target:g}": target for target in P_TARGETS}

    def block(study: Study) -> Block:
        def retargeted(split: Split, name: str) -> Calibrated:
            made, settings = study.calibrated(split), study.settings.methods
            if shown[name] == settings.p_target or made.measure is None:
                return made
            settings = replace(settings, p_target=shown[name])
            return calibrated_on(
                study.pool, study.scores, split, made.measure, settings
            )

        return _rows(
            study,
            cost,
            study.variants(dict.fromkeys(shown, lambda rule: rule), retargeted),
            shown,
        )

    target = Column(
        "p_target",
        ".2f",
        "The accuracy asked of the gate; of the mixture, its posterior.",
    )
    columns = [Column("Calibration"), target, *_columns(cost)]
    return table_of(studies, columns, block, notes=(_CHOICE, INTERVALS))


def scale(studies: Sequence[Study]) -> Table:
    """Return Stage 2 at other scales of its weights, behind the same gate."""
    cost = Cost.of(studies)
    shown = {f"{value:g}": value for value in SCALES}

    def scaled(rule: ReASC, scale: float) -> StoppingRule:
        return replace(rule, statistics=replace(rule.statistics, scale=scale))

    def block(study: Study) -> Block:
        outcomes = study.variants(
            {name: partial(scaled, scale=value) for name, value in shown.items()}
        )
        return _rows(study, cost, outcomes, shown)

    note = "The gate does not depend on λ. At λ = 0 every vote counts one, which is the gate alone."
    columns = [Column("Calibration"), Column("λ", ".1f"), *_columns(cost)]
    return _swept(table_of(studies, columns, block, notes=(note, _CHOICE, INTERVALS)))


def calibration_size(studies: Sequence[Study]) -> Table:
    """Return Algorithm 1 on more and on fewer questions, tested on the same ones."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        if study.measure is None:
            raise PoolError(str(study.uncalibrated))
        spec, settings, sizes = study.measure, study.settings.methods, _sizes(study)
        arranged = study.arranged(sizes[-1])

        def methods_of(split: Split) -> Iterator[Method]:
            yield from (
                method for method in counting(settings) if method.name == ASC_ROW
            )
            for size in sizes:
                first = replace(split, calibration=split.calibration[:size])
                calibrated = calibrated_on(
                    study.pool,
                    study.scores,
                    first,
                    spec,
                    settings,
                    unlabelled_too=False,
                )
                key = study.variant_key(OFFLINE, str(size))
                yield method_by(calibrated.offline, *key, calibrated.measure, settings)

        outcomes = study.compare(methods_of, arranged=arranged)
        results = Results(study, outcomes, cost)
        rows, notes = [], list(_how_sized(study, arranged, cost))
        for size in sizes:
            key = study.variant_key(OFFLINE, str(size))
            rows.append(
                (size, *_cells(results, outcomes, key), _spent(study, arranged, size))
            )
            notes += _refused(f"The calibration on {size} questions", outcomes[key])
        return rows, notes

    columns = [
        Column(
            "Questions",
            ",.0f",
            "Calibration questions, with one labelled response to each.",
        ),
        *_columns(cost),
        Column(
            "Calibration tokens",
            ",.0f",
            "What those responses cost, once for all; no other column holds it.",
        ),
    ]
    return _swept(table_of(studies, columns, block))


def _swept(table: Table) -> Table:
    """Return the table with its figure, if there is any accuracy to draw."""
    accuracy = table.columns.index(ACCURACY)
    if all(row[accuracy] is None for row in table.rows):
        return table
    return replace(table, draw=partial(draw_sweep, table, accuracy - 1))


def _columns(cost: Cost) -> list[Column]:
    """Return what is shown of each choice."""
    difference = Column(
        "Δ to ASC",
        "+.1f",
        "Accuracy minus that of ASC on the same responses, in points.",
    )
    return [ACCURACY, cost.column, cost.per_cost, difference]


def _cells(
    results: Results, outcomes: Mapping[RowKey, Outcomes], key: RowKey
) -> tuple[Cell, ...]:
    """Return the cells of :func:`_columns`; none if the choice cannot be had."""
    if outcomes[key].impossible:
        return (None,) * 4
    return (
        results.accuracy(key),
        results.cost(key),
        results.efficiency(key),
        results.minus(key, _ASC),
    )


def _refused(name: str, outcomes: Outcomes) -> Iterator[str]:
    """Yield why a choice could not be had in some arrangements, or in all."""
    if outcomes.problems:
        times = f"counted votes in {len(outcomes.problems)} of {len(outcomes.cells)} arrangements"
        yield f"{name} {'cannot be had' if outcomes.impossible else times}: {outcomes.problems[0]}."


def _rows(
    study: Study,
    cost: Cost,
    variants: dict[RowKey, Outcomes],
    shown: Mapping[str, Cell],
) -> Block:
    """Return a row of each choice by either calibration; an empty one where it cannot
    be had.
    """
    outcomes = study.run.outcomes | variants
    results = Results(study, outcomes, cost)
    rows: list[tuple[Cell, ...]] = []
    notes = how_compared(study, cost)
    for row, calibration in study.calibrations().items():
        for name, cell in shown.items():
            key = study.variant_key(row, name)
            rows.append((calibration, cell, *_cells(results, outcomes, key)))
            notes += _refused(f"{cell} by the {calibration} calibration", outcomes[key])
    return rows, notes


def _sizes(study: Study) -> list[int]:
    """Return those that leave as many questions to be tested; of a pool of their own,
    those it holds, and all of it.
    """
    if calibrating := study.pool.calibrating:
        return [*(size for size in SIZES if size < calibrating), calibrating]
    questions = len(study.pool.questions)
    sizes = [size for size in SIZES if 2 * size <= questions]
    if not sizes:
        raise PoolError(
            f"{study.name} holds {questions} question{'s' if questions > 1 else ''}; "
            f"the smallest calibration is on {SIZES[0]}, and as many are to be left "
            "for a test"
        )
    return sizes


def _how_sized(study: Study, arranged: Sequence[Split], cost: Cost) -> Iterator[str]:
    shuffled = (
        f"means over {len(arranged)} shuffles (seed {study.settings.seed})"
        if study.settings.shuffles
        else ""
    )
    yield (
        f"{study.name}: all sizes are tested on the same {len(arranged[0].tested)} "
        f"questions, {shuffled or 'in recorded order'}; a smaller calibration is on "
        "the first questions of a larger one."
    )
    if study.measure == "auto":
        yield "The measure is chosen anew on the calibration responses of each size."
    yield cost.note(study)


def _spent(study: Study, arranged: Sequence[Split], size: int) -> float:
    """Return the tokens of the calibration responses, in the mean of the arrangements."""
    firsts = [split.firsts(split.calibration[:size]) for split in arranged]
    return float(
        sum(study.recorded.tokens[at] for pairs in firsts for at in pairs)
        / len(arranged)
    )

"""How much depends on the weight, the gate's target, λ, and the number of questions that calibrate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.evidence import WEIGHTS, check_weight
from langchain_reasc.method.stopping import ReASC, StoppingRule
from langchain_reasc_lab.replay.methods import (
    ASC_ROW,
    MIXTURE,
    OFFLINE,
    Calibrated,
    Method,
    Split,
    calibrated_on,
    counting,
)
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.report import table
from langchain_reasc_lab.report.rows import (
    ACCURACY,
    INTERVALS,
    Block,
    Change,
    Cost,
    Results,
    calibrations,
    changed,
    how_compared,
    impossible,
    table_of,
    variant_key,
    variants,
)
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table

P_TARGETS: Final = (0.9, 0.95, 0.99)
SCALES: Final = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.2)
_ASC: Final[RowKey] = (ASC_ROW, None)
_CHOICE: Final = (
    "All rows are of the tested questions: to take the best of them would be a choice made on those, which promises "
    "less for others than it shows here."
)
_FORMULAS: Final = {
    "count": "1",
    "mean": "S / μ",
    "sigmoid": "1 / (1 + exp(-λz))",
    "exponential": "exp(λz)",
    "reasc": "max(1, exp(λz))",
}


@table("mappings", "From score to weight", paper="Table 7")
def mappings(studies: Sequence[Study]) -> Table:
    """The paper's weight and its alternatives, behind the same gate."""
    cost = Cost.of(studies)
    changes: dict[str, Change] = {name: partial(_weighed, weight=name) for name in WEIGHTS}
    shown = {name: f"{name}: {_FORMULAS[name]}" if name in _FORMULAS else name for name in WEIGHTS}

    def block(study: Study) -> Block:
        outcomes = study.run.outcomes | variants(study, changes)
        rows, notes = _rows(study, cost, outcomes, shown)
        asc = ("none", "ASC: 1, without a gate", *cells(Results(study, study.run.outcomes, cost), _ASC))
        return [asc, *rows], notes

    columns = [Column("Calibration"), Column("Mapping"), *choice_columns(cost)]
    note = "All mappings stand behind the same gate, so that count is the gate alone; ASC has none."
    return table_of(studies, columns, block, notes=(note, _CHOICE, INTERVALS))


@table("p_target", "The accuracy asked of the gate", paper="Table 11")
def p_target(studies: Sequence[Study]) -> Table:
    """The gate at other targets; all else is the same."""
    cost = Cost.of(studies)
    shown = {f"{target:g}": target for target in P_TARGETS}

    def block(study: Study) -> Block:
        def methods_of(split: Split) -> Iterator[Method]:
            for name, target in shown.items():
                made = _retargeted(study, split, target)
                for row, calibration in ((OFFLINE, made.offline), (MIXTURE, made.mixture)):
                    yield changed(
                        study, variant_key(study, row, name), made, calibration or made.offline, lambda rule: rule
                    )

        return _rows(study, cost, study.run.outcomes | study.compare(methods_of), shown)

    columns = [
        Column("Calibration"),
        Column("p_target", ".2f", "The accuracy asked of the gate; of the mixture, its posterior."),
        *choice_columns(cost),
    ]
    return table_of(studies, columns, block, notes=(_CHOICE, INTERVALS))


@table("scale", "λ, how strongly confidence counts", paper="Figure 8")
def scale(studies: Sequence[Study]) -> Table:
    """Stage 2 at other scales of its weights, behind the same gate."""
    cost = Cost.of(studies)
    shown = {f"{one:g}": one for one in SCALES}
    changes: dict[str, Change] = {name: partial(_scaled, scale=one) for name, one in shown.items()}

    def block(study: Study) -> Block:
        return _rows(study, cost, study.run.outcomes | variants(study, changes), shown)

    note = "The gate does not depend on λ. At λ = 0 every vote counts one, which is the gate alone."
    columns = [Column("Calibration"), Column("λ", ".1f"), *choice_columns(cost)]
    return table_of(studies, columns, block, notes=(note, _CHOICE, INTERVALS))


def choice_columns(cost: Cost) -> list[Column]:
    """What is told of each choice."""
    difference = Column("Δ to ASC", "+.1f", "Accuracy minus that of ASC on the same responses, in points.")
    return [ACCURACY, cost.column, cost.per_cost, difference]


def cells(results: Results, at: RowKey) -> tuple[Cell, ...]:
    """The cells of :func:`choice_columns`; none where it cannot be had."""
    if impossible(results.outcomes[at]):
        return (None,) * 4
    difference = None if at == _ASC else results.minus(at, _ASC)
    return results.accuracy(at), results.cost(at), results.efficiency(at), difference


def refused(name: str, outcomes: Outcomes) -> Iterator[str]:
    """Why a choice could not be had in some arrangements, or in all."""
    if outcomes.problems:
        times = f"counted votes in {len(outcomes.problems)} of {len(outcomes.cells)} arrangements"
        yield f"{name} {'cannot be had' if impossible(outcomes) else times}: {outcomes.problems[0]}."


def _rows(study: Study, cost: Cost, outcomes: Mapping[RowKey, Outcomes], shown: Mapping[str, Cell]) -> Block:
    """A row of each choice by either calibration; an empty one where it cannot be had."""
    results = Results(study, outcomes, cost)
    rows: list[tuple[Cell, ...]] = []
    notes = how_compared(study, cost)
    for row, calibration in calibrations(study).items():
        for name, cell in shown.items():
            at = variant_key(study, row, name)
            rows.append((calibration, cell, *cells(results, at)))
            notes += refused(f"{cell} by the {calibration} calibration", outcomes[at])
    return rows, notes


def _weighed(rule: ReASC, *, weight: str) -> StoppingRule:
    check_weight(weight, rule.statistics.mean)
    return replace(rule, weight=weight)


def _scaled(rule: ReASC, *, scale: float) -> StoppingRule:
    return replace(rule, statistics=replace(rule.statistics, scale=scale))


def _retargeted(study: Study, split: Split, target: float) -> Calibrated:
    """The calibrations of an arrangement at another target, by the measure that was chosen there."""
    made, settings = study.calibrated(split), study.settings.methods
    if target == settings.p_target or made.measure is None:
        return made
    return calibrated_on(study.pool, study.scores, split, made.measure, replace(settings, p_target=target))


SIZES: Final = (16, 32, 64, 128, 256)


@table("calibration_size", "Questions that calibrate", paper="Figure 7")
def calibration_size(studies: Sequence[Study]) -> Table:
    """Algorithm 1 on more and on fewer questions, tested on the same ones."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        if study.measure is None:
            raise PoolError(str(study.uncalibrated))
        spec, sizes = study.measure, _sizes(study)
        arranged = study.arranged(sizes[-1])

        def methods_of(split: Split) -> Iterator[Method]:
            yield from (method for method in counting(study.settings.methods) if method.name == ASC_ROW)
            for size in sizes:
                first = replace(split, calibration=split.calibration[:size])
                made = calibrated_on(
                    study.pool, study.scores, first, spec, study.settings.methods, unlabelled_too=False
                )
                yield changed(study, variant_key(study, OFFLINE, str(size)), made, made.offline, lambda rule: rule)

        outcomes = study.compare(methods_of, arranged=arranged)
        results = Results(study, outcomes, cost)
        rows, notes = [], list(_notes(study, arranged, cost))
        for size in sizes:
            at = variant_key(study, OFFLINE, str(size))
            rows.append((size, *cells(results, at), _spent(study, arranged, size)))
            notes += refused(f"The calibration on {size} questions", outcomes[at])
        return rows, notes

    columns = [
        Column("Questions", ",.0f", "Calibration questions, with one labelled response to each."),
        *choice_columns(cost),
        Column("Calibration tokens", ",.0f", "What those responses cost, once for all; no other column holds it."),
    ]
    return table_of(studies, columns, block)


def _sizes(study: Study) -> list[int]:
    """Those that leave as many questions to be tested; of a pool of their own, those that it holds, and all of it."""
    if calibrating := study.pool.calibrating:
        return [*(size for size in SIZES if size < calibrating), calibrating]
    questions = len(study.pool.questions)
    sizes = [size for size in SIZES if 2 * size <= questions]
    if not sizes:
        raise PoolError(
            f"{study.name} holds {questions} question{'s' if questions > 1 else ''}; the smallest calibration is on "
            f"{SIZES[0]}, and as many are to be left for a test"
        )
    return sizes


def _notes(study: Study, arranged: Sequence[Split], cost: Cost) -> Iterator[str]:
    shuffled = f"means over {len(arranged)} shuffles (seed {study.settings.seed})" if study.settings.shuffles else ""
    yield (
        f"{study.name}: all sizes are tested on the same {len(arranged[0].tested)} questions, "
        f"{shuffled or 'in recorded order'}; a smaller calibration is on the first questions of a larger one."
    )
    if study.measure == "auto":
        yield "The measure is chosen anew on the calibration responses of each size."
    yield cost.note(study)


def _spent(study: Study, arranged: Sequence[Split], size: int) -> float:
    """Tokens of the calibration responses, in the mean of the arrangements."""
    firsts = [split.firsts(split.calibration[:size]) for split in arranged]
    return float(sum(study.recorded.tokens[at] for pairs in firsts for at in pairs) / len(arranged))

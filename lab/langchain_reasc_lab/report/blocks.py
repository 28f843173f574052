"""A table over several pools: a block of rows for each, and the notes below."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from langchain_reasc.exceptions import PoolError, ReASCError
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Estimate
from langchain_reasc_lab.replay.methods import OFFLINE, SAFEGUARDED
from langchain_reasc_lab.replay.replay import Replay
from langchain_reasc_lab.report.results import Cost
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table

INTERVALS: Final = (
    f"[..] are 95 % intervals from {RESAMPLES:,} bootstrap resamples over questions, each with all its shuffles; those "
    "of differences in accuracy, and where fewer than ten questions are right or wrong, are Clopper and Pearson's. For "
    "methods that learn, they have the variance between shuffles in them; a method that learns while it is tested has "
    "none in a single arrangement."
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
    """Return a block for each pool; a pool that cannot have one is named in a note.

    Args:
        studies: the pools.
        columns: the columns of a block. Where there are several pools, one before them says which.
        block: makes the block of one pool.
        notes: notes on all pools.
        named: whether to say in a column which pool it is, if there are several.

    Raises:
        PoolError: no pool can have one, with all reasons.
    """
    named = named and len(studies) > 1
    rows: list[Sequence[Cell]] = []
    lines: list[str] = []
    refused: dict[str, str] = {}
    for study in studies:
        try:
            of_study, notes_of_study = block(study)
        except ReASCError as error:
            refused[study.name] = str(error).rstrip(".") + "."
            continue
        rows += [(study.name, *row) for row in of_study] if named else of_study
        lines += notes_of_study
    if not rows:
        raise PoolError(" ".join(dict.fromkeys(refused.values() or lines)) or "there is no pool")
    lines += [why if why.startswith(name) else f"{name}: no row, because {why}" for name, why in refused.items()]
    shown = (Column("Pool"), *columns) if named else columns
    return Table(shown, rows, tuple(dict.fromkeys((*lines, *notes))))


def how_tested(study: Study) -> str:
    """Return on what methods are compared, in a sentence."""
    run = study.run
    tested = f"{study.name}: {run.tested} question{'s' if run.tested > 1 else ''} tested"
    others = ""
    if run.calibration_size:
        of_file = f" in {run.pool.calibration_path}" if run.pool.calibration_path else ""
        others = f", calibrated on {run.calibration_size} others{of_file}"
    alone = ""
    if others and (run.arrangements == 1 or run.pool.calibrating):
        alone = "; the intervals hold for this one calibration, and leave out how others would differ"
    if not run.shuffles:
        return f"{tested} in recorded order{others}{alone}."
    return (
        f"{tested}{others}; means over {run.shuffles} shuffle{'s' if run.shuffles > 1 else ''} of questions and "
        f"responses (seed {run.seed}){alone}. What calibration responses cost is not counted."
    )


def how_compared(study: Study, cost: Cost) -> list[str]:
    """Return on what methods are compared, by what ReASC weighs, and the unit of costs, in sentences."""
    return [how_tested(study), *how_calibrated(study), cost.note(study)]


def how_calibrated(study: Study) -> Iterator[str]:
    """Yield by what ReASC weighs and what became of its calibrations, in sentences."""
    yield from (f"{study.name}: {note}." for note in study.run.notes if note not in study.pool.notes)
    if study.uncalibrated:
        yield study.uncalibrated + "."
        return
    yield from _weighed_by(study)
    for (name, _), outcomes in study.run.outcomes.items():
        gates = (one.gate if name == SAFEGUARDED else one.gate.as_in_paper() for one in outcomes.calibrations)
        if outcomes.problems:
            yield f"{name} counted votes {_often(outcomes.problems, study.run)}: {outcomes.problems[0]}."
        if closed := [why for _, why in (gate.in_use for gate in gates) if why]:
            yield f"The gate of {name} was closed {_often(closed, study.run)}: {closed[0]}."


def _weighed_by(study: Study) -> Iterator[str]:
    chosen = study.run.outcomes[OFFLINE, study.spec].chosen
    if study.spec != "auto":
        yield f"ReASC weighs by {'the recorded score' if study.spec == 'recorded' else study.spec}."
    elif chosen:
        best, times = chosen.most_common(1)[0]
        often = f", most often {best} (in {times} of {chosen.total()})" if study.run.shuffles else f", {best}"
        yield (
            f"ReASC weighs by the measure that is chosen on the labelled calibration responses alone{often}; ReASC "
            "(online) chooses its own without labels."
        )


def _often(reasons: Sequence[str], run: Replay) -> str:
    return f"in {len(reasons)} of {run.arrangements} arrangements" if run.arrangements > 1 else "here"


def loss(name: str, against: str, difference: Estimate | None) -> Iterator[str]:
    """Yield, where a control answers more questions right, a sentence that says so.

    Args:
        name: the method that is compared.
        against: the control.
        difference: the method's accuracy minus the control's, in points.
    """
    if difference is None or not difference.value < 0:
        return
    points = f"{-difference.value:.1f} points" if difference.value <= -0.05 else "less than 0.1 points"
    interval = Estimate(-difference.value, -difference.high, -difference.low).interval("+.1f")
    known = f": the difference is {interval}" if interval else ""
    sure = "" if difference.high < 0 else ", which may be chance"
    yield f"{against} is {points} more accurate than {name}{known}{sure}."

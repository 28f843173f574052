"""Tables of several pools: a block of rows for each, and what has to be known to read them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_reasc.exceptions import PoolError, ReASCError
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Estimate
from langchain_reasc_lab.replay.methods import OFFLINE, SAFEGUARDED
from langchain_reasc_lab.replay.replay import Outcomes
from langchain_reasc_lab.report.parts import Cell, Column, Table
from langchain_reasc_lab.report.study import Study

__all__ = ["INTERVALS", "Block", "how_calibrated", "how_tested", "loss", "table_of"]

INTERVALS: Final = (
    f"[..] are 95 % intervals from {RESAMPLES:,} bootstrap resamples over questions, each with all its shuffles, "
    "paired where they are of differences; of none, of all and of methods that never differed they are exact (Clopper "
    "and Pearson)."
)


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a table that is about one pool.

    Attributes:
        rows: a cell for each column, without the one that names the pool.
        notes: what has to be known to read them, in whole sentences.
    """

    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


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
    told: list[str] = []
    reasons: list[str] = []
    refused: list[str] = []
    for study in studies:
        try:
            made = block(study)
        except ReASCError as error:
            why = str(error).rstrip(".") + "."
            reasons.append(why)
            refused.append(why if why.startswith(study.name) else f"{study.name}: no row, because {why}")
            continue
        rows += [(study.name, *row) for row in made.rows] if named else made.rows
        told += made.notes
    if not rows:
        raise PoolError(" ".join(dict.fromkeys(reasons or told)) or "there is no pool")
    return Table(
        (Column("Pool"), *columns) if named else columns, rows, tuple(dict.fromkeys((*told, *refused, *notes)))
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
    for (name, _), held in study.run.outcomes.items():
        yield from _gone_wrong(name, held, study.run.arrangements)


def _gone_wrong(name: str, held: Outcomes, arrangements: int) -> Iterator[str]:
    often = f"in {{}} of {arrangements} arrangements" if arrangements > 1 else "here"
    if held.problems:
        yield f"{name} counted votes {often.format(len(held.problems))}: {held.problems[0]}."
    closed = [
        why for one in held.calibrations if (why := one.gate.under("paper" if name != SAFEGUARDED else "default")[1])
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

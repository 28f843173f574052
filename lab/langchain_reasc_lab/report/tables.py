"""Tables of several pools, and how their cells are read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from langchain_reasc.exceptions import PoolError, ReASCError
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Estimate
from langchain_reasc_lab.report.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | float | Estimate | None
"""A text, a number, a number with its 95 % interval, or nothing that could be had."""

MISSING: Final = "–"
"""The text in place of a missing number."""
INTERVALS: Final = (
    f"[..] are 95 % intervals from {RESAMPLES:,} bootstrap resamples over questions, "
    "each with all its shuffles; those of differences in accuracy, and where fewer "
    "than ten questions are right or wrong, are Clopper and Pearson's. For methods "
    "that learn, they have the variance between shuffles in them; a method that learns "
    "while it is tested has none in a single arrangement."
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading, with the unit: ``"Accuracy %"``.
        style: how its numbers are written, a format specification such as ``".1f"`` or
            ``"+.2f"``; empty for texts.
        meaning: the meaning of the heading, in a sentence that is shown below the
            table.
    """

    name: str
    style: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or the data of a figure.

    Attributes:
        columns: its columns.
        rows: a cell for each column; numbers in the unit of the heading.
        notes: explanations for readers, in whole sentences.
        draw: draws the table as a figure; None for a table without one.
        printed: whether the rows are printed; else there is only the figure, and a CSV
            file.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    draw: "Callable[[], Figure] | None" = None
    printed: bool = True

    def is_text(self, column: int) -> bool:
        """Return whether a column holds texts, and is aligned as such."""
        return not self.columns[column].style and any(
            isinstance(row[column], str) for row in self.rows
        )


def cell_text(cell: Cell, style: str) -> str:
    """Return a cell as it is read, an estimate as ``72.5 [65.6, 79.4]``."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        return f"{_number_text(cell.value, style)} {cell.interval(style)}".rstrip()
    return _number_text(cell, style)


def _number_text(value: float | None, style: str) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    return format(value, style or ".4g")


def number_of(cell: Cell) -> float | None:
    """Return the number of a cell, or the value of an estimate; None for a text or an
    empty cell.
    """
    value = cell.value if isinstance(cell, Estimate) else cell
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return None
    return float(value)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


Block = tuple[Sequence[Sequence[Cell]], Sequence[str]]
"""The part of a table that is about one pool: its rows, without the column that names
the pool, and its notes.
"""


def table_of(
    studies: Sequence[Study],
    columns: Sequence[Column],
    block: Callable[[Study], Block],
    *,
    notes: Sequence[str] = (INTERVALS,),
) -> Table:
    """Return a block of rows for each pool; a pool that cannot have one is named in a
    note.

    Args:
        studies: the pools.
        columns: the columns of a block. With several pools, the first column of the
            table names the pool.
        block: makes the block of one pool.
        notes: notes on all pools.

    Raises:
        PoolError: no pool can have one, with all reasons.
    """
    several = len(studies) > 1
    rows: list[Sequence[Cell]] = []
    lines: list[str] = []
    refused: dict[str, str] = {}
    for study in studies:
        try:
            rows_of_study, notes_of_study = block(study)
        except ReASCError as error:
            refused[study.name] = str(error).rstrip(".") + "."
            continue
        lines += notes_of_study
        for row in rows_of_study:
            rows.append((study.name, *row) if several else row)
    if not rows:
        raise PoolError(" ".join(dict.fromkeys(refused.values() or lines)))
    for name, reason in refused.items():
        lines.append(
            reason if reason.startswith(name) else f"{name}: no row, because {reason}"
        )
    if several:
        columns = [Column("Pool"), *columns]
    return Table(columns, rows, tuple(dict.fromkeys((*lines, *notes))))

"""The data types of tables and figures, and the formatting of cells."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from langchain_reasc_lab.replay.bootstrap import Estimate

Cell = str | float | Estimate | None
"""A text, a number, a number with its 95 % interval, or nothing that could be had."""
Mark = Literal["best", "second"]

MISSING: Final = "–"
"""The text in place of a missing number."""
POOLS: Final = ("Pool", "Task")
"""Columns that say which pool a row is of; bests are found among the rows of one pool."""
MARKED: Final = (
    "{best} is the best of its column, {second} the second best, among the rows of one pool and as the numbers are "
    "written here; whether two of them differ by more than chance, their intervals say."
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading, with the unit: ``"Accuracy %"``.
        style: how its numbers are written, a format specification such as ``".1f"`` or ``"+.2f"``; empty for texts.
        meaning: the meaning of the heading, in a sentence that is shown below the table.
        best: whether a higher or a lower number is better, if either is.
    """

    name: str
    style: str = ""
    meaning: str = ""
    best: Literal["high", "low"] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: its columns.
        rows: a cell for each column; numbers in the unit of the heading.
        notes: explanations for readers, in whole sentences.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    @property
    def has_numbers(self) -> bool:
        """Whether there is any number in it."""
        return any(cell is not None and not isinstance(cell, str) for row in self.rows for cell in row)

    def is_text(self, column: int) -> bool:
        """Return whether a column holds texts, and is aligned as such."""
        return not self.columns[column].style and any(isinstance(row[column], str) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    Attributes:
        html: an ``<svg>`` element, or other HTML that stands alone and escapes what it shows.
        text: a description, for readers who do not see the figure and for reports without pictures.
        title: which one it is, if there are several: the pool's name.
        notes: explanations for readers, in whole sentences.
    """

    html: str
    text: str
    title: str = ""
    notes: Sequence[str] = ()

    @property
    def is_svg(self) -> bool:
        """Whether it is a picture."""
        return self.html.startswith("<svg ")


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell as every output form shows it.

    Attributes:
        value: its number or text.
        interval: ``[65.6, 79.4]`` behind the number; empty if there is none.
        key: its number in full precision, to sort by; empty for texts.
        mark: whether it is the best or the second best of its column.
    """

    value: str
    interval: str
    key: str
    mark: Mark | None

    def __str__(self) -> str:
        return f"{self.value} {self.interval}" if self.interval else self.value


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def number_of(cell: Cell) -> float | None:
    """Return the number of a cell, or the value of an estimate; None for a text or an empty cell."""
    value = cell.value if isinstance(cell, Estimate) else cell
    return None if value is None or isinstance(value, str) or not math.isfinite(value) else float(value)


def shown(table: Table) -> list[list[Shown]]:
    """Return the rows of a table as they are shown."""
    marked, places = marks(table), range(len(table.columns))
    return [
        [show(row[place], table.columns[place], marked.get((at, place))) for place in places]
        for at, row in enumerate(table.rows)
    ]


def show(cell: Cell, column: Column, mark: Mark | None = None) -> Shown:
    """Return a cell as it is read, as text ``72.5 [65.6, 79.4]`` for an estimate."""
    if cell is None or isinstance(cell, str):
        return Shown(MISSING if cell is None else cell, "", "", mark)
    ends = [_number(end, column.style) for end in (cell.low, cell.high)] if isinstance(cell, Estimate) else []
    interval = "" if set(ends) <= {MISSING} else f"[{', '.join(ends)}]"
    value, key = cell.value if isinstance(cell, Estimate) else cell, number_of(cell)
    return Shown(_number(value, column.style), interval, "" if key is None else repr(key), mark)


def _number(value: float, style: str) -> str:
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else "∞" if value > 0 else "-∞"
    return format(round(value) if style.endswith("d") else value, style or ".4g")


def marks(table: Table) -> dict[tuple[int, int], Mark]:
    """Return (row, column) -> whether it is the best or the second best among the rows of its pool.

    Numbers are compared as they are written: 72.46 and 72.54 are both 72.5, and both are the best. Where all are equal
    none is marked, and if there are two of them the second best would say nothing.
    """
    named = next((at for at, column in enumerate(table.columns) if column.name in POOLS), None)
    pools: dict[Cell, list[int]] = {}
    for at, row in enumerate(table.rows):
        pools.setdefault(None if named is None else row[named], []).append(at)
    return {
        (row, place): mark
        for place, column in enumerate(table.columns)
        if column.best
        for rows in pools.values()
        for row, mark in _marked({row: table.rows[row][place] for row in rows}, column)
    }


def _marked(cells: Mapping[int, Cell], column: Column) -> Iterator[tuple[int, Mark]]:
    numbers = {row: number for row, cell in cells.items() if (number := number_of(cell)) is not None}
    written = {row: _as_written(number, column.style) for row, number in numbers.items()}
    ranked = sorted(set(written.values()), reverse=column.best == "high")
    for row, value in written.items():
        if len(ranked) > 1 and value == ranked[0]:
            yield row, "best"
        elif len(ranked) > 2 and value == ranked[1]:
            yield row, "second"


def _as_written(value: float, style: str) -> float:
    try:
        return float(_number(value, style).replace(",", "").rstrip("%"))
    except ValueError:  # a style that writes more than a number
        return value

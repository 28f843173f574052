"""How cells are written, and which of a column are the best."""

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report.parts import Cell, Column, Table

__all__ = ["MARKED", "MISSING", "POOLS", "Mark", "is_text", "marks", "number_of", "written"]

MISSING: Final = "–"
"""What stands for a number that could not be had."""

POOLS: Final = ("Pool", "Task")
"""Columns that say which pool a row is of; bests are found among the rows of one pool."""

MARKED: Final = (
    "{best} is the best of its column, {second} the second best, among the rows of one pool and as the numbers are "
    "written here; whether two of them differ by more than chance, their intervals say."
)

Mark = Literal["best", "second"]


def number_of(cell: Cell) -> float | None:
    """The number of a cell, of an estimate its value; None for a text, and where there is none."""
    value = cell.value if isinstance(cell, Estimate) else cell
    return None if value is None or isinstance(value, str) or not math.isfinite(value) else float(value)


def is_text(table: Table, column: int) -> bool:
    """Whether a column holds texts, and is aligned as such."""
    cells = [row[column] for row in table.rows]
    return not table.columns[column].style and any(isinstance(cell, str) for cell in cells)


def written(cell: Cell, column: Column) -> str:
    """A cell as it is read: ``72.5 [65.6, 79.4]`` for an estimate."""
    if cell is None or isinstance(cell, str):
        return MISSING if cell is None else cell
    if isinstance(cell, Estimate):
        value, low, high = (_number(part, column.style) for part in (cell.value, cell.low, cell.high))
        return value if (low, high) == (MISSING, MISSING) else f"{value} [{low}, {high}]"
    return _number(cell, column.style)


def _number(value: float, style: str) -> str:
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else "∞" if value > 0 else "-∞"
    return format(round(value) if style.endswith("d") else value, style or ".4g")


def marks(table: Table) -> dict[tuple[int, int], Mark]:
    """(row, column) -> whether it is the best or the second best among the rows of its pool.

    Numbers are compared as they are written: 72.46 and 72.54 are both 72.5, and both are the best. Where all are equal
    none is marked, and where there are two of them the second best would say nothing.
    """
    return {
        (row, at): mark
        for at, column in enumerate(table.columns)
        if column.best is not None
        for rows in _pools(table)
        for row, mark in _marked(rows, [table.rows[row][at] for row in rows], column)
    }


def _pools(table: Table) -> list[list[int]]:
    at = next((at for at, column in enumerate(table.columns) if column.name in POOLS), None)
    pools: dict[Cell, list[int]] = {}
    for number, row in enumerate(table.rows):
        pools.setdefault(None if at is None else row[at], []).append(number)
    return list(pools.values())


def _marked(rows: Sequence[int], cells: Sequence[Cell], column: Column) -> Iterator[tuple[int, Mark]]:
    shown = [None if (value := number_of(cell)) is None else _as_written(value, column.style) for cell in cells]
    ranked = sorted({value for value in shown if value is not None}, reverse=column.best == "high")
    for row, value in zip(rows, shown, strict=True):
        if len(ranked) > 1 and value == ranked[0]:
            yield row, "best"
        elif len(ranked) > 2 and value == ranked[1]:
            yield row, "second"


def _as_written(value: float, style: str) -> float:
    try:
        return float(_number(value, style).replace(",", "").rstrip("%"))
    except ValueError:  # a style that writes more than a number
        return value

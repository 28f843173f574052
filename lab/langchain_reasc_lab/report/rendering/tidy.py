"""A report's tables as one CSV file with a line for each cell."""

import csv
import io
from collections.abc import Iterator

from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report.making import Report
from langchain_reasc_lab.report.parts import Cell
from langchain_reasc_lab.report.rendering.cells import number_of

__all__ = ["report_csv"]

_HEAD = ("table", "row", "column", "value", "low", "high", "text")


def report_csv(report: Report) -> str:
    """All tables in one file, a line for each cell, because no two tables have the same columns.

    A line says the table's name, the row's number from 0, the column's heading, and the number with the ends of its
    interval, or the text; what could not be had is empty. In pandas, ``data[data.table == "main"].pivot(index="row",
    columns="column", values="value")`` is a table again. Numbers are in full precision. Figures are left out.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_HEAD)
    writer.writerows(_lines(report))
    return file.getvalue()


def _lines(report: Report) -> Iterator[tuple[object, ...]]:
    for part in report.parts:
        if part.table is not None:
            for number, row in enumerate(part.table.rows):
                for column, cell in zip(part.table.columns, row, strict=True):
                    yield part.entry.name, number, _harmless(column.name), *_cell(cell)


def _harmless(text: str) -> str:
    """A text that a spreadsheet shows, and does not compute: behind an apostrophe where it begins like a formula."""
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(("\t", "\r")) else text


def _cell(cell: Cell) -> tuple[object, object, object, str]:
    if isinstance(cell, str):
        return "", "", "", _harmless(cell)
    low, high = (cell.low, cell.high) if isinstance(cell, Estimate) else (None, None)
    value, low, high = (number_of(part) for part in (cell, low, high))
    return *("" if part is None else part for part in (value, low, high)), ""  # type: ignore[return-value]

"""Accuracy and cost against a setting, drawn from the tables that say so."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.replay.plots import COLOURS, MARKERS, empty_figure, legend_below
from langchain_reasc_lab.report.contents import contents, figure
from langchain_reasc_lab.report.drawing import svg
from langchain_reasc_lab.report.parts import Cell, Column, Figure, Table
from langchain_reasc_lab.report.rendering.cells import is_text, number_of, written
from langchain_reasc_lab.report.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

__all__ = ["calibration_size_plot", "scale_plot"]

_ASIDE: Final = 0.008  # of the axis, by which a line stands beside the one before it, so that both intervals are seen
_COST: Final = re.compile(r"\w?FLOPs|Tokens")
Line = tuple[str, list[tuple[float, Cell]], list[tuple[float, Cell]]]


@figure("calibration_size_plot", "Accuracy and cost against the calibration's size", paper="Figure 7")
def calibration_size_plot(studies: Sequence[Study]) -> Figure:
    """The table ``calibration_size``, drawn."""
    return _swept("calibration_size", studies)


@figure("scale_plot", "Accuracy and cost against λ", paper="Figure 8")
def scale_plot(studies: Sequence[Study]) -> Figure:
    """The table ``scale``, drawn."""
    return _swept("scale", studies)


def _swept(name: str, studies: Sequence[Study]) -> Figure:
    entry = contents().get(name)
    if entry is None:
        raise ConfigurationError(f"there is no table {name!r} to draw")
    table: Table = entry.make(studies)
    setting, accuracy, cost = _columns(table, name)
    lines = _lines(table, setting, accuracy, cost)
    heads = [table.columns[at].name for at in (setting, accuracy, cost)]
    words = " ".join(_in_words(line, heads, table.columns[accuracy], table.columns[cost]) for line in lines)
    html = svg(lambda: _drawn(lines, heads), f"{name}-plot", entry.title)
    return Figure(html, words, notes=[f"Drawn from the table {name}, which holds the same numbers."])


def _in_words(line: Line, heads: Sequence[str], accuracy: Column, cost: Column) -> str:
    label, accuracies, costs = line
    spent = dict(costs)
    each = "; ".join(
        f"{x:g}: {written(y, accuracy)}" + (f" ({written(spent[x], cost)})" if x in spent else "")
        for x, y in accuracies
    )
    return f"{label + ', ' if label else ''}{heads[1]} ({heads[2]}) by {heads[0]}: {each}."


def _columns(table: Table, name: str) -> tuple[int, int, int]:
    """Those of the setting, of the accuracy and of the cost, operations or tokens."""
    heads = [column.name for column in table.columns]
    numeric = [at for at in range(len(heads)) if not is_text(table, at)]
    accuracy = next((at for at in numeric if heads[at].startswith("Accuracy")), None)
    costs = [at for at in numeric if _COST.match(heads[at])]
    cost = next((at for at in costs if any(number_of(row[at]) is not None for row in table.rows)), None)
    if not numeric or accuracy is None or cost is None:
        raise ConfigurationError(f"the table {name!r} has no accuracy or no cost to draw (its columns: {heads})")
    return numeric[0], accuracy, cost


def _lines(table: Table, setting: int, accuracy: int, cost: int) -> list[Line]:
    """One for each combination of texts, such as pool and method: its label, and both courses."""
    texts = [at for at in range(len(table.columns)) if is_text(table, at)]
    varying = [at for at in texts if len({row[at] for row in table.rows}) > 1]
    lines: dict[str, Line] = {}
    for row in table.rows:
        label = ", ".join(str(row[at]) for at in varying) or ", ".join(str(row[at]) for at in texts)
        if (x := number_of(row[setting])) is not None:
            line = lines.setdefault(label, (label, [], []))
            for course, at in ((line[1], accuracy), (line[2], cost)):
                if number_of(row[at]) is not None:
                    course.append((x, row[at]))
    return list(lines.values())


def _drawn(lines: Sequence[Line], heads: Sequence[str]) -> "Drawn":
    drawn = empty_figure(5.2, 5.6)
    every = [x for line in lines for x, _ in line[1]]
    aside = _ASIDE * (max(every) - min(every)) if every else 0.0
    for axes, which, head in zip(drawn.subplots(2, 1, sharex=True), (1, 2), heads[1:], strict=True):
        for number, line in enumerate(lines):
            course: list[tuple[float, Cell]] = line[which]  # type: ignore[assignment]
            values = [number_of(cell) or 0.0 for _, cell in course]
            axes.errorbar(
                [x + aside * (number - (len(lines) - 1) / 2) for x, _ in course],
                values,
                yerr=[_reach(course, values, low=True), _reach(course, values, low=False)],
                fmt=f"{MARKERS[number % len(MARKERS)]}-",
                color=COLOURS[number % len(COLOURS)],
                markersize=5,
                elinewidth=0.8,
                label=line[0],
            )
        axes.set_ylabel(head)
        axes.grid(alpha=0.25)
    drawn.axes[-1].set_xlabel(heads[0])
    legend_below(drawn)
    return drawn


def _reach(course: Sequence[tuple[float, Cell]], values: Sequence[float], *, low: bool) -> list[float]:
    """From each value to the end of its interval; 0 where there is none."""
    ends = [(cell.low if low else cell.high) if isinstance(cell, Estimate) else None for _, cell in course]
    held = [value if (end := number_of(cell)) is None else end for cell, value in zip(ends, values, strict=True)]
    return [max(0.0, value - end if low else end - value) for value, end in zip(values, held, strict=True)]

"""The table that is printed: measure, goal, minimum, median, maximum, met or not."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.rounds import Spread

__all__ = ["AtLeast", "Below", "Goal", "Row", "render"]


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A goal that larger figures meet."""

    bound: float
    unit: str = ""

    def met_by(self, value: float) -> bool:
        """Whether a median meets it."""
        return value >= self.bound

    def __str__(self) -> str:
        return f"≥ {self.bound:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Below:
    """A goal that smaller figures meet; ``inclusive``: the bound itself does too."""

    bound: float
    unit: str = ""
    inclusive: bool = False

    def met_by(self, value: float) -> bool:
        """Whether a median meets it."""
        return value <= self.bound if self.inclusive else value < self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.inclusive else '<'} {self.bound:g}{self.unit}"


Goal = AtLeast | Below


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        measure: what was measured, with its unit unless it is a ratio.
        spread: its figures; None where it could not be measured, which ``note`` then explains.
        goal: what its median should be; None for a figure that explains another.
        note: printed under the line.
    """

    measure: str
    spread: Spread | None
    goal: Goal | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Met or not, where there is a goal."""
        if self.spread is None:
            return "not run"
        if self.goal is None:
            return ""
        return "met" if self.goal.met_by(self.spread.median) else "NOT MET"


def render(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table, columns aligned, notes below it."""
    rows = list(rows)
    head = ("measure", "goal", "min", "median", "max", "met or not")
    cells = [head, *(_cells(row, number) for number, row in _numbered(rows))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    left = (0, 1, 5)
    lines = [
        "| "
        + " | ".join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in cells
    ]
    marks = ["-" * width if column in left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    lines.insert(1, "| " + " | ".join(marks) + " |")
    notes = [f"[{number}] {row.note}" for number, row in _numbered(rows) if number]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _numbered(rows: Iterable[Row]) -> Iterable[tuple[int, Row]]:
    """Each row with the number of its note; 0 where it has none."""
    number = 0
    for row in rows:
        number += bool(row.note)
        yield (number if row.note else 0), row


def _cells(row: Row, number: int) -> tuple[str, ...]:
    name = f"{row.measure} [{number}]" if number else row.measure
    figures = ("", "", "") if row.spread is None else (row.spread.low, row.spread.median, row.spread.high)
    shown = (figure if isinstance(figure, str) else _figure(figure) for figure in figures)
    return (name, "" if row.goal is None else str(row.goal), *shown, row.verdict)


def _figure(value: float) -> str:
    """Three digits that count, or all before the point."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3f}"

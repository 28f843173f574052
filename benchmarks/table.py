"""The table that is printed: measure, goal, minimum, median, maximum, met or not."""

import io
from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.rounds import Spread

__all__ = ["Goal", "Row", "render"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a median should be: ``Goal("≥", 0.97)``; also "≤" and "<"."""

    sign: str
    bound: float
    unit: str = ""

    def met_by(self, value: float) -> bool:
        """Whether a median meets it."""
        return {"≥": value >= self.bound, "≤": value <= self.bound, "<": value < self.bound}[self.sign]

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        measure: what was measured, with its unit unless it is a ratio.
        spread: its figures; None where it could not be measured, which ``note`` then explains.
        goal: what its median should be; None for a figure that explains another.
        note: printed under the table.
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
    table = Table("measure", "goal", box=box.MARKDOWN)
    for name in ("min", "median", "max"):
        table.add_column(name, justify="right")
    table.add_column("met or not")
    notes: list[str] = []
    for row in rows:
        name = row.measure
        if row.note:
            notes.append(f"[{len(notes) + 1}] {row.note}")
            name += f" [{len(notes)}]"
        spread = row.spread
        figures = map(_figure, (spread.low, spread.median, spread.high)) if spread else [""] * 3
        table.add_row(name, str(row.goal or ""), *figures, row.verdict)
    text = io.StringIO()
    Console(file=text, width=1000, markup=False, highlight=False, emoji=False).print(table)
    lines = [line.strip() for line in text.getvalue().splitlines() if line.strip()]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _figure(value: float) -> str:
    """Three digits that count, or all before the point."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3f}"

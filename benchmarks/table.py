"""Repeated rounds in which every contender has its turn, and the table of what they
showed.
"""

import io
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

Name = TypeVar("Name", bound=Hashable)
# seconds; worker threads of the last turn spin for some milliseconds before they sleep
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of the rounds."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """The spread of at least one value."""
        found = list(values)
        return cls(min(found), statistics.median(found), max(found))


def interleaved(
    turns: Mapping[Name, Callable[[], float]], *, rounds: int
) -> dict[Name, list[float]]:
    """Let everyone have a turn in each round; every other round goes backwards.

    Args:
        turns: name -> what is done in a turn, which returns the figure to keep.
        rounds: how many count; one more goes before them, to warm up.

    Returns:
        Name -> one figure per round; figures of the same index come from the same
        round.
    """
    figures: dict[Name, list[float]] = {name: [] for name in turns}
    for index in range(-1, rounds):
        for name in list(turns) if index % 2 else reversed(list(turns)):
            time.sleep(_PAUSE)
            figure = turns[name]()
            if index >= 0:
                figures[name].append(figure)
    return figures


def ratios(above: Iterable[float], below: Iterable[float]) -> Spread:
    """Spread of the quotients, round by round."""
    return Spread.of(one / other for one, other in zip(above, below, strict=True))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Goal(NamedTuple):
    """What a median should be: ``Goal("≥", 0.97)``; also "≤" and "<"."""

    sign: str
    bound: float
    unit: str = ""

    def met_by(self, value: float) -> bool:
        """Whether a median meets it."""
        return {
            "≥": value >= self.bound,
            "≤": value <= self.bound,
            "<": value < self.bound,
        }[self.sign]

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}{self.unit}"


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        measure: what was measured, with its unit unless it is a ratio.
        spread: its figures; None if it could not be measured, which ``note`` then
            explains.
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


def rows_of(measure: Callable[[Any], Iterable[Row]], settings: object) -> list[Row]:
    """The rows of a measure, where only a function of a module can be sent to the
    process that runs it.
    """
    return list(measure(settings))


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
        figures = (
            map(_figure, (spread.low, spread.median, spread.high))
            if spread
            else [""] * 3
        )
        table.add_row(name, str(row.goal or ""), *figures, row.verdict)
    text = io.StringIO()
    Console(file=text, width=1000, markup=False, highlight=False, emoji=False).print(
        table
    )
    lines = [line.strip() for line in text.getvalue().splitlines() if line.strip()]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _figure(value: float) -> str:
    """Three digits that count, or all before the point."""
    size = abs(value)
    return (
        f"{value:,.0f}"
        if size >= 100
        else f"{value:.1f}"
        if size >= 10
        else f"{value:.3f}"
    )

"""What a report is made of, before it is known whether it becomes HTML, Markdown, CSV, JSON or lines in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_reasc_lab.replay.metrics import Estimate

__all__ = ["Cell", "Column", "Figure", "Table", "listed", "percent"]

Cell = str | float | Estimate | None
"""A text, a number, a number with its 95 % interval, or nothing that could be had."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading, with the unit: ``"Accuracy %"``.
        style: how its numbers are written, a format specification such as ``".1f"`` or ``"+.2f"``; empty for texts.
        meaning: what the heading means, in a sentence; it is shown below the table.
        best: whether a higher or a lower number is better, where that can be said.
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
        notes: what has to be known to read it, in whole sentences.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    Attributes:
        html: an ``<svg>`` element, or other HTML that stands alone and escapes what it shows.
        text: what it shows, in words, for those who do not see it and for reports without pictures.
        title: which one it is, where there are several: the pool's name.
        notes: what has to be known to read it, in whole sentences.
    """

    html: str
    text: str
    title: str = ""
    notes: Sequence[str] = ()


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def percent(estimate: Estimate) -> Estimate:
    """A share and its interval in per cent."""
    return Estimate(100 * estimate.value, 100 * estimate.low, 100 * estimate.high)

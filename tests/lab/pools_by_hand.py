"""Pools whose tables can be worked out on paper, and what tests read of tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pools.synthetic import BY_HAND, question, response, write_lines, write_pool

from langchain_reasc.evaluation.methods import MethodSettings
from langchain_reasc.evaluation.scoring import MeasureSpec
from langchain_reasc.lab.contents import contents
from langchain_reasc.lab.parts import Cell, Table
from langchain_reasc.lab.study import Study, StudySettings
from langchain_reasc.pools.reading import read_pool

__all__ = ["by_hand", "cell", "made", "row", "study", "synthetic"]


def by_hand(path: Path, **settings: Any) -> Study:
    """Two calibration questions, of which μ = σ = 0.5 and τ_gate = 1, and three tested ones; four responses each.

    "sure" passes the gate and is right, as its majority is (7 1 1 7: the tie goes to 7). "turns" does not, and has a
    vote of weight e^2.1 for 7 among three for 1. "lured" passes the gate and is wrong, where its majority is right.
    """
    write_lines(path, *BY_HAND, question("lured", response("1", 10, score=1.5), *[response("7", 10, score=0.0)] * 3))
    return study(path, "recorded", size=2, shuffles=0, budget=4, **settings)


def synthetic(path: Path, questions: int = 40, *, size: int = 16, shuffles: int = 2, **settings: Any) -> Study:
    """A pool with recorded scores that tell right from wrong."""
    write_pool(path, questions, signals=False, scores=True)
    return study(path, "recorded", size=size, shuffles=shuffles, **settings)


def study(
    path: Path, measure: MeasureSpec | None, *, size: int, shuffles: int, budget: int = 16, **settings: Any
) -> Study:
    """The pool in this file, called by the file's name."""
    methods = MethodSettings(max_samples=budget)
    options = StudySettings(shuffles=shuffles, calibration_size=size, methods=methods, **settings)
    return Study(path.stem, read_pool(path), measure, options)


def made(name: str, *studies: Study) -> Table:
    """The table of this name."""
    table: Table = contents()[name].make(studies)
    assert all(len(row) == len(table.columns) for row in table.rows)
    return table


def row(table: Table, *begin: Cell) -> Sequence[Cell]:
    """What follows in the one row that begins so."""
    [found] = [one for one in table.rows if tuple(one[: len(begin)]) == begin]
    return found[len(begin) :]


def cell(value: Cell) -> float:
    """The number in a cell, of an estimate its value."""
    number = getattr(value, "value", value)
    assert isinstance(number, float | int)
    return float(number)

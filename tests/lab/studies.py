"""Small studies: of written pools, and tables as dictionaries."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pools.synthetic import append_signals, question, response, signals_path, write_lines

from langchain_reasc.evaluation.methods import MethodSettings
from langchain_reasc.lab.contents import contents
from langchain_reasc.lab.parts import Table
from langchain_reasc.lab.study import Study, StudySettings
from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools.reading import read_pool

SELF_CERTAINTY = Measure("self_certainty", "bottom_group", 8)


def study(path: Path, measure: Any = SELF_CERTAINTY, *, max_samples: int = 16, **settings: Any) -> Study:
    """A pool in recorded order, of which the first questions calibrate."""
    options = {"shuffles": 0, "calibration_size": 10, "methods": MethodSettings(max_samples)} | settings
    return Study("here", read_pool(path), measure, StudySettings(**options))


def made(name: str, *studies: Study) -> list[dict[str, Any]]:
    """The rows of a table, by the names of its columns."""
    table = whole(name, *studies)
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def notes(name: str, *studies: Study) -> str:
    return " ".join(whole(name, *studies).notes)


def whole(name: str, *studies: Study) -> Table:
    """A table, of which every row fills every column, and every number has a style to be written in."""
    table: Table = contents()[name].make(studies)
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            assert isinstance(cell, str) or cell is None or column.style, column.name
    return table


def scored(path: Path, *rows: Sequence[tuple[str | None, Sequence[float]]], **more: Any) -> Path:
    """A pool of (answer, self-certainty of each token) of each response to each question; "7" is right."""
    written = []
    for number, row in enumerate(rows):
        answers = [response(answer, len(values), **more) for answer, values in row]
        written.append(question(f"q{number}", *answers))
        append_signals(signals_path(path), f"q{number}", [{"self_certainty": np.array(values)} for _, values in row])
    return write_lines(path, *written)

"""Studies and reports that tests read: pools worked out on paper, and texts that Markdown and terminals obey."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.pools.json_lines import signals_path
from langchain_reasc_lab.replay import Estimate, MethodSettings
from langchain_reasc_lab.report import CONTENTS, Cell, Column, Entry, Part, Report, Study, StudySettings, Table

from lab.pools.synthetic import BY_HAND, append_signals, question, response, write_lines, write_pool
from langchain_reasc.method import Measure

SELF_CERTAINTY = Measure("self_certainty", "bottom_group", 8)


def study(
    path: Path, measure: Any = SELF_CERTAINTY, *, size: int = 10, shuffles: int = 0, budget: int = 16, **settings: Any
) -> Study:
    """The pool in this file, called by the file's name; in recorded order, its first questions calibrate."""
    methods = MethodSettings(max_samples=budget)
    options = StudySettings(shuffles=shuffles, calibration_size=size, methods=methods, **settings)
    return Study(path.stem, read_pool(path), measure, options)


def by_hand(path: Path, **settings: Any) -> Study:
    """Two calibration questions, of which μ = σ = 0.5 and τ_gate = 1, and three tested ones; four responses each.

    "sure" passes the gate and is right, as its majority is (7 1 1 7: the tie goes to 7). "turns" does not, and has a
    vote of weight e^2.1 for 7 among three for 1. "lured" passes the gate and is wrong, where its majority is right.
    """
    write_lines(path, *BY_HAND, question("lured", response("1", 10, score=1.5), *[response("7", 10, score=0.0)] * 3))
    return study(path, "recorded", size=2, budget=4, **settings)


def synthetic(path: Path, questions: int = 40, *, size: int = 16, shuffles: int = 2, **settings: Any) -> Study:
    """A pool with recorded scores that tell right from wrong."""
    write_pool(path, questions, signals=False, scores=True)
    return study(path, "recorded", size=size, shuffles=shuffles, **settings)


def scored(path: Path, *rows: Sequence[tuple[str | None, Sequence[float]]], **more: Any) -> Path:
    """A pool of (answer, self-certainty of each token) of each response to each question; "7" is right."""
    written = []
    for number, row in enumerate(rows):
        answers = [response(answer, len(values), **more) for answer, values in row]
        written.append(question(f"q{number}", *answers))
        append_signals(signals_path(path), f"q{number}", [{"self_certainty": np.array(values)} for _, values in row])
    return write_lines(path, *written)


def entry_of(name: str) -> Entry:
    """The table or figure of this name."""
    [found] = [entry for entry in CONTENTS if entry.name == name]
    return found


def made(name: str, *studies: Study) -> Table:
    """The table of this name, of which every row fills every column, and every number has a style to be written in."""
    entry = entry_of(name)
    table = entry.make(studies[0] if entry.each_pool else studies)
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            assert isinstance(cell, str) or cell is None or column.style, column.name
    return table


def rows_of(name: str, *studies: Study) -> list[dict[str, Any]]:
    """The rows of a table, by the names of its columns."""
    table = made(name, *studies)
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def notes(name: str, *studies: Study) -> str:
    return " ".join(made(name, *studies).notes)


def row(table: Table, *begin: Cell) -> Sequence[Cell]:
    """What follows in the one row that begins so."""
    [found] = [one for one in table.rows if tuple(one[: len(begin)]) == begin]
    return found[len(begin) :]


def cell(value: Cell) -> float:
    """The number in a cell, of an estimate its value."""
    number = getattr(value, "value", value)
    assert isinstance(number, float | int)
    return float(number)


HOSTILE = '<script>alert("1 & 2")</script> | *a*\x00 `b`'
NOTHING = float("nan")
COLUMNS = (
    Column("Pool"),
    Column("Method", meaning="How it decides."),
    Column("Accuracy %", ".1f", "Share that is right."),
    Column("Tokens", ",.0f", "Tokens per question."),
    Column("Δ to ASC", "+.1f"),
)
ROWS = (
    ("a", "pass@1", Estimate(59.44, 51.9, 66.9), 67.0, Estimate(-13.1, -18.8, -7.5)),
    ("a", "ASC", Estimate(72.46, 65.6, 79.4), 1684.0, Estimate(0.0, 0.0, 0.0)),
    ("a", "ReASC", Estimate(72.54, 65.6, 79.4), 488.0, Estimate(0.0, -2.3, 2.3)),
    ("b", HOSTILE, Estimate(NOTHING, NOTHING, NOTHING), None, None),
    ("b", "ASC", 9.0, 10.0, Estimate(1.0, NOTHING, NOTHING)),
)
TABLE = Table(COLUMNS, ROWS, notes=[f"A note with {HOSTILE}."])
WEIGHED = Measure("token_logprob", "bottom_group", 8)  # choosing one takes seconds
SETTINGS = StudySettings(shuffles=1, calibration_size=24, methods=MethodSettings(max_samples=8))


def weighed(path: Path, name: str = "a", *, settings: StudySettings = SETTINGS, measure: Any = WEIGHED) -> Study:
    return Study(name, read_pool(path), measure, settings)


def pool(folder: Path, name: str = "a", questions: int = 60, **options: Any) -> Path:
    return write_pool(folder / f"{name}.sqlite", questions, 8, **options)


def part(name: str, tables: dict[str, Table], *problems: str) -> Part:
    return Part(Entry(name, f"The {name}", lambda studies: tables, each_pool=len(tables) > 1), tables, problems)


def report(studies: Sequence[Study]) -> Report:
    """A table, the figures of two pools, and a part that could not be made."""
    curve = Table([Column("Token"), Column("x", ".1f")], [("=1", 0.5)], [f"Seen: {HOSTILE}"], _drawn, printed=False)
    parts = [
        part("main", {"": TABLE}),
        part("pictures", {"a": curve, "b": curve}, f"c: It has none, {HOSTILE}."),
        part("gone", {}, "No pool has it."),
    ]
    return Report(studies, parts, [["It works.", "Well."] for _ in studies])


def _drawn() -> Any:
    from langchain_reasc_lab.replay.plots import empty_figure

    return empty_figure(1, 1)

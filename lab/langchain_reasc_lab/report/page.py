"""A report as one HTML page that needs nothing else: no network, no fonts, no other file."""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from langchain_reasc.exceptions import missing_extra
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report.output import (
    Explained,
    explained,
    headline,
    missing,
    pool_facts,
    printable,
    setting_lines,
)
from langchain_reasc_lab.report.report import Made, Report, command_for
from langchain_reasc_lab.report.tables import (
    MARKED,
    POOLS,
    Cell,
    Column,
    Figure,
    Mark,
    Table,
    is_text,
    marks,
    number_of,
    written,
)

__all__ = ["check_page_extra", "report_page"]

_WIDTH = re.compile(r'<svg [^>]*?\bwidth="(\d+)"')
_HALF: Final = 680
"""Pixels that a figure may be wide to stand beside another."""
_FIRST: Final = ("main", "tradeoff")
"""What stands beside the verdict, on the first screen."""
_MARKS: Final = MARKED.format(best="Bold", second="underlined")


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell: what is read, its interval apart, by what it is sorted, and how it is marked."""

    text: str
    interval: str
    key: str
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class _Head:
    name: str
    text: bool
    best: str


@dataclass(frozen=True, slots=True)
class _Grid:
    """A table: ``named`` is the column that names a row, and stays where it is when the others are scrolled.

    ``known`` is what has to be known to read it.
    """

    heads: list[_Head]
    rows: list[list[_Cell]]
    named: int
    known: Explained


@dataclass(frozen=True, slots=True)
class _Part:
    """A section of the page."""

    made: Made
    command: str
    grid: _Grid | None

    @property
    def id(self) -> str:
        """What links to it."""
        return f"part-{self.made.entry.name}"

    @property
    def figures(self) -> list[tuple[str, Figure, bool]]:
        """The figures, each with an id, and whether it is too wide to stand beside another."""
        return [(f"{self.id}-{at}", one, _is_wide(one)) for at, one in enumerate(self.made.figures)]


def _is_wide(figure: Figure) -> bool:
    width = _WIDTH.match(figure.html)
    return width is not None and int(width[1]) > _HALF


def check_page_extra() -> None:
    """Whether a page can be made, to be asked before anything is computed.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("lab", "jinja2") from None


def report_page(report: Report) -> str:
    """The page, the same for the same report.

    Texts are escaped, and the page's own policy lets a browser load nothing and run no script but its own.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    check_page_extra()
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_read("report.html.j2")).render(**_context(report))
    return printable(text)


def _context(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    script, known = _read("report.js"), explained(report)
    parts = [
        _Part(made, command_for(report, made.entry.name), _grid(made.table, known.get(made.entry.name)))
        for made in report.parts
        if not made.is_empty
    ]
    first = [part for part in parts if part.made.entry.name in _FIRST] if report.verdicts else []
    return {
        "headline": headline(report),
        "verdicts": list(zip([study.name for study in report.studies], report.verdicts, strict=False)),
        "first": first,
        "rest": [part for part in parts if part not in first],
        "missing": [([part.entry for part in gone], why) for why, gone in missing(report).items()],
        "pools": [(study.name, pool_facts(study), study.pool.notes) for study in report.studies],
        "settings": list(setting_lines(report)),
        "marks": _MARKS,
        "css": Markup(_read("report.css")),
        "script": Markup(script),
        "hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "markup": Markup,
    }


def _read(name: str) -> str:
    return files("langchain_reasc_lab.report").joinpath(name).read_text(encoding="utf-8")


def _grid(table: Table | None, known: Explained | None) -> _Grid | None:
    if table is None or known is None:
        return None
    marked = marks(table)
    texts = [is_text(table, at) for at in range(len(table.columns))]
    second = len(texts) > 1 and table.columns[0].name in POOLS and texts[1]
    return _Grid(
        heads=[_Head(column.name, text, column.best or "") for column, text in zip(table.columns, texts, strict=True)],
        rows=[
            list(_cells(row, table.columns, {at: mark for (line, at), mark in marked.items() if line == number}))
            for number, row in enumerate(table.rows)
        ],
        named=int(second),
        known=known,
    )


def _cells(row: Any, columns: Any, marked: dict[int, Mark]) -> Iterator[_Cell]:
    for at, (cell, column) in enumerate(zip(row, columns, strict=True)):
        yield _cell(cell, column, marked.get(at))


def _cell(cell: Cell, column: Column, mark: Mark | None) -> _Cell:
    text, key = written(cell, column), number_of(cell)
    value, _, interval = text.partition(" ") if isinstance(cell, Estimate) else (text, "", "")
    return _Cell(value, interval, "" if key is None else repr(key), mark)

"""Write a report: a page of Markdown with its figures and CSV files, JSON, or the lines
of a terminal.
"""

import csv
import io
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from langchain_reasc._version import __version__
from langchain_reasc.cli.console import harmless, in_ascii
from langchain_reasc.files import write_atomically
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Estimate
from langchain_reasc_lab.replay.metrics import measure_data
from langchain_reasc_lab.replay.plots import save_figure
from langchain_reasc_lab.replay.table import PLAIN_HEAD, print_verdict
from langchain_reasc_lab.report.report import Part, Report
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Table, cell_text, listed, number_of


def write_report(report: Report, out: Path) -> None:
    """Write a report as Markdown, with its figures and all data in the folder
    ``NAME-figures`` beside it.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    folder = out.with_name(f"{out.stem}-figures")
    for part in report.parts:
        for number, table in enumerate(part.tables.values()):
            path = folder / _file_name(part, number)
            write_text(path.with_suffix(".csv"), table_csv(table))
            if table.draw is not None:
                save_figure(table.draw(), path.with_suffix(".png"))
    write_text(out, report_markdown(report, folder.name))


def _file_name(part: Part, number: int) -> str:
    """Return the name of a table's files, without their endings."""
    return (
        f"{part.entry.name}-{number + 1}" if len(part.tables) > 1 else part.entry.name
    )


def write_text(path: Path, text: str) -> None:
    """Write a text without control characters, in a folder that is made if it is
    missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # a model may write half a character
    whole = harmless(text).encode("utf-8", "replace").decode("utf-8")
    write_atomically(path, whole)


def table_csv(table: Table) -> str:
    """Return a table as CSV, in full precision, with columns for the ends of intervals;
    empty where nothing is.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    places = range(len(table.columns))
    has_interval = [
        any(isinstance(row[at], Estimate) for row in table.rows) for at in places
    ]
    heads: list[str] = []
    for column, interval in zip(table.columns, has_interval, strict=True):
        heads.append(column.name)
        if interval:
            heads += [f"{column.name} low", f"{column.name} high"]
    writer.writerow(map(_not_a_formula, heads))
    for row in table.rows:
        values: list[str | float | None] = []
        for cell, interval in zip(row, has_interval, strict=True):
            values.append(
                _not_a_formula(cell) if isinstance(cell, str) else number_of(cell)
            )
            if interval:
                values += _ends(cell)
        writer.writerow(values)
    return file.getvalue()


def _ends(cell: Cell) -> list[float | None]:
    """Return the ends of a cell's interval."""
    if not isinstance(cell, Estimate):
        return [None, None]
    return [number_of(cell.low), number_of(cell.high)]


def _not_a_formula(text: str) -> str:
    """Return a text that a spreadsheet does not compute: behind an apostrophe where it
    begins like a formula.
    """
    is_formula = text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(
        ("\t", "\r")
    )
    return f"'{text}" if is_formula else text


def report_markdown(report: Report, folder: str) -> str:
    """Return headings, tables in the pipe syntax of GitHub, figures as links, and
    notes.

    Args:
        report: the report.
        folder: the folder of the figures and the data, as a link from this page.
    """
    lines = [f"# ReASC on {escaped(listed([study.name for study in report.studies]))}"]
    for outcome, *others in named_verdicts(report):
        lines += ["", f"**{escaped(outcome)}** {escaped(' '.join(others))}".rstrip()]
    notes = _UnsaidNotes()
    for part in report.parts:
        if part.tables:
            lines += ["", *_markdown_part(part, folder, notes)]
    missing = missing_lines(report)
    if missing:
        lines += [
            "",
            "## Not to be had",
            "",
            *(f"- {escaped(line)}" for line in missing),
        ]
    lines += ["", "## Pools and settings", ""]
    lines += [
        f"- {escaped(line)}" for line in (*pool_lines(report), setting_line(report))
    ]
    return "\n".join(lines) + "\n"


def _markdown_part(part: Part, folder: str, notes: "_UnsaidNotes") -> Iterator[str]:
    yield f"## {escaped(part.entry.title)}"
    if part.entry.paper:
        yield from ("", f"In the paper: {part.entry.paper}.")
    for problem in part.problems:
        yield from ("", f"> {escaped(problem)}")
    for number, (pool, table) in enumerate(part.tables.items()):
        file = f"{folder}/{_file_name(part, number)}"
        if len(part.tables) > 1:
            yield from ("", f"### {escaped(pool)}")
        if table.printed:
            yield from ("", *_markdown_table(table))
        if table.draw is not None:
            yield from ("", f"![{escaped(part.entry.title)}](<{file}.png>)")
        yield ""
        yield from (f"- {escaped(note)}" for note in notes.of(table))
        yield f"- Data: [{_file_name(part, number)}.csv](<{file}.csv>)"


def _markdown_table(table: Table) -> Iterator[str]:
    yield _markdown_row([escaped(column.name) for column in table.columns])
    yield _markdown_row(
        ["---" if table.is_text(at) else "---:" for at in range(len(table.columns))]
    )
    for row in _cell_texts(table):
        yield _markdown_row([escaped(text) for text in row])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Return a text on one line in which Markdown and HTML see nothing of theirs."""
    return re.sub(r"([\\|*_`\[\]<>#])", r"\\\1", " ".join(text.split()))


def _cell_texts(table: Table) -> list[list[str]]:
    """Return the rows of a table as they are read."""
    styles = [column.style for column in table.columns]
    return [
        [cell_text(cell, style) for cell, style in zip(row, styles, strict=True)]
        for row in table.rows
    ]


class _UnsaidNotes:
    """The notes of one table after the other, each said once, below the first table
    that needs it.
    """

    def __init__(self) -> None:
        self._said: set[str] = set()

    def of(self, table: Table) -> list[str]:
        """Return the notes of a table and the meanings of its columns, without those
        that were said before.
        """
        notes = [*table.notes]
        if table.printed:
            notes += [
                f"{column.name}: {column.meaning}"
                for column in table.columns
                if column.meaning
            ]
        unsaid = [note for note in notes if note not in self._said]
        self._said.update(unsaid)
        return unsaid


def named_verdicts(report: Report) -> list[list[str]]:
    """Return the sentences of each pool's verdict, with its name if there are several."""
    verdicts = []
    for study, (outcome, *others) in zip(report.studies, report.verdicts, strict=True):
        if len(report.studies) > 1:
            outcome = f"{study.name}: {outcome}"
        verdicts.append([outcome, *others])
    return verdicts


def missing_lines(report: Report) -> list[str]:
    """Return a line for each reason why parts could not be made at all, with their
    names.
    """
    names: dict[str, list[str]] = {}
    for part in report.parts:
        if not part.tables:
            names.setdefault(" ".join(part.problems), []).append(part.entry.name)
    return [f"{listed(parts)}: {reason}" for reason, parts in names.items()]


def pool_lines(report: Report) -> Iterator[str]:
    """Yield a line for each pool, and one for each thing that should be known of it."""
    for study in report.studies:
        facts = "; ".join(
            f"{name}: {value}" for name, value in _pool_facts(study).items() if value
        )
        yield f"{study.name}: {facts}."
        yield from (f"{study.name}: {note}." for note in study.pool.notes)


def _pool_facts(study: Study) -> dict[str, str]:
    """Return what is known of a pool, under its name."""
    pool = study.pool
    fingerprint = pool.metadata.get("fingerprint")
    recorded: dict[str, Any] = fingerprint if isinstance(fingerprint, dict) else {}
    sampling = recorded.get("sampling")
    settings = sampling.items() if isinstance(sampling, dict) else ()
    return {
        "File": str(pool.path),
        "Questions": f"{len(pool.questions) - pool.calibrating:,}",
        "Model": " ".join(
            str(recorded[name])
            for name in ("model", "quantization")
            if recorded.get(name)
        ),
        "Sampling": ", ".join(f"{name} {value}" for name, value in settings),
        "Recorded": str(pool.metadata.get("created_at", "")),
        "Token signals": ", ".join(study.scores.signals) or "none",
    }


def setting_line(report: Report) -> str:
    """Return the settings that no table names."""
    methods = report.settings.methods
    return (
        f"At most {methods.max_samples} responses to each question; the gate is asked "
        f"for an accuracy of {methods.p_target:g}. Made by langchain-reasc "
        f"{__version__}."
    )


_BESIDE: Final = ("numpy", "scipy", "scikit-learn")
"""Packages on which the numbers depend."""


def report_data(report: Report) -> dict[str, Any]:
    """Return all that a report says and what is needed to make it again; numbers that
    do not exist are null.
    """
    settings = report.settings
    names = [study.name for study in report.studies]
    return {
        "library_version": __version__,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in _BESIDE},
        "settings": {
            "shuffles": settings.shuffles,
            "calibration_size": settings.calibration_size,
            "seed": settings.seed,
            "max_samples": settings.methods.max_samples,
            "p_target": settings.methods.p_target,
            "parameters": settings.parameters,
            "tokens_per_second": settings.tokens_per_second,
            "intervals": {"level": 0.95, "resamples": RESAMPLES, "over": "questions"},
        },
        "verdicts": {
            name: " ".join(verdict)
            for name, verdict in zip(names, report.verdicts, strict=True)
        },
        "pools": [_pool_data(study) for study in report.studies],
        "parts": [_part_data(part) for part in report.parts],
    }


def _pool_data(study: Study) -> dict[str, Any]:
    pool = study.pool
    return {
        "name": study.name,
        "path": str(pool.path),
        "calibration_pool": pool.calibration_path and str(pool.calibration_path),
        "calibration_questions": study.calibration_size,
        "questions": len(pool.questions) - pool.calibrating,
        "responses": sum(len(question.responses) for question in pool.questions),
        "signals": list(study.scores.signals),
        "measure": measure_data(study.measure),
        "metadata": pool.metadata,
        "notes": list(pool.notes),
    }


def _part_data(part: Part) -> dict[str, Any]:
    return {
        "name": part.entry.name,
        "title": part.entry.title,
        "paper": part.entry.paper or None,
        "problems": list(part.problems),
        "tables": [_table_data(table, pool) for pool, table in part.tables.items()],
    }


def _table_data(table: Table, pool: str) -> dict[str, Any]:
    return {
        "pool": pool or None,
        "columns": [
            {"name": column.name, "meaning": column.meaning or None}
            for column in table.columns
        ],
        "rows": [[_cell_data(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def _cell_data(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        low, high = _ends(cell)
        return {"value": number_of(cell), "low": low, "high": high}
    return cell if isinstance(cell, str) else number_of(cell)


_GAP: Final = 2  # columns between two of a table
_TEXT: Final = (
    24  # characters of a text, after which it is folded if there is little room
)


def print_report(report: Report, console: Console) -> None:
    """Print all tables, each as wide as the console, and its notes."""
    plain = not console.encoding.startswith("utf")
    spell: Callable[[str], str] = in_ascii if plain else str

    def say(line: str, style: str = "") -> None:
        console.print(Text(spell(line), style), soft_wrap=not console.is_terminal)

    for sentences in named_verdicts(report):
        print_verdict([spell(sentence) for sentence in sentences], console)
        say("")
    notes = _UnsaidNotes()
    for part in report.parts:
        for table in part.tables.values():
            if table.printed:
                paper = (
                    f" (in the paper: {part.entry.paper})" if part.entry.paper else ""
                )
                say(f"{part.entry.title}{paper}", "bold")
                for grid in _grids(table, console.width, plain=plain, spell=spell):
                    console.print(grid)
                    console.print()
                for note in notes.of(table):
                    say(note)
                say("")
    for line in missing_lines(report):
        say(f"Not to be had: {line}", "italic")
    for line in (*pool_lines(report), setting_line(report)):
        say(line)
    say("Figures, and the data of all tables: --out FILE.md.")


def _grids(
    table: Table, width: int, *, plain: bool, spell: Callable[[str], str]
) -> Iterator[Grid]:
    """Yield the table, or where it is too wide several below each other, each with the
    texts that name its rows.
    """
    heads = [spell(column.name) for column in table.columns]
    rows = [[spell(text) for text in row] for row in _cell_texts(table)]
    widths = [
        max(map(len, [*head.split(), *column]))
        for head, *column in zip(heads, *rows, strict=True)
    ]
    texts = [at for at in range(len(heads)) if table.is_text(at)]
    names = len([*takewhile(table.is_text, range(len(heads)))])
    if sum(widths) + _GAP * (len(widths) - 1) > width:
        for at in texts:
            longest_word = max(
                len(word) for row in rows for word in row[at].split() or [""]
            )
            widths[at] = min(widths[at], max(_TEXT, longest_word), width)
    for group in _groups(widths, names, width):
        grid = Grid(
            box=PLAIN_HEAD if plain else box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for at in group:
            justify: Literal["left", "right"] = "left" if at in texts else "right"
            grid.add_column(
                Text(heads[at]), justify=justify, width=widths[at], overflow="fold"
            )
        for row in rows:
            grid.add_row(*(Text(row[at]) for at in group))
        yield grid


def _groups(widths: Sequence[int], names: int, width: int) -> Iterator[list[int]]:
    """Yield columns that fit beside each other; the first ones, which name the rows,
    are in each group.
    """
    naming = list(range(names))
    group = naming
    for at in range(names, len(widths)):
        if (
            len(group) > names
            and sum(widths[place] + _GAP for place in (*group, at)) - _GAP > width
        ):
            yield group
            group = naming
        group = [*group, at]
    yield group

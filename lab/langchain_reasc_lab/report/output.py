"""Write a report as JSON, CSV, Markdown or terminal lines."""

import csv
import io
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from typing import Any, Final, Literal

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from langchain_reasc._version import __version__
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Estimate
from langchain_reasc_lab.replay.metrics import measure_data
from langchain_reasc_lab.replay.table import PLAIN_HEAD
from langchain_reasc_lab.report.contents import Entry
from langchain_reasc_lab.report.report import Made, Report, command_for
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import (
    MARKED,
    Cell,
    Shown,
    Table,
    listed,
    marks,
    number_of,
    shown,
)

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""Characters that a model may write, but HTML does not allow or a terminal would obey."""


def printable(text: str) -> str:
    """A text without control characters and halves of characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def headline(report: Report) -> str:
    """Return the title of the report, with its pools."""
    return f"ReASC on {listed([study.name for study in report.studies])}"


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanations of one table.

    Attributes:
        notes: sentences that stand under no table before it.
        meanings: of its columns, (name, meaning), likewise.
        marks: whether to say how its bests are marked.
        earlier: under which tables the rest stands.
    """

    notes: Sequence[str]
    meanings: Sequence[tuple[str, str]]
    marks: bool
    earlier: Sequence[Entry]


def explained(report: Report) -> dict[str, Explained]:
    """Return what has to be known to read each table, by name; each thing is said once, under the first table."""
    said_under: dict[str | tuple[str, str], Entry] = {}
    found: dict[str, Explained] = {}
    for part in report.parts:
        if (table := part.table) is None:
            continue
        meanings = [(column.name, column.meaning) for column in table.columns if column.meaning]
        lines: list[str | tuple[str, str]] = [*table.notes, *meanings, *([MARKED] if marks(table) else [])]
        earlier = dict.fromkeys(said_under[line] for line in lines if line in said_under)
        new = [line for line in dict.fromkeys(lines) if line not in said_under]
        said_under |= dict.fromkeys(new, part.entry)
        found[part.entry.name] = Explained(
            notes=[line for line in new if isinstance(line, str) and line != MARKED],
            meanings=[line for line in new if isinstance(line, tuple)],
            marks=MARKED in new,
            earlier=list(earlier),
        )
    return found


def missing(report: Report) -> dict[str, list[Made]]:
    """Return what could not be made at all: the reason -> the parts."""
    found: dict[str, list[Made]] = {}
    for part in report.parts:
        if part.is_empty:
            found.setdefault(" ".join(part.problems) or "There is nothing in it.", []).append(part)
    return found


def verdict_lines(report: Report) -> list[str]:
    """Return what the report comes to, a line for each pool."""
    named = len(report.studies) > 1
    pairs = zip(report.studies, report.verdicts, strict=False)
    return [f"{study.name}: {' '.join(verdict)}" if named else " ".join(verdict) for study, verdict in pairs]


def pool_facts(study: Study) -> dict[str, str]:
    """Return what is known of a pool, under its name."""
    pool = study.pool
    fingerprint = pool.metadata.get("fingerprint")
    recorded: dict[str, Any] = fingerprint if isinstance(fingerprint, dict) else {}
    sampling = recorded.get("sampling")
    tested = pool.questions[pool.calibrating :]
    counts = [len(question.responses) for question in tested]
    responses = " to ".join(dict.fromkeys(map(str, (min(counts), max(counts)))))
    measures = {
        "None": "nothing: votes are counted",
        "auto": "what separates best on the calibration questions",
        "recorded": "the recorded scores",
    }
    facts = {
        "File": pool.path,
        "Questions": f"{len(tested):,}, with {responses} response{'' if responses == '1' else 's'} each",
        "Calibrated on": pool.calibrating and f"the first responses to {pool.calibrating:,} in {pool.calibration_path}",
        "Model": " ".join(str(recorded[name]) for name in ("model", "quantization") if recorded.get(name)),
        "Sampling": isinstance(sampling, dict) and ", ".join(f"{name} {value}" for name, value in sampling.items()),
        "Recorded": pool.metadata.get("created_at"),
        "Token signals": ", ".join(study.scores.signals) or "none",
        "ReASC weighs by": measures.get(str(study.measure), study.measure),
    }
    return {name: str(value) for name, value in facts.items() if value}


def pool_lines(report: Report) -> Iterator[str]:
    """Yield a line for each pool, and one for each thing that should be known of it."""
    for study in report.studies:
        facts = (f"{name}: {value}" for name, value in pool_facts(study).items())
        yield f"{study.name}: {'; '.join(facts)}."
        yield from (f"{study.name}: {note}." for note in study.pool.notes)


def setting_lines(report: Report) -> Iterator[str]:
    """Yield how the numbers were had."""
    settings, own = report.settings, ""
    arranged = f"{settings.shuffles} shuffles of questions and responses" if settings.shuffles else "the recorded order"
    if not all(study.pool.calibrating for study in report.studies):
        own = (
            f"the first responses of {settings.calibration_size or 'half'} of a pool's questions calibrate"
            f"{'' if settings.calibration_size else ' (at most 128)'}, and the others are tested; "
        )
    yield (
        f"Means over {arranged}; {own}at most {settings.methods.max_samples} responses to each; seed {settings.seed}."
    )
    yield (
        f"In brackets: 95 % intervals, {RESAMPLES:,} bootstrap resamples over questions where nothing else is said. "
        f"The gate is asked for an accuracy of {settings.methods.p_target:g}."
    )
    if settings.parameters is not None:
        yield f"TFLOPs: 2N per generated token, N = {settings.parameters:,.0f} parameters."
    if settings.tokens_per_second is not None:
        yield f"Latencies: as with {settings.tokens_per_second:g} tokens a second in one sequence."
    yield f"Made by langchain-reasc {__version__}."


_BESIDE: Final = ("numpy", "scipy", "scikit-learn")
"""Packages on which the numbers depend."""


def report_data(report: Report) -> dict[str, Any]:
    """Return all that a report says and what is needed to make it again; numbers that do not exist are null."""
    settings = report.settings
    versions = {"python": platform.python_version()} | {name: version(name) for name in _BESIDE}
    with suppress(PackageNotFoundError):
        versions["matplotlib"] = version("matplotlib")
    pairs = zip(report.studies, report.verdicts, strict=False)
    return {
        "library_version": __version__,
        "versions": versions,
        "settings": {
            "shuffles": settings.shuffles,
            "calibration_size": settings.calibration_size,
            "seed": settings.seed,
            "max_samples": settings.methods.max_samples,
            "p_target": settings.methods.p_target,
            "parameters": settings.parameters,
            "prices": settings.prices and str(settings.prices),
            "tokens_per_second": settings.tokens_per_second,
            "intervals": {"level": 0.95, "resamples": RESAMPLES, "over": "questions"},
        },
        "verdicts": {study.name: " ".join(verdict) for study, verdict in pairs},
        "pools": [_pool_data(study) for study in report.studies],
        "parts": [_part_data(report, part) for part in report.parts],
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


def _part_data(report: Report, part: Made) -> dict[str, Any]:
    entry = part.entry
    data: dict[str, Any] = {
        "name": entry.name,
        "title": entry.title,
        "paper": entry.paper or None,
        "command": command_for(report, entry.name),
        "problems": list(part.problems),
    }
    if (table := part.table) is not None:
        columns = [{"name": one.name, "meaning": one.meaning or None, "best": one.best} for one in table.columns]
        rows = [[_cell_data(cell) for cell in row] for row in table.rows]
        data["table"] = {"columns": columns, "rows": rows, "notes": list(table.notes)}
    if figures := part.figures:
        data["figures"] = [{"title": one.title or None, "text": one.text, "notes": list(one.notes)} for one in figures]
    return data


def _cell_data(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        return dict(zip(("value", "low", "high"), _numbers(cell), strict=True))
    return cell if isinstance(cell, str) else number_of(cell)


def _numbers(cell: Cell) -> list[float | None]:
    """Return the number of a cell and the ends of its interval."""
    ends: Sequence[Cell] = (cell.low, cell.high) if isinstance(cell, Estimate) else (None, None)
    return [number_of(cell), *map(number_of, ends)]


_HEAD = ("table", "row", "column", "value", "low", "high", "text")


def report_csv(report: Report) -> str:
    """Return all tables in one file, a line for each cell, because no two tables have the same columns.

    A line says the table's name, the row's number from 0, the column's heading, and the number with the ends of its
    interval, or the text; what could not be had is empty. In pandas, ``data[data.table == "main"].pivot(index="row",
    columns="column", values="value")`` is a table again. Numbers are in full precision. Figures are left out.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_HEAD)
    for name, table in ((part.entry.name, part.table) for part in report.parts if part.table is not None):
        for number, row in enumerate(table.rows):
            for column, cell in zip(table.columns, row, strict=True):
                text = _harmless(cell) if isinstance(cell, str) else ""
                writer.writerow((name, number, _harmless(column.name), *_numbers(cell), text))
    return file.getvalue()


def _harmless(text: str) -> str:
    """Return a text that a spreadsheet does not compute: behind an apostrophe where it begins like a formula."""
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(("\t", "\r")) else text


_INK: Final = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"


def pictures(report: Report) -> dict[str, str]:
    """Return the figures that are pictures: file name -> an SVG that stands alone, in light and in dark."""
    alone = '<svg xmlns="http://www.w3.org/2000/svg" '
    return {
        _file_name(part, at): figure.html.replace("<svg ", alone, 1).replace(">", f">{_INK}", 1)
        for part in report.parts
        for at, figure in enumerate(part.figures)
        if figure.is_svg
    }


def _file_name(part: Made, at: int) -> str:
    return f"{part.entry.name}{f'-{at + 1}' if len(part.figures) > 1 else ''}.svg"


def report_markdown(report: Report, folder: str | None = None) -> str:
    """Return headings, tables in the pipe syntax of GitHub, and what figures show in words.

    Args:
        report: the report.
        folder: the folder of its :func:`pictures`, as a link from this page; None if they are not kept.
    """
    lines = [f"# {escaped(headline(report))}"]
    lines += [line for verdict in verdict_lines(report) for line in ("", f"**{escaped(verdict)}**")]
    known = explained(report)
    for part in report.parts:
        if not part.is_empty:
            lines += ["", *_markdown_part(report, part, known.get(part.entry.name), folder)]
    if reasons := missing(report):
        named = ((listed([one.entry.name for one in parts]), why) for why, parts in reasons.items())
        lines += ["", "## Not to be had", "", *(f"- {escaped(names)}: {escaped(why)}" for names, why in named)]
    lines += ["", "## Pools and settings", ""]
    lines += [f"- {escaped(line)}" for line in (*pool_lines(report), *setting_lines(report))]
    return "\n".join(lines) + "\n"


def _markdown_part(report: Report, part: Made, known: Explained | None, folder: str | None) -> Iterator[str]:
    entry = part.entry
    paper = f" In the paper: {escaped(entry.paper)}." if entry.paper else ""
    yield from (f"## {escaped(entry.title)}", "", f"Printed alone by `{command_for(report, entry.name)}`.{paper}")
    for problem in part.problems:
        yield from ("", f"> {escaped(problem)}")
    if part.table is not None and known is not None:
        yield from ("", *_markdown_table(part.table), *_markdown_notes(known))
    for at, figure in enumerate(part.figures):
        yield from (["", f"### {escaped(figure.title)}"] if figure.title else [])
        if folder is not None and figure.is_svg:
            yield from ("", f"![{escaped(entry.title)}]({folder}/{_file_name(part, at)})")
        yield from _paragraphs([figure.text, *figure.notes])


def _markdown_table(table: Table) -> Iterator[str]:
    yield _row([escaped(column.name) for column in table.columns])
    yield _row(["---" if table.is_text(at) else "---:" for at in range(len(table.columns))])
    yield from (_row([_marked(cell) for cell in row]) for row in shown(table))


def _markdown_notes(known: Explained) -> Iterator[str]:
    yield from _paragraphs(known.notes)
    if known.meanings:
        yield from ("", *(f"- {escaped(name)}: {escaped(meaning)}" for name, meaning in known.meanings))
    if known.marks:
        yield from ("", MARKED.format(best="**Bold**", second="_italic_"))
    if known.earlier:
        yield from _paragraphs([_elsewhere([one.title for one in known.earlier])])


def _paragraphs(texts: Sequence[str]) -> Iterator[str]:
    return (line for text in texts for line in ("", escaped(text)))


def _elsewhere(tables: Sequence[str]) -> str:
    return f"What else holds of it stands under {listed(tables)}."


def _marked(cell: Shown) -> str:
    if cell.mark is None:
        return escaped(str(cell))
    around = "**" if cell.mark == "best" else "_"
    return f"{around}{escaped(cell.value)}{around} {escaped(cell.interval)}".rstrip()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escaped(text: str) -> str:
    """Return a text on one line in which Markdown and HTML see nothing of theirs."""
    return re.sub(r"([\\|*_`\[\]<>#])", r"\\\1", " ".join(text.split()))


_GAP: Final = 2  # columns between two of a table
_TEXT: Final = 24  # characters of a text, after which it is folded if there is little room
_STYLES: Final = {"best": "bold", "second": "underline"}


def print_report(report: Report, console: Console, *, spelled: Callable[[str], str] = str) -> None:
    """Print all tables, and what the figures show in words.

    Args:
        report: the report.
        console: the console, whose width is respected.
        spelled: how texts are spelled where the console knows no letters but ASCII's.
    """
    plain, known = not console.encoding.startswith("utf"), explained(report)

    def spell(text: str) -> str:
        return spelled(printable(text)) if plain else printable(text)

    def say(*lines: str, style: str = "") -> None:
        for line in lines:
            console.print(Text(spell(line), style), soft_wrap=not console.is_terminal)

    for verdict in verdict_lines(report):
        say(verdict, style="bold")
        say("")
    for part in (part for part in report.parts if not part.is_empty):
        say(_heading(part), style="bold")
        say(*(f"Not to be had: {problem}" for problem in part.problems), style="italic")
        for grid in _grids(part.table, console.width, plain=plain, spelled=spell):
            console.print(grid)
            console.print()
        say(*_explanations(known.get(part.entry.name), marked=console.is_terminal), *_figures_in_words(part))
    for reason, parts in missing(report).items():
        say(f"Not to be had: {listed([part.entry.name for part in parts])}. {reason}", style="italic")
    say(*pool_lines(report), *setting_lines(report))


def _heading(part: Made) -> str:
    paper = f" ({part.entry.paper})" if part.entry.paper else ""
    return f"{part.entry.title}{paper}, --only {part.entry.name}"


def _figures_in_words(part: Made) -> Iterator[str]:
    for figure in part.figures:
        yield f"{figure.title}: {figure.text}" if figure.title else figure.text
        yield from figure.notes
    if part.figures:
        yield ""


def _explanations(known: Explained | None, *, marked: bool) -> Iterator[str]:
    """Yield what has to be known to read a table, if any; ``marked``: whether bests can be seen, as in a terminal."""
    if known is None:
        return
    yield from known.notes
    yield from (f"{name}: {meaning}" for name, meaning in known.meanings)
    if marked and known.marks:
        yield MARKED.format(best="Bold", second="underlined")
    if known.earlier:
        yield _elsewhere([entry.name for entry in known.earlier])
    yield ""


def _grids(table: Table | None, width: int, *, plain: bool, spelled: Callable[[str], str]) -> Iterator[Grid]:
    """Yield the table, or where it is too wide several below each other, each with the texts that name its rows."""
    if table is None or not table.rows:
        return
    rows = [[Text(spelled(str(cell)), _STYLES.get(cell.mark or "", "")) for cell in row] for row in shown(table)]
    heads = [spelled(column.name) for column in table.columns]
    columns = [[cell.plain for cell in column] for column in zip(*rows, strict=True)]
    for widths in _fitting(table, heads, columns, width):
        yield _grid(table, heads, rows, widths, plain=plain)


def _grid(
    table: Table, heads: Sequence[str], rows: Sequence[Sequence[Text]], widths: Mapping[int, int], *, plain: bool
) -> Grid:
    """Return the columns that ``widths`` has, by their places in the table."""
    grid = Grid(box=PLAIN_HEAD if plain else box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for at, wide in widths.items():
        justify: Literal["left", "right"] = "left" if table.is_text(at) else "right"
        grid.add_column(Text(heads[at]), justify=justify, width=wide, overflow="fold")
    for row in rows:
        grid.add_row(*(row[at] for at in widths))
    return grid


def _fitting(
    table: Table, heads: Sequence[str], columns: Sequence[Sequence[str]], width: int
) -> Iterator[dict[int, int]]:
    """Yield groups of columns that fit beside each other -> their widths; those that name the rows are in each."""
    places = range(len(heads))
    widths = {at: max(map(len, [*_words(heads[at]), *columns[at]])) for at in places}
    if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
        yield widths
        return
    widths |= {at: _folded(columns[at], widths[at]) for at in places if table.is_text(at)}
    names = list(takewhile(table.is_text, places))
    names = names[:1] if len(names) == len(places) else names
    for group in _groups(places[len(names) :], widths, width - sum(widths[at] + _GAP for at in names)):
        yield {at: min(widths[at], width) for at in (*names, *group)}


def _groups(columns: Sequence[int], widths: Mapping[int, int], width: int) -> list[list[int]]:
    """Return the columns in as many groups as are needed for each to be within this width."""
    groups: list[list[int]] = [[]]
    for at in columns:
        if groups[-1] and sum(widths[one] + _GAP for one in (*groups[-1], at)) - _GAP > width:
            groups.append([])
        groups[-1].append(at)
    return groups


def _folded(texts: Sequence[str], wide: int) -> int:
    """Return the width of texts if there is little room: what the longest word needs, and a little more."""
    longest = max(len(word) for text in texts for word in _words(text)) if wide < 40 else 0
    return min(wide, max(_TEXT, longest))


def _words(text: str) -> list[str]:
    return text.split() or [""]

"""A report as JSON, CSV, Markdown, or lines in a terminal, and the words that all forms share."""

import csv
import io
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from langchain_reasc._version import __version__
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Estimate
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
"""What a model may write, and HTML does not allow, or a terminal would obey."""


def printable(text: str) -> str:
    """A text without control characters and halves of characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def headline(report: Report) -> str:
    """What the report is of."""
    return f"ReASC on {listed([study.name for study in report.studies])}"


@dataclass(frozen=True, slots=True)
class Explained:
    """What has to be known to read one table.

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
    """For each table, by name, what has to be known to read it; each thing is said once, under the first table."""
    said_under: dict[object, Entry] = {}
    found: dict[str, Explained] = {}
    for part in report.parts:
        if part.table is None:
            continue
        notes = list(dict.fromkeys(part.table.notes))
        meanings = [(column.name, column.meaning) for column in part.table.columns if column.meaning]
        lines: list[object] = [*notes, *meanings, *([MARKED] if marks(part.table) else [])]
        earlier = dict.fromkeys(said_under[line] for line in lines if line in said_under)
        found[part.entry.name] = Explained(
            [note for note in notes if note not in said_under],
            [meaning for meaning in meanings if meaning not in said_under],
            MARKED in lines and MARKED not in said_under,
            list(earlier),
        )
        said_under |= {line: part.entry for line in lines if line not in said_under}
    return found


def missing(report: Report) -> dict[str, list[Made]]:
    """What could not be made at all: the reason -> the parts."""
    found: dict[str, list[Made]] = {}
    for part in report.parts:
        if part.is_empty:
            found.setdefault(" ".join(part.problems) or "There is nothing in it.", []).append(part)
    return found


def verdict_lines(report: Report) -> list[str]:
    """What the report comes to, a line for each pool."""
    named = len(report.studies) > 1
    pairs = zip(report.studies, report.verdicts, strict=False)
    return [f"{study.name}: {' '.join(verdict)}" if named else " ".join(verdict) for study, verdict in pairs]


def pool_facts(study: Study) -> dict[str, str]:
    """What is known of a pool, under its name."""
    pool = study.pool
    fingerprint = pool.metadata.get("fingerprint")
    known: dict[str, Any] = fingerprint if isinstance(fingerprint, dict) else {}
    sampling = known.get("sampling")
    tested = pool.questions[pool.calibrating :]
    counts = [len(question.responses) for question in tested]
    responses = " to ".join(dict.fromkeys(map(str, (min(counts), max(counts)))))
    facts = {
        "File": str(pool.path),
        "Questions": f"{len(tested):,}, with {responses} response{'' if responses == '1' else 's'} each",
        "Calibrated on": pool.calibrating and f"the first responses to {pool.calibrating:,} in {pool.calibration_path}",
        "Model": known.get("model") and " ".join(str(known[n]) for n in ("model", "quantization") if known.get(n)),
        "Sampling": isinstance(sampling, dict) and ", ".join(f"{name} {value}" for name, value in sampling.items()),
        "Recorded": pool.metadata.get("created_at"),
        "Token signals": ", ".join(study.scores.signals) or "none",
        "ReASC weighs by": "nothing: votes are counted" if study.measure is None else _measured(study),
    }
    return {name: str(value) for name, value in facts.items() if value}


def pool_lines(report: Report) -> Iterator[str]:
    """A line for each pool, and one for each thing that should be known of it."""
    for study in report.studies:
        facts = pool_facts(study)
        yield f"{study.name}: " + "; ".join(f"{name}: {value}" for name, value in facts.items()) + "."
        yield from (f"{study.name}: {note}." for note in study.pool.notes)


def setting_lines(report: Report) -> Iterator[str]:
    """How the numbers were had."""
    settings = report.settings
    arranged = f"{settings.shuffles} shuffles of questions and responses" if settings.shuffles else "the recorded order"
    alone = any(not study.pool.calibrating for study in report.studies)
    own = (
        f"where a pool has more, the first responses of {settings.calibration_size} of its questions calibrate, and "
        "the others are tested; "
    )
    yield (
        f"Means over {arranged}; {own if alone else ''}at most {settings.methods.max_samples} responses to each; seed "
        f"{settings.seed}."
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


def _measured(study: Study) -> str:
    return {"auto": "what separates best on the calibration questions", "recorded": "the recorded scores"}.get(
        str(study.measure), str(study.measure)
    )


_BESIDE: Final = ("numpy", "scipy", "scikit-learn", "matplotlib")
"""Packages on which the numbers and pictures depend."""


def report_data(report: Report) -> dict[str, Any]:
    """All that a report says and what is needed to make it again; numbers that do not exist are null."""
    settings = report.settings
    return {
        "library_version": __version__,
        "versions": versions(),
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
        "verdicts": {
            study.name: " ".join(verdict) for study, verdict in zip(report.studies, report.verdicts, strict=False)
        },
        "pools": [_pool_data(study) for study in report.studies],
        "parts": [_part_data(report, part) for part in report.parts],
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that compute, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in _BESIDE:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def measure_data(study: Study) -> dict[str, Any] | str | None:
    """By what a study's ReASC weighs."""
    return asdict(study.measure) if isinstance(study.measure, Measure) else study.measure


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
        "measure": measure_data(study),
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
    if part.table is not None:
        rows = [[_cell_data(cell) for cell in row] for row in part.table.rows]
        columns = [
            {"name": column.name, "meaning": column.meaning or None, "best": column.best}
            for column in part.table.columns
        ]
        data["table"] = {"columns": columns, "rows": rows, "notes": list(part.table.notes)}
    if part.figures:
        data["figures"] = [
            {"title": one.title or None, "text": one.text, "notes": list(one.notes)} for one in part.figures
        ]
    return data


def _cell_data(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        return dict(zip(("value", "low", "high"), _numbers(cell), strict=True))
    return cell if isinstance(cell, str) else number_of(cell)


def _numbers(cell: Cell) -> list[float | None]:
    """The number of a cell and the ends of its interval."""
    ends: Sequence[Cell] = (cell.low, cell.high) if isinstance(cell, Estimate) else (None, None)
    return [number_of(cell), *map(number_of, ends)]


_HEAD = ("table", "row", "column", "value", "low", "high", "text")


def report_csv(report: Report) -> str:
    """All tables in one file, a line for each cell, because no two tables have the same columns.

    A line says the table's name, the row's number from 0, the column's heading, and the number with the ends of its
    interval, or the text; what could not be had is empty. In pandas, ``data[data.table == "main"].pivot(index="row",
    columns="column", values="value")`` is a table again. Numbers are in full precision. Figures are left out.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_HEAD)
    for part in report.parts:
        if part.table is not None:
            for number, row in enumerate(part.table.rows):
                for column, cell in zip(part.table.columns, row, strict=True):
                    text = _harmless(cell) if isinstance(cell, str) else ""
                    writer.writerow((part.entry.name, number, _harmless(column.name), *_numbers(cell), text))
    return file.getvalue()


def _harmless(text: str) -> str:
    """A text that a spreadsheet shows, and does not compute: behind an apostrophe where it begins like a formula."""
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(("\t", "\r")) else text


_INK: Final = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"


def pictures(report: Report) -> dict[str, str]:
    """The figures that are pictures: a file name for each, and an SVG that stands alone, in light and in dark."""
    drawn = [(part, at, figure) for part in report.parts for at, figure in enumerate(part.figures) if figure.is_svg]
    return {
        _file_name(part, at): figure.html.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
            ">", f">{_INK}", 1
        )
        for part, at, figure in drawn
    }


def report_markdown(report: Report, folder: str | None = None) -> str:
    """Headings, tables in the pipe syntax of GitHub, and what figures show in words.

    Args:
        report: the report.
        folder: where its :func:`pictures` lie, as a link from this page; None where they are not kept.
    """
    lines = [f"# {escaped(headline(report))}"]
    lines += [line for verdict in verdict_lines(report) for line in ("", f"**{escaped(verdict)}**")]
    known = explained(report)
    for part in (part for part in report.parts if not part.is_empty):
        lines += ["", *_markdown_part(report, part, known.get(part.entry.name), folder)]
    if reasons := missing(report):
        lines += ["", "## Not to be had", ""]
        named = {listed([one.entry.name for one in parts]): why for why, parts in reasons.items()}
        lines += [f"- {escaped(names)}: {escaped(why)}" for names, why in named.items()]
    lines += ["", "## Pools and settings", ""]
    lines += [f"- {escaped(line)}" for line in (*pool_lines(report), *setting_lines(report))]
    return "\n".join(lines) + "\n"


def _file_name(part: Made, at: int) -> str:
    return f"{part.entry.name}{f'-{at + 1}' if len(part.figures) > 1 else ''}.svg"


def _markdown_part(report: Report, part: Made, known: Explained | None, folder: str | None) -> Iterator[str]:
    entry = part.entry
    yield f"## {escaped(entry.title)}"
    yield ""
    yield (
        "Printed alone by `"
        + command_for(report, entry.name)
        + "`."
        + (f" In the paper: {escaped(entry.paper)}." if entry.paper else "")
    )
    for problem in part.problems:
        yield from ("", f"> {escaped(problem)}")
    if part.table is not None and known is not None:
        yield from ("", *_markdown_table(part.table, known))
    for at, figure in enumerate(part.figures):
        yield from (["", f"### {escaped(figure.title)}"] if figure.title else [])
        if folder is not None and figure.is_svg:
            yield from ("", f"![{escaped(part.entry.title)}]({folder}/{_file_name(part, at)})")
        yield from ("", escaped(figure.text))
        for note in figure.notes:
            yield from ("", escaped(note))


def _markdown_table(table: Table, known: Explained) -> Iterator[str]:
    """A table, and what has to be known to read it."""
    yield _row([escaped(column.name) for column in table.columns])
    yield _row(["---" if table.is_text(at) else "---:" for at in range(len(table.columns))])
    for row in shown(table):
        yield _row([_marked(cell) for cell in row])
    yield from _markdown_notes(known)


def _markdown_notes(known: Explained) -> Iterator[str]:
    yield from (line for note in known.notes for line in ("", escaped(note)))
    meanings = [f"- {escaped(name)}: {escaped(meaning)}" for name, meaning in known.meanings]
    yield from (["", *meanings] if meanings else [])
    if known.marks:
        yield from ("", MARKED.format(best="**Bold**", second="_italic_"))
    if known.earlier:
        yield from ("", f"What else holds of it stands under {escaped(listed([one.title for one in known.earlier]))}.")


def _marked(cell: Shown) -> str:
    if cell.mark is None:
        return escaped(str(cell))
    around = "**" if cell.mark == "best" else "_"
    return f"{around}{escaped(cell.value)}{around} {escaped(cell.interval)}".rstrip()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escaped(text: str) -> str:
    """A text on one line in which Markdown and HTML see nothing of theirs."""
    line = " ".join(text.split())
    for mark in ("\\", "|", "*", "_", "`", "[", "]", "<", ">", "#"):
        line = line.replace(mark, f"\\{mark}")
    return line


_GAP: Final = 2  # columns between two of a table
_TEXT: Final = 24  # characters of a text, after which it is folded where there is little room
_STYLES: Final = {"best": "bold", "second": "underline"}

Columns = Sequence[int]


def print_report(report: Report, console: Console, *, spelled: Callable[[str], str] = str) -> None:
    """Print all tables, and what the figures show in words.

    Args:
        report: what was made.
        console: where it goes; its width is kept to.
        spelled: how texts are spelled where the console knows no letters but ASCII's.
    """
    plain = not console.encoding.startswith("utf")

    def spell(text: str) -> str:
        return spelled(printable(text)) if plain else printable(text)

    def say(text: str, style: str = "") -> None:
        console.print(Text(spell(text), style), soft_wrap=not console.is_terminal)

    for item in _items(report, console, plain=plain, spelled=spell):
        if isinstance(item, Grid):
            console.print(item)
            console.print()
        else:
            say(*item)


def _items(
    report: Report, console: Console, *, plain: bool, spelled: Callable[[str], str]
) -> Iterator[Grid | tuple[str, str]]:
    """All that is printed: grids, and lines with their styles."""
    yield from (item for verdict in verdict_lines(report) for item in ((verdict, "bold"), ("", "")))
    known = explained(report)
    for part in (part for part in report.parts if not part.is_empty):
        yield from _part_items(part, known.get(part.entry.name), console, plain=plain, spelled=spelled)
    for reason, parts in missing(report).items():
        yield f"Not to be had: {listed([part.entry.name for part in parts])}. {reason}", "italic"
    yield from ((line, "") for line in (*pool_lines(report), *setting_lines(report)))


def _part_items(
    part: Made, known: Explained | None, console: Console, *, plain: bool, spelled: Callable[[str], str]
) -> Iterator[Grid | tuple[str, str]]:
    paper = f" ({part.entry.paper})" if part.entry.paper else ""
    yield f"{part.entry.title}{paper}, --only {part.entry.name}", "bold"
    yield from ((f"Not to be had: {problem}", "italic") for problem in part.problems)
    if part.table is not None and known is not None:
        yield from _grids(part.table, console.width, plain=plain, spelled=spelled)
        yield from ((line, "") for line in _explanations(known, marked=console.is_terminal))
        yield "", ""
    for figure in part.figures:
        yield f"{figure.title}: {figure.text}" if figure.title else figure.text, ""
        yield from ((note, "") for note in figure.notes)
    if part.figures:
        yield "", ""


def _explanations(known: Explained, *, marked: bool) -> Iterator[str]:
    """What has to be known to read a table; ``marked``: whether bests can be seen, as in a terminal."""
    yield from known.notes
    yield from (f"{name}: {meaning}" for name, meaning in known.meanings)
    if marked and known.marks:
        yield MARKED.format(best="Bold", second="underlined")
    if known.earlier:
        yield f"What else holds of it stands under {listed([entry.name for entry in known.earlier])}."


def _grids(table: Table, width: int, *, plain: bool, spelled: Callable[[str], str]) -> Iterator[Grid]:
    """The table, or where it is too wide several below each other, each with the texts that name its rows."""
    if not table.rows:
        return
    cells = shown(table)
    texts = [[spelled(str(cell)) for cell in row] for row in cells]
    heads = [spelled(column.name) for column in table.columns]
    for columns, widths in _fitting(table, heads, texts, width):
        grid = Grid(box=PLAIN_HEAD if plain else box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for at, wide in zip(columns, widths, strict=True):
            justify = "left" if table.is_text(at) else "right"
            grid.add_column(Text(heads[at]), justify=justify, width=wide, overflow="fold")  # type: ignore[arg-type]
        for row, written in zip(cells, texts, strict=True):
            grid.add_row(*(Text(written[at], _STYLES.get(row[at].mark or "", "")) for at in columns))
        yield grid


def _fitting(
    table: Table, heads: Sequence[str], texts: Sequence[Sequence[str]], width: int
) -> list[tuple[Columns, Sequence[int]]]:
    """Groups of columns that fit beside each other, with their widths; those that name the rows are in each."""
    natural = [max(map(len, [*_words(head), *(row[at] for row in texts)])) for at, head in enumerate(heads)]
    if sum(natural) + _GAP * (len(natural) - 1) <= width:
        return [(range(len(heads)), natural)]
    folded = [_folded(at, wide, table, texts) for at, wide in enumerate(natural)]
    names = list(takewhile(lambda at: table.is_text(at), range(len(heads))))
    if len(names) == len(heads):
        names = names[:1]

    def total(columns: Columns) -> int:
        return sum(folded[at] + _GAP for at in columns)

    groups: list[list[int]] = [[]]
    for at in range(len(names), len(heads)):
        if groups[-1] and total([*names, *groups[-1], at]) - _GAP > width:
            groups.append([])
        groups[-1].append(at)
    return [([*names, *group], [min(folded[at], width) for at in (*names, *group)]) for group in groups]


def _folded(at: int, wide: int, table: Table, texts: Sequence[Sequence[str]]) -> int:
    """The width of a column of texts where there is little room: what its longest word needs, and a little more."""
    if not table.is_text(at):
        return wide
    return min(wide, max(_TEXT, max(len(word) for row in texts for word in _words(row[at])) if wide < 40 else _TEXT))


def _words(text: str) -> list[str]:
    return text.split() or [""]

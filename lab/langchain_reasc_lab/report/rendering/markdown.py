"""A report as Markdown, for a repository or an issue."""

from collections.abc import Iterator, Sequence
from typing import Final

from langchain_reasc_lab.report.making import Made, Report, command_for
from langchain_reasc_lab.report.parts import Figure, Table, listed
from langchain_reasc_lab.report.rendering.cells import MARKED, is_text, marks, written
from langchain_reasc_lab.report.rendering.wording import (
    Explained,
    explained,
    headline,
    missing,
    pool_lines,
    setting_lines,
    verdict_lines,
)

__all__ = ["pictures", "report_markdown"]

_INK: Final = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"


def pictures(report: Report) -> dict[str, str]:
    """The figures that are pictures: a file name for each, and an SVG that stands alone, in light and in dark."""
    drawn = [(part, at, figure) for part in report.parts for at, figure in enumerate(part.figures) if _is_svg(figure)]
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
        lines += ["", *_part(report, part, known.get(part.entry.name), folder)]
    if gone := missing(report):
        lines += ["", "## Not to be had", ""]
        named = {listed([one.entry.name for one in parts]): why for why, parts in gone.items()}
        lines += [f"- {escaped(names)}: {escaped(why)}" for names, why in named.items()]
    lines += ["", "## Pools and settings", ""]
    lines += [f"- {escaped(line)}" for line in (*pool_lines(report), *setting_lines(report))]
    return "\n".join(lines) + "\n"


def _is_svg(figure: Figure) -> bool:
    return figure.html.startswith("<svg ")


def _file_name(part: Made, at: int) -> str:
    return f"{part.entry.name}{f'-{at + 1}' if len(part.figures) > 1 else ''}.svg"


def _part(report: Report, part: Made, known: Explained | None, folder: str | None) -> Iterator[str]:
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
        yield from ("", *table_lines(part.table, known))
    for at, figure in enumerate(part.figures):
        yield from (["", f"### {escaped(figure.title)}"] if figure.title else [])
        if folder is not None and _is_svg(figure):
            yield from ("", f"![{escaped(part.entry.title)}]({folder}/{_file_name(part, at)})")
        yield from ("", escaped(figure.text))
        for note in figure.notes:
            yield from ("", escaped(note))


def table_lines(table: Table, known: Explained) -> Iterator[str]:
    """A table, and what has to be known to read it."""
    marked = marks(table)
    yield _row([escaped(column.name) for column in table.columns])
    yield _row(["---" if is_text(table, at) else "---:" for at in range(len(table.columns))])
    for number, row in enumerate(table.rows):
        cells = [escaped(written(cell, column)) for cell, column in zip(row, table.columns, strict=True)]
        yield _row([_marked(cell, marked.get((number, at))) for at, cell in enumerate(cells)])
    yield from (line for note in known.notes for line in ("", escaped(note)))
    meanings = [f"- {escaped(name)}: {escaped(meaning)}" for name, meaning in known.meanings]
    yield from (["", *meanings] if meanings else [])
    if known.marks:
        yield from ("", MARKED.format(best="**Bold**", second="_italic_"))
    if known.earlier:
        yield from ("", f"What else holds of it stands under {escaped(listed([one.title for one in known.earlier]))}.")


def _marked(cell: str, mark: str | None) -> str:
    around = {"best": "**", "second": "_"}.get(mark or "", "")
    value, _, interval = cell.partition(" ")
    return f"{around}{value}{around} {interval}".rstrip() if around else cell


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escaped(text: str) -> str:
    """A text on one line in which Markdown and HTML see nothing of theirs."""
    line = " ".join(text.split())
    for mark in ("\\", "|", "*", "_", "`", "[", "]", "<", ">", "#"):
        line = line.replace(mark, f"\\{mark}")
    return line

"""A report as Markdown, for a repository or an issue."""

from collections.abc import Iterator, Sequence

from langchain_reasc.lab.making import Made, Report, command_for
from langchain_reasc.lab.parts import Table
from langchain_reasc.lab.rendering.cells import MARKED, is_text, marks, written
from langchain_reasc.lab.rendering.wording import headline, pool_lines, setting_lines

__all__ = ["report_markdown"]


def report_markdown(report: Report) -> str:
    """Headings, tables in the pipe syntax of GitHub, and what figures show in words."""
    lines = [f"# {escaped(headline(report))}", ""]
    lines += [f"- {escaped(line)}" for line in (*pool_lines(report), *setting_lines(report))]
    for part in report.parts:
        lines += ["", *_part(report, part)]
    return "\n".join(lines) + "\n"


def _part(report: Report, part: Made) -> Iterator[str]:
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
    if part.table is not None:
        yield from ("", *table_lines(part.table))
    for figure in part.figures:
        yield from (["", f"### {escaped(figure.title)}"] if figure.title else [])
        yield from ("", escaped(figure.text))
        for note in figure.notes:
            yield from ("", escaped(note))


def table_lines(table: Table) -> Iterator[str]:
    """A table, what is marked in it, its notes, and what its columns mean."""
    marked = marks(table)
    yield _row([escaped(column.name) for column in table.columns])
    yield _row(["---" if is_text(table, at) else "---:" for at in range(len(table.columns))])
    for number, row in enumerate(table.rows):
        cells = [escaped(written(cell, column)) for cell, column in zip(row, table.columns, strict=True)]
        yield _row([_marked(cell, marked.get((number, at))) for at, cell in enumerate(cells)])
    if not table.rows:
        yield from ("", "There is no row.")
    yield from (line for note in table.notes for line in ("", escaped(note)))
    meanings = [f"- {escaped(column.name)}: {escaped(column.meaning)}" for column in table.columns if column.meaning]
    yield from (["", *meanings] if meanings else [])
    if marked:
        yield from ("", MARKED.format(best="**Bold**", second="_italic_"))


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

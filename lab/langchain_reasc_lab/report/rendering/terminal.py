"""A report in a terminal: no column is left out where there is no room, it moves below the others."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from langchain_reasc_lab.replay.table import PLAIN_HEAD
from langchain_reasc_lab.report.making import Made, Report
from langchain_reasc_lab.report.parts import Table, listed
from langchain_reasc_lab.report.rendering.cells import MARKED, is_text, marks, written
from langchain_reasc_lab.report.rendering.wording import (
    Explained,
    explained,
    missing,
    pool_lines,
    printable,
    setting_lines,
    verdict_lines,
)

__all__ = ["print_report"]

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

    for verdict in verdict_lines(report):
        say(verdict, "bold")
        say("")
    known = explained(report)
    for part in (part for part in report.parts if not part.is_empty):
        say(_title(part), "bold")
        for problem in part.problems:
            say(f"Not to be had: {problem}", "italic")
        if part.table is not None:
            for grid in _grids(part.table, console.width, plain=plain, spelled=spell):
                console.print(grid)
                console.print()
            for line in _lines(known[part.entry.name], marked=console.is_terminal):
                say(line)
            console.print()
        for figure in part.figures:
            say(f"{figure.title}: {figure.text}" if figure.title else figure.text)
            for note in figure.notes:
                say(note)
        if part.figures:
            console.print()
    for reason, parts in missing(report).items():
        say(f"Not to be had: {listed([part.entry.name for part in parts])}. {reason}", "italic")
    for line in (*pool_lines(report), *setting_lines(report)):
        say(line)


def _title(part: Made) -> str:
    paper = f" ({part.entry.paper})" if part.entry.paper else ""
    return f"{part.entry.title}{paper}, --only {part.entry.name}"


def _lines(known: Explained, *, marked: bool) -> Iterator[str]:
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
    texts = [[spelled(written(c, column)) for c, column in zip(row, table.columns, strict=True)] for row in table.rows]
    heads = [spelled(column.name) for column in table.columns]
    marked = marks(table)
    for columns, widths in _fitting(table, heads, texts, width):
        grid = Grid(box=PLAIN_HEAD if plain else box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for at, wide in zip(columns, widths, strict=True):
            justify = "left" if is_text(table, at) else "right"
            grid.add_column(Text(heads[at]), justify=justify, width=wide, overflow="fold")  # type: ignore[arg-type]
        for number, row in enumerate(texts):
            grid.add_row(*(Text(row[at], _STYLES.get(marked.get((number, at), ""), "")) for at in columns))
        yield grid


def _fitting(
    table: Table, heads: Sequence[str], texts: Sequence[Sequence[str]], width: int
) -> list[tuple[Columns, Sequence[int]]]:
    """Groups of columns that fit beside each other, with their widths; those that name the rows are in each."""
    natural = [max(map(len, [*_words(head), *(row[at] for row in texts)])) for at, head in enumerate(heads)]
    if sum(natural) + _GAP * (len(natural) - 1) > width:
        folded = [_folded(at, wide, table, texts) for at, wide in enumerate(natural)]
    else:
        return [(range(len(heads)), natural)]
    names = [at for at, more in enumerate(accumulate(is_text(table, at) for at in range(len(heads)))) if more == at + 1]
    if len(names) == len(heads):
        names = names[:1]
    room = width - sum(folded[at] + _GAP for at in names)
    groups: list[list[int]] = [[]]
    for at in (at for at in range(len(heads)) if at not in names):
        if groups[-1] and sum(folded[one] + _GAP for one in [*groups[-1], at]) - _GAP > room:
            groups.append([])
        groups[-1].append(at)
    return [([*names, *group], [min(folded[at], width) for at in (*names, *group)]) for group in groups]


def _folded(at: int, wide: int, table: Table, texts: Sequence[Sequence[str]]) -> int:
    """The width of a column of texts where there is little room: what its longest word needs, and a little more."""
    if not is_text(table, at):
        return wide
    return min(wide, max(_TEXT, max(len(word) for row in texts for word in _words(row[at])) if wide < 40 else _TEXT))


def _words(text: str) -> list[str]:
    return text.split() or [""]

"""The comparison of two models as a table of 80 columns, as data, and as a picture of
cost against accuracy.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_reasc._version import __version__
from langchain_reasc_lab.escalation.loop import AUDITED
from langchain_reasc_lab.escalation.rows import (
    LARGE,
    CascadeRow,
    Comparison,
    rules_at_the_end,
)
from langchain_reasc_lab.replay import (
    COLOURS,
    MARKERS,
    PLAIN_HEAD,
    Estimate,
    empty_figure,
    legend_below,
    reach,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cascades_as_data", "draw_frontier", "print_cascades"]

_WIDTHS = {
    " Row": 29,
    "Cost": 5,
    "Later": 5,
    "Right %": 7,
    "Points to large": 17,
    "Esc.": 4,
    "Shad.": 5,
}  # 78 columns
_MOST_DRAWN: Final = 1.5


def print_cascades(found: Comparison, console: Console) -> None:
    """Print the table with what each row promises, and the notes that are needed to
    read it.
    """
    style = box.SIMPLE_HEAD if console.encoding.startswith("utf") else PLAIN_HEAD
    table = Table(
        box=style,
        show_edge=False,
        padding=0,
        width=sum(_WIDTHS.values()) + len(_WIDTHS) - 1,
    )
    for name, width in _WIDTHS.items():
        table.add_column(
            name,
            justify="left" if name == " Row" else "right",
            width=width,
            no_wrap=True,
        )
    for row in found.rows:
        table.add_row(*_cells(row))
    console.print()
    console.print(table, crop=False, no_wrap=True)
    console.print()
    for line in (
        *_measured(found),
        *_promises(found),
        *(f"Note: {one}." for one in found.notes),
    ):
        console.print(escape(line), soft_wrap=not console.is_terminal)


def _cells(row: CascadeRow) -> tuple[str, ...]:
    difference = row.versus_large
    versus = f"{100 * difference.value:+.1f}"
    if not math.isnan(difference.low):
        versus += f" \\[{100 * difference.low:+.1f},{100 * difference.high:+.1f}]"
    return (
        f" {escape(row.name)}{' *' if row.trained else ''}",
        "" if row.cost is None else f"{row.cost.value:.3f}",
        f"{row.later.value:.3f}",
        f"{100 * row.accuracy.value:.1f}",
        "" if row.name == LARGE else versus,
        f"{100 * row.escalated:.0f}",
        f"{100 * row.shadowed:.0f}" if row.learned else "",
    )


def _measured(found: Comparison) -> Iterator[str]:
    pair, count = found.pair, len(found.pair.questions)
    arranged = (
        f"mean of {found.shuffles} shuffles (seed {found.seed})"
        if found.shuffles
        else "recorded order"
    )
    unit = "An answer" if pair.flat else "A token"
    yield (
        f"{count} questions; {arranged}. {unit} of {pair.large.path.name} costs as "
        f"much as {pair.price_ratio:g} of {pair.small.path.name}, so that an answer of "
        f"the small model costs {pair.price:.3f} of the large one's."
    )
    yield (
        "Cost: per question, in answers of the large model, learning included; Later: "
        f"over the last {found.last} questions. Esc., Shad.: % of questions that the "
        f"large model answered, and that both were asked to learn ({AUDITED:.0%} go on "
        "being asked). [..]: 95 % intervals over questions; for rows that learn, over "
        "what they learn in other shuffles, too."
    )
    if not found.shuffles:
        yield "In one order, rows that learn have no interval; --shuffles 24 shows one."
    if any(row.trained for row in found.rows):
        yield "*: trained with labels on the first half of the questions, and tested on the other, as are its points."


def _promises(found: Comparison) -> Iterator[str]:
    itself = found.pair.differs_from_itself
    if not math.isnan(itself):
        yield f"The large model differs from itself on {itself:.1%}. What rows promise:"
    for row in found.rows:
        if not row.learned:
            continue
        ends, runs = rules_at_the_end(row), len(row.learned)
        each = [f"{name} in {times}" for name, times in ends.most_common() if name]
        refused = f"refused in {ends[None]}" if ends[None] else ""
        restarts = sum(one.restarts for one in row.learned)
        again = f"; drift made it begin again {restarts} times" if restarts else ""
        yield (
            f"- {row.name}: differs from the large model on {row.differs:.1%}. Of "
            f"{runs} orders: "
            f"{', '.join([*each, *([refused] if refused else [])])}{again}"
        )
        if example := next((one.promise for one in row.learned if one.promise), None):
            yield f"  such as: {example}"
    yield "No other row promises anything."


def cascades_as_data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data, for JSON."""
    pair, itself = found.pair, found.pair.differs_from_itself
    return {
        "version": __version__,
        "small": str(pair.small.path),
        "large": str(pair.large.path),
        "questions": len(pair.questions),
        "comparable": pair.comparable,
        "price_ratio": pair.price_ratio,
        "flat_cost": pair.flat,
        "price": pair.price,
        "differs_from_itself": None if math.isnan(itself) else itself,
        "shuffles": found.shuffles,
        "seed": found.seed,
        "last": found.last,
        "rows": [_row(row) for row in found.rows],
        "notes": list(found.notes),
    }


def _row(row: CascadeRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "cost": None if row.cost is None else _estimate(row.cost),
        "later": _estimate(row.later),
        "accuracy": _estimate(row.accuracy),
        "versus_large": _estimate(row.versus_large),
        "escalated": row.escalated,
        "shadowed": row.shadowed,
        "differs": row.differs,
        "trained": row.trained,
        "refused": sum(one.rule is None for one in row.learned)
        if row.learned
        else None,
        "learned": [asdict(one) for one in row.learned],
    }


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {
        name: value if math.isfinite(value) else None
        for name, value in asdict(estimate).items()
    }


def draw_frontier(found: Comparison) -> "Figure":
    """Draw what each row costs over the last questions against its accuracy relative to
    the large model's.

    A dashed line joins the two models: any share of questions that is routed by lot is
    on it. Rows that cost much more than the large model are named, but not drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    drawn = [row for row in found.rows if row.later.value <= _MOST_DRAWN]
    figure = empty_figure(5.2, 4.0)
    axes = figure.subplots()
    alone = [row for row in found.rows if row.name in (LARGE, "small model")]
    axes.plot(
        [row.later.value for row in alone],
        [100 * row.versus_large.value for row in alone],
        color="0.6",
        linestyle="--",
        linewidth=1,
        zorder=0,
    )
    for at, row in enumerate(drawn):
        axes.errorbar(
            row.later.value,
            100 * row.versus_large.value,
            yerr=reach([row.versus_large.percent]),
            fmt=MARKERS[at % len(MARKERS)],
            color=COLOURS[at % len(COLOURS)],
            markersize=7,
            elinewidth=0.8,
            alpha=0.85,
            label=row.name,
        )
    axes.set_xlabel(f"cost of the last {found.last} questions (1: the large model)")
    axes.set_ylabel("points to the large model")
    axes.grid(alpha=0.25)
    if apart := [
        f"{row.name}: {row.later.value:.1f}, {100 * row.versus_large.value:+.1f}"
        for row in found.rows
        if row not in drawn
    ]:
        axes.set_title(f"not drawn: {'; '.join(apart)}", fontsize=7)
    legend_below(figure)
    return figure

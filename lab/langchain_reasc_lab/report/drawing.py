"""Figures of tables: the questions that the gate accepts, and accuracy and cost by a
setting.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE
from langchain_reasc_lab.replay.plots import (
    COLOURS,
    MARKERS,
    empty_figure,
    legend_below,
    reach,
)
from langchain_reasc_lab.report.tables import Cell, Table, number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZES: Final = (
    "The figure has the accepted share against the model's size, where every pool or "
    "the name of its model tells it and they differ; else by pool."
)


class Accepted(NamedTuple):
    """The share of a pool's questions that the gate of a method accepts, and N of the
    pool's model.
    """

    pool: str
    method: str
    parameters: float | None
    share: Estimate


def draw_acceptance(accepted: Sequence[Accepted]) -> "Figure":
    """Draw what the gate accepts against the number of parameters, where all pools tell
    it and differ; else by pool.
    """
    sizes = {point.parameters for point in accepted}
    sized = len(sizes) > 1 and None not in sizes
    pools = list(dict.fromkeys(point.pool for point in accepted))
    figure = empty_figure(5.2, 3.6 if sized else 1.2 + 0.7 * len(pools))
    axes = figure.subplots()
    for number, method in enumerate((OFFLINE, MIXTURE)):
        points = [point for point in accepted if point.method == method]
        if not points:
            continue
        if sized:
            _draw_points(axes, points, number)
        else:
            _draw_bars(axes, points, pools, number)
    if sized:
        axes.set(
            xscale="log",
            xlabel="parameters (billions)",
            ylabel="accepted (%)",
            ylim=(0, 100),
        )
        billions = sorted((size or 0) / 1e9 for size in sizes)
        axes.set_xticks(billions, [f"{size:.3g}" for size in billions])
        axes.minorticks_off()
        axes.margins(x=0.15)
    else:
        axes.set_yticks(range(len(pools)), pools)
        axes.invert_yaxis()
        axes.set(xlabel="accepted (%)", xlim=(0, 100))
    axes.grid(alpha=0.25)
    legend_below(figure)
    return figure


def _draw_points(axes: "Axes", points: Sequence[Accepted], number: int) -> None:
    sizes = [(point.parameters or 0) / 1e9 for point in points]
    shares = [point.share for point in points]
    axes.errorbar(
        sizes,
        [share.value for share in shares],
        yerr=reach(shares),
        fmt=MARKERS[number],
        color=COLOURS[number],
        elinewidth=0.8,
        label=points[0].method,
    )
    if number == 0:
        for size, point in zip(sizes, points, strict=True):
            place = (size, point.share.value)
            axes.annotate(
                point.pool, place, xytext=(6, 6), textcoords="offset points", fontsize=7
            )


def _draw_bars(
    axes: "Axes", points: Sequence[Accepted], pools: Sequence[str], number: int
) -> None:
    places = [pools.index(point.pool) + 0.35 * (number - 0.5) for point in points]
    shares = [point.share for point in points]
    values = [share.value for share in shares]
    axes.barh(
        places,
        values,
        0.32,
        xerr=reach(shares),
        color=COLOURS[number],
        ecolor="0.5",
        label=points[0].method,
    )


# of the axis, by which a line stands beside the one before it, so that both intervals
# are seen
_ASIDE: Final = 0.008
Point = tuple[float, Cell, Cell]
"""A setting, and the accuracy and the cost at it."""


def draw_sweep(table: Table, setting: int) -> "Figure":
    """Draw accuracy and cost by a setting, with a line for each combination of texts,
    such as pool and calibration.

    Args:
        table: a table with the setting, the accuracy and the cost in columns beside
            each other.
        setting: the column of the setting, counted from the left.
    """
    figure = empty_figure(5.2, 5.6)
    lines = _lines(table, setting)
    settings = [x for points in lines.values() for x, *_ in points]
    aside = _ASIDE * (max(settings) - min(settings))
    for measured, axes in enumerate(figure.subplots(2, 1, sharex=True), start=1):
        for number, (label, points) in enumerate(lines.items()):
            cells = [point[measured] for point in points]
            axes.errorbar(
                [x + aside * (number - (len(lines) - 1) / 2) for x, *_ in points],
                [number_of(cell) or 0.0 for cell in cells],
                yerr=reach(cells),
                fmt=f"{MARKERS[number % len(MARKERS)]}-",
                color=COLOURS[number % len(COLOURS)],
                markersize=5,
                elinewidth=0.8,
                label=label,
            )
        axes.set_ylabel(table.columns[setting + measured].name)
        axes.grid(alpha=0.25)
    figure.axes[-1].set_xlabel(table.columns[setting].name)
    legend_below(figure)
    return figure


def _lines(table: Table, setting: int) -> dict[str, list[Point]]:
    """Return the points of each line by its label."""
    texts = [at for at in range(len(table.columns)) if table.is_text(at)]
    varying = [at for at in texts if len({row[at] for row in table.rows}) > 1] or texts
    lines: dict[str, list[Point]] = {}
    for row in table.rows:
        x, accuracy, cost = row[setting : setting + 3]
        if number_of(accuracy) is not None:
            label = ", ".join(str(row[at]) for at in varying)
            lines.setdefault(label, []).append((number_of(x) or 0.0, accuracy, cost))
    return lines

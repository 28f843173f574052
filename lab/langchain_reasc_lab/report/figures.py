"""Figures of methods: accuracy, risk, posteriors, acceptance by the gate, and sweeps of a setting."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.plots import (
    COLOURS,
    MARKERS,
    draw_posteriors,
    draw_risk,
    draw_tradeoff,
    empty_figure,
    legend_below,
    ranked,
    reach,
)
from langchain_reasc_lab.replay.worked import pick_worked
from langchain_reasc_lab.report.comparisons import methods_shown
from langchain_reasc_lab.report.results import ACCURACY, Cost, Results
from langchain_reasc_lab.report.sensitivity import calibration_size, scale
from langchain_reasc_lab.report.study import Study, parameters_of
from langchain_reasc_lab.report.svg import for_each_pool, svg
from langchain_reasc_lab.report.tables import Cell, Figure, Table, number_of, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn


def tradeoff(studies: Sequence[Study]) -> list[Figure]:
    """Return every method of each pool, with intervals."""
    return _of_rows(studies, "tradeoff", "Accuracy against tokens", draw_tradeoff, _tradeoff_words)


def risk(studies: Sequence[Study]) -> list[Figure]:
    """Return risk–coverage curves of the methods that tell how likely an answer is right."""
    return _of_rows(studies, "risk", "Risk against coverage", draw_risk, _risk_words)


def _of_rows(
    studies: Sequence[Study],
    name: str,
    title: str,
    draw: "Callable[[Sequence[Row]], Drawn]",
    words: Callable[[Sequence[Row]], str],
) -> list[Figure]:
    def of_pool(at: int, study: Study) -> Figure:
        rows = methods_shown(study)
        return Figure(svg(lambda: draw(rows), f"{name}-{at}", f"{title} in {study.name}"), words(rows))

    return for_each_pool(studies, of_pool)


def _tradeoff_words(rows: Sequence[Row]) -> str:
    def words(row: Row) -> str:
        tokens = f"with {row.tokens.value:,.0f} tokens a question."
        return f"{row.title}: {_percent(row.accuracy.percent)} right {tokens}"

    return " ".join(map(words, rows))


def _percent(share: Estimate) -> str:
    return f"{share.value:.1f} % {share.interval('.1f')}".rstrip()


def _risk_words(rows: Sequence[Row]) -> str:
    return "Area under the curve, the lower the better. " + " ".join(
        f"{row.title}: {100 * curve.aurc:.1f} %; wrong are {100 * curve.risk[(curve.risk.size - 1) // 2]:.1f} % of "
        f"the likeliest half, {100 * curve.risk[-1]:.1f} % of all."
        for row, curve in ranked(rows)
    )


def posteriors(studies: Sequence[Study]) -> list[Figure]:
    """Return ASC above and ReASC below, on the same responses."""
    return for_each_pool(studies, _posterior)


def _posterior(at: int, study: Study) -> Figure:
    calibration = study.calibrated(study.splits[0]).offline
    if isinstance(calibration, Exception):
        raise calibration
    worked = pick_worked(
        study.pool,
        calibration,
        max_samples=study.settings.methods.max_samples,
        among=study.splits[0].tested,
        measure="recorded" if study.measure == "recorded" else None,
    )
    words = (
        f"{name} stops after {len(course)} {'response' if len(course) == 1 else 'responses'} ({course[-1].reason}): "
        f"{', '.join(f'P = {one.posterior:.3f} after {one.samples}' for one in course)}."
        for name, course in (("ASC", worked.asc), ("ReASC", worked.reasc))
    )
    title = f"Posterior after each response to question {worked.question.id} in {study.name}"
    note = (
        f"Question {worked.question.id}, picked among those that were not calibrated on to show a difference where "
        "both methods are right: no typical one. Shaded: where the leading answer has more than half."
    )
    return Figure(svg(lambda: draw_posteriors(worked), f"posteriors-{at}", title), " ".join(words), notes=[note])


_METHODS: Final = (OFFLINE, MIXTURE)


class _Accepted(NamedTuple):
    """The share of questions that the gate of each method accepts on a pool, and N of the pool's model."""

    pool: str
    parameters: float | None
    shares: dict[str, Estimate]


def acceptance(studies: Sequence[Study]) -> list[Figure]:
    """Return what is accepted against the number of parameters, where all pools tell it and differ; else by pool."""
    pools = [_accepted(study, alone=len(studies) == 1) for study in studies]
    sized = len({one.parameters for one in pools} - {None}) > 1 and all(one.parameters for one in pools)
    if sized:
        size = "Sizes are what each pool says, or the name of its model; what --parameters says is not used here."
    elif len(pools) > 1:
        size = "By pool, because the pools do not all tell the size of their models, or it is the same."
    else:
        size = "Pools of several models, named one after the other, are drawn against the size of the model."
    html = svg(lambda: _draw_acceptance(pools, sized=sized), "acceptance", "Share of questions accepted in Stage 1")
    accuracy = (
        "Whether the gate accepts more than it should, the accuracy of what it accepted says: see the table stage1."
    )
    return [Figure(html, " ".join(map(_acceptance_words, pools)), notes=[accuracy, size])]


def _accepted(study: Study, *, alone: bool) -> _Accepted:
    shares = {}
    for row in study.rows:
        if row.method in _METHODS:
            key = (row.method, row.spec)  # as the table stage1 has it
            held = Results(study, {key: row.outcomes}, Cost(flops=False), among=row.outcomes.column("gated"))
            shares[row.method] = held.share(key)
    if not shares:
        raise PoolError(str(study.uncalibrated))
    given, recorded = study.settings.parameters if alone else None, parameters_of(study.pool.metadata)
    return _Accepted(study.name, given or (recorded.count if recorded else None), shares)


def _acceptance_words(one: _Accepted) -> str:
    size = "" if one.parameters is None else f" ({one.parameters / 1e9:.3g} billion parameters)"
    shares = (f"{_percent(share)} by {method}" for method, share in one.shares.items())
    return f"{one.pool}{size}: {', '.join(shares)} of the questions are answered from one response."


def _draw_acceptance(pools: Sequence[_Accepted], *, sized: bool) -> "Drawn":
    drawn = empty_figure(5.2, 3.6 if sized else 1.2 + 0.7 * len(pools))
    axes = drawn.subplots()
    for number, method in enumerate(_METHODS):
        shown = [(at, one) for at, one in enumerate(pools) if method in one.shares]
        if shown:
            (_draw_points if sized else _draw_bars)(axes, shown, method, number)
    if sized:
        axes.set(xscale="log", xlabel="parameters (billions)", ylabel="accepted (%)", ylim=(0, 100))
    else:
        axes.set_yticks(range(len(pools)), [one.pool for one in pools])
        axes.invert_yaxis()
        axes.set(xlabel="accepted (%)", xlim=(0, 100))
    axes.grid(alpha=0.25)
    legend_below(drawn)
    return drawn


def _draw_points(axes: "Axes", shown: Sequence[tuple[int, _Accepted]], method: str, number: int) -> None:
    points = sorted((((one.parameters or 0) / 1e9, one) for _, one in shown), key=lambda point: point[0])
    sizes, shares = [size for size, _ in points], [one.shares[method] for _, one in points]
    values, colour = [share.value for share in shares], COLOURS[number]
    axes.errorbar(sizes, values, yerr=reach(shares), fmt=MARKERS[number], color=colour, elinewidth=0.8, label=method)
    for (size, one), value in zip(points, values, strict=True) if number == 0 else ():
        axes.annotate(one.pool, (size, value), xytext=(6, 6), textcoords="offset points", fontsize=7)


def _draw_bars(axes: "Axes", shown: Sequence[tuple[int, _Accepted]], method: str, number: int) -> None:
    places, shares = [at + 0.35 * (number - 0.5) for at, _ in shown], [one.shares[method] for _, one in shown]
    values = [share.value for share in shares]
    axes.barh(places, values, 0.32, xerr=reach(shares), color=COLOURS[number], ecolor="0.5", label=method)


_ASIDE: Final = 0.008  # of the axis, by which a line stands beside the one before it, so that both intervals are seen
Points = list[tuple[float, Cell, Cell]]
"""A setting, and the accuracy and the cost at it."""


def calibration_size_plot(studies: Sequence[Study]) -> list[Figure]:
    """Return the table ``calibration_size``, drawn."""
    return _swept("calibration_size", "Questions that calibrate", calibration_size(tuple(studies)))


def scale_plot(studies: Sequence[Study]) -> list[Figure]:
    """Return the table ``scale``, drawn."""
    return _swept("scale", "λ, how strongly confidence counts", scale(tuple(studies)))


def _swept(name: str, title: str, table: Table) -> list[Figure]:
    """Return accuracy and cost by the setting; a line for each combination of texts, such as pool and method."""
    accuracy = table.columns.index(ACCURACY)
    setting, measured, cost = table.columns[accuracy - 1 : accuracy + 2]
    lines = _lines(table, accuracy)
    if not lines:
        raise PoolError(f"the table {name} has no accuracy to draw")
    words = []
    for label, points in lines.items():
        each = "; ".join(f"{x:g}: {show(y, measured)} ({show(spent, cost)})" for x, y, spent in points)
        words.append(f"{label and f'{label}, '}{measured.name} ({cost.name}) by {setting.name}: {each}.")
    html = svg(lambda: _draw_sweep(lines, setting.name, (measured.name, cost.name)), f"{name}-plot", title)
    return [Figure(html, " ".join(words), notes=[f"Drawn from the table {name}, which holds the same numbers."])]


def _lines(table: Table, accuracy: int) -> dict[str, Points]:
    """Return label -> settings with their accuracy and cost, whose columns stand side by side."""
    texts = [at for at in range(len(table.columns)) if table.is_text(at)]
    varying = [at for at in texts if len({row[at] for row in table.rows}) > 1] or texts
    lines: dict[str, Points] = {}
    for row in table.rows:
        x, y, spent = row[accuracy - 1 : accuracy + 2]
        if number_of(y) is not None:
            lines.setdefault(", ".join(str(row[at]) for at in varying), []).append((number_of(x) or 0.0, y, spent))
    return lines


def _draw_sweep(lines: dict[str, Points], setting: str, measured: Sequence[str]) -> "Drawn":
    drawn = empty_figure(5.2, 5.6)
    every = [x for points in lines.values() for x, *_ in points]
    aside = _ASIDE * (max(every) - min(every))
    for which, axes in enumerate(drawn.subplots(2, 1, sharex=True), start=1):
        for number, (label, points) in enumerate(lines.items()):
            cells = [point[which] for point in points]
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
        axes.set_ylabel(measured[which - 1])
        axes.grid(alpha=0.25)
    drawn.axes[-1].set_xlabel(setting)
    legend_below(drawn)
    return drawn

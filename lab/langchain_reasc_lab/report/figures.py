"""Figures of what methods did, and how all figures become SVG for a page."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc.calibrating import calibrate_offline_on
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import ConfigurationError, PoolError, missing_extra
from langchain_reasc_lab.replay.bootstrap import Bootstrap
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE
from langchain_reasc_lab.replay.metrics import Estimate, Row
from langchain_reasc_lab.replay.plots import (
    COLOURS,
    MARKERS,
    draw_posteriors,
    draw_risk,
    draw_tradeoff,
    empty_figure,
    legend_below,
    ranked,
)
from langchain_reasc_lab.replay.worked import Worked, pick_worked
from langchain_reasc_lab.report.comparisons import methods_shown
from langchain_reasc_lab.report.report import contents, figure
from langchain_reasc_lab.report.study import Study, parameters_of
from langchain_reasc_lab.report.tables import Cell, Column, Figure, Table, is_text, number_of, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn


RIGHT, WRONG = COLOURS[0], COLOURS[1]
"""Those of right and of wrong responses, which can be told apart without seeing red or green."""

_INK: Final = "#010203"  # stands for the page's own colour of text while matplotlib draws
_ROOT = re.compile(r"<svg\b[^>]*>")
_VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_METADATA = re.compile(r"<metadata>.*?</metadata>|<style\b.*?</style>", re.DOTALL)
_IDS = re.compile(r'(\bid="|url\(#|\bhref="#)')
_FONT = re.compile(r"(font: [^'\";]*?)\s*'[^;\"]*?sans-serif")
_PIXELS: Final = 4 / 3  # a point on a screen


def for_each_pool(studies: Sequence[Study], make: Callable[[int, Study], Figure]) -> list[Figure]:
    """A figure for each pool, made from its place and itself; where there are several, its name is the title."""
    made = [make(at, study) for at, study in enumerate(studies)]
    return made if len(made) == 1 else [replace(one, title=each.name) for one, each in zip(made, studies, strict=True)]


def svg(draw: Callable[[], "Drawn"], name: str, title: str) -> str:
    """What a function draws, as an ``<svg>`` element for the middle of a page.

    Args:
        draw: makes the figure, under the settings that a page needs.
        name: what the ids in it begin with, since several pictures stand in one page.
        title: what it is of, for those who do not see it.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise missing_extra("lab", "matplotlib") from None
    with matplotlib.rc_context(_settings(name)):
        file = io.StringIO()
        draw().savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None}, transparent=True)
    return _for_a_page(file.getvalue(), name, title)


def _settings(name: str) -> Any:
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(inked, _INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that all machines lay out alike
        "svg.fonttype": "none",
        "svg.hashsalt": name,
    }


def _for_a_page(text: str, name: str, title: str) -> str:
    from html import escape

    body = _METADATA.sub("", text[text.index("<svg") :]).replace("xlink:href", "href").replace(_INK, "currentColor")
    body = _FONT.sub(r"\1 sans-serif", _IDS.sub(rf"\1{name}-", body))
    view = _VIEW.search(body)
    assert view is not None  # matplotlib writes one
    width, height = map(float, view.groups())
    root = (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width * _PIXELS:.0f}" height="{height * _PIXELS:.0f}" '
        f'role="img" aria-label="{escape(title)}" stroke-linejoin="round" stroke-linecap="butt">'
    )
    return re.sub(r">\s+<", ">\n<", _ROOT.sub(lambda _: root, body, count=1)).strip()


@figure("tradeoff", "Accuracy against tokens")
def tradeoff(studies: Sequence[Study]) -> list[Figure]:
    """Every method of each pool, with intervals."""
    return _each(studies, "tradeoff", "Accuracy against tokens", draw_tradeoff, _tradeoff_words)


@figure("risk", "Wrong answers where the unlikely ones are left out")
def risk(studies: Sequence[Study]) -> list[Figure]:
    """Risk–coverage curves of the methods that tell how likely an answer is right."""
    return _each(studies, "risk", "Risk against coverage", draw_risk, _risk_words)


def _each(
    studies: Sequence[Study],
    name: str,
    title: str,
    draw: "Callable[[Sequence[Row]], Drawn]",
    words: Callable[[Sequence[Row]], str],
) -> list[Figure]:
    def of_pool(at: int, study: Study) -> Figure:
        rows = methods_shown(study)
        html = svg(lambda: draw(rows), f"{name}-{at}", f"{title} in {study.name}")
        return Figure(html, words(rows))

    return for_each_pool(studies, of_pool)


def _tradeoff_words(rows: Sequence[Row]) -> str:
    return " ".join(
        f"{_named(row)}: {100 * row.accuracy.value:.1f} % [{100 * row.accuracy.low:.1f}, {100 * row.accuracy.high:.1f}]"
        f" right with {row.tokens.value:,.0f} tokens a question."
        for row in rows
    )


def _risk_words(rows: Sequence[Row]) -> str:
    return "Area under the curve, the lower the better. " + " ".join(
        f"{_named(row)}: {100 * curve.aurc:.1f} %; wrong are {100 * curve.risk[(curve.risk.size - 1) // 2]:.1f} % of "
        f"the likeliest half, {100 * curve.risk[-1]:.1f} % of all."
        for row, curve in ranked(rows)
    )


def _named(row: Row) -> str:
    return row.method if row.spec is None else f"{row.method} by {row.spec}"


@figure("posteriors", "The posterior of one question, response by response", paper="Figure 5")
def posteriors(studies: Sequence[Study]) -> list[Figure]:
    """ASC above, ReASC below, on the same responses."""
    return for_each_pool(studies, _posterior)


def _posterior(at: int, study: Study) -> Figure:
    worked = pick_worked(
        study.pool,
        _first_calibration(study),
        max_samples=study.settings.methods.max_samples,
        among=study.splits[0].tested,
        measure="recorded" if study.measure == "recorded" else None,
    )
    title = f"Posterior after each response to question {worked.question.id} in {study.name}"
    return Figure(
        html=svg(lambda: draw_posteriors(worked), f"posteriors-{at}", title),
        text=_worked_words(worked),
        notes=[
            f"Question {worked.question.id}, picked among those that were not calibrated on to show a difference where "
            "both methods are right: no typical one. Shaded: where the leading answer has more than half."
        ],
    )


def _first_calibration(study: Study) -> Calibration:
    """Algorithm 1 on the first arrangement's calibration questions.

    Raises:
        CalibrationDataError: they determine none.
        PoolError: the pool has neither scores nor token signals.
    """
    if study.measure is None:
        raise PoolError(f"{study.pool.path} has no scores or token signals, by which votes could be weighed")
    split, methods = study.splits[0], study.settings.methods
    return calibrate_offline_on(
        study.pool,
        study.scores,
        split.firsts(split.calibration),
        study.measure,
        p_target=methods.p_target,
        seed=methods.seed,
    )


def _worked_words(worked: Worked) -> str:
    return " ".join(
        f"{name} stops after {len(course)} {'response' if len(course) == 1 else 'responses'} ({course[-1].reason}): "
        f"{', '.join(f'P = {one.posterior:.3f} after {one.samples}' for one in course)}."
        for name, course in (("ASC", worked.asc), ("ReASC", worked.reasc))
    )


_METHODS: Final = (OFFLINE, MIXTURE)


@dataclass(frozen=True, slots=True)
class _Accepted:
    pool: str
    parameters: float | None
    shares: dict[str, Estimate]


@figure("acceptance", "Questions that the gate answers from one response", paper="Figure 4")
def acceptance(studies: Sequence[Study]) -> Figure:
    """Against the number of parameters where every pool's model tells it and they differ, else pool by pool."""
    pools = [_accepted(study, alone=len(studies) == 1) for study in studies]
    sized = len({one.parameters for one in pools} - {None}) > 1 and all(one.parameters for one in pools)
    if sized:
        size = ["Sizes are what each pool says, or the name of its model; what --parameters says is not used here."]
    elif len(pools) > 1:
        size = ["By pool, because the pools do not all tell the size of their models, or it is the same."]
    else:
        size = ["Pools of several models, named one after the other, are drawn against the size of the model."]
    html = svg(lambda: _draw_acceptance(pools, sized=sized), "acceptance", "Share of questions accepted in Stage 1")
    notes = [
        "Whether the gate accepts more than it should, the accuracy of what it accepted says: see the table stage1.",
        *size,
    ]
    return Figure(html, " ".join(_acceptance_words(one) for one in pools), notes=notes)


def _accepted(study: Study, *, alone: bool) -> _Accepted:
    if study.measure is None:
        raise PoolError(f"{study.pool.path} has no scores or token signals, and a gate needs them")
    shares = {row.method: _share(row, study.settings.seed) for row in study.rows if row.method in _METHODS}
    if not shares:
        raise PoolError(str(study.uncalibrated or f"nothing could be calibrated on {study.pool.path}"))
    given, recorded = study.settings.parameters if alone else None, parameters_of(study.pool.metadata)
    return _Accepted(study.name, given or (recorded.count if recorded else None), shares)


def _share(row: Row, seed: int) -> Estimate:
    """The share with its interval over questions, as the table ``stage1`` has it."""
    return Bootstrap({"gated": row.outcomes.column("gated")}, row.outcomes.tested, seed=seed).share("gated")


def _acceptance_words(one: _Accepted) -> str:
    size = "" if one.parameters is None else f" ({one.parameters / 1e9:.3g} billion parameters)"
    shares = ", ".join(
        f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}] by {method}"
        for method, share in one.shares.items()
    )
    return f"{one.pool}{size}: {shares} of the questions are answered from one response."


def _draw_acceptance(pools: Sequence[_Accepted], *, sized: bool) -> "Drawn":
    drawn = empty_figure(5.2, 3.6 if sized else 1.2 + 0.7 * len(pools))
    axes = drawn.subplots()
    for number, method in enumerate(_METHODS):
        shown = [one for one in pools if method in one.shares]
        if not shown:
            continue
        if sized:
            shown = sorted(shown, key=lambda one: one.parameters or 0)
            _points(axes, shown, method, number)
        else:
            _bars(axes, pools, method, number)
    if sized:
        axes.set_xscale("log")
        axes.set_xlabel("parameters (billions)")
        axes.set_ylabel("accepted (%)")
        axes.set_ylim(0, 100)
    else:
        axes.set_yticks(range(len(pools)), [one.pool for one in pools])
        axes.invert_yaxis()
        axes.set_xlabel("accepted (%)")
        axes.set_xlim(0, 100)
    axes.grid(alpha=0.25)
    legend_below(drawn)
    return drawn


def _points(axes: "Axes", shown: Sequence[_Accepted], method: str, number: int) -> None:
    sizes = [(one.parameters or 0) / 1e9 for one in shown]
    shares = [one.shares[method] for one in shown]
    values = [100 * share.value for share in shares]
    axes.errorbar(
        sizes, values, yerr=_errors(shares), fmt=MARKERS[number], color=COLOURS[number], elinewidth=0.8, label=method
    )
    if number == 0:
        for x, y, one in zip(sizes, values, shown, strict=True):
            axes.annotate(one.pool, (x, y), xytext=(6, 6), textcoords="offset points", fontsize=7)


def _bars(axes: "Axes", pools: Sequence[_Accepted], method: str, number: int) -> None:
    known = [(at, one.shares[method]) for at, one in enumerate(pools) if method in one.shares]
    places = [at + 0.35 * (number - 0.5) for at, _ in known]
    shares = [share for _, share in known]
    values = [100 * share.value for share in shares]
    axes.barh(places, values, 0.32, xerr=_errors(shares), color=COLOURS[number], ecolor="0.5", label=method)


def _errors(shares: Sequence[Estimate]) -> list[list[float]]:
    below = [max(0.0, 100 * (share.value - share.low)) for share in shares]
    above = [max(0.0, 100 * (share.high - share.value)) for share in shares]
    return [below, above]


_ASIDE: Final = 0.008  # of the axis, by which a line stands beside the one before it, so that both intervals are seen
_COST: Final = re.compile(r"\w?FLOPs|Tokens")
Line = tuple[str, list[tuple[float, Cell]], list[tuple[float, Cell]]]


@figure("calibration_size_plot", "Accuracy and cost against the calibration's size", paper="Figure 7")
def calibration_size_plot(studies: Sequence[Study]) -> Figure:
    """The table ``calibration_size``, drawn."""
    return _swept("calibration_size", studies)


@figure("scale_plot", "Accuracy and cost against λ", paper="Figure 8")
def scale_plot(studies: Sequence[Study]) -> Figure:
    """The table ``scale``, drawn."""
    return _swept("scale", studies)


def _swept(name: str, studies: Sequence[Study]) -> Figure:
    entry = contents().get(name)
    if entry is None:
        raise ConfigurationError(f"there is no table {name!r} to draw")
    table: Table = entry.make(studies)
    setting, accuracy, cost = _columns(table, name)
    lines = _lines(table, setting, accuracy, cost)
    heads = [table.columns[at].name for at in (setting, accuracy, cost)]
    words = " ".join(_in_words(line, heads, table.columns[accuracy], table.columns[cost]) for line in lines)
    html = svg(lambda: _draw_sweep(lines, heads), f"{name}-plot", entry.title)
    return Figure(html, words, notes=[f"Drawn from the table {name}, which holds the same numbers."])


def _in_words(line: Line, heads: Sequence[str], accuracy: Column, cost: Column) -> str:
    label, accuracies, costs = line
    spent = dict(costs)
    each = "; ".join(
        f"{x:g}: {written(y, accuracy)}" + (f" ({written(spent[x], cost)})" if x in spent else "")
        for x, y in accuracies
    )
    return f"{label + ', ' if label else ''}{heads[1]} ({heads[2]}) by {heads[0]}: {each}."


def _columns(table: Table, name: str) -> tuple[int, int, int]:
    """Those of the setting, of the accuracy and of the cost, operations or tokens."""
    heads = [column.name for column in table.columns]
    numeric = [at for at in range(len(heads)) if not is_text(table, at)]
    accuracy = next((at for at in numeric if heads[at].startswith("Accuracy")), None)
    costs = [at for at in numeric if _COST.match(heads[at])]
    cost = next((at for at in costs if any(number_of(row[at]) is not None for row in table.rows)), None)
    if not numeric or accuracy is None or cost is None:
        raise ConfigurationError(f"the table {name!r} has no accuracy or no cost to draw (its columns: {heads})")
    return numeric[0], accuracy, cost


def _lines(table: Table, setting: int, accuracy: int, cost: int) -> list[Line]:
    """One for each combination of texts, such as pool and method: its label, and both courses."""
    texts = [at for at in range(len(table.columns)) if is_text(table, at)]
    varying = [at for at in texts if len({row[at] for row in table.rows}) > 1]
    lines: dict[str, Line] = {}
    for row in table.rows:
        label = ", ".join(str(row[at]) for at in varying) or ", ".join(str(row[at]) for at in texts)
        if (x := number_of(row[setting])) is not None:
            line = lines.setdefault(label, (label, [], []))
            for course, at in ((line[1], accuracy), (line[2], cost)):
                if number_of(row[at]) is not None:
                    course.append((x, row[at]))
    return list(lines.values())


def _draw_sweep(lines: Sequence[Line], heads: Sequence[str]) -> "Drawn":
    drawn = empty_figure(5.2, 5.6)
    every = [x for line in lines for x, _ in line[1]]
    aside = _ASIDE * (max(every) - min(every)) if every else 0.0
    for axes, which, head in zip(drawn.subplots(2, 1, sharex=True), (1, 2), heads[1:], strict=True):
        for number, line in enumerate(lines):
            course: list[tuple[float, Cell]] = line[which]  # type: ignore[assignment]
            values = [number_of(cell) or 0.0 for _, cell in course]
            axes.errorbar(
                [x + aside * (number - (len(lines) - 1) / 2) for x, _ in course],
                values,
                yerr=[_reach(course, values, low=True), _reach(course, values, low=False)],
                fmt=f"{MARKERS[number % len(MARKERS)]}-",
                color=COLOURS[number % len(COLOURS)],
                markersize=5,
                elinewidth=0.8,
                label=line[0],
            )
        axes.set_ylabel(head)
        axes.grid(alpha=0.25)
    drawn.axes[-1].set_xlabel(heads[0])
    legend_below(drawn)
    return drawn


def _reach(course: Sequence[tuple[float, Cell]], values: Sequence[float], *, low: bool) -> list[float]:
    """From each value to the end of its interval; 0 where there is none."""
    ends = [(cell.low if low else cell.high) if isinstance(cell, Estimate) else None for _, cell in course]
    bounds = [value if (end := number_of(cell)) is None else end for cell, value in zip(ends, values, strict=True)]
    return [max(0.0, value - end if low else end - value) for value, end in zip(values, bounds, strict=True)]

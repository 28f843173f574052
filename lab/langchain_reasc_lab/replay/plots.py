"""Plots: accuracy against tokens, risk against coverage, several recordings, posteriors
of a question (Figure 5).
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.method.stopping import DEFAULT_CONFIDENCE, Decision
from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import AGREEMENT, ASC_ROW, ONLINE
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.recordings import RecordingResult, RuleResult
from langchain_reasc_lab.replay.risk import Risk
from langchain_reasc_lab.replay.worked import Worked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "MARKERS",
    "draw_posteriors",
    "draw_recordings",
    "draw_risk",
    "draw_tradeoff",
    "empty_figure",
    "legend_below",
    "ranked",
    "reach",
    "save_figure",
]

COLOURS: Final = (
    "#3b7dd8",
    "#d9772b",
    "#2f9e63",
    "#d64545",
    "#8e6bc9",
    "#1f9aa8",
    "#c2588f",
    "#8a8a2c",
)
"""Colours that can be told from a white and from a black page."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "h", ">", "p", "d")
"""The marks of methods in plots."""
_DASHES: Final = (
    "-",
    "--",
    "-.",
    ":",
    (0, (1, 4)),
    (0, (6, 4)),
    (0, (3, 1, 1, 1, 1, 1)),
)
# Of numbers of colours, marks and dashes no two have a common divisor: 104 methods
# differ in colour or mark.
_OF = {"ASC": COLOURS[2], "ReASC": COLOURS[3]}
_SHOWN: Final = (
    (None, "0.55", "asking once"),
    (ASC_ROW, COLOURS[2], "ASC"),
    (AGREEMENT, COLOURS[3], "ReASC without logprobs"),
    (ONLINE, COLOURS[0], "ReASC with logprobs"),
)
"""The rules in the picture of several recordings: name, None for asking once; colour;
label.
"""
_WIDTH: Final = 5.2  # inches, so that it can be read on a telephone, legend and all
_NAMED: Final = 60  # recordings whose names fit on a picture
_PANELS: Final = 6  # posteriors in a row, at most
_LEGEND_ROW: Final = 0.17  # inches
_LEGEND_ROWS: Final = 5  # that a figure of the usual height has room for


def empty_figure(width: float, height: float) -> "Figure":
    """Return a figure of this size in inches that needs no display and touches no
    global state.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise missing_extra("lab", "matplotlib") from None
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, and touches no global state
    return figure


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure into a file, whose suffix determines the format, and return the
    file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    return path


def draw_tradeoff(rows: Sequence[Row]) -> "Figure":
    """Draw accuracy against generated tokens per question, with 95 % intervals.

    Args:
        rows: the rows of :func:`~langchain_reasc_lab.replay.metrics.summarize`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = empty_figure(_WIDTH, 3.8)
    axes = figure.subplots()
    for at, row in enumerate(rows):
        accuracy = row.accuracy.percent
        axes.errorbar(
            row.tokens.value,
            accuracy.value,
            xerr=reach([row.tokens]),
            yerr=reach([accuracy]),
            fmt=MARKERS[at % len(MARKERS)],
            color=COLOURS[at % len(COLOURS)],
            markersize=7,
            elinewidth=0.8,
            alpha=0.85,
            label=_title(row, rows),
        )
    axes.set_xlabel("generated tokens per question")
    axes.set_ylabel("accuracy (%)")
    axes.grid(alpha=0.25)
    legend_below(figure)
    return figure


def reach(cells: Sequence[Estimate | float | str | None]) -> list[list[float]]:
    """Return the distances from values down and up to the ends of their intervals; 0 if
    there is none.

    Resamples of few questions may put both ends on one side of the value.
    """
    ends = [
        (one.value, one.low, one.high) if isinstance(one, Estimate) else (0.0, 0.0, 0.0)
        for one in cells
    ]
    below = [
        max(0.0, value - low) if math.isfinite(low) else 0.0 for value, low, _ in ends
    ]
    above = [
        max(0.0, high - value) if math.isfinite(high) else 0.0
        for value, _, high in ends
    ]
    return [below, above]


def draw_risk(rows: Sequence[Row]) -> "Figure":
    """Draw risk-coverage curves: the share of wrong answers, where the unlikely ones
    are left out.

    Args:
        rows: the rows of :func:`~langchain_reasc_lab.replay.metrics.summarize`; those
            without P(correct) are ignored.

    Raises:
        ConfigurationError: no row has one.
        MissingExtraError: matplotlib is not installed.
    """
    curves = ranked(rows)
    figure = empty_figure(_WIDTH, 3.8)
    axes = figure.subplots()
    for at, (row, risk) in enumerate(curves):
        axes.plot(
            100 * np.arange(1, risk.risk.size + 1) / risk.risk.size,
            100 * risk.risk,
            color=COLOURS[at % len(COLOURS)],
            linestyle=_DASHES[at % len(_DASHES)],
            linewidth=1.4,
            label=f"{_title(row, rows)}: AURC {100 * risk.aurc:.1f} %",
        )
    axes.set_xlabel("coverage: answers given, the likeliest first (% of all questions)")
    axes.set_ylabel("risk: wrong among them (%)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    legend_below(figure, columns=1)
    return figure


def ranked(rows: Sequence[Row]) -> list[tuple[Row, Risk]]:
    """Return the rows whose P(correct) ranks their answers, with their curves; one
    value for all ranks nothing.

    Raises:
        ConfigurationError: there are none.
    """
    curves = []
    for row in rows:
        risk = row.outcomes.risk
        if (
            risk is not None
            and len(np.unique(row.outcomes.p_correct[row.outcomes.tested])) > 1
        ):
            curves.append((row, risk))
    if not curves:
        raise ConfigurationError(
            "there is no P(correct) by which answers could be ranked: it is learned "
            "from calibration questions with several responses each, or from "
            "confidence; replay a pool with scores or token signals"
        )
    return curves


def draw_posteriors(worked: Worked) -> "Figure":
    """Draw the Beta posterior sample by sample: ASC above, ReASC below, on the same
    responses.

    Each panel shows Beta(v1 + 1, v2 + 1) after n samples, shaded where the leader is
    ahead (p > 1/2).

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    columns = min(_PANELS, max(len(worked.asc), len(worked.reasc)))
    figure = empty_figure(1.6 * columns + 0.6, 4.6)
    grid = figure.subplots(2, columns, sharey=True, squeeze=False)
    for axes, decisions, name in (
        (grid[0], worked.asc, "ASC"),
        (grid[1], worked.reasc, "ReASC"),
    ):
        shown = _thinned(decisions, columns)
        for at, panel in enumerate(axes):
            if at < len(shown):
                _posterior(panel, shown[at], _OF[name])
            else:
                panel.axis("off")
        axes[0].set_ylabel(f"{name}\n{len(decisions)} samples", fontsize=11)
    figure.supxlabel("p, the leading answer's share", fontsize=10)
    figure.supylabel("density", fontsize=10)
    return figure


def _posterior(axes: "Axes", decision: Decision, colour: str) -> None:
    from scipy.stats import beta

    first, second = [*sorted(decision.evidence.values(), reverse=True)[:2], 0.0, 0.0][
        :2
    ]
    p = np.linspace(0, 1, 201)
    density = beta.pdf(p, first + 1, second + 1)
    axes.plot(p, density, color=colour, linewidth=1.5)
    axes.fill_between(
        p, density, where=p >= 0.5, color=colour, alpha=0.3 if decision.stop else 0.15
    )
    axes.axvline(0.5, color="0.5", linewidth=0.6, linestyle=":")
    axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    axes.set_yticks([])
    end = (
        f"\nstops: ≥ {DEFAULT_CONFIDENCE:g}"
        if decision.reason == "evidence"
        else "\nstops"
        if decision.stop
        else "\n"
    )
    axes.set_title(
        (
            f"n = {decision.samples},  v = {first:.3g} : {second:.3g}\nP = "
            f"{decision.posterior:.3f}{end}"
        ),
        fontsize=8.5,
        fontweight="bold" if decision.stop else "normal",
    )


def _thinned(decisions: Sequence[Decision], columns: int) -> list[Decision]:
    """Return the first ones and the last, where not all fit."""
    return (
        list(decisions)
        if len(decisions) <= columns
        else [*decisions[: columns - 1], decisions[-1]]
    )


def draw_recordings(results: Sequence[RecordingResult]) -> "Figure":
    """Draw what rules spend and lose on each of several recordings, beside always using
    the budget.

    A recording is a line, with tokens on the left and points on the right. Of many
    recordings, lines have no names, each panel is ordered by ReASC, and only ReASC has
    intervals.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    many = len(results) > _NAMED
    figure = empty_figure(9.5, 1.3 + (0.035 if many else 0.21) * len(results))
    tokens, points = figure.subplots(1, 2, sharey=not many)
    of: dict[Axes, Callable[[RuleResult], Estimate]] = {
        tokens: lambda rule: rule.tokens_vs_sc,
        points: lambda rule: rule.accuracy_vs_sc.percent,
    }
    for axes, cell in of.items():
        rows = (
            sorted(results, key=lambda one: cell(one.rule(AGREEMENT) or one.once).value)
            if many
            else results
        )
        for at, (name, colour, label) in enumerate(_SHOWN):
            found = [
                (line, one.once if name is None else one.rule(name))
                for line, one in enumerate(rows)
            ]
            drawn = [
                (line + 0.12 * (at - 1.5), cell(rule))
                for line, rule in found
                if rule is not None
            ]
            if drawn:
                axes.errorbar(
                    [one.value for _, one in drawn],
                    [line for line, _ in drawn],
                    xerr=reach([one for _, one in drawn])
                    if not many or name == AGREEMENT
                    else None,
                    fmt=MARKERS[at],
                    color=colour,
                    markersize=2.5 if many else 4,
                    elinewidth=0.5 if many else 0.8,
                    label=label,
                )
        axes.set_ylim(len(results) - 0.4, -0.6)
        axes.grid(alpha=0.25)
    if many:
        for axes, by in ((tokens, "tokens"), (points, "points")):
            axes.set_yticks([])
            axes.set_ylabel(f"{len(results)} recordings, by ReASC's {by}")
    else:
        tokens.set_yticks(
            range(len(results)), [_short(result) for result in results], fontsize=7
        )
    tokens.set_xlim(0, 1.02)
    tokens.set_xlabel("generated tokens ÷ those of always asking")
    points.axvline(0, color="0.5", linewidth=0.8)
    points.set_xlabel("right answers: points to always asking")
    legend_below(figure, columns=4)
    return figure


def _short(result: RecordingResult) -> str:
    return (
        result.model
        if result.file.startswith(result.model)
        else f"{result.model}, {result.file.split('.')[0]}"
    )


def legend_below(
    figure: "Figure", *, columns: int = 2, order: Sequence[str] = ()
) -> None:
    """Add one legend below the axes, where it covers nothing and is in sight on a
    narrow screen.

    The figure grows with a long one, which would otherwise leave the axes no height.

    Args:
        figure: the figure.
        columns: entries in a row.
        order: the order of the labels; as they were drawn, if empty.
    """
    held = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {
        label: handle
        for handles, labels in held
        for handle, label in zip(handles, labels, strict=True)
    }
    labels = [label for label in order if label in named] or list(named)
    handles = [named[label] for label in labels]
    rows = math.ceil(len(labels) / columns)
    figure.set_figheight(
        figure.get_figheight() + _LEGEND_ROW * max(0, rows - _LEGEND_ROWS)
    )
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
    )


def _title(row: Row, among: Sequence[Row]) -> str:
    """Return the method, with its measure if there are several."""
    several = len({one.spec for one in among} - {None}) > 1
    return (
        f"{row.method}, {row.spec}" if several and row.spec is not None else row.method
    )

"""How confident right and wrong first responses are, by four scores, with the mixture and the gates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibrating import calibrate_mixture_on
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import CalibrationDataError, ReASCError
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.replay.plots import empty_figure, legend_below
from langchain_reasc_lab.report.contents import figure
from langchain_reasc_lab.report.drawing import RIGHT, WRONG, for_each_pool, svg
from langchain_reasc_lab.report.parts import Figure
from langchain_reasc_lab.report.signals import chosen
from langchain_reasc_lab.report.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

__all__ = ["histograms"]

_VARIANTS: Final = ("bottom_group", "mean", "tail_group", "average_group")
"""The paper's four: bottom 10 % group confidence, response-level self-certainty, tail group, average group."""
_BINS: Final = 30
_ORDER: Final = ("right", "mean of right", "wrong", "mean of wrong", "mixture's components", "mixture's gate")
_ENDS: Final = (
    1,
    99,
)  # percentiles between which scores are drawn: a single one far away would leave no room for others

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Panel:
    """One measure: shapes (right,), (wrong,), and Algorithm 2 on both together, or why it gives nothing."""

    measure: Measure | str
    right: Array
    wrong: Array
    mixture: Calibration | None

    @property
    def gap(self) -> float:
        """Between the means of right and of wrong, in standard deviations of all."""
        both = np.concatenate([self.right, self.wrong])
        return float((self.right.mean() - self.wrong.mean()) / both.std())


@figure("histogram", "Confidence of right and of wrong first responses", paper="Figures 2 and 6")
def histograms(studies: Sequence[Study]) -> list[Figure]:
    """One figure for each pool, a panel for each score."""
    return for_each_pool(studies, _of_pool)


def _of_pool(at: int, study: Study) -> Figure:
    first = chosen(study)
    panels = [_panel(study, measure) for measure in _variants(first)]
    told = [panel for panel in panels if panel.right.size and panel.wrong.size]
    if not told:
        raise CalibrationDataError(
            f"the first responses in {study.pool.path} are all right or all wrong, or carry no score: there are no two "
            "groups to compare"
        )
    title = f"Scores of right and wrong first responses in {study.name}"
    return Figure(
        html=svg(lambda: _drawn(told), f"histogram-{at}", title),
        text=" ".join(_words(panel) for panel in told),
        notes=[
            "Of each question its first recorded response. The areas of the two groups are their shares of all. The "
            "mixture (Algorithm 2) is fitted to all of them without their labels. Drawn from the 1st to the 99th "
            "percentile, and as far as both means.",
            f"The first panel is the score that was asked for, or chosen on the calibration questions of the first "
            f"arrangement ({first}).",
        ],
    )


def _variants(first: Measure | str) -> list[Measure | str]:
    if not isinstance(first, Measure):
        return [first]
    others: list[Measure | str] = [Measure(first.signal, score, first.window) for score in _VARIANTS]
    return [first, *(one for one in others if str(one) != str(first))][:4]


def _panel(study: Study, measure: Measure | str) -> _Panel:
    firsts = study.scores.array(measure)[:, 0]
    right = np.array([bool(question.responses[0].correct) for question in study.pool.questions])
    held = np.isfinite(firsts)
    return _Panel(measure, firsts[held & right], firsts[held & ~right], _mixture(study, measure))


def _mixture(study: Study, measure: Measure | str) -> Calibration | None:
    firsts, methods = [(at, 0) for at in range(len(study.pool.questions))], study.settings.methods
    try:
        return calibrate_mixture_on(
            study.pool, study.scores, firsts, measure, p_target=methods.p_target, seed=methods.seed
        )
    except ReASCError:  # too few scores, or all equal: the histograms are shown without it
        return None


def _words(panel: _Panel) -> str:
    means = f"right {panel.right.mean():.4g} (n = {panel.right.size}), wrong {panel.wrong.mean():.4g}"
    said = f"{panel.measure}: mean of {means} (n = {panel.wrong.size}), {panel.gap:+.2f} standard deviations apart"
    calibration = panel.mixture
    if calibration is None or calibration.mixture is None:
        return f"{said}; no mixture could be fitted."
    low, high = calibration.mixture.means
    fitted = f"{said}; the mixture's components have means of {low:.4g} and {high:.4g}"
    if calibration.gate.threshold is None:
        return f"{fitted}; its gate is closed: {calibration.gate.closed_because}."
    return f"{fitted}, and its gate stands at {calibration.gate.threshold:.4g}."


def _drawn(panels: Sequence[_Panel]) -> "Drawn":
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    drawn = empty_figure(2.6 * columns, 2.1 * rows + 0.6)
    grid = drawn.subplots(rows, columns, squeeze=False)
    for at, axes in enumerate(grid.flat):
        if at < len(panels):
            _histogram(axes, panels[at])
        else:
            axes.axis("off")
    legend_below(drawn, order=_ORDER)
    for axes in grid[-1]:
        axes.set_xlabel("score S(y)", fontsize=8)
    drawn.supylabel("density, of all responses", fontsize=9)
    return drawn


def _histogram(axes: "Axes", panel: _Panel) -> None:
    both = np.concatenate([panel.right, panel.wrong])
    means = panel.right.mean(), panel.wrong.mean()  # drawn too, however far out a few scores pull them
    low, high = np.percentile(both, _ENDS)
    low, high = min(low, *means), max(high, *means)
    bins = min(_BINS, max(5, both.size // 4))
    edges = np.histogram_bin_edges(both, bins, range=(low, high) if low < high else None)
    width = float(np.diff(edges)[0])
    share = 1 / (both.size * width)
    for name, values, colour in (("right", panel.right, RIGHT), ("wrong", panel.wrong, WRONG)):
        axes.hist(values, edges.tolist(), weights=np.full(values.size, share), color=colour, alpha=0.45, label=name)
        axes.axvline(values.mean(), color=colour, linewidth=1.6, label=f"mean of {name}")
    calibration = panel.mixture
    if calibration is not None and calibration.mixture is not None:
        _density(axes, calibration, np.linspace(edges[0], edges[-1], 201), width)
    axes.set_ylim(bottom=0)
    axes.set_title(str(panel.measure), fontsize=8)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(labelsize=7)


def _density(axes: "Axes", calibration: Calibration, at: Array, width: float) -> None:
    """The components as a histogram of such bins would show them: one far narrower than a bin is as high as its bar."""
    from scipy.stats import norm

    assert calibration.mixture is not None
    mixture = calibration.mixture
    for number, (weight, mean, std) in enumerate(zip(mixture.weights, mixture.means, mixture.stds, strict=True)):
        label = None if number else "mixture's components"
        share = norm.cdf(at + width / 2, mean, std) - norm.cdf(at - width / 2, mean, std)
        axes.plot(at, weight * share / width, color="0.5", linewidth=1.2, label=label)
    if calibration.gate.threshold is not None:
        axes.axvline(calibration.gate.threshold, color="0.5", linestyle="--", linewidth=1.4, label="mixture's gate")

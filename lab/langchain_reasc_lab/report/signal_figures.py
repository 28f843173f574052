"""Figures of scores and signals: histograms of first responses, and confidence token by token."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import Calibration, Floats
from langchain_reasc.exceptions import CalibrationDataError, PoolError, ReASCError
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.pools import PoolQuestion, calibrate_mixture_on
from langchain_reasc_lab.replay.plots import COLOURS, empty_figure, legend_below
from langchain_reasc_lab.report.signals import chosen
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.svg import for_each_pool, svg
from langchain_reasc_lab.report.tables import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

RIGHT, WRONG = COLOURS[0], COLOURS[1]
"""Those of right and of wrong responses, which can be told apart without seeing red or green."""
_VARIANTS: Final = ("bottom_group", "mean", "tail_group", "average_group")
"""The paper's four: bottom 10 % group confidence, response-level self-certainty, tail group, average group."""
_BINS: Final = 30
_ORDER: Final = ("right", "mean of right", "wrong", "mean of wrong", "mixture's components", "mixture's gate")
_ENDS: Final = (1, 99)  # percentiles drawn: a single score far away would leave no room for the others


class _Panel(NamedTuple):
    """One measure: shapes (right,), (wrong,), and Algorithm 2 on both together, or None if it gives nothing."""

    measure: Measure | str
    right: Floats
    wrong: Floats
    mixture: Calibration | None


def histograms(studies: Sequence[Study]) -> list[Figure]:
    """Return one figure for each pool, a panel for each score."""
    return for_each_pool(studies, _histograms_of)


def _histograms_of(at: int, study: Study) -> Figure:
    first = chosen(study)
    measures: list[Measure | str] = [first]
    if isinstance(first, Measure):
        others = (Measure(first.signal, score, first.window) for score in _VARIANTS)
        measures += [one for one in others if str(one) != str(first)][:3]
    panels = [panel for measure in measures if (panel := _panel(study, measure)).right.size and panel.wrong.size]
    if not panels:
        raise CalibrationDataError(
            f"the first responses in {study.pool.path} are all right or all wrong, or carry no score: there are no two "
            "groups to compare"
        )
    title = f"Scores of right and wrong first responses in {study.name}"
    notes = [
        "Of each question its first recorded response. The areas of the two groups are their shares of all. The "
        "mixture (Algorithm 2) is fitted to all of them without their labels. Drawn from the 1st to the 99th "
        "percentile, and as far as both means.",
        "The first panel is the score that was asked for, or chosen on the calibration questions of the first "
        f"arrangement ({first}).",
    ]
    html = svg(lambda: _draw_panels(panels), f"histogram-{at}", title)
    return Figure(html, " ".join(map(_panel_words, panels)), notes=notes)


def _panel(study: Study, measure: Measure | str) -> _Panel:
    scores, methods = study.scores.array(measure)[:, 0], study.settings.methods
    right = np.array([bool(question.responses[0].correct) for question in study.pool.questions])
    firsts = [(question, 0) for question in range(len(right))]
    try:
        mixture = calibrate_mixture_on(
            study.pool, study.scores, firsts, measure, p_target=methods.p_target, seed=methods.seed
        )
    except ReASCError:  # too few scores, or all equal: the histograms are shown without it
        mixture = None
    scored = np.isfinite(scores)
    return _Panel(measure, scores[scored & right], scores[scored & ~right], mixture)


def _panel_words(panel: _Panel) -> str:
    right, wrong, calibration = panel.right, panel.wrong, panel.mixture
    gap = float((right.mean() - wrong.mean()) / np.concatenate([right, wrong]).std())
    line = (
        f"{panel.measure}: mean of right {right.mean():.4g} (n = {right.size}), wrong {wrong.mean():.4g} "
        f"(n = {wrong.size}), {gap:+.2f} standard deviations apart"
    )
    if calibration is None or calibration.mixture is None:
        return f"{line}; no mixture could be fitted."
    low, high = calibration.mixture.means
    fitted = f"{line}; the mixture's components have means of {low:.4g} and {high:.4g}"
    if calibration.gate.threshold is None:
        return f"{fitted}; its gate is closed: {calibration.gate.closed_because}."
    return f"{fitted}, and its gate stands at {calibration.gate.threshold:.4g}."


def _draw_panels(panels: Sequence[_Panel]) -> "Drawn":
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
    if panel.mixture is not None:
        _density(axes, panel.mixture, np.linspace(edges[0], edges[-1], 201), width)
    axes.set_ylim(bottom=0)
    axes.set_title(str(panel.measure), fontsize=8)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(labelsize=7)


def _density(axes: "Axes", calibration: Calibration, at: Floats, width: float) -> None:
    """Draw the components as a histogram of such bins would show them: a very narrow one is as high as its bar."""
    from scipy.stats import norm

    if (mixture := calibration.mixture) is None:
        return
    for number, (weight, mean, std) in enumerate(zip(mixture.weights, mixture.means, mixture.stds, strict=True)):
        label = None if number else "mixture's components"
        share = norm.cdf(at + width / 2, mean, std) - norm.cdf(at - width / 2, mean, std)
        axes.plot(at, weight * share / width, color="0.5", linewidth=1.2, label=label)
    if calibration.gate.threshold is not None:
        axes.axvline(calibration.gate.threshold, color="0.5", linestyle="--", linewidth=1.4, label="mixture's gate")


_SHOWN: Final = 2  # right ones, and as many wrong ones
_SHARES: Final = (10, 25, 50)
_SHADES: Final = (0.6, 0.38, 0.18, 0.0)
_LONGEST: Final = 12  # tokens that a line is smoothed over, at most


class _Shown(NamedTuple):
    """A response: its name, whether it is right, S(y), its signal, and its text cut into tokens, if known."""

    name: str
    correct: bool
    score: float
    signal: npt.NDArray[np.float32]
    tokens: Sequence[str] | None


def tokens(studies: Sequence[Study]) -> list[Figure]:
    """Return one question of each pool: its first right and wrong responses."""
    return for_each_pool(studies, _tokens_of)


def _tokens_of(at: int, study: Study) -> Figure:
    measure = chosen(study)
    if not isinstance(measure, Measure):
        raise PoolError(f"{study.pool.path} has scores of whole responses, and no signal of tokens")
    which = _typical(study, measure)
    question, shown = study.pool.questions[which], _responses(study, measure, which)
    words = (
        f"{one.name}: {one.signal.size} tokens, S(y) = {one.score:.4g}, the least sure token has "
        f"{float(one.signal.min()):.4g}."
        for one in shown
    )
    picked = (
        f"Question {question.id}: of those with right and wrong responses the one whose difference between their mean "
        f"scores by {measure} is the median. Its first {_SHOWN} right and first {_SHOWN} wrong responses."
    )
    if all(one.tokens is not None for one in shown):
        html = _coloured(question, shown)
        how = f"The darker, the less sure ({measure.signal}); dotted: the least sure 10 % of all tokens shown."
    else:
        title = f"{measure.signal} along the tokens of responses to question {question.id} in {study.name}"
        html = svg(lambda: _draw_lines(shown, measure.signal), f"tokens-{at}", title)
        how = "The pool does not say which characters its tokens spell, as earlier recordings do not: lines."
    return Figure(html, " ".join(words), notes=[picked, how])


def _typical(study: Study, measure: Measure) -> int:
    """Return the question whose right and wrong responses differ in their mean score by the median of all such."""
    scores, gaps = study.scores.array(measure), []
    for at, question in enumerate(study.pool.questions):
        row = scores[at, : len(question.responses)]
        right = np.array([bool(one.correct) for one in question.responses])
        known = np.isfinite(row)
        if (known & right).any() and (known & ~right).any():
            gaps.append((float(row[known & right].mean() - row[known & ~right].mean()), at))
    if not gaps:
        raise CalibrationDataError(
            f"no question in {study.pool.path} has both a right and a wrong response with token signals"
        )
    return sorted(gaps)[len(gaps) // 2][1]


def _responses(study: Study, measure: Measure, which: int) -> list[_Shown]:
    question, signals = study.pool.questions[which], study.pool.signals
    assert signals is not None
    recorded, scores = signals.of_question(question.id), study.scores.array(measure)[which]
    texts, lengths = study.pool.texts(question.id), [one.token_lengths for one in study.pool.messages(question.id)]
    found: dict[bool, list[_Shown]] = {True: [], False: []}
    for at, one in enumerate(question.responses):
        same = found[bool(one.correct)]
        if np.isfinite(scores[at]) and len(same) < _SHOWN:
            answer = "no answer" if one.answer is None else f"answer {one.answer}"
            name = f"Response {at + 1}, {'right' if one.correct else 'wrong'} ({answer})"
            signal = recorded[at][measure.signal]
            pieces = _cut(texts[at], lengths[at], signal.size)
            same.append(_Shown(name, bool(one.correct), float(scores[at]), signal, pieces))
    return found[True] + found[False]


def _cut(text: str | None, lengths: Sequence[int] | None, values: int) -> list[str] | None:
    """Return the text's tokens; None if they are not known, or are not those that have values."""
    if text is None or lengths is None or len(lengths) != values or sum(lengths) != len(text):
        return None
    ends = np.cumsum(lengths).tolist()
    return [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _coloured(question: PoolQuestion, shown: Sequence[_Shown]) -> str:
    """Return the responses as HTML: the darker a token, the less sure the model was of it."""
    bounds = np.percentile(np.concatenate([one.signal for one in shown]), _SHARES)
    heading = question.input if isinstance(question.input, str) else f"question {question.id}"
    shades = [f"least sure {_SHARES[0]} %", f"to {_SHARES[1]} %", f"to {_SHARES[2]} %"]
    parts = [
        f'<p class="asked" dir="auto">{escape(heading)}</p>',
        f'<p class="legend">{" ".join(_span(name, level) for level, name in enumerate(shades))}</p>',
    ]
    for one in shown:
        levels = np.searchsorted(bounds, one.signal, side="right").tolist()
        runs = groupby(zip(one.tokens or (), levels, strict=True), key=lambda pair: pair[1])
        spans = (_span("".join(token for token, _ in run), level) for level, run in runs)
        parts.append(f'<p class="answered">{escape(one.name)}, S(y) = {one.score:.4g}</p>')
        parts.append(f'<p class="tokens" dir="auto" style="white-space: pre-wrap">{"".join(spans)}</p>')
    return f'<div class="token-text">{"".join(parts)}</div>'


def _span(text: str, level: int) -> str:
    if not text or not _SHADES[level]:
        return escape(text)
    line = "; text-decoration: underline dotted" if level == 0 else ""
    return f'<span style="background: rgba(217, 119, 43, {_SHADES[level]}){line}">{escape(text)}</span>'


def _draw_lines(shown: Sequence[_Shown], signal: str) -> "Drawn":
    drawn = empty_figure(5.2, 3.6)
    axes = drawn.subplots()
    for at, one in enumerate(shown):
        window = max(1, min(_LONGEST, one.signal.size // 4))
        smooth = np.convolve(one.signal, np.ones(window) / window, mode="valid")
        colour, dashes = (RIGHT if one.correct else WRONG), "--" if at % _SHOWN else "-"
        axes.plot(np.arange(smooth.size) + window / 2, smooth, dashes, color=colour, linewidth=1.3, label=one.name)
    axes.set_xlabel("token")
    axes.set_ylabel(f"{signal}, moving mean")
    axes.grid(alpha=0.25)
    legend_below(drawn)
    return drawn

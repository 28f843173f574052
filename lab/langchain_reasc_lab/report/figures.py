"""Figures of one pool: accuracy against tokens, risk, posteriors, and the scores of
right and wrong responses.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import Calibration, Floats
from langchain_reasc.exceptions import CalibrationDataError, PoolError, ReASCError
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.pools import calibrate_mixture_on
from langchain_reasc_lab.replay.plots import (
    COLOURS,
    draw_posteriors,
    draw_risk,
    draw_tradeoff,
    empty_figure,
    legend_below,
    ranked,
)
from langchain_reasc_lab.replay.worked import pick_worked
from langchain_reasc_lab.report.results import methods_shown
from langchain_reasc_lab.report.signals import chosen
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = COLOURS[0], COLOURS[1]
"""Those of right and of wrong responses, which can be told apart without seeing red or
green.
"""


def tradeoff(study: Study) -> Table:
    """Return accuracy and tokens of every method, with intervals."""
    methods = methods_shown(study)
    columns = [Column("Method"), Column("Accuracy %", ".1f"), Column("Tokens", ",.0f")]
    rows = [(row.method, row.accuracy.percent, row.tokens) for row in methods]
    return Table(columns, rows, draw=partial(draw_tradeoff, methods), printed=False)


def risk(study: Study) -> Table:
    """Return risk-coverage curves of the methods that tell how likely an answer is
    right.

    Raises:
        ConfigurationError: there are none.
    """
    methods = methods_shown(study)
    rows: list[Sequence[Cell]] = []
    for row, curve in ranked(methods):
        answers = curve.risk.size
        for answered, wrong in enumerate(curve.risk.tolist(), start=1):
            rows.append((row.method, 100 * answered / answers, 100 * wrong))
    columns = [Column("Method"), Column("Coverage %", ".1f"), Column("Risk %", ".1f")]
    note = (
        "Wrong answers among those that are given, the likeliest first. AURC is the "
        "area under the curve: the lower the better."
    )
    return Table(columns, rows, [note], draw=partial(draw_risk, methods), printed=False)


def posteriors(study: Study) -> Table:
    """Return ASC's and ReASC's evidence after each response to one question.

    Raises:
        ReASCError: there is no calibration.
    """
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
    rows: list[Sequence[Cell]] = []
    for name, decisions in (("ASC", worked.asc), ("ReASC", worked.reasc)):
        for decision in decisions:
            first, second = [
                *sorted(decision.evidence.values(), reverse=True),
                0.0,
                0.0,
            ][:2]
            rows.append(
                (
                    name,
                    decision.samples,
                    first,
                    second,
                    decision.posterior,
                    decision.reason,
                )
            )
    columns = [
        Column("Method"),
        Column("Responses", ".0f"),
        Column("First", ".3f"),
        Column("Second", ".3f"),
        Column("P", ".3f"),
        Column("Stops by"),
    ]
    note = (
        f"Question {worked.question.id}, picked among those that were not calibrated "
        "on to show a difference where both methods are right: no typical one. v is "
        "the evidence for the leading answer and for the next one; shaded: where the "
        "leading answer has more than half."
    )
    return Table(
        columns, rows, [note], draw=partial(draw_posteriors, worked), printed=False
    )


_VARIANTS: Final = ("bottom_group", "mean", "tail_group", "average_group")
"""The paper's four: bottom 10 % group confidence, response-level self-certainty, tail
group, average group.
"""
_BINS: Final = 30
_ENDS: Final = (
    1,
    99,
)  # percentiles drawn: a single score far away would leave no room for the others
_ORDER: Final = (
    "right",
    "mean of right",
    "wrong",
    "mean of wrong",
    "mixture's components",
    "mixture's gate",
)


class _Panel(NamedTuple):
    """One measure: shapes (right,), (wrong,) and (bins + 1,), and Algorithm 2 on all
    scores, if it gives anything.
    """

    measure: Measure | str
    right: Floats
    wrong: Floats
    edges: Floats
    mixture: Calibration | None


def histogram(study: Study) -> Table:
    """Return how many first responses have which score, for each of the paper's scores.

    Raises:
        CalibrationDataError: the first responses are all right or all wrong, or have no
            score.
        PoolError: the pool has no scores.
    """
    first = chosen(study)
    measures: list[Measure | str] = [first]
    if isinstance(first, Measure):
        others = (Measure(first.signal, score, first.window) for score in _VARIANTS)
        measures += [measure for measure in others if str(measure) != str(first)][:3]
    panels = [panel for measure in measures for panel in _panels(study, measure)]
    if not panels:
        raise CalibrationDataError(
            f"the first responses in {study.pool.path} are all right or all wrong, or "
            "carry no score: there are no two groups to compare"
        )
    rows: list[Sequence[Cell]] = []
    for panel in panels:
        right, _ = np.histogram(panel.right, panel.edges)
        wrong, _ = np.histogram(panel.wrong, panel.edges)
        for at in range(right.size):
            low, high = panel.edges[at : at + 2].tolist()
            rows.append((str(panel.measure), low, high, int(right[at]), int(wrong[at])))
    columns = [
        Column("Score"),
        Column("From", ".4g"),
        Column("To", ".4g"),
        Column("Right", ".0f"),
        Column("Wrong", ".0f"),
    ]
    notes = [
        "Of each question its first recorded response. The areas of the two groups "
        "are their shares of all. The mixture (Algorithm 2) is fitted to all of them "
        "without their labels. Drawn from the 1st to the 99th percentile, and as far "
        "as both means.",
        "The first panel is the score that was asked for, or chosen on the "
        f"calibration questions of the first arrangement ({first}).",
        *map(_panel_note, panels),
    ]
    return Table(
        columns, rows, notes, draw=partial(_draw_panels, panels), printed=False
    )


def _panels(study: Study, measure: Measure | str) -> Iterator[_Panel]:
    """Yield the panel of a measure, if it scores right and wrong first responses."""
    scores, methods = study.scores.array(measure)[:, 0], study.settings.methods
    is_right = np.array(
        [bool(question.responses[0].correct) for question in study.pool.questions]
    )
    scored = np.isfinite(scores)
    right, wrong = scores[scored & is_right], scores[scored & ~is_right]
    if not right.size or not wrong.size:
        return
    firsts = [(question, 0) for question in range(scores.size)]
    try:
        mixture = calibrate_mixture_on(
            study.pool,
            study.scores,
            firsts,
            measure,
            p_target=methods.p_target,
            seed=methods.seed,
        )
    except ReASCError:
        # too few scores, or all equal: the histograms are shown without it
        mixture = None
    yield _Panel(measure, right, wrong, _edges(right, wrong), mixture)


def _edges(right: Floats, wrong: Floats) -> Floats:
    both = np.concatenate([right, wrong])
    means = (
        right.mean(),
        wrong.mean(),
    )  # drawn too, however far out a few scores pull them
    low, high = np.percentile(both, _ENDS)
    low, high = min(low, *means), max(high, *means)
    bins = min(_BINS, max(5, both.size // 4))
    return np.histogram_bin_edges(both, bins, range=(low, high) if low < high else None)


def _panel_note(panel: _Panel) -> str:
    right, wrong, calibration = panel.right, panel.wrong, panel.mixture
    std = float(np.concatenate([right, wrong]).std())
    # 0 where all are equal
    gap = float(right.mean() - wrong.mean()) / std if std > 0 else 0.0
    note = (
        f"{panel.measure}: mean of right {right.mean():.4g} (n = {right.size}), wrong "
        f"{wrong.mean():.4g} (n = {wrong.size}), {gap:+.2f} standard deviations apart"
    )
    if calibration is None or calibration.mixture is None:
        return f"{note}; no mixture could be fitted."
    low, high = calibration.mixture.means
    fitted = f"{note}; the mixture's components have means of {low:.4g} and {high:.4g}"
    if calibration.gate.threshold is None:
        return f"{fitted}; its gate is closed: {calibration.gate.closed_because}."
    return f"{fitted}, and its gate stands at {calibration.gate.threshold:.4g}."


def _draw_panels(panels: Sequence[_Panel]) -> "Figure":
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = empty_figure(2.6 * columns, 2.1 * rows + 0.6)
    grid = figure.subplots(rows, columns, squeeze=False)
    for at, axes in enumerate(grid.flat):
        if at < len(panels):
            _draw_histogram(axes, panels[at])
        else:
            axes.axis("off")
    legend_below(figure, order=_ORDER)
    for axes in grid[-1]:
        axes.set_xlabel("score S(y)", fontsize=8)
    figure.supylabel("density, of all responses", fontsize=9)
    return figure


def _draw_histogram(axes: "Axes", panel: _Panel) -> None:
    edges = panel.edges
    width = float(np.diff(edges)[0])
    share = 1 / ((panel.right.size + panel.wrong.size) * width)
    for name, values, colour in (
        ("right", panel.right, RIGHT),
        ("wrong", panel.wrong, WRONG),
    ):
        axes.hist(
            values,
            edges.tolist(),
            weights=np.full(values.size, share),
            color=colour,
            alpha=0.45,
            label=name,
        )
        axes.axvline(
            values.mean(), color=colour, linewidth=1.6, label=f"mean of {name}"
        )
    if panel.mixture is not None:
        _draw_mixture(axes, panel.mixture, np.linspace(edges[0], edges[-1], 201), width)
    axes.set_ylim(bottom=0)
    axes.set_title(str(panel.measure), fontsize=8)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(labelsize=7)


def _draw_mixture(
    axes: "Axes", calibration: Calibration, at: Floats, width: float
) -> None:
    """Draw the components as a histogram of such bins would show them: a very narrow
    one is as high as its bar.
    """
    from scipy.stats import norm

    if (mixture := calibration.mixture) is None:
        return
    for number, (weight, mean, std) in enumerate(
        zip(mixture.weights, mixture.means, mixture.stds, strict=True)
    ):
        label = None if number else "mixture's components"
        share = norm.cdf(at + width / 2, mean, std) - norm.cdf(
            at - width / 2, mean, std
        )
        axes.plot(at, weight * share / width, color="0.5", linewidth=1.2, label=label)
    if calibration.gate.threshold is not None:
        axes.axvline(
            calibration.gate.threshold,
            color="0.5",
            linestyle="--",
            linewidth=1.4,
            label="mixture's gate",
        )


_SHOWN: Final = 2  # right ones, and as many wrong ones
_LONGEST: Final = 12  # tokens that a line is smoothed over, at most


class _Response(NamedTuple):
    """A response: its name, whether it is right, its signal of shape (T,), and its
    tokens, if they are known.
    """

    name: str
    correct: bool
    signal: npt.NDArray[np.float32]
    tokens: Sequence[str | None]


def tokens(study: Study) -> Table:
    """Return confidence token by token, of the first right and the first wrong
    responses to one question.

    Raises:
        PoolError: the pool has no signals of tokens.
        CalibrationDataError: no question has right and wrong responses with signals.
    """
    measure = chosen(study)
    if not isinstance(measure, Measure):
        raise PoolError(
            f"{study.pool.path} has scores of whole responses, and no signal of tokens"
        )
    question = _typical_question(study, measure)
    responses = _responses(study, measure, question)
    rows: list[Sequence[Cell]] = []
    for response in responses:
        for at, (value, token) in enumerate(
            zip(response.signal.tolist(), response.tokens, strict=True), start=1
        ):
            rows.append((response.name, at, value, token))
    columns = [
        Column("Response"),
        Column("Token", ".0f"),
        Column(measure.signal, ".4g"),
        Column("Text"),
    ]
    note = (
        f"Question {study.pool.questions[question].id}: of those with right and wrong "
        f"responses the one whose difference between their mean scores by {measure} is "
        f"the median. Its first {_SHOWN} right and first {_SHOWN} wrong responses."
    )
    return Table(
        columns,
        rows,
        [note],
        draw=partial(_draw_tokens, responses, measure.signal),
        printed=False,
    )


def _typical_question(study: Study, measure: Measure) -> int:
    """Return the question whose right and wrong responses differ in their mean score by
    the median of all such.
    """
    scores, gaps = study.scores.array(measure), []
    for at, question in enumerate(study.pool.questions):
        row = scores[at, : len(question.responses)]
        right = np.array([bool(response.correct) for response in question.responses])
        scored = np.isfinite(row)
        if (scored & right).any() and (scored & ~right).any():
            gaps.append(
                (float(row[scored & right].mean() - row[scored & ~right].mean()), at)
            )
    if not gaps:
        raise CalibrationDataError(
            f"no question in {study.pool.path} has both a right and a wrong response "
            "with token signals"
        )
    return sorted(gaps)[len(gaps) // 2][1]


def _responses(study: Study, measure: Measure, number: int) -> list[_Response]:
    """Return the first right and the first wrong responses that have a score."""
    question, signals = study.pool.questions[number], study.pool.signals
    assert signals is not None
    recorded, scores = (
        signals.of_question(question.id),
        study.scores.array(measure)[number],
    )
    messages = study.pool.messages(question.id)
    shown: dict[bool, list[_Response]] = {True: [], False: []}
    for at, response in enumerate(question.responses):
        alike = shown[bool(response.correct)]
        if np.isfinite(scores[at]) and len(alike) < _SHOWN:
            answer = (
                "no answer" if response.answer is None else f"answer {response.answer}"
            )
            name = f"Response {at + 1}, {'right' if response.correct else 'wrong'} ({answer})"
            signal = recorded[at][measure.signal]
            pieces = _cut(messages[at].text, messages[at].token_lengths, signal.size)
            alike.append(_Response(name, bool(response.correct), signal, pieces))
    return shown[True] + shown[False]


def _cut(
    text: str | None, lengths: Sequence[int] | None, count: int
) -> Sequence[str | None]:
    """Return the tokens of a text; None for each if they are not known, or are not
    those that have values.
    """
    if (
        text is None
        or lengths is None
        or len(lengths) != count
        or sum(lengths) != len(text)
    ):
        return [None] * count
    ends = np.cumsum(lengths).tolist()
    return [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _draw_tokens(responses: Sequence[_Response], signal: str) -> "Figure":
    figure = empty_figure(5.2, 3.6)
    axes = figure.subplots()
    for at, response in enumerate(responses):
        window = max(1, min(_LONGEST, response.signal.size // 4))
        smooth = np.convolve(response.signal, np.ones(window) / window, mode="valid")
        colour, dashes = (
            (RIGHT if response.correct else WRONG),
            "--" if at % _SHOWN else "-",
        )
        axes.plot(
            np.arange(smooth.size) + window / 2,
            smooth,
            dashes,
            color=colour,
            linewidth=1.3,
            label=response.name,
        )
    axes.set_xlabel("token")
    axes.set_ylabel(f"{signal}, moving mean")
    axes.grid(alpha=0.25)
    legend_below(figure)
    return figure

"""The picture that `reasc plot` draws of a calibration, or of a store of online
learning.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.drift import Prediction
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.promises import correctness_by_support
from langchain_reasc.calibration.reliability import (
    Reliability,
    Share,
    binned,
    reliability_of,
)
from langchain_reasc.calibration.stored_rule import SupportCurve
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior
from langchain_reasc.method.evidence import WEIGHTS, Standardizer
from langchain_reasc.method.stopping import DEFAULT_BUDGET, Response
from langchain_reasc_lab.replay.plots import empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = Callable[["Axes"], None]
_BLUE: Final = "#3b7dd8"
_ORANGE: Final = "#d9772b"
_WIDTH: Final = 4.2  # inches, of a panel
_HEIGHT: Final = 3.1
_MOST_VOTES: Final = 8
_REACH: Final = 2.0  # standard deviations of scores to both sides of their mean


def draw_learned(
    calibration: Calibration | None, questions: Sequence[Observation] = ()
) -> "Figure":
    """Draw what a calibration says, beside what the questions show, with exact 95 %
    intervals.

    Args:
        calibration: the calibration; None if nothing was learned yet.
        questions: the questions of a store, with scores of shape (1, responses) by the
            calibration's measure, or (0, responses) if it has none.

    Raises:
        CalibrationDataError: there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    panels = [*_panels(calibration, questions)]
    if not panels:
        raise CalibrationDataError(
            "there is nothing to draw: no question was seen, and nothing learned of any"
        )
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = empty_figure(_WIDTH * columns, _HEIGHT * rows)
    grid = [*figure.subplots(rows, columns, squeeze=False).flat]
    if calibration and calibration.fingerprint.model:
        figure.suptitle(calibration.fingerprint.model, fontsize=9)
    for axes, draw in zip(grid, panels, strict=False):
        draw(axes)
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    return figure


def _panels(
    calibration: Calibration | None, questions: Sequence[Observation]
) -> Iterator[Panel]:
    if questions:
        yield partial(_draw_responses, questions)
    if calibration is not None:
        yield from _panels_of(calibration, questions)
    if found := reliability_of(questions):
        yield partial(_draw_reliability, found)


def _panels_of(
    calibration: Calibration, questions: Sequence[Observation]
) -> Iterator[Panel]:
    if calibration.rule_:
        # With scores, sampling goes on where these are low, and there responses agree
        # less.
        unscored = [
            one for one in questions if one.counted or calibration.measure is None
        ]
        yield partial(_draw_agreement, calibration.rule_.agreement_prior, unscored)
        if calibration.rule_.scores is not None:
            yield partial(_draw_scores, calibration)
    elif calibration.mean is not None:
        yield partial(_draw_weights, calibration)
    if calibration.p_correct:
        yield partial(_draw_support, calibration, calibration.p_correct, questions)
    audits = [
        prediction
        for question in questions
        for prediction in question.predictions
        if prediction.monitor == "audits"
    ]
    if audits:
        yield partial(_draw_audits, audits)


def _draw_agreement(
    prior: Prior, questions: Sequence[Observation], axes: "Axes"
) -> None:
    """Plot the probability that one more response agrees, given that all votes so far
    agree.
    """
    seen, agreed = Counter[int](), Counter[int]()
    for question in questions:
        votes = [answer for answer in question.answers if answer is not None]
        for at in range(1, min(len(votes), _MOST_VOTES + 1)):
            seen[at] += 1
            agreed[at] += votes[at] == votes[0]
            if votes[at] != votes[0]:
                break
    votes_so_far = range(1, _MOST_VOTES + 1)
    axes.plot(
        votes_so_far,
        [prior.share([one]) for one in votes_so_far],
        ".-",
        color=_BLUE,
        label="learned",
    )
    if seen:
        _draw_shares(
            axes,
            [(at, Share(agreed[at], seen[at])) for at in sorted(seen)],
            _ORANGE,
            "seen while counting",
        )
    axes.set(
        title="one more response agrees", xlabel="votes so far, all for one answer"
    )
    axes.set(ylabel="probability", ylim=(0, 1.03))


def _draw_responses(questions: Sequence[Observation], axes: "Axes") -> None:
    """Plot a histogram of the responses to a question."""
    counts = Counter(len(one.answers) for one in questions)
    axes.bar([*counts], [*counts.values()], color=_BLUE)
    mean = sum(count * n for count, n in counts.items()) / len(questions)
    axes.set(
        title=f"{mean:.1f} responses a question",
        xlabel="responses",
        ylabel="questions",
        xlim=(0, max(counts) + 1),
    )
    axes.locator_params(axis="x", integer=True)


def _draw_support(
    calibration: Calibration,
    curve: SupportCurve,
    questions: Sequence[Observation],
    axes: "Axes",
) -> None:
    """Plot how likely an answer is right, by its support."""
    budget = max((len(one.answers) for one in questions), default=1)
    rule = calibration.rule(on_missing_confidence="count", budget=budget)
    row = None if calibration.mean is None else 0
    supports = [at for at, _ in curve.points]
    axes.fill_between(supports, curve.low, curve.high, color=_BLUE, alpha=0.15)
    axes.plot(*zip(*curve.points, strict=True), color=_BLUE, label="is right")
    pairs = correctness_by_support(rule, questions, row)
    if pairs:
        _draw_shares(axes, binned(*zip(*pairs, strict=True)), _BLUE, None)
    axes.set(
        title="an answer is right, by its support",
        xlabel="support: P(one more response agrees)",
        xlim=(0, 1),
    )
    axes.set(ylabel="probability", ylim=(0, 1.03))


def _draw_audits(audits: Sequence[Prediction], axes: "Axes") -> None:
    """Plot how often one more response agreed, by how likely it was to."""
    expected = [audit.expected for audit in audits]
    agreed = [bool(audit.came) for audit in audits]
    _draw_predicted(axes, binned(expected, agreed), _ORANGE)
    axes.set(
        title=f"{len(audits)} audits: one more response agrees",
        xlabel="p_agree",
        ylabel="share that agreed",
    )


def _draw_reliability(found: Reliability, axes: "Axes") -> None:
    """Plot predicted against observed accuracy."""
    _draw_predicted(axes, found.bins, _BLUE)
    axes.set(
        title=f"p_correct is off by {found.error:.2f} ({found.by_chance:.2f} by chance)",
        xlabel="reported p_correct",
        ylabel="share of right answers",
    )


def _draw_predicted(
    axes: "Axes", points: Sequence[tuple[float, Share]], colour: str
) -> None:
    """Plot shares against the probabilities that were predicted."""
    axes.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    _draw_shares(axes, points, colour, None)
    axes.set(xlim=(0, 1.03), ylim=(0, 1.03))


def _draw_scores(calibration: Calibration, axes: "Axes") -> None:
    """Plot how likely a second response agrees with the first, by its score."""
    assert calibration.rule_ is not None and calibration.rule_.scores is not None
    rule = calibration.rule_.rule(budget=DEFAULT_BUDGET)
    scores = [score for score, _ in calibration.rule_.scores.knots]
    decisions = [rule([Response("", score)]) for score in scores]
    for name, values, colour in (
        ("one more agrees", [one.agrees or 0.0 for one in decisions], _BLUE),
        ("all would answer so", [one.posterior for one in decisions], _ORANGE),
    ):
        axes.plot(scores, values, ".-", color=colour, label=name)
    axes.set(
        title="after one response, by its score",
        xlabel=f"score: {calibration.measure}",
    )
    axes.set(ylabel="probability", ylim=(0, 1.03))


def _draw_weights(calibration: Calibration, axes: "Axes") -> None:
    """Plot the weight of a vote by its score, and the gate."""
    # only a calibration by consensus has none
    assert calibration.mean is not None and calibration.std is not None
    mean, std = calibration.mean, calibration.std
    scores = np.linspace(mean - _REACH * std, mean + _REACH * std, 121)
    weigh = WEIGHTS[
        "count" if calibration.fallback or calibration.unweighed else calibration.weight
    ]
    by = Standardizer(mean, std, calibration.lambda_)
    axes.plot(scores, [weigh(float(score), by) for score in scores], color=_BLUE)
    axes.axvspan(
        mean - std,
        mean + std,
        color="0.5",
        alpha=0.15,
        label="mean ± standard deviation",
    )
    threshold, _ = calibration.gate.in_use
    if threshold is not None:
        axes.axvline(
            threshold,
            color=_ORANGE,
            label=f"gate {threshold:.4g}: accepted from here on",
        )
    axes.set(
        title="what a vote weighs, and the gate",
        xlabel=f"score: {calibration.measure}",
        ylim=(0, None),
    )


def _draw_shares(
    axes: "Axes", points: Sequence[tuple[float, Share]], colour: str, label: str | None
) -> None:
    values, shares = [at for at, _ in points], [share for _, share in points]
    reach = [
        [max(0.0, abs(share.value - share.interval[end])) for share in shares]
        for end in (0, 1)
    ]
    heights = [share.value for share in shares]
    axes.errorbar(
        values,
        heights,
        yerr=reach,
        fmt="o",
        color=colour,
        markersize=4,
        elinewidth=0.8,
        label=label,
    )

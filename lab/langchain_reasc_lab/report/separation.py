"""How well scores tell right responses from wrong ones: by signal and score, and by the window of the paper's score."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from langchain_reasc.calibration import AUROC, Floats, auroc_per_question, auroc_with_interval, mean_auroc
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import SPAN_SCORES, Measure
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report.blocks import Block, table_of
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Cell, Column, Table
from langchain_reasc_lab.report.signals import (
    SCORE_OF_PAPER,
    Responses,
    judged,
    longest_response,
    signal_measures,
    window_for,
)
from langchain_reasc_lab.report.study import Study

__all__ = ["separation", "window"]

WINDOWS: Final = (8, 16, 32, 64, 128, 256, 512, 768)
_SCORES: Final = ("mean", "tail_group", "average_group", "bottom_group", "lowest_group", *SPAN_SCORES)
_IN_THE_PAPER: Final = (
    "mean is the paper's response-level self-certainty, tail_group its tail group confidence, average_group its "
    "average group confidence, and bottom_group its bottom 10 % group confidence, where the signal is self_certainty. "
    "kl_uniform, which is self_certainty less a constant, has no rows beside it."
)
_AUROC: Final = Column(
    "AUROC",
    ".3f",
    "How often a right response scores higher than a wrong one, over the responses to all questions; its interval "
    "knows that responses to one question are alike.",
    "high",
)


@table("separation", "Which score tells right responses from wrong ones", paper="Table 8")
def separation(studies: Sequence[Study]) -> Table:
    """AUROC and gap of every score of every signal."""
    columns = [
        Column("Signal"),
        Column("Score"),
        _AUROC,
        Column("Gap", ".3g", "Mean score of right responses minus that of wrong ones, in the signal's own unit."),
        Column("Gap/SD", ".2f", "The same in pooled standard deviations, which can be compared.", "high"),
        Column(
            "Within",
            ".3f",
            "AUROC among those responses to one question that have an answer, the mean over questions: only this says "
            "what weights on votes can do.",
            "high",
        ),
    ]
    return table_of(studies, columns, _separation, notes=[_IN_THE_PAPER])


@table("window", "The window of the bottom 10 % group score", paper="Table 9")
def window(studies: Sequence[Study]) -> Table:
    """AUROC of the paper's score of each signal, by its window."""
    columns = [
        Column("Signal"),
        Column("Window", ".0f", "Tokens per group."),
        _AUROC,
        Column("Shorter %", ".1f", "Responses with fewer tokens than the window: their score is the plain mean."),
    ]
    return table_of(studies, columns, _windows, notes=())


def _separation(study: Study) -> Block:
    responses, width = Responses.of(study), window_for(study)
    measures = [one for score in _SCORES for one in signal_measures(study, score, width)]
    measures, notes = _possible(study, measures)
    apart, inside = _apart(study, responses, measures), _inside(study, responses, measures)
    signals = [_names(measure)[0] for measure in measures]
    nothing: tuple[Cell, ...] = (None, None, None)
    rows = [
        (*_names(measures[at]), *apart.get(at, nothing), inside.get(at))
        for at in sorted(range(len(measures)), key=lambda at: signals.index(signals[at]))
    ]
    right = int(responses.right.sum())
    mixed = np.intersect1d(responses.question[responses.right], responses.question[~responses.right]).size
    notes.append(
        f"{study.name}: {right} right and {responses.right.size - right} wrong responses; {mixed} of "
        f"{len(study.pool.questions)} questions have both. Groups are of {width} tokens, which "
        f"{study.scores.shorter_than(width):.0%} of the responses do not fill."
    )
    return Block(rows, notes)


def _windows(study: Study) -> Block:
    responses, longest = Responses.of(study), longest_response(study)
    if not longest:
        raise PoolError("it has no token signals, without which a score cannot be made anew with another window")
    told = WINDOWS[: sum(width < longest for width in WINDOWS) + 1]  # one beyond the longest response: the plain mean
    notes = []
    if len(told) < len(WINDOWS):
        notes.append(
            f"{study.name}: its longest response has {longest} tokens; with {told[-1]} and more, the score is the "
            "plain mean of every response."
        )
    rows: list[Sequence[Cell]] = []
    for signal in signal_measures(study, SCORE_OF_PAPER, WINDOWS[0]):
        assert isinstance(signal, Measure)
        apart = _apart(study, responses, [Measure(signal.signal, SCORE_OF_PAPER, width) for width in told])
        for at, width in enumerate(told):
            shorter = 100 * study.scores.shorter_than(width)
            rows.append((signal.signal, width, apart[at][0] if at in apart else None, shorter))
    return Block(rows, notes)


def _apart(study: Study, responses: Responses, measures: Sequence[Measure | str]) -> dict[int, tuple[Cell, Cell, Cell]]:
    """AUROC, gap, and gap in standard deviations, by the index of the measure; without those that score one kind."""
    return {
        at: (_estimate(auroc_with_interval(scores, here.right, here.question)), *_gap(scores, here.right))
        for same, here in judged(study, responses, measures)
        for at, scores in zip(same, here.scores, strict=True)
    }


def _inside(study: Study, responses: Responses, measures: Sequence[Measure | str]) -> dict[int, Cell]:
    """AUROC within questions, by the index of the measure."""
    return {
        at: _estimate(mean_auroc(found))
        for same, here in judged(study, responses, measures, voting=True)
        for at, found in zip(same, auroc_per_question(here), strict=True)
    }


def _gap(scores: Floats, right: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[float, float | None]:
    above, below = scores[right], scores[~right]
    gap = float(above.mean() - below.mean())
    squares = above.size * float(above.var()) + below.size * float(below.var())
    if above.size + below.size < 3 or squares == 0:
        return gap, None
    return gap, gap / math.sqrt(squares / (above.size + below.size - 2))


def _possible(study: Study, measures: Sequence[Measure | str]) -> tuple[list[Measure | str], list[str]]:
    """Those that the pool can score by, and why it cannot by the others."""
    possible, notes = [], dict[str, None]()
    for measure in measures:
        try:
            study.scores.array(measure)
        except PoolError as error:
            notes[f"{study.name}: no row for some scores, because {error}."] = None
        else:
            possible.append(measure)
    return possible, list(notes)


def _names(measure: Measure | str) -> tuple[str, str]:
    return (measure.signal, measure.score) if isinstance(measure, Measure) else (measure, "as recorded")


def _estimate(auroc: AUROC | None) -> Estimate | None:
    return None if auroc is None else Estimate(auroc.value, auroc.low, auroc.high)

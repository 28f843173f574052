"""What the tables on signals and scores share: which measures, of which responses, right or wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibrating import RECORDED
from langchain_reasc.calibration import Judged
from langchain_reasc.exceptions import CalibrationDataError, PoolError
from langchain_reasc.method.confidence import DEFAULT_WINDOW, Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc_lab.report.study import Study

__all__ = [
    "SCORE_OF_PAPER",
    "Responses",
    "chosen",
    "judged",
    "longest_response",
    "signal_measures",
    "window_for",
]

SCORE_OF_PAPER: Final = "bottom_group"
_WINDOWS: Final = (DEFAULT_WINDOW, 64, 32, 16, 8)


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses of a pool, one after the other.

    Attributes:
        question: shape (n,), to which question each belongs.
        right: shape (n,), whether it is right.
        votes: shape (n,), whether it has an answer.
    """

    question: npt.NDArray[np.intp]
    right: npt.NDArray[np.bool_]
    votes: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, study: Study) -> "Responses":
        """Those of the study's pool.

        Raises:
            PoolError: all are right, or all are wrong.
        """
        questions = study.pool.questions
        number = np.repeat(np.arange(len(questions)), [len(one.responses) for one in questions])
        each = [response for one in questions for response in one.responses]
        right = np.array([bool(one.correct) for one in each], dtype=bool)
        if right.all() or not right.any():
            what = "right" if right.size and right.all() else "wrong"
            raise PoolError(f"all {right.size} responses are {what}, so that nothing tells right from wrong")
        return cls(number, right, np.array([one.answer is not None for one in each], dtype=bool))


def signal_measures(study: Study, score: str, window: int) -> list[Measure | str]:
    """A score of each signal that the pool has; of a pool with scores alone, these.

    ``kl_uniform`` is left out where ``self_certainty`` is there: it is the same less a constant.

    Raises:
        PoolError: it has neither.
    """
    if study.scores.signals:
        same = {VERBALIZED, "kl_uniform"} if "self_certainty" in study.scores.signals else {VERBALIZED}
        of_tokens = [signal for signal in study.scores.signals if signal not in same]
        stated = [Measure(VERBALIZED, "mean")] if VERBALIZED in study.scores.signals and score == "mean" else []
        return [*(Measure(signal, score, window) for signal in of_tokens), *stated]
    if study.pool.has_scores:
        return [RECORDED] if score == SCORE_OF_PAPER else []
    raise PoolError(f"{study.pool.path} has neither token signals nor recorded scores; record it with `reasc record`")


def chosen(study: Study) -> Measure | str:
    """The one measure that a table is about.

    It is the one that was asked for; of ``"auto"`` the one that is chosen on the calibration questions of the first
    arrangement, and where these cannot tell, the paper's score of the first signal.

    Raises:
        PoolError: the pool has no scores.
    """
    measures = signal_measures(study, SCORE_OF_PAPER, window_for(study))
    if study.measure is not None and study.measure != "auto":
        return study.measure
    if study.measure is None or not study.scores.signals:
        return measures[0]
    split = study.splits[0]
    try:
        return study.scores.select(split.firsts(split.calibration), seed=study.settings.methods.seed).measure
    except CalibrationDataError:
        return measures[0]


def window_for(study: Study) -> int:
    """The window that was asked for, or else the longest up to the paper's that at least half of the responses fill."""
    if isinstance(study.measure, Measure) and study.measure.windowed:
        return study.measure.window
    return next((window for window in _WINDOWS if study.scores.shorter_than(window) <= 0.5), _WINDOWS[-1])


def longest_response(study: Study) -> int:
    """Tokens of the longest response that has signals; 0 where none has."""
    held = study.pool.signals
    return max((int(max(held.lengths(one.id))) for one in study.pool.questions), default=0) if held else 0


def judged(
    study: Study, responses: Responses, measures: Sequence[Measure | str], *, voting: bool = False
) -> Iterator[tuple[Sequence[int], Judged]]:
    """The responses that have a score, with their scores; measures that score the same ones come together.

    Args:
        study: the pool.
        responses: those of the same pool.
        measures: how they are scored.
        voting: whether only those with an answer count.

    Yields:
        Indices of the measures, and the responses that these score: none where they score none right, or none wrong.
    """
    there = np.arange(study.scores.array(measures[0]).shape[1]) < np.bincount(responses.question)[:, None]
    scores = np.array([study.scores.array(measure)[there] for measure in measures])
    finite = np.isfinite(scores) & (responses.votes if voting else True)
    for mask in np.unique(finite, axis=0):
        same = np.flatnonzero((finite == mask).all(axis=1))
        here = Judged(responses.question[mask], responses.right[mask], scores[same][:, mask])
        if here.both:
            yield same.tolist(), here

"""``measure="auto"``: choose signal, score and window by labels, and record what was
rejected.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats, auroc_of
from langchain_reasc.calibration.parts import RejectedMeasure
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import SCORES, Measure
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED

__all__ = [
    "Selection",
    "can_be_compared",
    "candidate_measures",
    "default_measure",
    "rejected_measures",
    "select_among",
]

WINDOWS = (8, 16, 32, 64, 128)
_NAMES = (*SIGNALS, VERBALIZED)
# The mean has no window.
_WINDOWED = tuple(score for score in SCORES if score != "mean")
_FOLDS = 5
_REPEATS = 4


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen, and the evidence for it.

    Attributes:
        measure: the chosen signal, score and window.
        auroc: the mean AUROC of that measure over the folds.
        cross_validated: AUROC on folds that had no part in choosing; not inflated by
            the choice.
        rejected: for each signal the best of its other measures, and the paper's
            default.
        cross_fitted: each response by the measure that is chosen without it, in
            standard deviations from that measure's mean, with whether it was right;
            those without a score are left out.
    """

    measure: Measure
    auroc: float
    cross_validated: float
    rejected: tuple[RejectedMeasure, ...]
    cross_fitted: tuple[tuple[float, bool], ...]

    @property
    def evidence(self) -> dict[str, Any]:
        """The choice as arguments of
        :func:`~langchain_reasc.calibration.calibrate_offline`.
        """
        return {
            "rejected": self.rejected,
            "cross_validated": self.cross_validated,
            "cross_fitted": self.cross_fitted,
        }


def select_among(
    candidates: Sequence[Measure],
    scores: Floats,
    correct: npt.ArrayLike,
    *,
    seed: int = 0,
) -> Selection:
    """Choose the measure with the highest cross-validated AUROC.

    Each of 4 × 5 stratified folds scores every candidate; the candidate with the best
    mean wins. Of equal ones the first wins.

    Args:
        candidates: the measures.
        scores: shape (candidates, n), S(y) of each response by each of them; NaN where
            it has none.
        correct: shape (n,), whether each response was right.
        seed: the seed of the folds.

    Raises:
        CalibrationDataError: fewer than 5 right or 5 wrong responses.
    """
    from sklearn.model_selection import RepeatedStratifiedKFold

    labels = np.asarray(correct, dtype=bool)
    if not can_be_compared(labels):
        raise CalibrationDataError(
            f"comparing signals takes at least {_FOLDS} correct and {_FOLDS} wrong "
            f"responses, got {int(labels.sum())} correct and {int((~labels).sum())} "
            "wrong; name a signal, or label more questions"
        )
    folds = RepeatedStratifiedKFold(
        n_splits=_FOLDS, n_repeats=_REPEATS, random_state=seed
    )
    parts = list(folds.split(labels, labels))
    aurocs = []
    for _, part in parts:
        right = labels[part]
        aurocs.append(_aurocs(scores[:, part[right]], scores[:, part[~right]]))
    held_out = np.stack(aurocs, axis=1).reshape(len(candidates), _REPEATS, _FOLDS)
    # Within each repeat, the choice on the other folds, with the AUROC on the one left
    # out.
    on_others = (held_out.sum(axis=2, keepdims=True) - held_out).argmax(axis=0)
    mean = held_out.mean(axis=(1, 2))
    best = int(np.argmax(mean))
    return Selection(
        measure=candidates[best],
        auroc=float(mean[best]),
        cross_validated=float(
            np.take_along_axis(held_out, on_others[None], axis=0).mean()
        ),
        rejected=_default_and_best(candidates, mean, best),
        cross_fitted=tuple(_cross_fitted(scores, labels, parts[:_FOLDS], on_others[0])),
    )


def _cross_fitted(
    scores: Floats,
    labels: Booleans,
    parts: Sequence[tuple[Any, Any]],
    chosen: npt.NDArray[np.intp],
) -> Iterator[tuple[float, bool]]:
    """Yield the z-score of each response, by the measure that was chosen on the other
    folds, and whether it is right.

    Args:
        scores: shape (candidates, n).
        labels: shape (n,).
        parts: for each fold the responses of the others, and its own.
        chosen: for each fold the row of the measure.
    """
    for (rest, part), row in zip(parts, chosen, strict=True):
        mean = np.nanmean(scores[row, rest])
        # Equal scores have no spread.
        spread = np.nanstd(scores[row, rest]) or 1.0
        z_scores = (scores[row, part] - mean) / spread
        for z_score, right in zip(z_scores, labels[part], strict=True):
            if np.isfinite(z_score):
                yield float(z_score), bool(right)


def can_be_compared(correct: npt.ArrayLike) -> bool:
    """Whether there are enough right and wrong responses to choose a measure by how it
    separates them.
    """
    labels = np.asarray(correct, dtype=bool)
    return int(min(labels.sum(), (~labels).sum())) >= _FOLDS


def default_measure(signals: Collection[str]) -> Measure:
    """Return the paper's score of the first of these signals. It is used if measures
    cannot be compared.

    Raises:
        CalibrationDataError: there is no signal.
    """
    for name in _NAMES:
        if name in signals:
            return Measure(name, "mean") if name == VERBALIZED else Measure(name)
    raise CalibrationDataError(
        "there is no token signal that every calibration response carries"
    )


def candidate_measures(
    signals: Collection[str], *, longest: int | None = None
) -> list[Measure]:
    """Return every score of these signals, the paper's default first if it is one of
    them.

    Args:
        signals: names of token signals; ``verbalized``, which no token has, may be
            among them.
        longest: tokens of the longest response, beyond which all windows are the plain
            mean; None where unknown.
    """
    names = [name for name in _NAMES if name in signals]
    if "self_certainty" in names and "kl_uniform" in names:
        # The two differ by a constant for one vocabulary.
        names.remove("kl_uniform")
    windows = [window for window in WINDOWS if longest is None or window < longest]
    of_tokens = [name for name in names if name != VERBALIZED]
    measures = [*starmap(Measure, product(of_tokens, _WINDOWED, windows))]
    measures += [Measure(name, "mean") for name in names]
    paper = Measure()
    if paper.signal in names:
        measures.insert(0, paper)
    return list(dict.fromkeys(measures))


def _aurocs(right: Floats, wrong: Floats) -> Floats:
    """Return the AUROC of each row over the scores that it has; ½ for a row without
    scores of one class.
    """
    aurocs = auroc_of(right, wrong)
    is_incomplete = np.isnan(right).any(axis=1) | np.isnan(wrong).any(axis=1)
    for row in np.flatnonzero(is_incomplete):
        of_right = right[row][~np.isnan(right[row])]
        of_wrong = wrong[row][~np.isnan(wrong[row])]
        if of_right.size and of_wrong.size:
            aurocs[row] = auroc_of(of_right, of_wrong)
        else:
            # Without scores of both classes, a measure is as good as chance.
            aurocs[row] = 0.5
    return aurocs


def _default_and_best(
    candidates: Sequence[Measure], mean: Floats, best: int
) -> tuple[RejectedMeasure, ...]:
    """Record the paper's default, where it was a candidate, and the best other measure
    of each signal.
    """
    paper = Measure()
    considered = set(candidates) - {candidates[best], paper}
    rejected = rejected_measures(candidates, mean, best, considered)
    if paper not in candidates or paper == candidates[best]:
        return rejected
    return _rejected(paper, mean[candidates.index(paper)], mean[best]), *rejected


def rejected_measures(
    measures: Sequence[Measure],
    aurocs: Floats,
    best: int,
    considered: Collection[Measure],
) -> tuple[RejectedMeasure, ...]:
    """Record the best of each signal among the measures considered, with how far its
    AUROC is behind the best one's.
    """
    rejected: dict[str, RejectedMeasure] = {}
    for index in np.argsort(-aurocs, kind="stable").tolist():
        measure = measures[index]
        if measure in considered and measure.signal not in rejected:
            rejected[measure.signal] = _rejected(measure, aurocs[index], aurocs[best])
    return tuple(rejected.values())


def _rejected(measure: Measure, auroc: float, best: float) -> RejectedMeasure:
    return RejectedMeasure(
        signal=measure.signal,
        score=measure.score,
        window=measure.window,
        auroc=float(auroc),
        behind=float(best - auroc),
    )

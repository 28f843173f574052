"""Where the gate stands on labels: at Algorithm 1's threshold, and at one that the labels vouch for."""

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.schema import Gate

__all__ = ["LEVEL", "labelled_gate"]

LEVEL: Final = 0.95
"""1 - δ, how sure the safe gate is that what it accepts is right in ``p_target``."""

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]


def labelled_gate(scores: Scores, correct: Labels, p_target: float) -> Gate:
    """Algorithm 1's gate, and the safe one beside it.

    The paper's is the first threshold at which the observed accuracy reaches ``p_target``: a maximum over many, and so
    optimistic. The safe one is found by a fixed sequence of tests (Learn then Test, Angelopoulos et al. 2021): from the
    highest threshold downwards, each must have a Clopper-Pearson lower bound of at least ``p_target`` at
    :data:`LEVEL`, and the first that has not ends it. So the chance that any threshold passes whose accuracy is lower
    is at most 1 - :data:`LEVEL`, however many are tried. It keeps the paper's other part, the mean score of correct
    responses, above which accuracy is taken to be no lower; so it is never below the paper's.

    Args:
        scores: shape (n,), finite, not all equal.
        correct: shape (n,), whether each response was right.
        p_target: accuracy asked of what the gate accepts.
    """
    if not correct.any():
        why = f"none of the {scores.size} calibration responses is correct"
        return Gate(threshold=None, closed_because=why, level=LEVEL, safe_closed_because=why)
    # A mean of equal scores may round to just above them, where no score would ever reach it.
    mean_correct = min(float(scores[correct].mean()), float(scores[correct].max()))
    safe = _safe(scores, correct, p_target, at_least=mean_correct)
    thresholds, accuracy = _accuracy_above(scores, correct)
    reached = np.flatnonzero(accuracy >= p_target)
    if reached.size == 0:
        best = f"no threshold reaches p_target {p_target:g}; the best accuracy above any is {accuracy.max():.3f}"
        return Gate(threshold=None, mean_part=mean_correct, closed_because=best, **safe)
    target = float(thresholds[reached[0]])
    return Gate(threshold=max(mean_correct, target), mean_part=mean_correct, target_part=target, **safe)


def _accuracy_above(scores: Scores, correct: Labels) -> tuple[Scores, Scores]:
    """For each distinct score t, ascending: the accuracy of the responses with S ≥ t."""
    order = np.argsort(scores, kind="stable")
    thresholds, first = np.unique(scores[order], return_index=True)
    right_above = np.cumsum(correct[order][::-1])[::-1][first]
    return thresholds, right_above / (scores.size - first)


def _safe(scores: Scores, correct: Labels, p_target: float, *, at_least: float) -> dict[str, Any]:
    """The fields of the safe gate: the lowest threshold that passes, and not below ``at_least``.

    Of the k highest scores, those above the (k + 1)th are drawn independently from all scores above it, so how many of
    them are right is binomial although the threshold is one of the scores.
    """
    allowed = _wrong_allowed(scores.size, p_target)
    if allowed[-1] < 0:
        fewest = math.ceil(math.log(1 - LEVEL) / math.log(p_target))
        why = f"{scores.size} responses are too few to vouch for an accuracy of {p_target:g} ({fewest} at least)"
        return {"level": LEVEL, "safe_closed_because": why}
    descending = np.sort(scores)[::-1]
    wrong = np.cumsum(~correct[np.argsort(-scores, kind="stable")])
    accepted = np.searchsorted(-descending, -descending[_counts(allowed) - 1], side="right")  # with all of equal score
    passed = np.logical_and.accumulate(wrong[accepted - 1] <= allowed[accepted - 1])
    if not passed[0]:
        first = int(accepted[0])
        why = (
            f"{int(wrong[first - 1])} of the {first} highest-scoring responses are wrong; {p_target:g} at "
            f"{100 * LEVEL:g} % allows {int(allowed[first - 1])}"
        )
        return {"level": LEVEL, "safe_closed_because": why}
    count = int(accepted[passed][-1])
    return {
        "level": LEVEL,
        "safe_threshold": max(at_least, float(descending[count - 1])),
        "accepted": count,
        "lower_bound": _lower_bound(count - int(wrong[count - 1]), count),
    }


def _wrong_allowed(n: int, p_target: float) -> npt.NDArray[np.int64]:
    """Of k responses, k = 1 … n: how many may be wrong for the lower bound to reach ``p_target``; -1 where none may."""
    from scipy.stats import binom

    # The bound reaches p exactly where P(so few wrong or fewer | p) is at most δ.
    return np.asarray(binom.ppf(1 - LEVEL, np.arange(1, n + 1), 1 - p_target) - 1, dtype=np.int64)


def _counts(allowed: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The counts to test at: each at which one more may be wrong, where the bound asks least of it.

    The first of them allows none, and a single mistake there would close the gate; the second is the first tested,
    where it leaves out half of the responses at least.
    """
    counts = np.flatnonzero(np.diff(allowed, prepend=-1)) + 1
    return counts[1:] if counts.size > 1 and counts[1] <= allowed.size / 2 else counts


def _lower_bound(right: int, n: int) -> float:
    from scipy.stats import binomtest

    interval = binomtest(right, n, alternative="greater").proportion_ci(confidence_level=LEVEL, method="exact")
    return float(interval.low)

"""Algorithm 1: calibrate on labelled first responses, and a gate that the labels support beside the paper's."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats, auroc_with_interval
from langchain_reasc.calibration.record import AUROC, Calibration, Fingerprint, Gate, RejectedMeasure
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.evidence import check_weight

__all__ = ["calibrate_offline", "checked_scores", "labelled_gate"]

_WITHIN_NEEDED: Final = 0.6  # what the AUROC within questions must exceed at its lower end for Stage 2 to weigh votes
_LEVEL: Final = 0.95  # 1 - δ, how sure the safe gate is that what it accepts is right in ``p_target``


def calibrate_offline(
    scores: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    measure: Measure,
    p_target: float = 0.9,
    scale: float = 0.7,
    weight: str = "reasc",
    top_k: int | None = None,
    vocabulary_size: int | None = None,
    fingerprint: Fingerprint | None = None,
    rejected: Sequence[RejectedMeasure] = (),
    cross_validated: float | None = None,
    within: AUROC | None = None,
) -> Calibration:
    """Algorithm 1: τ_gate = max(mean score of correct responses, smallest t with accuracy(S ≥ t) ≥ p_target).

    Beside the paper's, the record holds what a live run goes by unless it is told otherwise (``safeguard="paper"``): a
    gate that holds with 95 % (:func:`labelled_gate`), whether Stage 2 weighs votes, and whether the score is used.

    Args:
        scores: shape (n,), S(y) of one response per calibration question.
        correct: shape (n,), whether each was right; a response without an answer is wrong.
        measure: how the scores were made.
        p_target: accuracy asked of what the gate accepts.
        scale: λ of the evidence weight.
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        top_k: how many alternatives per token the signal was made of; recorded.
        vocabulary_size: the V that the signal was made of; recorded.
        fingerprint: what was measured.
        rejected: the measures that a selection did not choose; recorded.
        cross_validated: the held-out AUROC of that selection; by as much as it is lower, the choice flattered the
            measure.
        within: how well the score separates the responses to one question, see
            :func:`~langchain_reasc.calibration.auroc.auroc_within`; None where unknown, as with one response to each.

    Returns:
        A calibration whose gate is closed, with the reason, where no threshold reaches ``p_target`` or nothing is
        correct, and which falls back to counting votes where the score does not separate right from wrong.

    Raises:
        CalibrationDataError: fewer than 2 responses, a score that is not finite, or all scores equal.
        ConfigurationError: ``weight`` is unknown, or cannot be had of such scores.
    """
    values, labels = checked_scores(scores, p_target), np.asarray(correct, dtype=bool)
    if labels.shape != values.shape:
        raise CalibrationDataError(f"{values.size} scores but {labels.size} labels; each response needs one of each")
    check_weight(weight, float(values.mean()))
    auroc = auroc_with_interval(values, labels, cross_validated=cross_validated)
    return Calibration.of_scores(
        values,
        measure,
        method="offline",
        top_k=top_k,
        vocabulary_size=vocabulary_size,
        lambda_=scale,
        weight=weight,
        p_target=p_target,
        gate=labelled_gate(values, labels, p_target),
        fallback=_weak(auroc, labels),
        unweighed=_unweighed(within, weight, labels),
        auroc=auroc,
        within=within,
        accuracy=float(labels.mean()),
        rejected=tuple(rejected),
        fingerprint=fingerprint or Fingerprint(),
    )


def checked_scores(scores: npt.ArrayLike, p_target: float) -> Floats:
    """Return the scores as an array, shape (n,), that has a mean and a positive standard deviation.

    Raises:
        CalibrationDataError: fewer than 2 scores, one that is not finite, or all equal.
        ConfigurationError: ``p_target`` is no accuracy.
    """
    if not 0 < p_target < 1:
        raise ConfigurationError(f"p_target is an accuracy between 0 and 1, got {p_target}")
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise CalibrationDataError(f"a calibration takes one score per response, got shape {values.shape}")
    if values.size < 2:
        raise CalibrationDataError(f"a calibration needs at least 2 responses, got {values.size}; 128 is a good number")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise CalibrationDataError(f"score {at} is {values[at]}; drop that response or fix what it was computed from")
    # A spread below rounding is no spread, in whatever unit: z-scores of it would be noise blown up.
    if values.std() <= 1e-9 * np.abs(values).max():
        raise CalibrationDataError(
            f"all {values.size} scores equal {values[0]:g}; a constant score says nothing about correctness. "
            "Check that the model samples (temperature above 0), or use another signal"
        )
    return values


def labelled_gate(scores: Floats, correct: Booleans, p_target: float) -> Gate:
    """Return Algorithm 1's gate, with the safe one beside it.

    The paper's is the first threshold at which the observed accuracy reaches ``p_target``: a maximum over many, and so
    optimistic. The safe one is found by a fixed sequence of tests (Learn then Test, Angelopoulos et al. 2021): from the
    highest threshold downwards, each must have a Clopper-Pearson lower bound of at least ``p_target`` at 95 %, and the
    first that has not ends it. So the chance that any threshold passes whose accuracy is lower is at most 5 %, however
    many are tried. It keeps the paper's other part, the mean score of correct responses, above which accuracy is taken
    to be no lower; so it is never below the paper's.

    Args:
        scores: shape (n,), finite, not all equal.
        correct: shape (n,), whether each response was right.
        p_target: accuracy asked of what the gate accepts.
    """
    if not correct.any():
        why = f"none of the {scores.size} calibration responses is correct"
        return Gate(threshold=None, closed_because=why, level=_LEVEL, safe_closed_because=why)
    # A mean of equal scores may round to just above them, where no score would ever reach it.
    mean_correct = min(float(scores[correct].mean()), float(scores[correct].max()))
    safe = _safe(scores, correct, p_target, at_least=mean_correct)
    order = np.argsort(scores, kind="stable")
    thresholds, first = np.unique(scores[order], return_index=True)
    right_above = np.cumsum(correct[order][::-1])[::-1][first]
    accuracy = right_above / (scores.size - first)  # of the responses with S ≥ t, for each distinct score t
    reached = np.flatnonzero(accuracy >= p_target)
    if reached.size == 0:
        best = f"no threshold reaches p_target {p_target:g}; the best accuracy above any is {accuracy.max():.3f}"
        return Gate(threshold=None, mean_part=mean_correct, closed_because=best, **safe)
    target = float(thresholds[reached[0]])
    return Gate(threshold=max(mean_correct, target), mean_part=mean_correct, target_part=target, **safe)


def _safe(scores: Floats, correct: Booleans, p_target: float, *, at_least: float) -> dict[str, Any]:
    """The fields of the safe gate: the lowest threshold that passes, and not below ``at_least``.

    Of the k highest scores, those above the (k + 1)th are drawn independently from all scores above it, so how many of
    them are right is binomial although the threshold is one of the scores.
    """
    from scipy.stats import binom, binomtest

    # Of k responses, k = 1 … n, how many may be wrong for the lower bound to reach p_target; -1: none may. The bound
    # reaches p exactly where P(so few wrong or fewer | p) is at most δ.
    allowed = np.asarray(binom.ppf(1 - _LEVEL, np.arange(1, scores.size + 1), 1 - p_target) - 1, dtype=np.int64)
    if allowed[-1] < 0:
        fewest = math.ceil(math.log(1 - _LEVEL) / math.log(p_target))
        why = f"{scores.size} responses are too few to vouch for an accuracy of {p_target:g} ({fewest} at least)"
        return {"level": _LEVEL, "safe_closed_because": why}
    descending = np.sort(scores)[::-1]
    wrong = np.cumsum(~correct[np.argsort(-scores, kind="stable")])
    accepted = np.searchsorted(-descending, -descending[_counts(allowed) - 1], side="right")  # with all of equal score
    passed = np.logical_and.accumulate(wrong[accepted - 1] <= allowed[accepted - 1])
    if not passed[0]:
        first = int(accepted[0])
        why = (
            f"{int(wrong[first - 1])} of the {first} highest-scoring responses are wrong; {p_target:g} at "
            f"{100 * _LEVEL:g} % allows {int(allowed[first - 1])}"
        )
        return {"level": _LEVEL, "safe_closed_because": why}
    count = int(accepted[passed][-1])
    right = count - int(wrong[count - 1])
    bound = binomtest(right, count, alternative="greater").proportion_ci(confidence_level=_LEVEL, method="exact")
    return {
        "level": _LEVEL,
        "safe_threshold": max(at_least, float(descending[count - 1])),
        "accepted": count,
        "lower_bound": float(bound.low),
    }


def _counts(allowed: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The counts to test at: each at which one more may be wrong, where the bound asks least of it.

    The first of them allows none, and a single mistake there would close the gate; the second is the first tested,
    where it leaves out half of the responses at least.
    """
    counts = np.flatnonzero(np.diff(allowed, prepend=-1)) + 1
    return counts[1:] if counts.size > 1 and counts[1] <= allowed.size / 2 else counts


def _weak(auroc: AUROC | None, correct: Booleans) -> str | None:
    """Weighing votes by a signal near chance is worse than counting them.

    A measure that was chosen among many looks better than it is by what held-out folds take from its AUROC.
    """
    if auroc is None:
        return None if correct.all() else "no calibration response is correct, so the score's worth is unknown"
    chosen_for = 0.0 if auroc.cross_validated is None else max(0.0, auroc.value - auroc.cross_validated)
    if auroc.low - chosen_for > 0.5:
        return None
    lowered = f" less {chosen_for:.2f}, by which choosing it flattered it," if chosen_for else ""
    return (
        f"the score does not separate right from wrong: AUROC {auroc.value:.2f}, "
        f"95 % interval [{auroc.low:.2f}, {auroc.high:.2f}]{lowered} reaches 0.5"
    )


def _unweighed(within: AUROC | None, weight: str, correct: Booleans) -> str | None:
    """Weights help only where the score separates the responses to one question; easy from hard ones is not enough."""
    if weight == "count" or (within is not None and within.low > _WITHIN_NEEDED):
        return None
    if within is None and correct.all():
        return f"all {correct.size} responses are right, so nothing shows whether the score tells right from wrong ones"
    if within is None:
        return (
            "it is unknown whether the score separates the responses to one question; calibrate on four samples of "
            "each to know it"
        )
    return (
        f"the score hardly separates the responses to one question: AUROC {within.value:.2f}, 95 % interval "
        f"[{within.low:.2f}, {within.high:.2f}], of which the lower end must be above {_WITHIN_NEEDED:g}"
    )

"""Algorithm 1: calibrate on labelled first responses, and a gate that the labels support beside the paper's."""

import logging
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import (
    Booleans,
    Floats,
    Judged,
    auroc_per_question,
    auroc_with_interval,
    mean_auroc,
)
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.record import AUROC, Calibration, Fingerprint, Gate, RejectedMeasure
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.evidence import check_weight

__all__ = ["calibrate_first_responses", "calibrate_offline", "checked_scores"]

logger = logging.getLogger(__name__)

_WITHIN_NEEDED: Final = 0.6  # what the AUROC within questions must exceed at its lower end for votes to be weighed
_SORTED: Final = 0.001  # the p-value from which on the order of questions is not by chance
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
    cross_fitted: Sequence[tuple[float, bool]] = (),
    within: AUROC | None = None,
) -> Calibration:
    """Algorithm 1: τ_gate = max(mean score of correct responses, smallest t with accuracy(S ≥ t) ≥ p_target).

    Beside the paper's, the record holds what a live run goes by unless ``safeguard="paper"``: a gate that holds with
    95 %, whether votes are weighed, and whether the score is used at all.

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
        cross_fitted: responses as that selection scored them without having seen them, with whether they were right.
            The safe gate is tested on these: on the responses that chose the measure it would accept too much.
        within: how well the score separates the responses to one question, see
            :func:`~langchain_reasc.calibration.auroc.mean_auroc`; None where unknown, as with one response to each.

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
    return Calibration.now(
        measure,
        values,
        method="offline",
        n=values.size,
        lambda_=scale,
        weight=weight,
        p_target=p_target,
        gate=_gate(values, labels, p_target, cross_fitted),
        fallback=_why_fallback(auroc, labels),
        unweighed=_why_unweighed(within, weight, labels),
        auroc=auroc,
        within=within,
        accuracy=float(labels.mean()),
        rejected=tuple(rejected),
        top_k=top_k,
        vocabulary_size=vocabulary_size,
        fingerprint=fingerprint or Fingerprint(),
    )


def calibrate_first_responses(questions: Sequence[Observation], measure: Measure, **options: Any) -> Calibration:
    """Run Algorithm 1 on the first response to each question; further ones show whether votes may be weighed.

    Args:
        questions: labelled ones, with one row of scores. One whose first response has no score counts in the accuracy
            alone.
        measure: how the responses were scored.
        options: further arguments of :func:`calibrate_offline`.

    Raises:
        CalibrationDataError: the responses do not determine a calibration.
    """
    scored = [one for one in questions if np.isfinite(one.scores[0, 0])]
    right = [bool(one.right[0]) for one in scored]
    _warn_of_order([bool(one.right[0]) for one in questions])
    within = mean_auroc(auroc_per_question(_votes(questions))[0])
    scores = [float(one.scores[0, 0]) for one in scored]
    made = calibrate_offline(scores, right, measure=measure, within=within, **options)
    return made.model_copy(update={"accuracy": float(np.mean([bool(one.right[0]) for one in questions]))})


def _votes(questions: Sequence[Observation]) -> Judged:
    """Return all responses that have an answer, a score and a label: without an answer, there is no vote to weigh."""
    votes = [
        (number, right, score)
        for number, one in enumerate(questions)
        for answer, right, score in zip(one.answers, one.right, one.scores[0].tolist(), strict=True)
        if answer is not None and right is not None and score == score
    ]
    question, right, scores = np.array(votes, dtype=np.float64).reshape(-1, 3).T
    return Judged(question.astype(np.intp), right.astype(bool), scores[None])


def _warn_of_order(right: Sequence[bool]) -> None:
    """Warn where questions come easy or hard first: those that follow would be others, and the gate of little worth."""
    from scipy.stats import mannwhitneyu

    first, last = (np.flatnonzero(np.asarray(right) == one) for one in (True, False))
    if min(first.size, last.size) and mannwhitneyu(first, last).pvalue < _SORTED:
        order = "easy" if first.mean() < last.mean() else "hard"
        logger.warning(
            "the questions come %s ones first: if they begin a longer list, calibrate on a random sample of that, as a "
            "gate holds only for questions like those it was made on",
            order,
        )


def check_target(p_target: float) -> None:
    """Require 0 < p_target < 1."""
    if not 0 < p_target < 1:
        raise ConfigurationError(f"p_target is an accuracy between 0 and 1, got {p_target}")


def checked_scores(scores: npt.ArrayLike, p_target: float) -> Floats:
    """Return the scores as an array, shape (n,), that has a mean and a positive standard deviation.

    Raises:
        CalibrationDataError: fewer than 2 scores, one that is not finite, or all equal.
        ConfigurationError: ``p_target`` is no accuracy.
    """
    check_target(p_target)
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


def _gate(scores: Floats, correct: Booleans, p_target: float, cross_fitted: Sequence[tuple[float, bool]]) -> Gate:
    """Return Algorithm 1's gate, with the safe one beside it.

    The paper's is the first threshold at which the observed accuracy reaches ``p_target``: a maximum over many, and so
    optimistic. The safe one is found by a fixed sequence of tests (Learn then Test, Angelopoulos et al. 2021): from the
    highest threshold downwards, each must have a Clopper-Pearson lower bound of at least ``p_target`` at 95 %, and the
    first that has not ends it. So the chance that any threshold passes whose accuracy is lower is at most 5 %, however
    many are tried. A measure that was chosen on these responses would pass too often; there, each response is tested by
    the measure that the others choose, and the threshold accepts the same share of all. The safe threshold is never
    below the paper's and keeps its other part, the mean score of correct responses, above which accuracy is taken to be
    no lower.
    """
    if not correct.any():
        why = f"none of the {scores.size} calibration responses is correct"
        return Gate(threshold=None, closed_because=why, level=_LEVEL, safe_closed_because=why)
    # A mean of equal scores may round to just above them, where no score would ever reach it.
    mean_correct = min(float(scores[correct].mean()), float(scores[correct].max()))
    order = np.argsort(scores, kind="stable")
    thresholds, first = np.unique(scores[order], return_index=True)
    right_above = np.cumsum(correct[order][::-1])[::-1][first]
    accuracy = right_above / (scores.size - first)  # of the responses with S ≥ t, for each distinct score t
    reached = thresholds[accuracy >= p_target]
    parts: dict[str, Any]
    if reached.size:
        target = float(reached[0])
        parts = {"threshold": max(mean_correct, target), "target_part": target}
    else:
        why = f"no threshold reaches p_target {p_target:g}; the best accuracy above any is {accuracy.max():.3f}"
        parts = {"threshold": None, "closed_because": why}
    tested, right = np.array(cross_fitted).T if cross_fitted else (scores, correct)
    safe = _safe_count(tested, right.astype(bool), p_target)
    if "accepted" in safe and reached.size:
        count = max(safe["accepted"] * scores.size // tested.size, 1)
        safe["safe_threshold"] = max(parts["threshold"], float(np.sort(scores)[-count]))
    elif "accepted" in safe:
        safe = {"safe_closed_because": parts["closed_because"]}
    return Gate(mean_part=mean_correct, level=_LEVEL, **parts, **safe)


def _safe_count(scores: Floats, correct: Booleans, p_target: float) -> dict[str, Any]:
    """Return how many of the responses the lowest threshold that passes accepts, as fields of a gate, or why none does.

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
        return {"safe_closed_because": why}
    # Test where one more may be wrong, as the bound asks least there. At the first such count a single mistake would
    # close the gate, so it is left out where the second leaves out half of the responses at least.
    counts = np.flatnonzero(np.diff(allowed, prepend=-1)) + 1
    if counts.size > 1 and counts[1] <= allowed.size / 2:
        counts = counts[1:]
    descending = np.sort(scores)[::-1]
    wrong = np.cumsum(~correct[np.argsort(-scores, kind="stable")])
    accepted = np.searchsorted(-descending, -descending[counts - 1], side="right")  # with all of equal score
    passed = np.logical_and.accumulate(wrong[accepted - 1] <= allowed[accepted - 1])
    if not passed[0]:
        first = int(accepted[0])
        why = (
            f"{int(wrong[first - 1])} of the {first} highest-scoring responses are wrong; {p_target:g} at "
            f"{100 * _LEVEL:g} % allows {int(allowed[first - 1])}"
        )
        return {"safe_closed_because": why}
    count = int(accepted[passed][-1])
    right = count - int(wrong[count - 1])
    bound = binomtest(right, count, alternative="greater").proportion_ci(confidence_level=_LEVEL, method="exact")
    return {"accepted": count, "lower_bound": float(bound.low)}


def _why_fallback(auroc: AUROC | None, correct: Booleans) -> str | None:
    """Return why votes are counted whatever the gate: a signal near chance is worse than none.

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


def _why_unweighed(within: AUROC | None, weight: str, correct: Booleans) -> str | None:
    """Return why votes are not weighed: weights help only where the score separates the responses to one question."""
    if weight == "count" or (within is not None and within.low > _WITHIN_NEEDED):
        return None
    if within is not None:
        return (
            f"the score hardly separates the responses to one question: AUROC {within.value:.2f}, 95 % interval "
            f"[{within.low:.2f}, {within.high:.2f}], of which the lower end must be above {_WITHIN_NEEDED:g}"
        )
    if correct.all():
        return f"all {correct.size} responses are right, so nothing shows whether the score tells right from wrong ones"
    return (
        "it is unknown whether the score separates the responses to one question; calibrate on four samples of "
        "each to know it"
    )

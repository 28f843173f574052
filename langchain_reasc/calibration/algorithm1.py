"""Algorithm 1: calibrate on labelled first responses, with a safe gate beside the
paper's.
"""

import logging
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import (
    Booleans,
    Floats,
    auroc_per_question,
    auroc_with_interval,
    judged_votes,
    mean_auroc,
)
from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.parts import AUROC, Gate, RejectedMeasure
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.evidence import check_weight
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["calibrate_first_responses", "calibrate_offline", "checked_scores"]

logger = logging.getLogger(__name__)

# Votes are weighed if the lower end of the AUROC within questions exceeds this.
_WITHIN_NEEDED: Final = 0.6
# The p-value below which the order of the questions is not by chance.
_SORTED: Final = 0.001
_LEVEL: Final = 0.95  # 1 - δ of the safe gate


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
    """Algorithm 1: τ_gate = max(mean score of correct responses, smallest t with
    accuracy(S ≥ t) ≥ p_target).

    Beside the paper's gate, the calibration contains what a live run uses unless
    ``safeguard="paper"``: a gate that holds at 95 %, whether votes are weighed, and
    whether the score is used at all.

    Args:
        scores: shape (n,), S(y) of one response per calibration question.
        correct: shape (n,), whether each was right; a response without an answer is
            wrong.
        measure: how the scores were made.
        p_target: accuracy asked of what the gate accepts.
        scale: λ of the evidence weight.
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        top_k: alternatives per token behind the signal; stored.
        vocabulary_size: V behind the signal; stored.
        fingerprint: the model, sampling and prompt; stored.
        rejected: the measures that a selection did not choose; stored.
        cross_validated: the held-out AUROC of that selection. The difference is the
            bias of the choice.
        cross_fitted: (score, right) of responses, each scored by the measure that the
            other responses choose. The safe gate is tested on these, because it would
            accept too much on the responses that chose the measure.
        within: how well the score separates the responses to one question, see
            :func:`~langchain_reasc.calibration.auroc.mean_auroc`; None if unknown, as
            with one response to each.

    Returns:
        A calibration. Its gate is closed, with the reason, if no threshold reaches
        ``p_target`` or nothing is correct. It falls back to counting votes if the score
        does not separate right from wrong.

    Raises:
        CalibrationDataError: fewer than 2 responses, a score that is not finite, or all
            scores equal.
        ConfigurationError: ``weight`` is unknown.
    """
    values = checked_scores(scores, p_target)
    labels = np.asarray(correct, dtype=bool)
    if labels.shape != values.shape:
        raise CalibrationDataError(
            f"{values.size} scores but {labels.size} labels; each response needs one "
            "of each"
        )
    check_weight(weight)
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


def calibrate_first_responses(
    questions: Sequence[Observation], measure: Measure, **options: Any
) -> Calibration:
    """Run Algorithm 1 on the first response to each question. Further responses show
    whether votes may be weighed.

    Args:
        questions: labelled questions with one row of scores. If the first response has
            no score, the question only counts in the accuracy.
        measure: how the responses were scored.
        options: further arguments of :func:`calibrate_offline`.

    Raises:
        CalibrationDataError: the responses do not determine a calibration.
    """
    scores = np.array([question.scores[0, 0] for question in questions])
    right = np.array([question.right[0] for question in questions], dtype=bool)
    _warn_of_order(right)
    within = mean_auroc(auroc_per_question(judged_votes(questions, 0))[0])
    scored = np.isfinite(scores)
    calibration = calibrate_offline(
        scores[scored], right[scored], measure=measure, within=within, **options
    )
    return calibration.model_copy(update={"accuracy": float(right.mean())})


def _warn_of_order(right: Booleans) -> None:
    """Warn if the questions are sorted by difficulty, because the gate would not hold
    for the following ones.
    """
    from scipy.stats import mannwhitneyu

    right_places = np.flatnonzero(right)
    wrong_places = np.flatnonzero(~right)
    if not right_places.size or not wrong_places.size:
        return
    if mannwhitneyu(right_places, wrong_places).pvalue < _SORTED:
        order = "easy" if right_places.mean() < wrong_places.mean() else "hard"
        logger.warning(
            "the questions come %s ones first: if they begin a longer list, calibrate "
            "on a random sample of that, as a gate holds only for questions like "
            "those it was made on",
            order,
        )


def check_target(p_target: float) -> None:
    """Require 0 < p_target < 1."""
    if not 0 < p_target < 1:
        raise ConfigurationError(
            f"p_target is an accuracy between 0 and 1, got {p_target}"
        )


def checked_scores(scores: npt.ArrayLike, p_target: float) -> Floats:
    """Return the scores as an array, shape (n,), that has a mean and a positive
    standard deviation.

    Raises:
        CalibrationDataError: fewer than 2 scores, one that is not finite, or all equal.
        ConfigurationError: ``p_target`` is not between 0 and 1.
    """
    check_target(p_target)
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise CalibrationDataError(
            f"a calibration takes one score per response, got shape {values.shape}"
        )
    if values.size < 2:
        raise CalibrationDataError(
            f"a calibration needs at least 2 responses, got {values.size}; 128 is a "
            "good number"
        )
    if not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        raise CalibrationDataError(
            f"score {index} is {values[index]}; drop that response or fix what it was "
            "computed from"
        )
    # Below rounding, z-scores would only be amplified noise.
    if values.std() <= 1e-9 * np.abs(values).max():
        raise CalibrationDataError(
            f"all {values.size} scores equal {values[0]:g}; a constant score says "
            "nothing about correctness. Check that the model samples (temperature "
            "above 0), or use another signal"
        )
    return values


def _gate(
    scores: Floats,
    correct: Booleans,
    p_target: float,
    cross_fitted: Sequence[tuple[float, bool]],
) -> Gate:
    """Return Algorithm 1's gate, with the safe one beside it.

    The paper's threshold is the first at which the observed accuracy reaches
    ``p_target``. As a maximum over many, it is optimistic. The safe threshold is found
    by fixed-sequence testing (Learn then Test, Angelopoulos et al. 2021): from the
    highest threshold downwards, each must have a Clopper-Pearson lower bound of at
    least ``p_target`` at 95 %. The first failure ends the sequence. So a threshold with
    a lower accuracy passes with a probability of at most 5 %, however many are tried. A
    measure that was chosen on these responses would pass too often; then each response
    is scored by the measure that the others choose, and the threshold accepts the same
    share of all responses. The safe threshold is never below the paper's, and so never
    below the mean score of correct responses.
    """
    if not correct.any():
        reason = f"none of the {scores.size} calibration responses is correct"
        return Gate(
            threshold=None,
            closed_because=reason,
            level=_LEVEL,
            safe_closed_because=reason,
        )
    # The mean of equal scores may round to just above them.
    mean_correct = min(float(scores[correct].mean()), float(scores[correct].max()))
    order = np.argsort(scores, kind="stable")
    thresholds, first = np.unique(scores[order], return_index=True)
    right_above = np.cumsum(correct[order][::-1])[::-1][first]
    # Of the responses with S ≥ t, for each distinct score t.
    accuracy = right_above / (scores.size - first)
    reached = thresholds[accuracy >= p_target]
    parts: dict[str, Any]
    if reached.size:
        target = float(reached[0])
        parts = {"threshold": max(mean_correct, target), "target_part": target}
    else:
        reason = (
            f"no threshold reaches p_target {p_target:g}; the best accuracy above any "
            f"is {accuracy.max():.3f}"
        )
        parts = {"threshold": None, "closed_because": reason}
    if cross_fitted:
        tested, right = np.array(cross_fitted).T
        safe = _safe_count(tested, right.astype(bool), p_target)
    else:
        tested = scores
        safe = _safe_count(scores, correct, p_target)
    if "accepted" in safe:
        if reached.size:
            count = max(safe["accepted"] * scores.size // tested.size, 1)
            lowest = float(np.sort(scores)[-count])
            safe["safe_threshold"] = max(parts["threshold"], lowest)
        else:
            safe = {"safe_closed_because": parts["closed_because"]}
    return Gate(mean_part=mean_correct, level=_LEVEL, **parts, **safe)


def _safe_count(scores: Floats, correct: Booleans, p_target: float) -> dict[str, Any]:
    """Return how many responses the lowest passing threshold accepts, as fields of a
    gate, or why none passes.

    Given the (k + 1)th highest score, the k above it are independent draws from all
    scores above it. So the number of right ones is binomial, although the threshold is
    one of the scores.
    """
    from scipy.stats import binom, binomtest

    # For k = 1 … n responses, how many may be wrong for the lower bound to reach
    # p_target; -1 if even none is too many. The bound reaches p exactly if P(so few
    # wrong or fewer | p) is at most δ.
    allowed = np.asarray(
        binom.ppf(1 - _LEVEL, np.arange(1, scores.size + 1), 1 - p_target) - 1,
        dtype=np.int64,
    )
    if allowed[-1] < 0:
        fewest = math.ceil(math.log(1 - _LEVEL) / math.log(p_target))
        reason = (
            f"{scores.size} responses are too few to vouch for an accuracy of "
            f"{p_target:g} ({fewest} at least)"
        )
        return {"safe_closed_because": reason}
    # Test at the counts that allow one more mistake, where the bound requires least. A
    # single mistake at the first such count would close the gate, so that count is
    # skipped if the second is at most half of the responses.
    counts = np.flatnonzero(np.diff(allowed, prepend=-1)) + 1
    if counts.size > 1 and counts[1] <= allowed.size / 2:
        counts = counts[1:]
    order = np.argsort(-scores, kind="stable")
    negated = -scores[order]
    wrong = np.cumsum(~correct[order])
    # All responses of equal score are accepted together.
    accepted = np.searchsorted(negated, negated[counts - 1], side="right")
    passed = np.logical_and.accumulate(wrong[accepted - 1] <= allowed[accepted - 1])
    if not passed[0]:
        first = int(accepted[0])
        reason = (
            f"{int(wrong[first - 1])} of the {first} highest-scoring responses are "
            f"wrong; {p_target:g} at {100 * _LEVEL:g} % allows "
            f"{int(allowed[first - 1])}"
        )
        return {"safe_closed_because": reason}
    count = int(accepted[passed][-1])
    right = count - int(wrong[count - 1])
    bound = binomtest(right, count, alternative="greater").proportion_ci(
        confidence_level=_LEVEL, method="exact"
    )
    return {"accepted": count, "lower_bound": float(bound.low)}


def _why_fallback(auroc: AUROC | None, correct: Booleans) -> str | None:
    """Return why the score is not used: a score near chance is worse than none.

    The AUROC of a measure that was chosen among many is reduced by its bias, estimated
    on held-out folds.
    """
    if auroc is None:
        if correct.all():
            return None
        return "no calibration response is correct, so the score's worth is unknown"
    bias = 0.0
    lowered = ""
    if auroc.cross_validated is not None and auroc.cross_validated < auroc.value:
        bias = auroc.value - auroc.cross_validated
        lowered = f" less {bias:.2f}, by which choosing it flattered it,"
    if auroc.low - bias > 0.5:
        return None
    return (
        f"the score does not separate right from wrong: AUROC {auroc.value:.2f}, "
        f"95 % interval [{auroc.low:.2f}, {auroc.high:.2f}]{lowered} reaches 0.5"
    )


def _why_unweighed(within: AUROC | None, weight: str, correct: Booleans) -> str | None:
    """Return why votes are not weighed. Weights only help if the score separates the
    responses to one question.
    """
    if weight == "count" or (within is not None and within.low > _WITHIN_NEEDED):
        return None
    if within is not None:
        return (
            "the score hardly separates the responses to one question: AUROC "
            f"{within.value:.2f}, 95 % interval [{within.low:.2f}, {within.high:.2f}], "
            f"of which the lower end must be above {_WITHIN_NEEDED:g}"
        )
    if correct.all():
        return (
            f"all {correct.size} responses are right, so nothing shows whether the "
            "score tells right from wrong ones"
        )
    return (
        "it is unknown whether the score separates the responses to one question; "
        "calibrate on four samples of each to know it"
    )

"""Probability that an answer is right, or agrees with further responses, from the support of its decision."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats
from langchain_reasc.calibration.record import Calibration, SupportCurve, prior_parts
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior
from langchain_reasc.method.decision import Decision, support
from langchain_reasc.method.stopping import Cap, Response, StoppingRule, decide

__all__ = ["agreement_with_rest", "fit_support_curve", "with_p_correct"]

_POINTS: Final = 17  # of the curve that is recorded; straight lines between them differ from it by .05 at the steepest
_NEAREST: Final = 1e-4
_PENALTY: Final = 0.1  # on the square of the slope: perfectly separated decisions would make it infinite


def fit_support_curve(
    statistics: npt.ArrayLike, right: npt.ArrayLike, *, rule: str | None = None, prior: Prior | None = None
) -> SupportCurve:
    """Fit Platt scaling of the support: ``P(right) = 1 / (1 + exp(-(a + b · logit(support))))`` with b ≥ 0.

    A logistic curve on the logit is beta calibration with its two exponents equal (Kull et al. 2017). On a few dozen to
    a few hundred decisions it forecasts better than isotonic regression, whose steps follow the noise. Outside of what
    was seen it is constant, and it never comes nearer to 0 or 1 than the rule of succession on n decisions does.

    Args:
        statistics: shape (n,), :func:`~langchain_reasc.method.decision.support` of one decision per question.
        right: shape (n,), whether each answer was right; without labels, whether it agreed with the other responses.
        rule: the name of the rule that decided, where the curve holds for that alone.
        prior: what the support was expected from; None: from votes alone.

    Raises:
        CalibrationDataError: fewer than 2 decisions, unequal numbers of both, or a support that is not in [0, 1].
    """
    shares, labels = np.asarray(statistics, dtype=np.float64), np.asarray(right, dtype=bool)
    if shares.ndim != 1 or shares.shape != labels.shape:
        raise CalibrationDataError(f"{shares.size} decisions but {labels.size} labels; each decision needs one of each")
    if shares.size < 2:
        raise CalibrationDataError(f"a support curve needs at least 2 decisions, got {shares.size}")
    if (wrong := shares[~((shares >= 0) & (shares <= 1))]).size:
        raise CalibrationDataError(f"a support is a share from 0 to 1, got {wrong[0]}")
    grid = np.unique(np.linspace(shares.min(), shares.max(), _POINTS))
    nearest = 1 / (shares.size + 2)
    curve = np.clip(_logistic(shares, labels, grid), nearest, 1 - nearest)
    return SupportCurve(
        points=tuple(zip(grid.tolist(), curve.tolist(), strict=True)),
        n=shares.size,
        right=float(labels.mean()),
        rule=rule,
        prior=prior_parts(prior) if prior else (),
    )


def _logistic(shares: Floats, right: Booleans, at: Floats) -> Floats:
    """The fitted curve; the constant rate (k + 1)/(n + 2) where no rising curve fits."""
    rate = np.full(at.shape, (right.sum() + 1) / (right.size + 2))
    if right.all() or not right.any() or at.size < 2:
        return rate
    from sklearn.linear_model import LogisticRegression

    fitted: Any = LogisticRegression(C=1 / _PENALTY).fit(_logit(shares), right)
    return np.asarray(fitted.predict_proba(_logit(at))[:, 1]) if fitted.coef_[0, 0] > 0 else rate


def _logit(shares: Floats) -> Floats:
    kept = np.clip(shares, _NEAREST, 1 - _NEAREST)  # a response may weigh so much that no share is left for others
    return np.asarray(np.log(kept / (1 - kept)))[:, None]


def with_p_correct(
    calibration: Calibration, questions: Iterable[Sequence[tuple[Response, bool]]], prior: Prior
) -> Calibration:
    """Add P(correct) of what the calibration's rule decides on labelled questions with several responses each.

    The gate and the statistics come from the first responses to the same questions, so it is slightly optimistic.

    Args:
        calibration: made on the same questions.
        questions: per question its responses, scored as the calibration says, and whether each is right. Those with a
            single response are left out.
        prior: how the answers agree. In use, a decision rests on more responses than here.

    Returns:
        The calibration as it was where fewer than 2 questions remain.
    """
    rule = calibration.rule(on_missing_confidence="count")
    pairs: list[tuple[float, bool]] = []
    for responses in questions:
        decision = decide(rule, [response for response, _ in responses])
        if len(responses) > 1 and (share := support(decision, prior.share)) is not None:
            pairs.append((share, any(right for one, right in responses if one.answer == decision.answer)))
    if len(pairs) < 2:
        return calibration
    curve = fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)
    return calibration.model_copy(update={"p_correct": curve})


def agreement_with_rest(
    rule: StoppingRule, responses: Sequence[Response], statistic: Callable[[Decision], float | None] = support
) -> tuple[float, bool] | None:
    """Return whether one half of the responses decides as the other half votes.

    The first half, in launch order, is decided by the rule; it is "right" where its answer is the one that most of the
    second half give. So no response is compared with itself. It is agreement, and no correctness: where wrong answers
    agree it errs high.

    Returns:
        The support of the decision and whether it agrees; None where a half has no answer.
    """
    half = (len(responses) + 1) // 2
    if half == len(responses):
        return None
    decision = decide(rule | Cap(half), responses[:half])
    others = decide(Cap(len(responses) - half), responses[half:]).answer
    share = statistic(decision)
    return None if share is None or others is None else (share, decision.answer == others)

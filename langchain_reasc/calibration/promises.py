"""What a calibration promises: how likely further responses agree with an answer, and
how likely it is right.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats
from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.stored_rule import SupportCurve, prior_parts
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Agreement, Prior
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision, support
from langchain_reasc.method.stopping import ASC, Cap, Response, StoppingRule, decide

__all__ = [
    "agreement_by_support",
    "agreement_curve",
    "agreement_with_rest",
    "correctness_by_support",
    "fit_support_curve",
    "promises_of",
]

_Statistic = Callable[[Decision], float | None]

_LONG_ENOUGH: Final = 4  # responses, so that both halves have votes
_ENOUGH_DECISIONS: Final = 16  # decisions that a curve needs
# Outcomes of right answers, and of wrong ones, that a curve needs without labels.
_FEWEST_KNOWN: Final = 10
# Points of the stored curve. Interpolation is off by 0.05 at the steepest.
_POINTS: Final = 17
_NEAREST: Final = 1e-4
# On the square of the slope, which perfectly separated decisions would make infinite.
_PENALTY: Final = 0.1


def promises_of(
    calibration: Calibration,
    prior: Prior,
    questions: Sequence[Observation],
    row: int | None,
    budget: int,
) -> dict[str, Any]:
    """Return what a calibration promises about its rule, as fields of the calibration.

    Args:
        calibration: the calibration.
        prior: how the answers agree.
        questions: the questions that it was fitted on.
        row: the row of scores that weighs votes; None if votes are counted.
        budget: responses to a question at most.
    """
    rule = calibration.rule(budget=budget, on_missing_confidence="count")
    # Questions that a learned rule cut short are left out, because they ended when
    # responses agreed.
    by_counts = [question.responses(row) for question in questions if question.counted]
    counts = Agreement(prior, budget=budget)
    # A prior is about counts, and says nothing of weights.
    of_counts = prior if row is None else None
    return {
        "guarantee": _guarantee(rule, counts, by_counts, len(questions)),
        "p_agree": _p_agree(rule, questions, row, of_counts),
        "p_correct": _p_correct(rule, questions, row, of_counts),
    }


def _guarantee(
    rule: StoppingRule,
    counts: Agreement,
    questions: Sequence[Sequence[Response]],
    n: int,
) -> str:
    """Say how often the rule gave another answer than counting votes, on the questions
    it was fitted on.

    If the rule wants more responses than counting did, its answer is unknown. Such a
    question counts with the probability, under the prior, that the leader changes by
    the end of the budget.

    Questions with sufficient votes are separated from those on which votes were split
    to the end, where the answer of the majority is hardly better than another.
    """
    from scipy.stats import beta

    # Whether the rule gives another answer, where counted votes are sufficient or split.
    decided: list[bool] = []
    split: list[bool] = []
    # P(the answer changes) if the rule goes on although counted votes are sufficient.
    going_on: list[float] = []
    for responses in questions:
        by_counts = decide(ASC() | Cap(len(responses)), responses)
        decision = decide(rule, responses)
        differs = decision.answer != by_counts.answer
        if by_counts.reason != "evidence":
            split.append(differs)
            continue
        decided.append(differs)
        remaining = counts.budget - len(responses)
        if not differs and not decision.stop and remaining > 0:
            votes = counts.tally(responses).evidence
            going_on.append(1 - counts.leader_stays(votes, remaining))
    parts = [f"learned from {n} questions by agreement"]
    if decided:
        different = sum(decided) + sum(going_on)
        high = 1.0
        if different < len(decided):
            high = float(beta.ppf(0.95, different + 1, len(decided) - different))
        more = ""
        if going_on:
            more = (
                f", and {sum(going_on):.1f} of {len(going_on)} on which it goes on, as "
                "far as was learned"
            )
        parts.append(
            f"of {len(decided)} on which counted votes are sufficient {sum(decided)} "
            f"would be answered otherwise{more}, so at most {high:.1%} of such "
            "questions are (95 %)"
        )
    if split:
        parts.append(
            f"of {len(split)} on which votes are split to the end, {sum(split)} would"
        )
    return "; ".join([*parts, "agreement is not correctness"])


def agreement_by_support(
    rule: StoppingRule,
    questions: Iterable[Observation],
    row: int | None,
    statistic: _Statistic = support,
) -> list[tuple[float, bool]]:
    """Return (support, agreed): the decision of one half of the responses, and whether
    the other half agrees.

    Questions that a learned rule decided, and those with too few responses, are left
    out.
    """
    pairs = []
    for question in questions:
        if question.counted and len(question.answers) >= _LONG_ENOUGH:
            responses = question.responses(row)
            pair = agreement_with_rest(rule, responses, statistic)
            if pair is not None:
                pairs.append(pair)
    return pairs


def _p_agree(
    rule: StoppingRule,
    questions: Sequence[Observation],
    row: int | None,
    prior: Prior | None,
) -> SupportCurve | None:
    """Return how likely further responses agree; None if too few questions have enough
    responses.
    """
    pairs = agreement_by_support(rule, questions, row, _statistic(prior))
    if len(pairs) < _ENOUGH_DECISIONS:
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)


def agreement_curve(
    calibration: Calibration,
    measures: Sequence[Measure],
    questions: Sequence[Observation],
    *,
    budget: int,
) -> SupportCurve | None:
    """Return how likely further responses agree with a calibration's decision, from the
    questions with counted votes.

    None if too few of them have enough responses.
    """
    rule = calibration.rule(budget=budget, on_missing_confidence="count")
    block = calibration.rule_
    row = prior = None
    # Without odds, votes are counted.
    if block and block.odds and calibration.measure in measures:
        row = measures.index(calibration.measure)
    elif block:
        prior = block.agreement_prior
    return _p_agree(rule, questions, row, prior)


def correctness_by_support(
    rule: StoppingRule,
    questions: Iterable[Observation],
    row: int | None,
    statistic: _Statistic = support,
) -> list[tuple[float, bool]]:
    """Return (support, right) of each decision whose answer is known to be right or
    wrong.
    """
    pairs: list[tuple[float, bool]] = []
    for question in questions:
        labels = question.known
        if len(question.answers) < 2 or not set(labels) - {None}:
            continue
        decision = decide(rule, question.responses(row))
        label_of = dict(zip(map(str, question.answers), labels, strict=True))
        share = statistic(decision)
        right = label_of.get(decision.answer or "")
        if share is not None and right is not None:
            pairs.append((share, right))
    return pairs


def _p_correct(
    rule: StoppingRule,
    questions: Sequence[Observation],
    row: int | None,
    prior: Prior | None,
) -> SupportCurve | None:
    """Return how likely an answer is right; None if too few are known to be right or
    wrong.

    16 labels are enough. Outcomes are reported for a biased choice of answers, such as
    wrong ones only, so at least 10 right and 10 wrong ones are required.
    """
    pairs = correctness_by_support(rule, questions, row, _statistic(prior))
    if len(pairs) < 2:
        return None
    labelled = sum(bool(question.right) for question in questions)
    right = sum(right for _, right in pairs)
    fewer = min(right, len(pairs) - right)
    if labelled < _ENOUGH_DECISIONS and fewer < _FEWEST_KNOWN:
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)


def _statistic(prior: Prior | None) -> _Statistic:
    if prior is None:
        return support
    return partial(support, share=prior.share)


def agreement_with_rest(
    rule: StoppingRule,
    responses: Sequence[Response],
    statistic: _Statistic = support,
) -> tuple[float, bool] | None:
    """Compare the decision on one half of the responses with the votes of the other
    half.

    The rule decides on the first half, in launch order. The decision agrees if its
    answer is the one that most of the second half give, so no response is compared with
    itself. This is agreement and not correctness: if wrong answers agree, it is too
    high.

    Returns:
        The support of the decision and whether it agrees; None if a half has no answer.
    """
    half = (len(responses) + 1) // 2
    if half == len(responses):
        return None
    decision = decide(rule | Cap(half), responses[:half])
    rest = decide(Cap(len(responses) - half), responses[half:]).answer
    share = statistic(decision)
    if share is None or rest is None:
        return None
    return share, decision.answer == rest


def fit_support_curve(
    statistics: npt.ArrayLike,
    right: npt.ArrayLike,
    *,
    rule: str | None = None,
    prior: Prior | None = None,
) -> SupportCurve:
    """Fit Platt scaling of the support:
    ``P(right) = 1 / (1 + exp(-(a + b · logit(support))))`` with b ≥ 0.

    A logistic curve on the logit is beta calibration with two equal exponents (Kull et
    al. 2017). On a few dozen to a few hundred decisions it predicts better than
    isotonic regression, whose steps follow the noise. Outside of the observed supports
    it is constant, and it stays as far from 0 and 1 as the rule of succession on n
    decisions.

    Args:
        statistics: shape (n,), :func:`~langchain_reasc.method.decision.support` of one
            decision per question.
        right: shape (n,), whether each answer was right; without labels, whether it
            agreed with the other responses.
        rule: the name of the rule that decided, if the curve holds only for that.
        prior: the prior behind the support; None if the support comes from votes alone.

    Raises:
        CalibrationDataError: fewer than 2 decisions, unequal numbers of both, or a
            support that is not in [0, 1].
    """
    shares = np.asarray(statistics, dtype=np.float64)
    labels = np.asarray(right, dtype=bool)
    if shares.ndim != 1 or shares.shape != labels.shape:
        raise CalibrationDataError(
            f"{shares.size} decisions but {labels.size} labels; each decision needs "
            "one of each"
        )
    if shares.size < 2:
        raise CalibrationDataError(
            f"a support curve needs at least 2 decisions, got {shares.size}"
        )
    outside = shares[~((shares >= 0) & (shares <= 1))]
    if outside.size:
        raise CalibrationDataError(
            f"a support is a share from 0 to 1, got {outside[0]}"
        )
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


def _logistic(shares: Floats, right: Booleans, grid: Floats) -> Floats:
    """Return the fitted curve, or the constant rate (k + 1)/(n + 2) if no rising curve
    fits.
    """
    rate = np.full(grid.shape, (right.sum() + 1) / (right.size + 2))
    if right.all() or not right.any() or grid.size < 2:
        return rate
    from sklearn.linear_model import LogisticRegression

    fitted: Any = LogisticRegression(C=1 / _PENALTY).fit(_logit(shares), right)
    if fitted.coef_[0, 0] <= 0:
        return rate
    return np.asarray(fitted.predict_proba(_logit(grid))[:, 1])


def _logit(shares: Floats) -> Floats:
    # A heavy response may leave no share for others.
    clipped = np.clip(shares, _NEAREST, 1 - _NEAREST)
    return np.asarray(np.log(clipped / (1 - clipped)))[:, None]

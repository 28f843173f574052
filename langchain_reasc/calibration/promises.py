"""What a calibration says of its answers: how likely further responses agree with one, and how likely it is right."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import Booleans, Floats
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.record import Calibration, SupportCurve, prior_parts
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

_LONG_ENOUGH: Final = 4  # responses, so that each half of them has a vote to agree with
_ENOUGH_DECISIONS: Final = 16  # from which on a curve is fitted to their support
_FEWEST_KNOWN: Final = 10  # outcomes of right answers, and of wrong ones, where nobody chose what they are told of
_POINTS: Final = 17  # of the curve that is recorded; straight lines between them differ from it by .05 at the steepest
_NEAREST: Final = 1e-4
_PENALTY: Final = 0.1  # on the square of the slope: perfectly separated decisions would make it infinite


def promises_of(
    calibration: Calibration, prior: Prior, questions: Sequence[Observation], row: int | None, budget: int
) -> dict[str, Any]:
    """Return what a calibration says of its rule, as fields of it.

    Args:
        calibration: what was learned.
        prior: how the answers agree.
        questions: what it was learned from.
        row: the row of scores that votes are weighed by; None: votes are counted.
        budget: responses to a question at most.
    """
    rule = calibration.rule(budget=budget, on_missing_confidence="count")
    # Questions that a learned rule cut short are left out: they ended where responses agreed.
    counted = [one.responses(row) for one in questions if one.counted]
    expected = prior if row is None else None  # it knows of counts alone
    return {
        "guarantee": _guarantee(rule, Agreement(prior, budget=budget), counted, len(questions)),
        "p_agree": _p_agree(rule, questions, row, expected),
        "p_correct": _p_correct(rule, questions, row, expected),
    }


def _guarantee(
    rule: StoppingRule,
    counts: Agreement,
    questions: Sequence[Sequence[Response]],
    n: int,
) -> str:
    """Say how often the rule answers otherwise than counting votes did, on the questions it was learned from.

    Where the rule asks for more responses than counting did, its answer is not known. Such a question counts as much as
    the leader is likely to change by the end of the budget, as far as was learned of answers. Else the promise would
    hold only of a rule that stops no later.

    Questions on which votes were sufficient are kept apart from those on which they were split to the end: there, an
    answer of the majority is hardly better than another.
    """
    from scipy.stats import beta

    differs: dict[bool, list[bool]] = {True: [], False: []}  # by whether counted votes were sufficient
    going_on: list[float] = []  # P(the answer changes) where the rule goes on, though counted votes are sufficient
    for responses in questions:
        counted, decision = decide(ASC() | Cap(len(responses)), responses), decide(rule, responses)
        sufficient, otherwise = counted.reason == "evidence", decision.answer != counted.answer
        differs[sufficient].append(otherwise)
        if sufficient and not (otherwise or decision.stop) and len(responses) < counts.budget:
            votes = counts.tally(responses).evidence
            going_on.append(1 - counts.leader_stays(votes, counts.budget - len(responses)))
    decided, split = differs[True], differs[False]
    parts = [f"learned from {n} questions by agreement"]
    if decided:
        others = sum(decided) + sum(going_on)
        high = float(beta.ppf(0.95, others + 1, len(decided) - others)) if others < len(decided) else 1.0
        more = f", and {sum(going_on):.1f} of {len(going_on)} on which it goes on, as far as was learned"
        parts.append(
            f"of {len(decided)} on which counted votes are sufficient {sum(decided)} would be answered otherwise"
            f"{more if going_on else ''}, so at most {high:.1%} of such questions are (95 %)"
        )
    if split:
        parts.append(f"of {len(split)} on which votes are split to the end, {sum(split)} would")
    return "; ".join([*parts, "agreement is not correctness"])


def agreement_by_support(
    rule: StoppingRule, questions: Iterable[Observation], row: int | None, statistic: _Statistic = support
) -> list[tuple[float, bool]]:
    """Return the support of what one half of the responses to a question decide, and whether the other half agree.

    Questions on which a learned rule decided, or that have too few responses, are left out.
    """
    long = (one.responses(row) for one in questions if one.counted and len(one.answers) >= _LONG_ENOUGH)
    return [pair for responses in long if (pair := agreement_with_rest(rule, responses, statistic)) is not None]


def _p_agree(
    rule: StoppingRule, questions: Sequence[Observation], row: int | None, prior: Prior | None
) -> SupportCurve | None:
    """Return how likely further responses agree; None where too few questions have enough responses."""
    pairs = agreement_by_support(rule, questions, row, _statistic(prior))
    if len(pairs) < _ENOUGH_DECISIONS:
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)


def agreement_curve(
    calibration: Calibration, measures: Sequence[Measure], questions: Sequence[Observation], *, budget: int
) -> SupportCurve | None:
    """Return how likely further responses agree with what a calibration decides, by the questions with counted votes.

    None where too few of them have enough responses.
    """
    rule = calibration.rule(budget=budget, on_missing_confidence="count")
    block = calibration.rule_
    measure = calibration.measure if block and block.odds else None
    row = measures.index(measure) if measure in measures else None
    return _p_agree(rule, questions, row, block.agreement_prior if block and row is None else None)


def correctness_by_support(
    rule: StoppingRule, questions: Iterable[Observation], row: int | None, statistic: _Statistic = support
) -> list[tuple[float, bool]]:
    """Return the support of each decision whose answer is known to be right or wrong, and whether it is right."""
    pairs = list[tuple[float, bool]]()
    for question in questions:
        if len(question.answers) > 1 and any(right is not None for right in question.known):
            decision = decide(rule, question.responses(row))
            known = {str(answer): right for answer, right in zip(question.answers, question.known, strict=True)}
            share, right = statistic(decision), known.get(decision.answer or "")
            if share is not None and right is not None:
                pairs.append((share, right))
    return pairs


def _p_correct(
    rule: StoppingRule, questions: Sequence[Observation], row: int | None, prior: Prior | None
) -> SupportCurve | None:
    """Return how likely an answer is right; None where too few are known to be right or wrong.

    Labels come from whoever chose the questions, and 16 of them are enough. Outcomes are told of some answers rather
    than others, of wrong ones alone, say: there, 10 of either kind are asked for.
    """
    pairs = correctness_by_support(rule, questions, row, _statistic(prior))
    of_right, labels = sum(right for _, right in pairs), sum(bool(one.right) for one in questions)
    if len(pairs) < 2 or (labels < _ENOUGH_DECISIONS and min(of_right, len(pairs) - of_right) < _FEWEST_KNOWN):
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)


def _statistic(prior: Prior | None) -> _Statistic:
    return partial(support, share=prior.share) if prior else support


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

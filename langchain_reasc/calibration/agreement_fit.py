"""Learn how answers agree, and what scores tell of it, without labels.

``fit_agreement`` fits the prior of the agreement rule and its score model to the
questions that were asked, by expectation-maximisation. The component c of a question
and K (see :class:`~.agreement.Agreement`) are not known::

    E: r(c, k) ∝ w_c · EPPF_c(counts) · P(K = k | counts, c) · N(scores | c, k)
    M: w_c is the mean of r; a, b and δ by least squares with a ridge; σ_q² and σ_a² by
       their expected squares; σ_r² once, from responses with the same answer

When sampling stopped depends on the counts and scores that were seen, so it cancels
out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from langchain_reasc.calibration.auroc import Floats
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.method.agreement import (
    LARGEST_HORIZON,
    Prior,
    default_components,
    final_answers,
    likelihood,
    likelihoods,
    scored_horizon,
)
from langchain_reasc.method.score_model import AnswerScores, Moments, ScoreModel

__all__ = ["fit_agreement", "fit_prior"]

_PSEUDO_QUESTIONS: Final = 8.0
"""Weight of the uniform mixture, so that a few questions rule nothing out."""
_PSEUDO_QUESTIONS_OF_ALL: Final = 16.0
"""Weight of the mixture of all kinds of request in that of one kind."""
_ROUNDS: Final = 100
_SCORE_ROUNDS: Final = 60
_TOLERANCE: Final = 1e-4
_FEWEST_SCORES: Final = 8
_KNOTS: Final = 33
_RAREST: Final = 0.005  # rank of the lowest and of the highest score
_RIDGE: Final = (0.01, 4.0, 1.0)
"""Precisions of the normal priors of a, b and δ, whose means are 0."""


def fit_agreement(
    questions: Sequence[Observation],
    row: int | None,
    *,
    budget: int,
    towards: Prior | None = None,
    fixed: ScoreModel | None = None,
) -> tuple[Prior, ScoreModel | None]:
    """Return the prior and the score model that make answers and scores most probable.

    Args:
        questions: the questions, each with an answer.
        row: the row of scores that is read; None for none.
        budget: responses to a question at most.
        towards: the prior that few questions are shrunk towards; None for a uniform
            one.
        fixed: a score model that is known, so that only the prior is fitted.

    Returns:
        The score model is None without scores, or if all scores are equal.
    """
    knots = None
    if fixed is not None:
        knots = fixed.knots
    elif row is not None:
        knots = _knots(questions, row)
    if row is None or knots is None:
        return fit_prior([question.answers for question in questions], towards), None
    at, normal = np.array(knots).T
    data = _Data.of(
        [
            _rows(question.answers, np.interp(question.scores[row], at, normal), budget)
            for question in questions
        ]
    )
    before, pseudo = _before(towards)
    begin = fixed or _first_model(data, knots)
    return _maximise(data, begin, before, pseudo, is_fixed=fixed is not None)


def fit_prior(
    answers: Sequence[Iterable[int | str | None]], towards: Prior | None = None
) -> Prior:
    """Return the weights of the default components that make these answers most
    probable.

    Args:
        answers: for each question, one number or text per response, equal for equal
            answers; None for no answer.
        towards: the prior that few questions are shrunk towards; None for a uniform
            one.
    """
    grid = default_components()
    counts: Counter[tuple[int, ...]] = Counter()
    for of_question in answers:
        votes = Counter(answer for answer in of_question if answer is not None)
        counts[tuple(sorted(votes.values(), reverse=True))] += 1
    # Questions without a vote show no agreement.
    del counts[()]
    before, pseudo = _before(towards)
    weights = before
    if counts:
        distinct = sorted(counts, key=str)
        times = np.array([counts[case] for case in distinct])
        likely = likelihoods(distinct, grid)
        for _ in range(_ROUNDS):
            joint = likely * weights
            belongs = joint / joint.sum(axis=1, keepdims=True)
            weights = (times @ belongs + pseudo * before) / (counts.total() + pseudo)
    return _prior(weights)


def _before(towards: Prior | None) -> tuple[Floats, float]:
    """Return the weights before any question, and how many questions they count as."""
    components = len(default_components())
    if towards is None:
        return np.full(components, 1 / components), _PSEUDO_QUESTIONS
    return np.array(towards.weights), _PSEUDO_QUESTIONS_OF_ALL


def _prior(weights: Floats) -> Prior:
    return Prior(default_components(), tuple((weights / weights.sum()).tolist()))


def _knots(
    questions: Sequence[Observation], row: int
) -> tuple[tuple[float, float], ...] | None:
    """Return scores with the normal deviates of their ranks; None if all are equal, or
    if they are too few.
    """
    from scipy.special import ndtri

    found: list[float] = []
    for question in questions:
        scored = zip(question.answers, question.scores[row].tolist(), strict=True)
        for answer, score in scored:
            if answer is not None and np.isfinite(score):
                found.append(score)
    scores = np.sort(found)
    if scores.size < _FEWEST_SCORES or scores[0] == scores[-1]:
        return None
    knots = np.unique(np.quantile(scores, np.linspace(0, 1, _KNOTS)))
    below = np.searchsorted(scores, knots, "left")
    through = np.searchsorted(scores, knots, "right")
    ranks = ((below + through) / 2 + 0.5) / (scores.size + 1)
    normal = ndtri(np.clip(ranks, _RAREST, 1 - _RAREST))
    return tuple(zip(knots.tolist(), normal.tolist(), strict=True))


class _Question(NamedTuple):
    """The answers to a question as rows, most votes first, and last all other answers.

    Attributes:
        number: how many responses with the answer have a score.
        total: the sum of their normal scores.
        squares: the sum of all squared normal scores.
        log_answers: shape (rows, components), log EPPF_c(counts) · P(K = the row's
            answer | counts, c).
    """

    number: list[float]
    total: list[float]
    squares: float
    log_answers: Floats


def _rows(answers: Sequence[int | None], scores: Floats, budget: int) -> _Question:
    """Return the rows of a question.

    Args:
        answers: its answers; those after the 24th vote are left out.
        scores: their normal scores, NaN for none.
        budget: responses to a question at most.
    """
    components = default_components()
    votes = Counter[int]()
    number = Counter[int]()
    total: dict[int, float] = defaultdict(float)
    squares = 0.0
    for answer, score in zip(answers, scores.tolist(), strict=True):
        if answer is None or votes.total() == LARGEST_HORIZON:
            continue
        votes[answer] += 1
        if np.isfinite(score):
            number[answer] += 1
            total[answer] += score
            squares += score**2
    ranked = [answer for answer, _ in votes.most_common()]
    counts = tuple(votes[answer] for answer in ranked)
    horizon = scored_horizon(budget, sum(counts))
    final = final_answers(counts, horizon, components)
    joint = likelihood(counts, components) * final
    return _Question(
        [*(float(number[answer]) for answer in ranked), 0.0],
        [*(float(total[answer]) for answer in ranked), 0.0],
        squares,
        np.log(np.maximum(joint, 1e-300)),
    )


@dataclass(frozen=True, slots=True)
class _Data:
    """The rows of all questions: see :class:`_Question`."""

    scores: AnswerScores
    squares: float
    log_answers: Floats

    @classmethod
    def of(cls, questions: Sequence[_Question]) -> "_Data":
        sizes = [len(question.number) for question in questions]
        starts = np.cumsum([0, *sizes[:-1]])
        scores = AnswerScores(
            starts.astype(np.intp),
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([question.number for question in questions]),
            np.concatenate([question.total for question in questions]),
        )
        squares = sum(question.squares for question in questions)
        return cls(
            scores,
            squares,
            np.concatenate([question.log_answers for question in questions]),
        )


def _maximise(
    data: _Data, model: ScoreModel, before: Floats, pseudo: float, *, is_fixed: bool
) -> tuple[Prior, ScoreModel]:
    scores = data.scores
    questions = scores.starts.size
    agreement = _prior(before).agreement
    weights = before
    for _ in range(_SCORE_ROUNDS):
        before_round = model
        moments = scores.moments(model.answer_variance, model.response_variance)
        log_joint = data.log_answers + np.log(np.maximum(weights, 1e-300))
        log_joint += model.log_likelihoods(scores, agreement, moments)
        belongs = _normalised(log_joint, scores)
        if not is_fixed:
            model = _updated(model, scores, moments, belongs, agreement)
        weights = (belongs.sum(axis=0) + pseudo * before) / (questions + pseudo)
        if not is_fixed and _is_close(model, before_round):
            break
    return _prior(weights), model


def _is_close(model: ScoreModel, other: ScoreModel) -> bool:
    for name in ("intercept", "of_questions", "of_answers", "answer_variance"):
        if abs(getattr(model, name) - getattr(other, name)) > _TOLERANCE:
            return False
    return True


def _normalised(log_joint: Floats, scores: AnswerScores) -> Floats:
    """Return r(c, k): each question sums to 1 over its rows and the components."""
    highest = np.maximum.reduceat(log_joint.max(axis=1), scores.starts)
    joint = np.exp(log_joint - highest[scores.question, None])
    return np.asarray(joint / scores.sums(joint.sum(axis=1))[:, None])


def _first_model(data: _Data, knots: tuple[tuple[float, float], ...]) -> ScoreModel:
    """Return the score model to begin with. Its σ_r² stays: it is that of responses to
    a question which give the same answer.
    """
    scores = data.scores
    number = np.maximum(scores.number, 1.0)
    squares = data.squares - (scores.total**2 / number).sum()
    freedom = (number - 1).sum()
    # As if two more responses had a variance of .3.
    variance = (max(float(squares), 0.0) + 2 * 0.3) / (float(freedom) + 2)
    return ScoreModel(knots, 0.0, 0.0, 0.0, 0.7, 0.1, max(0.01, variance))


def _updated(
    model: ScoreModel,
    scores: AnswerScores,
    moments: Moments,
    belongs: Floats,
    agreement: Floats,
) -> ScoreModel:
    """Return the score model that makes the scores most probable, given r(c, k)."""
    _, share, _, total, mean = moments
    of_row = belongs.sum(axis=1)
    variance = model.question_variance + 1 / total
    is_scored = total > 1e-9
    weight = np.where(is_scored, 1 / variance, 0.0)
    intercept, slope, delta = _least_squares(weight, moments, belongs, agreement)
    # E[(the question's mean score minus what its component expects)²], by row.
    expected = intercept + slope * agreement
    centre = mean - delta * share
    squares = of_row * centre**2 - 2 * centre * (belongs @ expected)
    squares += belongs @ expected**2
    # E[u²], given the scores.
    shrinkage = model.question_variance / variance
    effects = (
        shrinkage**2 * squares + model.question_variance * (1 - shrinkage) * of_row
    )
    # As if four more questions had a variance of .5.
    question_variance = (effects[is_scored].sum() + 4 * 0.5) / (
        of_row[is_scored].sum() + 4
    )
    return replace(
        model,
        intercept=float(intercept),
        of_questions=float(slope),
        of_answers=float(delta),
        question_variance=max(0.02, float(question_variance)),
        answer_variance=_answer_variance(model, scores, moments, of_row, delta),
    )


def _answer_variance(
    model: ScoreModel,
    scores: AnswerScores,
    moments: Moments,
    of_row: Floats,
    delta: float,
) -> float:
    """Return σ_a², multiplied by how much larger the deviations of answers are than
    expected (a fixed point of its REML equation).
    """
    precision, share, deviation, _, _ = moments
    squared = scores.sums(precision**2 * deviation**2)
    crossed = scores.sums(precision**2 * deviation)
    alone = scores.sums(precision**2)
    found = squared - 2 * delta * (precision**2 * deviation - share * crossed)
    found += delta**2 * (precision**2 * (1 - 2 * share) + share**2 * alone)
    expected = scores.sums(precision * (1 - share))
    ratio = (of_row @ found + 2.0) / (of_row @ expected + 2.0)
    return min(2.0, max(1e-4, float(model.answer_variance * ratio)))


def _least_squares(
    weight: Floats, moments: Moments, belongs: Floats, agreement: Floats
) -> Any:
    """Return a, b and δ by generalized least squares with a ridge.

    Args:
        weight: shape (rows,), the precision of the question's mean score.
        moments: the scores.
        belongs: shape (rows, components), r(c, k).
        agreement: shape (components,), g_c.
    """
    precision, share, deviation, _, mean = moments
    of_row = belongs.sum(axis=1)
    design = np.stack([np.ones_like(agreement), agreement], axis=1)
    of_component = weight @ belongs
    crossed = design.T @ ((weight * share) @ belongs)
    matrix = np.diag(_RIDGE)
    matrix[:2, :2] += design.T @ (of_component[:, None] * design)
    matrix[:2, 2] += crossed
    matrix[2, :2] += crossed
    within = precision * (1 - share)
    matrix[2, 2] += of_row @ (weight * share**2 + within)
    goal = np.empty(3)
    goal[:2] = design.T @ ((weight * mean) @ belongs)
    goal[2] = of_row @ (weight * share * mean + precision * deviation)
    return np.linalg.solve(matrix, goal)

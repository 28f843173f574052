"""Scores in the posterior of the agreement rule: what the score of a response tells of
its question, and of its answer.

A question has a component c of the prior, and K is the answer that the whole budget
would give. The normal score of a response with answer x is::

    z = a + b g_c + δ [x = K] + u + v_x + e
    u ~ N(0, σ_q²),  v ~ N(0, σ_a²),  e ~ N(0, σ_r²)

g_c is the logit of how often two answers of the component agree. b says what scores
tell of questions, and δ what they tell of the responses to one question. u is the
effect of the question, and v that of an answer: responses with the same answer have
similar scores, which must not count twice. If b = δ = 0, scores change nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["AnswerScores", "Moments", "ScoreModel"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
_NO_PRECISION = 1e-12  # of a question without any score


class Moments(NamedTuple):
    """The scores of each answer, beside those of its question; each of shape (rows,).

    Attributes:
        precision: 1 / variance of the answer's mean score, given the question's effect;
            0 without a score.
        share: its share of the precision of the question.
        deviation: the answer's mean score minus that of the question.
        total: the precision of the question's mean score.
        mean: the mean score of the question.
    """

    precision: Floats
    share: Floats
    deviation: Floats
    total: Floats
    mean: Floats


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """The normal scores of the answers to some questions.

    A row is an answer that was given. The last row of each question stands for all
    other answers, and has no scores.

    Attributes:
        starts: shape (questions,), the first row of each question.
        question: shape (rows,), the question of each row.
        number: shape (rows,), how many responses with this answer have a score.
        total: shape (rows,), the sum of their normal scores.
    """

    starts: Integers
    question: Integers
    number: Floats
    total: Floats

    @classmethod
    def of_question(
        cls, number: Sequence[float], total: Sequence[float]
    ) -> "AnswerScores":
        """Return the scores of one question."""
        return cls(
            np.zeros(1, dtype=np.intp),
            np.zeros(len(number), dtype=np.intp),
            np.asarray(number, dtype=np.float64),
            np.asarray(total, dtype=np.float64),
        )

    def sums(self, values: Floats) -> Floats:
        """Return for each row the sum over the rows of its question."""
        return np.asarray(np.add.reduceat(values, self.starts)[self.question])

    def moments(self, of_answer: float, of_response: float) -> Moments:
        """Return the moments, given the variances σ_a² and σ_r²."""
        number = np.maximum(self.number, 1.0)
        means = self.total / number
        scored = self.number > 0
        precision = np.where(scored, 1 / (of_answer + of_response / number), 0.0)
        total = np.maximum(self.sums(precision), _NO_PRECISION)
        mean = self.sums(precision * means) / total
        deviation = np.where(scored, means - mean, 0.0)
        return Moments(precision, precision / total, deviation, total, mean)


@dataclass(frozen=True)
class ScoreModel:
    """How the normal scores of responses depend on agreement.

    Attributes:
        knots: (score, normal score), scores strictly ascending. Between them the normal
            score is linear, and beyond them constant.
        intercept: a.
        of_questions: b, per unit of the logit of agreement.
        of_answers: δ, by which the scores of the answer K are higher.
        question_variance: σ_q².
        answer_variance: σ_a².
        response_variance: σ_r².

    Raises:
        ConfigurationError: the scores are not ascending, or a variance is not above 0.
    """

    knots: tuple[tuple[float, float], ...]
    intercept: float
    of_questions: float
    of_answers: float
    question_variance: float
    answer_variance: float
    response_variance: float

    def __post_init__(self) -> None:
        scores = [score for score, _ in self.knots]
        ascending = all(low < high for low, high in pairwise(scores))
        if len(scores) < 2 or not ascending:
            raise ConfigurationError(
                "a score model has two or more knots with strictly ascending scores, "
                f"got {scores[:5]}"
            )
        variances = (
            self.question_variance,
            self.answer_variance,
            self.response_variance,
        )
        if not min(variances) > 0:
            raise ConfigurationError(
                f"the variances of a score model must be above 0, got {variances}"
            )

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        scores, normal_scores = np.array(self.knots).T
        return scores, normal_scores

    def normal_scores(self, scores: Sequence[float]) -> Floats:
        """Return the normal scores of responses, shape (responses,)."""
        return np.asarray(np.interp(scores, *self._knots))

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the largest score that were seen."""
        return self.knots[0][0], self.knots[-1][0]

    def log_likelihoods(
        self, scores: AnswerScores, agreement: Floats, moments: Moments | None = None
    ) -> Floats:
        """Return log N(scores | c, K = the answer of the row), up to a constant of the
        question; shape (rows, components).

        Args:
            scores: the normal scores.
            agreement: shape (components,), g_c.
            moments: those of the scores, if they are known.
        """
        if moments is None:
            moments = scores.moments(self.answer_variance, self.response_variance)
        delta = self.of_answers
        expected = self.intercept + self.of_questions * agreement
        residual = (moments.mean - delta * moments.share)[:, None] - expected
        variance = self.question_variance + 1 / moments.total
        # Of a question without any score, the variance is 1e12.
        of_question = -0.5 * residual**2 / variance[:, None]
        of_answer = moments.precision * delta * moments.deviation
        of_answer -= 0.5 * delta * delta * moments.precision * (1 - moments.share)
        return np.asarray(of_question + of_answer[:, None])

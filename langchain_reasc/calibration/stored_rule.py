"""The parts of a calibration file from which stopping rules and probabilities are made:
priors, score models, curves.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from langchain_reasc.calibration.parts import Positive, Probability, Record
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.agreement import Agreement, Component, Prior
from langchain_reasc.method.score_model import ScoreModel

__all__ = ["RuleBlock", "ScorePart", "SupportCurve"]


class PriorPart(Record):
    """A component of the prior on how answers agree: a Pitman–Yor process, or a
    Dirichlet if discount is negative.
    """

    discount: Annotated[FiniteFloat, Field(lt=1)]
    concentration: FiniteFloat
    weight: Probability

    @model_validator(mode="after")
    def _is_a_process(self) -> Self:
        if self.concentration <= -self.discount:
            raise ValueError(
                f"concentration must be above -discount ({-self.discount:g})"
            )
        return self


class ScorePart(Record):
    """What the scores of responses tell of agreement: see
    :class:`~langchain_reasc.method.score_model.ScoreModel`.

    Attributes:
        knots: (score, normal score), both rising.
        intercept: a.
        of_questions: b.
        of_answers: δ.
        question_variance: σ_q².
        answer_variance: σ_a².
        response_variance: σ_r².
    """

    knots: tuple[tuple[FiniteFloat, FiniteFloat], ...]
    intercept: FiniteFloat
    of_questions: FiniteFloat
    of_answers: FiniteFloat
    question_variance: Positive
    answer_variance: Positive
    response_variance: Positive

    @model_validator(mode="after")
    def _makes_a_model(self) -> Self:
        try:
            self.model()
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    def model(self) -> ScoreModel:
        """Return the score model."""
        return ScoreModel(**dict(self))


class RuleBlock(Record):
    """The agreement rule.

    Attributes:
        name: the rule's name.
        threshold: θ.
        prior: how answers agree.
        scores: what scores tell of agreement; null if only answers count.
    """

    name: Literal["agreement"] = "agreement"
    threshold: FiniteFloat
    prior: tuple[PriorPart, ...]
    scores: ScorePart | None = None

    @classmethod
    def agreement(
        cls, prior: Prior, threshold: float, scores: ScoreModel | None = None
    ) -> Self:
        """Return the block of a rule."""
        part = None
        if scores is not None:
            part = ScorePart(
                **{field.name: getattr(scores, field.name) for field in fields(scores)}
            )
        return cls(threshold=threshold, prior=prior_parts(prior), scores=part)

    def with_prior(self, prior: Prior) -> Self:
        """Return a copy with another prior."""
        return self.model_copy(update={"prior": prior_parts(prior)})

    @property
    def agreement_prior(self) -> Prior:
        """How answers agree."""
        return _prior_from(self.prior)

    @model_validator(mode="after")
    def _makes_a_rule(self) -> Self:
        try:
            # The rule itself checks the ranges of its parameters.
            self.rule(budget=1)
        except ConfigurationError as error:
            raise ValueError(
                f"these are not parameters of the agreement rule: {error}"
            ) from None
        return self

    def rule(self, *, budget: int) -> Agreement:
        """Return the stopping rule; see :meth:`Calibration.rule`.

        Raises:
            ConfigurationError: a parameter is out of its range.
        """
        scores = None if self.scores is None else self.scores.model()
        return Agreement(self.agreement_prior, self.threshold, budget, scores)


def prior_parts(prior: Prior) -> tuple[PriorPart, ...]:
    """Return a prior as the parts that a calibration file stores."""
    parts = []
    for component, weight in zip(prior.components, prior.weights, strict=True):
        discount, concentration = component
        parts.append(
            PriorPart(discount=discount, concentration=concentration, weight=weight)
        )
    return tuple(parts)


# Cached, because rules with equal priors share the tables that each prior caches.
@lru_cache(maxsize=128)
def _prior_from(parts: tuple[PriorPart, ...]) -> Prior:
    return Prior(
        tuple(Component(part.discount, part.concentration) for part in parts),
        tuple(part.weight for part in parts),
    )


class SupportCurve(Record):
    """The probability that an answer is right, by the support of its decision.

    Attributes:
        statistic: what the curve reads of a decision: see
            :func:`~langchain_reasc.method.decision.support`.
        points: (support, probability), both rising. Between them the curve is linear,
            outside of them constant.
        low: the lower ends of 95 % intervals of these probabilities.
        high: their upper ends.
        n: decisions that it was fitted on.
        right: share of them that were right.
        rule: the rule that decided; null if the curve holds for any rule.
    """

    statistic: Literal["support"] = "support"
    points: Annotated[tuple[tuple[FiniteFloat, Probability], ...], Field(min_length=1)]
    low: tuple[Probability, ...]
    high: tuple[Probability, ...]
    n: int = Field(ge=2)
    right: Probability
    rule: str | None = None

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for before, after in pairwise(self.points):
            if not (before[0] < after[0] and before[1] <= after[1]):
                raise ValueError(
                    f"the probability rises with the support, but {after} comes after "
                    f"{before}"
                )
        if not len(self.low) == len(self.high) == len(self.points):
            raise ValueError(
                f"{len(self.points)} points have {len(self.low)} lower and "
                f"{len(self.high)} upper ends"
            )
        return self

    def probability(self, support: float) -> float:
        """Return the probability at this support."""
        return self._at(support, [probability for _, probability in self.points])

    def interval(self, support: float) -> tuple[float, float]:
        """Return the 95 % interval of the probability at this support."""
        return self._at(support, self.low), self._at(support, self.high)

    def _at(self, support: float, values: Sequence[float]) -> float:
        supports = [at for at, _ in self.points]
        return float(np.interp(support, supports, values))

    def holds_for(self, rule: str) -> bool:
        """Whether it was fitted on decisions of the rule of this name."""
        return self.rule in (None, rule)

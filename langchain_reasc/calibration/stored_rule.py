"""The parts of a calibration file from which stopping rules and probabilities are made:
priors, odds, curves.
"""

import math
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, field_validator, model_validator

from langchain_reasc.calibration.parts import Probability, Record
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.agreement import Agreement, Component, Prior
from langchain_reasc.method.bayesian_vote import BayesianVote, PointOdds
from langchain_reasc.method.decision import Decision, support
from langchain_reasc.method.stopping import StoppingRule
from langchain_reasc.models.settings import without

__all__ = ["RuleBlock", "SupportCurve", "prior_parts"]

Parameter = Literal["threshold", "vote_threshold", "alternatives", "average"]


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


class KnownOdds(Record):
    """The probability that a response with this score is right, or agrees with the
    majority.
    """

    score: FiniteFloat
    p: Annotated[FiniteFloat, Field(gt=0, lt=1)]


class RuleBlock(Record):
    """The agreement rule.

    Attributes:
        name: the rule's name.
        parameters: ``threshold``; with odds also ``vote_threshold`` and
            ``alternatives`` of the Bayesian vote, and ``average``, the probability of a
            response without a score.
        prior: how answers agree.
        odds: P(right) at some scores, ascending. Between them the log-odds are
            interpolated linearly.
    """

    name: Literal["agreement"] = "agreement"
    parameters: dict[Parameter, FiniteFloat]
    prior: tuple[PriorPart, ...]
    odds: tuple[KnownOdds, ...] = ()

    @classmethod
    def agreement(
        cls, prior: Prior, odds: PointOdds | None = None, **parameters: float
    ) -> Self:
        """Return the block for a prior. With ``odds``, votes are also weighed as in a
        Bayesian vote.

        Args:
            prior: how answers agree.
            odds: log-odds by score.
            parameters: all but ``average``.
        """
        stored = []
        if odds is not None:
            parameters["average"] = _probability(odds.average)
            for score, log_odds in odds.points:
                stored.append(KnownOdds(score=score, p=_probability(log_odds)))
        return cls(parameters=parameters, prior=prior_parts(prior), odds=tuple(stored))

    def with_prior(self, prior: Prior) -> Self:
        """Return a copy with another prior."""
        return self.model_copy(update={"prior": prior_parts(prior)})

    @property
    def agreement_prior(self) -> Prior:
        """How answers agree."""
        return _prior_from(self.prior)

    @field_validator("parameters", mode="before")
    @classmethod
    def _without_worth(cls, parameters: Any) -> Any:
        """Drop what earlier versions stored of a second stop."""
        if not isinstance(parameters, dict):
            return parameters
        return without(parameters, {"worth"})

    @field_validator("parameters")
    @classmethod
    def _average_has_odds(
        cls, parameters: dict[Parameter, float]
    ) -> dict[Parameter, float]:
        average = parameters.get("average")
        if average is not None and not 0 < average < 1:
            raise ValueError(f"average must be above 0 and below 1, got {average:g}")
        return parameters

    @model_validator(mode="after")
    def _makes_a_rule(self) -> Self:
        try:
            # The rule itself checks the ranges of its parameters.
            self.rule(budget=1)
        except (ConfigurationError, KeyError) as error:
            raise ValueError(
                f"these are not parameters of the agreement rule: {error}"
            ) from None
        return self

    def rule(
        self, *, budget: int, on_missing_confidence: Literal["error", "count"] = "error"
    ) -> StoppingRule:
        """Return the stopping rule; see :meth:`Calibration.rule`.

        Raises:
            ConfigurationError: a parameter is out of its range.
        """
        vote = None
        if self.odds:
            points = tuple((odds.score, _log_odds(odds.p)) for odds in self.odds)
            vote = BayesianVote(
                PointOdds(points, _log_odds(self.parameters["average"])),
                self.parameters["vote_threshold"],
                alternatives=self.parameters["alternatives"],
                on_missing_confidence=on_missing_confidence,
            )
        return Agreement(
            self.agreement_prior, self.parameters["threshold"], budget, vote
        )


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


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _log_odds(p: float) -> float:
    return math.log(p / (1 - p))


class SupportCurve(Record):
    """The probability that an answer is right, or agrees with further responses, by the
    support of its decision.

    Attributes:
        statistic: what the curve reads of a decision: the winner's expected share, see
            :meth:`support`.
        prior: how answers agree, from which the share is computed; if empty, the share
            is (v + 1)/(Σv + 2).
        points: (support, probability), both rising. Between them the curve is linear,
            outside of them constant.
        n: decisions that it was fitted on.
        right: share of them that were right, or that agreed.
        rule: the rule that decided; null if the curve holds for any rule.
    """

    statistic: Literal["support"] = "support"
    prior: tuple[PriorPart, ...] = ()
    points: Annotated[tuple[tuple[FiniteFloat, Probability], ...], Field(min_length=1)]
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
        return self

    def support(self, decision: Decision) -> float | None:
        """Return the support of a decision as the curve reads it; None without any
        vote.

        The prior shrinks a share of few votes towards that of other questions. So the
        curve also holds for decisions on more votes than it was fitted on: 8 of 16 mean
        more than 2 of 4.
        """
        # Weighed votes have no prior.
        if not self.prior:
            return support(decision)
        return support(decision, _prior_from(self.prior).share)

    def probability(self, support: float) -> float:
        """Return the probability at this support."""
        supports, probabilities = zip(*self.points, strict=True)
        return float(np.interp(support, supports, probabilities))

    def holds_for(self, rule: str) -> bool:
        """Whether it was fitted on decisions of the rule of this name."""
        return self.rule in (None, rule)

"""The block of a calibration file that holds a stopping rule other than ReASC, with what was learned for it."""

import math
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from langchain_reasc.calibration.records import Named, Probability, Record
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.bayesian_vote import BayesianVote
from langchain_reasc.method.odds import PointOdds
from langchain_reasc.method.partitions import Component, Prior
from langchain_reasc.method.rules import rule_named
from langchain_reasc.method.stopping import StoppingRule

__all__ = ["KnownOdds", "PriorPart", "RuleBlock"]


class PriorPart(Record):
    """A component of the prior on how answers agree: a Pitman–Yor process; discount below 0: a Dirichlet."""

    discount: Annotated[FiniteFloat, Field(lt=1)]
    concentration: FiniteFloat
    weight: Probability


class KnownOdds(Record):
    """How likely a response is right, or agrees with the majority, at one score."""

    score: FiniteFloat
    p: Annotated[FiniteFloat, Field(gt=0, lt=1)]


class RuleBlock(Named):
    """The stopping rule that the file was made for, by its name, with its parameters and what it has learned."""

    prior: tuple[PriorPart, ...] = Field(default=(), description="How answers agree; of the rule agreement.")
    odds: tuple[KnownOdds, ...] = Field(
        default=(), description="P(right) at some scores, ascending, straight lines of log-odds between them."
    )

    @classmethod
    def agreement(
        cls,
        *,
        threshold: float,
        prior: Prior,
        odds: PointOdds | None = None,
        vote_threshold: float = 0.99,
        alternatives: float = 1.0,
    ) -> Self:
        """The agreement rule as it was learned; with odds, its votes weigh by a score, too, as in a Bayesian vote."""
        parts = zip(prior.components, prior.weights, strict=True)
        voted = {"vote_threshold": vote_threshold, "alternatives": alternatives}
        voting = {} if odds is None else {**voted, "average": _p(odds.average)}
        return cls(
            name=Agreement.called,
            parameters={"threshold": threshold, **voting},
            prior=tuple(PriorPart(discount=d, concentration=a, weight=weight) for (d, a), weight in parts),
            odds=() if odds is None else tuple(KnownOdds(score=score, p=_p(logit)) for score, logit in odds.points),
        )

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            self.made(budget=1)
        except (ConfigurationError, KeyError, TypeError) as error:
            raise ValueError(f"no rule {self.name} can be made of this: {error}") from None
        return self

    def made(self, *, budget: int, on_missing_confidence: Literal["error", "count"] = "error") -> StoppingRule:
        """The rule itself.

        Raises:
            ConfigurationError: there is no such rule, or it has no such parameters.
        """
        if self.name != Agreement.called:
            return rule_named(self.name, self.parameters)
        components = tuple(Component(part.discount, part.concentration) for part in self.prior)
        prior = _prior(components, tuple(part.weight for part in self.prior))
        parameters: dict[str, Any] = dict(self.parameters)
        vote = None
        if self.odds:
            points = tuple((known.score, _logit(known.p)) for known in self.odds)
            vote = BayesianVote(
                PointOdds(points, average=_logit(parameters["average"])),
                parameters["vote_threshold"],
                alternatives=parameters["alternatives"],
                on_missing_confidence=on_missing_confidence,
            )
        return Agreement(prior, parameters["threshold"], budget, vote)


@lru_cache(maxsize=16)
def _prior(components: tuple[Component, ...], weights: tuple[float, ...]) -> Prior:
    """The prior of these weights, once: it keeps what it has worked out, and a rule is made for every question."""
    return Prior(components, weights)


def _p(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _logit(p: float) -> float:
    return math.log(p / (1 - p))

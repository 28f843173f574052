"""Parts of a calibration file: the gate, the AUROC, the mixture, what to expect, and
the measures that were not chosen.

The models read like the JSON file.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from langchain_reasc.method.confidence import SCORES, SPAN_SCORES
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED

__all__ = [
    "AUROC",
    "Expectation",
    "Gate",
    "Mixture",
    "Positive",
    "Probability",
    "Record",
    "RejectedMeasure",
]

Positive = Annotated[FiniteFloat, Field(gt=0)]
"""A finite number above 0."""
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]
"""A number in [0, 1]."""


class Record(BaseModel):
    """A part of a calibration file. It is immutable and rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Gate(Record):
    """The score at which the first response is accepted alone: the paper's threshold
    and a safe one.

    Attributes:
        threshold: the paper's τ_gate, the larger of its two parts; null if the gate is
            closed.
        mean_part: mean score of correct responses (offline) or of the mixture's upper
            component.
        target_part: smallest score whose accuracy (offline) or mixture posterior
            reaches p_target.
        closed_because: why the gate is closed.
        level: 1 - δ, the confidence level of the safe threshold; null if no safe
            threshold was computed.
        safe_threshold: smallest threshold that passes at this level, at least
            mean_part; null if none passes.
        accepted: how many calibration responses the safe threshold accepts.
        lower_bound: Clopper-Pearson lower bound of their accuracy, at this level.
        safe_closed_because: why no threshold passes.
    """

    threshold: FiniteFloat | None
    mean_part: FiniteFloat | None = None
    target_part: FiniteFloat | None = None
    closed_because: str | None = None
    level: Probability | None = None
    safe_threshold: FiniteFloat | None = None
    accepted: int | None = Field(default=None, ge=1)
    lower_bound: Probability | None = None
    safe_closed_because: str | None = None

    @model_validator(mode="after")
    def _open_or_explained(self) -> Self:
        if (self.threshold is None) == (self.closed_because is None):
            raise ValueError(
                "a gate has either a threshold or a reason for being closed"
            )
        safe = (
            self.level,
            self.safe_threshold,
            self.accepted,
            self.lower_bound,
            self.safe_closed_because,
        )
        # Without a safe gate, with an open one, or with a closed one.
        has_value = [value is not None for value in safe]
        if has_value not in (
            [False] * 5,
            [True] * 4 + [False],
            [True, False, False, False, True],
        ):
            raise ValueError(
                "a gate with a level has either safe_threshold, accepted and "
                "lower_bound, or safe_closed_because"
            )
        return self

    @property
    def in_use(self) -> tuple[float | None, str | None]:
        """The threshold that applies (the safe one if it was computed), or None and the
        reason.
        """
        if self.level is None:
            return self.threshold, self.closed_because
        return self.safe_threshold, self.safe_closed_because

    def as_in_paper(self) -> Self:
        """Return the gate without the safe threshold."""
        safe = (
            "level",
            "safe_threshold",
            "accepted",
            "lower_bound",
            "safe_closed_because",
        )
        return self.model_copy(update=dict.fromkeys(safe))


class Mixture(Record):
    """The Gaussian mixture of Algorithm 2, lower component first.

    Attributes:
        weights: weights of the two components.
        means: their means.
        stds: their standard deviations.
        converged: whether the fit converged.
        aic: number of components -> AIC (lower is better).
        bic: number of components -> BIC (lower is better).
    """

    weights: tuple[Probability, Probability]
    means: tuple[FiniteFloat, FiniteFloat]
    stds: tuple[Positive, Positive]
    converged: bool
    aic: dict[int, FiniteFloat]
    bic: dict[int, FiniteFloat]

    @property
    def one_group(self) -> str | None:
        """Say that BIC prefers a single component; None if it does not."""
        if self.bic[1] > self.bic[2]:
            return None
        return (
            f"BIC prefers one component ({self.bic[1]:.1f}) to two "
            f"({self.bic[2]:.1f}): no second group to find"
        )


class AUROC(Record):
    """How well the score separates correct from wrong responses, with its interval.

    Attributes:
        value: P(S(right) > S(wrong)), ties counting half.
        low: lower end of the interval.
        high: upper end of the interval.
        cross_validated: with ``measure="auto"``, AUROC on held-out folds of the measure
            chosen on the others.
    """

    value: Probability
    low: Probability
    high: Probability
    cross_validated: Probability | None = None


class RejectedMeasure(Record):
    """A measure that was not chosen.

    Attributes:
        signal: its token signal.
        score: its score over that signal.
        window: tokens per group.
        auroc: its AUROC.
        behind: the chosen measure's AUROC minus this one's.
    """

    signal: Literal[(*SIGNALS, VERBALIZED)]  # type: ignore[valid-type]
    score: Literal[(*SCORES, *SPAN_SCORES)]  # type: ignore[valid-type]
    window: int = Field(ge=1)
    auroc: Probability
    behind: FiniteFloat


class Expectation(Record):
    """What to expect of the rule of a calibration, on questions like those that it was
    made of.

    Attributes:
        samples: responses to a question, in the mean; null if the questions had one
            response each.
        uncalibrated: the same by the rule that decides without a calibration.
        budget: responses to a question at most.
        unanswered: share of the responses in which no answer was found.
        cut_off: share of the responses that were cut off before their answer; null if
            unknown.
        all_equal: whether no question had two different answers.
    """

    samples: Positive | None
    uncalibrated: Positive | None
    budget: int = Field(ge=1)
    unanswered: Probability
    cut_off: Probability | None = None
    all_equal: bool

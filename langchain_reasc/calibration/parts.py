"""The parts of a calibration: what it holds for, its gate, its mixture, how far its measure separates."""

from itertools import pairwise
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from langchain_reasc.calibration.records import Named, Positive, Probability, Record

__all__ = [
    "AUROC",
    "Fingerprint",
    "Gate",
    "HashedPart",
    "MeasureBlock",
    "Mixture",
    "RejectedMeasure",
    "Safeguard",
    "SupportCurve",
]

Safeguard = Literal["default", "paper"]
"""What decides on labels: ``default`` lets a gate, a weight or a measure count only where the data vouch for it;
``paper`` takes Algorithm 1 as it stands."""


class HashedPart(Record):
    """A part of what a model is asked, known again by its hash; ``shown`` tells a person what it was."""

    shown: str = Field(description="What it was, in words: the names of tools, the roles of messages.")
    sha256: str | None = Field(
        default=None, description="SHA-256 of its canonical form; null where there was no such part."
    )

    def __str__(self) -> str:
        return self.shown if self.sha256 is None else f"{self.shown} ({self.sha256[:12]})"


class Fingerprint(Record):
    """What the calibration was measured on. None means unknown, and an unknown field is never compared."""

    model: str | None = Field(default=None, description="Model name, or the file name of a local model.")
    model_sha256: str | None = Field(default=None, description="SHA-256 of a local model file.")
    quantization: str | None = Field(default=None, description="Quantisation of the weights, such as Q4_K_M.")
    sampling: dict[str, FiniteFloat | int | str | bool | None] = Field(
        default_factory=dict, description="Sampling parameters: temperature, top_p, top_k, ..."
    )
    prompt_sha256: str | None = Field(
        default=None, description="SHA-256 of the system messages that precede each question."
    )
    prompt: HashedPart | None = Field(
        default=None,
        description="The fixed part of the prompt: system message, few-shot turns, the words around a question.",
    )
    tools: HashedPart | None = Field(default=None, description="The tools the model may call, and whether it must.")
    response_format: HashedPart | None = Field(default=None, description="What structured output is held to.")
    grammar: HashedPart | None = Field(default=None, description="The grammar that responses keep to.")
    stop: tuple[str, ...] | None = Field(default=None, description="Strings that end a response, sorted; none: [].")
    ask_confidence: HashedPart | None = Field(
        default=None, description="Whether the model is asked to state its confidence, in which words; null: it is not."
    )
    answer: str | None = Field(
        default=None, description="Where the answer is in a response: a name such as boxed, or that of a function."
    )

    def unbound(self) -> "Fingerprint":
        """The same of a model to which nothing is bound yet: what it will be asked besides a question is unknown."""
        return self.model_copy(update=dict.fromkeys(("tools", "response_format", "grammar", "stop")))


class Gate(Record):
    """Stage 1: a first response is accepted when its score reaches the threshold, the paper's or the safe one."""

    threshold: FiniteFloat | None = Field(
        description="The paper's τ_gate, the larger of its two parts; null when closed."
    )
    mean_part: FiniteFloat | None = Field(
        default=None,
        description="Mean score of correct responses (offline) or of the mixture's upper component.",
    )
    target_part: FiniteFloat | None = Field(
        default=None,
        description="Smallest score whose accuracy (offline) or mixture posterior reaches p_target.",
    )
    closed_because: str | None = Field(default=None, description="Why every question goes on to Stage 2, when it does.")
    level: Probability | None = Field(
        default=None,
        description="1 - δ: how sure it is that what reaches safe_threshold is right in p_target; null where no safe "
        "threshold was looked for, and the paper's stands.",
    )
    safe_threshold: FiniteFloat | None = Field(
        default=None,
        description="Smallest threshold that holds at this level, or mean_part where that is larger (offline); null "
        "where none holds.",
    )
    accepted: int | None = Field(default=None, ge=1, description="Responses that the smallest threshold accepts.")
    lower_bound: Probability | None = Field(
        default=None, description="Clopper-Pearson lower bound of their accuracy, at this level."
    )
    safe_closed_because: str | None = Field(default=None, description="Why no threshold holds, where none does.")

    @model_validator(mode="after")
    def _open_or_explained(self) -> "Gate":
        if (self.threshold is None) == (self.closed_because is None):
            raise ValueError("a gate has either a threshold or a reason for being closed")
        found = [self.safe_threshold, self.accepted, self.lower_bound]
        if len({value is None for value in found}) > 1 or (self.level is None and self.safe_closed_because is not None):
            raise ValueError("safe_threshold, accepted and lower_bound go together, and with a level")
        if (self.level is None) != (self.safe_threshold is None and self.safe_closed_because is None):
            raise ValueError("a gate with a level has either a safe_threshold or a safe_closed_because")
        if self.safe_threshold is not None and self.safe_closed_because is not None:
            raise ValueError("a gate has either a safe_threshold or a reason why none holds")
        return self

    def under(self, safeguard: Safeguard) -> tuple[float | None, str | None]:
        """The threshold, and why there is none where there is none."""
        if safeguard == "paper" or self.level is None:
            return self.threshold, self.closed_because
        return self.safe_threshold, self.safe_closed_because


class Mixture(Record):
    """The Gaussian mixture of Algorithm 2, lower component first, with the criteria for 1-4 components."""

    weights: tuple[Probability, Probability]
    means: tuple[FiniteFloat, FiniteFloat]
    stds: tuple[Positive, Positive]
    converged: bool
    aic: dict[int, FiniteFloat] = Field(description="Number of components -> AIC (lower is better).")
    bic: dict[int, FiniteFloat] = Field(description="Number of components -> BIC (lower is better).")

    @property
    def one_group(self) -> str | None:
        """What BIC says against a second component, where it does."""
        if self.bic[1] > self.bic[2]:
            return None
        return f"BIC prefers one component ({self.bic[1]:.1f}) to two ({self.bic[2]:.1f}): no second group to find"


class AUROC(Record):
    """How well the score separates correct from wrong responses, with its 95 % interval."""

    value: Probability
    low: Probability
    high: Probability
    cross_validated: Probability | None = Field(
        default=None, description="With signal='auto': AUROC on held-out folds of the measure chosen on the others."
    )


class RejectedMeasure(Record):
    """A measure that ``signal="auto"`` did not choose."""

    signal: str
    score: str
    window: int
    auroc: Probability
    behind: FiniteFloat = Field(description="Chosen measure's AUROC minus this one's.")


class SupportCurve(Record):
    """How likely an answer is right, or agrees with further responses, by how strongly its decision is supported."""

    statistic: Literal["support"] = Field(
        default="support", description="The winner's share of the evidence, (v + 1)/(Σv + 2)."
    )
    points: Annotated[tuple[tuple[FiniteFloat, Probability], ...], Field(min_length=1)] = Field(
        description="(support, probability), both rising; straight lines between, constant outside."
    )
    n: int = Field(ge=2, description="Decisions it was fitted on.")
    right: Probability = Field(description="Share of them that were right, or that agreed.")
    rule: str | None = Field(default=None, description="The rule that decided; null where it holds for any.")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for before, after in pairwise(self.points):
            if not (before[0] < after[0] and before[1] <= after[1]):
                raise ValueError(f"the probability rises with the support, but {after} comes after {before}")
        return self

    def probability(self, support: float) -> float:
        """What is read off the curve at this support."""
        known, probabilities = zip(*self.points, strict=True)
        return float(np.interp(support, known, probabilities))

    def holds_for(self, rule: str) -> bool:
        """Whether it was measured on decisions of the rule of this name."""
        return self.rule in (None, rule)


class MeasureBlock(Named):
    """More about how a response is scored than ``signal``, ``score`` and ``window`` say."""

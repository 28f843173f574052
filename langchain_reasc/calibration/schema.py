"""The calibration record: everything a decision needs besides the responses, and what it was measured on.

``python -m langchain_reasc.calibration.schema`` prints its JSON Schema, published beside this file.
"""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from langchain_reasc._version import __version__
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import SCORES, Measure
from langchain_reasc.method.evidence import WEIGHTS, Standardizer, check_weight
from langchain_reasc.method.stopping import ASC, DEFAULT_CONFIDENCE, ReASC, StoppingRule
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED

__all__ = [
    "AUROC",
    "READABLE_VERSIONS",
    "SCHEMA_VERSION",
    "Calibration",
    "Fingerprint",
    "Gate",
    "HashedPart",
    "MeasureBlock",
    "Mixture",
    "RejectedMeasure",
    "RuleBlock",
    "Safeguard",
]

SCHEMA_VERSION: Literal[2] = 2
"""The version of the files written. Version 1 had no tools, response format, grammar, stop strings, answer or fixed
prompt in its fingerprint, and neither of the blocks ``measure`` and ``rule``."""
READABLE_VERSIONS: Final = (1, 2)
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=64)]
Parameter = FiniteFloat | int | str | bool | None
Positive = Annotated[FiniteFloat, Field(gt=0)]
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]
Safeguard = Literal["default", "paper"]
"""What decides on labels: ``default`` lets a gate, a weight or a measure count only where the data vouch for it;
``paper`` takes Algorithm 1 as it stands."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class HashedPart(_Record):
    """A part of what a model is asked, known again by its hash; ``shown`` tells a person what it was."""

    shown: str = Field(description="What it was, in words: the names of tools, the roles of messages.")
    sha256: str | None = Field(
        default=None, description="SHA-256 of its canonical form; null where there was no such part."
    )

    def __str__(self) -> str:
        return self.shown if self.sha256 is None else f"{self.shown} ({self.sha256[:12]})"


class Fingerprint(_Record):
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


class Gate(_Record):
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


class Mixture(_Record):
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


class AUROC(_Record):
    """How well the score separates correct from wrong responses, with its 95 % interval."""

    value: Probability
    low: Probability
    high: Probability
    cross_validated: Probability | None = Field(
        default=None, description="With signal='auto': AUROC on held-out folds of the measure chosen on the others."
    )


class RejectedMeasure(_Record):
    """A measure that ``signal="auto"`` did not choose."""

    signal: str
    score: str
    window: int
    auroc: Probability
    behind: FiniteFloat = Field(description="Chosen measure's AUROC minus this one's.")


class _Named(_Record):
    name: Name
    parameters: Annotated[dict[Name, Parameter], Field(max_length=32)] = Field(default_factory=dict)


class MeasureBlock(_Named):
    """More about how a response is scored than ``signal``, ``score`` and ``window`` say."""


class RuleBlock(_Named):
    """The stopping rule that the file was made for, by its name, with its parameters."""


class Calibration(_Record):
    """μ, σ and τ_gate for one model, prompt and sampling, with how they were found. Immutable."""

    schema_version: Literal[READABLE_VERSIONS]  # type: ignore[valid-type]
    method: Literal["offline", "mixture", "consensus"] = Field(
        description="offline: Algorithm 1, on labels; mixture: Algorithm 2, on first responses; consensus: on how far "
        "the responses to each question agree."
    )
    signal: Literal[(*SIGNALS, VERBALIZED)] | None = Field(  # type: ignore[valid-type]
        description="Token signal; or verbalized, the confidence that the model states of itself; null where only "
        "answers count, and there is no measure."
    )
    score: Literal[tuple(SCORES)] | None = Field(  # type: ignore[valid-type]
        description="How token signals become one response score; null without a signal."
    )
    window: int | None = Field(ge=1, description="W, tokens per group; null without a signal.")
    top_k: int | None = Field(
        default=None,
        ge=1,
        description="k, alternatives per token behind top_k or neg_entropy (V: over all of it).",
    )
    vocabulary_size: int | None = Field(default=None, ge=1, description="V of the model, where known.")
    n: int = Field(ge=2, description="Calibration responses; by consensus: questions.")
    mean: FiniteFloat | None = Field(description="μ of the response scores; null without a signal.")
    std: Positive | None = Field(description="σ of the response scores (population); null without a signal.")
    lambda_: Positive = Field(default=0.7, alias="lambda", description="λ in the weight max(1, exp(λ z)).")
    weight: Literal[tuple(WEIGHTS)] = "reasc"  # type: ignore[valid-type]
    p_target: Annotated[FiniteFloat, Field(gt=0, lt=1)] = 0.9
    gate: Gate
    fallback: str | None = Field(
        default=None,
        description="Why a live run counts votes (ASC) instead of using this calibration; null when it is used.",
    )
    unweighed: str | None = Field(
        default=None,
        description="Why Stage 2 of a live run counts votes instead of weighing them; null when it weighs them.",
    )
    auroc: AUROC | None = Field(
        default=None, description="Of first responses, offline only; null where one class is empty."
    )
    within: AUROC | None = Field(
        default=None, description="Between responses to the same question, averaged; null where that is unknown."
    )
    accuracy: Probability | None = Field(default=None, description="Share of correct calibration responses (offline).")
    mixture: Mixture | None = Field(default=None, description="Algorithm 2 only.")
    rejected: tuple[RejectedMeasure, ...] = Field(default=(), description="What signal='auto' did not choose.")
    measure_: MeasureBlock | None = Field(
        default=None, alias="measure", description="More about the measure; recorded, and not yet used by any decision."
    )
    rule_: RuleBlock | None = Field(
        default=None, alias="rule", description="The stopping rule; recorded, and not yet used by any decision."
    )
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)
    library_version: str
    created_at: AwareDatetime

    @classmethod
    def of_scores(cls, scores: npt.NDArray[np.float64], measure: Measure, **fields: Any) -> "Calibration":
        """A record of these response scores, shape (n,), made now by this library; ``fields`` holds the rest."""
        return cls(
            schema_version=SCHEMA_VERSION,
            signal=measure.signal,
            score=measure.score,
            window=measure.window,
            n=scores.size,
            mean=float(scores.mean()),
            std=float(scores.std()),
            library_version=__version__,
            created_at=datetime.now(UTC).replace(microsecond=0),
            **fields,
        )

    @field_validator("method", mode="before")
    @classmethod
    def _called_otherwise(cls, method: object) -> object:
        return "mixture" if method == "online" else method  # as files call it that are older than consensus

    @model_validator(mode="after")
    def _measured_or_counted(self) -> Self:
        given = [self.signal, self.score, self.window, self.mean, self.std]
        if len({value is None for value in given}) > 1 or (self.signal is None and self.method != "consensus"):
            raise ValueError("signal, score, window, mean and std are null together, and only by consensus")
        return self

    @model_validator(mode="after")
    def _can_be_weighed(self) -> Self:
        if self.mean is not None:
            check_weight(self.weight, self.mean)
        return self

    @property
    def measure(self) -> Measure | None:
        """How a response is scored under this calibration; None where only answers count."""
        if self.signal is None:
            return None
        assert self.score is not None and self.window is not None
        return Measure(self.signal, self.score, self.window)

    def rule(
        self,
        *,
        confidence: float = DEFAULT_CONFIDENCE,
        on_missing_confidence: Literal["error", "count"] = "error",
        safeguard: Safeguard = "default",
    ) -> StoppingRule:
        """The stopping rule this calibration stands for.

        Args:
            confidence: C_threshold of the Beta rule.
            on_missing_confidence: see :class:`~langchain_reasc.method.stopping.ReASC`.
            safeguard: ``"default"`` lets gate, weights and measure count where the calibration data vouch for them:
                the gate is the safe one, Stage 2 counts votes where ``unweighed`` says so, and where ``fallback`` does,
                or nothing else is left, it is ASC. ``"paper"`` gives the paper's rule regardless.

        Raises:
            ConfigurationError: ``safeguard`` or ``confidence`` is none.
        """
        if safeguard not in ("default", "paper"):
            raise ConfigurationError(f"safeguard is 'default' or 'paper', got {safeguard!r}")
        if self.counts(safeguard):
            return ASC(confidence)
        assert self.mean is not None and self.std is not None  # only a calibration by consensus has none
        return ReASC(
            Standardizer(self.mean, self.std, self.lambda_),
            gate=self.gate.under(safeguard)[0],
            weight="count" if safeguard == "default" and self.unweighed is not None else self.weight,
            confidence=confidence,
            on_missing_confidence=on_missing_confidence,
        )

    def counts(self, safeguard: Safeguard = "default") -> bool:
        """Whether the rule counts votes, whatever the scores (ASC), for the safeguard's sake."""
        unused = self.unweighed is not None and self.gate.under(safeguard)[0] is None
        return safeguard == "default" and (self.fallback is not None or unused)

    def notices(self, safeguard: Safeguard = "default") -> tuple[str, ...]:
        """What a person should know of decisions by this rule."""
        if safeguard == "default" and self.fallback is not None:
            return (f"counting votes (ASC): {self.fallback}",)
        threshold, closed_because = self.gate.under(safeguard)
        told = [] if closed_because is None else [f"the gate is closed: {closed_because}"]
        if threshold is not None and self.mixture is not None and self.mixture.one_group:
            told.append(f"the gate stands by the paper's rule, but {self.mixture.one_group}")
        if safeguard == "default" and self.unweighed is not None:
            told.append(f"Stage 2 counts votes: {self.unweighed}")
        known = self.schema_version == 1 or self.method != "offline" or self.gate.level is not None
        if safeguard == "default" and threshold is not None and not known:
            told.append(
                "the gate is the paper's, which is optimistic: the calibration knows no safe one; calibrate again to "
                "have it"
            )
        return tuple(told)

    def summary(self) -> str:
        """One line for a person."""
        threshold, _ = self.gate.under("default")
        gate = f"gate {threshold:.4g}" if threshold is not None else "gate closed"
        held = f" (holds at {100 * self.gate.level:g} %)" if self.gate.level and threshold is not None else ""
        auroc = f", AUROC {self.auroc.value:.2f} [{self.auroc.low:.2f}, {self.auroc.high:.2f}]" if self.auroc else ""
        one_group = f"; {self.mixture.one_group}" if self.mixture and self.mixture.one_group else ""
        counted = f"; Stage 2 counts votes: {self.unweighed}" if self.unweighed else ""
        fallback = f"; counts votes instead: {self.fallback}" if self.fallback else ""
        return (
            f"{self.method} on {self.n} responses: {self.measure}, μ {self.mean:.4g}, σ {self.std:.4g}, "
            f"{gate}{held}{auroc}{one_group}{fallback or counted}"
        )


def json_schema() -> str:
    """The published JSON Schema, as text."""
    schema = Calibration.model_json_schema(by_alias=True, mode="serialization")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(json_schema(), end="")

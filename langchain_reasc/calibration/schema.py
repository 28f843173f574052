"""The calibration record: everything a decision needs besides the responses, and what it was measured on.

``python -m langchain_reasc.calibration.schema`` prints its JSON Schema, published beside this file.
"""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import AwareDatetime, Field, FiniteFloat, field_validator, model_validator

from langchain_reasc._version import __version__
from langchain_reasc.calibration.parts import (
    AUROC,
    Fingerprint,
    Gate,
    HashedPart,
    MeasureBlock,
    Mixture,
    RejectedMeasure,
    Safeguard,
    SupportCurve,
)
from langchain_reasc.calibration.records import Positive, Probability, Record
from langchain_reasc.calibration.rule_block import RuleBlock
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import SCORES, SPAN_SCORES, Measure
from langchain_reasc.method.evidence import WEIGHTS, Standardizer, check_weight
from langchain_reasc.method.stopping import ASC, DEFAULT_BUDGET, DEFAULT_CONFIDENCE, ReASC, StoppingRule
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
    "SupportCurve",
]

SCHEMA_VERSION: Literal[2] = 2
"""The version of the files written. Version 1 had no tools, response format, grammar, stop strings, answer or fixed
prompt in its fingerprint, and neither of the blocks ``measure`` and ``rule``."""
READABLE_VERSIONS: Final = (1, 2)


class Calibration(Record):
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
    score: Literal[(*SCORES, *SPAN_SCORES)] | None = Field(  # type: ignore[valid-type]
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
        default=None,
        description="Of right against wrong first responses; by consensus, of agreeing responses against others; null "
        "where one class is empty.",
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
        default=None, alias="rule", description="The stopping rule, where it is another than ReASC."
    )
    untrusted: str | None = Field(
        default=None, description="By consensus: why no measure of confidence is used; null where one is."
    )
    guarantee: str | None = Field(default=None, description="By consensus: what is promised, in words.")
    p_correct: SupportCurve | None = Field(
        default=None, description="How likely an answer is right; null without labels, or with one response to each."
    )
    p_agree: SupportCurve | None = Field(
        default=None,
        description="By consensus: how likely further responses agree with an answer, which is not correctness; null "
        "where too few questions tell.",
    )
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)
    library_version: str
    created_at: AwareDatetime

    @classmethod
    def of_scores(cls, scores: npt.NDArray[np.float64], measure: Measure, **fields: Any) -> "Calibration":
        """A record of these response scores, shape (n,), made now by this library; ``fields`` holds the rest."""
        return cls.now(
            signal=measure.signal,
            score=measure.score,
            window=measure.window,
            n=scores.size,
            mean=float(scores.mean()),
            std=float(scores.std()),
            **fields,
        )

    @classmethod
    def now(cls, **fields: Any) -> "Calibration":
        """A record made now by this library."""
        made = {"library_version": __version__, "created_at": datetime.now(UTC).replace(microsecond=0)}
        return cls(schema_version=SCHEMA_VERSION, **made, **fields)

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
        budget: int = DEFAULT_BUDGET,
    ) -> StoppingRule:
        """The stopping rule this calibration stands for.

        Args:
            confidence: C_threshold of the Beta rule.
            on_missing_confidence: see :class:`~langchain_reasc.method.stopping.ReASC`.
            safeguard: ``"default"`` lets gate, weights and measure count where the calibration data vouch for them:
                the gate is the safe one, Stage 2 counts votes where ``unweighed`` says so, and where ``fallback`` does,
                or nothing else is left, it is ASC. ``"paper"`` gives the paper's rule regardless.
            budget: responses to a question at most, which the agreement rule looks ahead to.

        Raises:
            ConfigurationError: ``safeguard`` or ``confidence`` is none.
        """
        if safeguard not in ("default", "paper"):
            raise ConfigurationError(f"safeguard is 'default' or 'paper', got {safeguard!r}")
        if self.counts(safeguard):
            return ASC(confidence)
        if self.rule_ is not None:
            return self.rule_.made(budget=budget, on_missing_confidence=on_missing_confidence)
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
        if self.method == "consensus":  # whose rule has no gate
            return () if self.untrusted is None else (f"votes are counted, not weighed: {self.untrusted}",)
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

    def gate_promise(self, safeguard: Safeguard = "default") -> str:
        """How many of the first responses that the gate accepts are right, in words."""
        gate = self.gate
        if safeguard == "default" and gate.level is not None and gate.lower_bound is not None:
            return (
                f"of such responses {gate.lower_bound:.0%} or more are right, {gate.level:.0%} sure by the "
                f"{gate.accepted} that calibration accepted"
            )
        if self.method == "mixture":
            return f"{self.p_target:.0%} of such responses are right, by two groups of scores and no labels"
        return f"in calibration {self.p_target:.0%} or more of such responses were right, an optimistic figure"

    def __repr__(self) -> str:
        """One line; the fields have everything."""
        model = f" of {self.fingerprint.model}" if self.fingerprint.model else ""
        return f"<Calibration{model}: {self.summary()}>"

    __str__ = __repr__

    def summary(self) -> str:
        """One line for a person."""
        fallback = f"; counts votes instead: {self.fallback}" if self.fallback else ""
        if self.method == "consensus":
            return f"consensus on {self.n} questions: {self._weighing()}{fallback}"
        threshold, _ = self.gate.under("default")
        gate = f"gate {threshold:.4g}" if threshold is not None else "gate closed"
        held = f" (holds at {100 * self.gate.level:g} %)" if self.gate.level and threshold is not None else ""
        auroc = f", AUROC {self.auroc.value:.2f} [{self.auroc.low:.2f}, {self.auroc.high:.2f}]" if self.auroc else ""
        one_group = f"; {self.mixture.one_group}" if self.mixture and self.mixture.one_group else ""
        counted = f"; Stage 2 counts votes: {self.unweighed}" if self.unweighed else ""
        return (
            f"{self.method} on {self.n} responses: {self.measure}, μ {self.mean:.4g}, σ {self.std:.4g}, "
            f"{gate}{held}{auroc}{one_group}{fallback or counted}"
        )

    def _weighing(self) -> str:
        """How votes weigh by consensus, and why."""
        if self.measure is None:
            return f"votes are counted, not weighed: {self.untrusted}" if self.untrusted else "votes are counted"
        within = self.within
        told = f", AUROC within a question {within.value:.2f} [{within.low:.2f}, {within.high:.2f}]" if within else ""
        return f"votes weigh by {self.measure}{told}"


def json_schema() -> str:
    """The published JSON Schema, as text."""
    schema = Calibration.model_json_schema(by_alias=True, mode="serialization")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(json_schema(), end="")

"""The calibration record and its file: what a decision needs besides the responses, and what it was measured on.

The models below read top-down like the JSON file. ``Calibration.model_json_schema()`` gives its JSON Schema.
"""

import math
import os
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from langchain_reasc._version import __version__
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import CalibrationFileError, ConfigurationError
from langchain_reasc.files import write_atomically
from langchain_reasc.method.agreement import Agreement, Component, Prior
from langchain_reasc.method.bayesian_vote import BayesianVote, PointOdds
from langchain_reasc.method.confidence import SCORES, SPAN_SCORES, Measure
from langchain_reasc.method.evidence import WEIGHTS, Standardizer, check_weight
from langchain_reasc.method.registry import rule_named
from langchain_reasc.method.stopping import ASC, DEFAULT_BUDGET, DEFAULT_CONFIDENCE, ReASC, StoppingRule
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.untrusted import read_text

__all__ = [
    "AUROC",
    "Calibration",
    "Fingerprint",
    "Gate",
    "HashedPart",
    "Mixture",
    "Record",
    "RejectedMeasure",
    "RuleBlock",
    "Safeguard",
    "SupportCurve",
    "load_calibration",
    "read_record",
    "save_calibration",
]

Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=64)]
Positive = Annotated[FiniteFloat, Field(gt=0)]
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]
Safeguard = Literal["default", "paper"]
"""``default`` uses a gate, weights or a measure only where the calibration data support them; ``paper`` takes
Algorithm 1 as it stands."""


class Record(BaseModel):
    """Part of a calibration file: immutable, and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class HashedPart(Record):
    """A part of what a model is asked, compared by its hash; ``shown`` describes it for a person."""

    shown: str = Field(description="A description: the names of tools, the roles of messages.")
    sha256: str | None = Field(default=None, description="SHA-256 of its canonical form; null: there is no such part.")

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
    prompt_sha256: str | None = Field(default=None, description="SHA-256 of the system messages before each question.")
    prompt: HashedPart | None = Field(
        default=None, description="Fixed part of the prompt: system message, few-shot turns, words around a question."
    )
    tools: HashedPart | None = Field(default=None, description="The tools the model may call, and whether it must.")
    response_format: HashedPart | None = Field(default=None, description="The schema of structured output.")
    grammar: HashedPart | None = Field(default=None, description="The grammar that responses follow.")
    stop: tuple[str, ...] | None = Field(default=None, description="Strings that end a response, sorted; none: [].")
    ask_confidence: HashedPart | None = Field(
        default=None, description="How the model is asked to state its confidence; null: it is not asked."
    )
    answer: str | None = Field(default=None, description="Name of the answer format, such as boxed, or of a function.")

    def unbound(self) -> Self:
        """Return a copy that knows nothing of tools, response format, grammar and stop strings."""
        return self.model_copy(update=dict.fromkeys(("tools", "response_format", "grammar", "stop")))


class Gate(Record):
    """Stage 1 accepts a first response that scores at least the threshold: the paper's, or the safe one."""

    threshold: FiniteFloat | None = Field(description="The paper's τ_gate, the larger of its parts; null: closed.")
    mean_part: FiniteFloat | None = Field(
        default=None, description="Mean score of correct responses (offline) or of the mixture's upper component."
    )
    target_part: FiniteFloat | None = Field(
        default=None, description="Smallest score whose accuracy (offline) or mixture posterior reaches p_target."
    )
    closed_because: str | None = Field(default=None, description="Why every question goes on to Stage 2, if it does.")
    level: Probability | None = Field(
        default=None, description="1 - δ of the safe threshold: how sure it is; null: no safe threshold was computed."
    )
    safe_threshold: FiniteFloat | None = Field(
        default=None, description="Smallest threshold that holds at this level, at least mean_part; null: none holds."
    )
    accepted: int | None = Field(default=None, ge=1, description="Responses that the smallest threshold accepts.")
    lower_bound: Probability | None = Field(
        default=None, description="Clopper-Pearson lower bound of their accuracy, at this level."
    )
    safe_closed_because: str | None = Field(default=None, description="Why no threshold holds, if none does.")

    @model_validator(mode="after")
    def _open_or_explained(self) -> Self:
        if (self.threshold is None) == (self.closed_because is None):
            raise ValueError("a gate has either a threshold or a reason for being closed")
        safe = {value is not None for value in (self.safe_threshold, self.accepted, self.lower_bound)}
        explained = self.safe_closed_because is not None
        if len(safe) > 1 or (self.level is not None) != (safe != {explained}) or (self.level is None and explained):
            raise ValueError(
                "a gate with a level has either safe_threshold, accepted and lower_bound, or safe_closed_because"
            )
        return self

    def under(self, safeguard: Safeguard) -> tuple[float | None, str | None]:
        """Return the threshold that applies, or None and why there is none."""
        if safeguard == "paper" or self.level is None:
            return self.threshold, self.closed_because
        return self.safe_threshold, self.safe_closed_because


class Mixture(Record):
    """The Gaussian mixture of Algorithm 2, lower component first, with the criteria for other component counts."""

    weights: tuple[Probability, Probability]
    means: tuple[FiniteFloat, FiniteFloat]
    stds: tuple[Positive, Positive]
    converged: bool
    aic: dict[int, FiniteFloat] = Field(description="Number of components -> AIC (lower is better).")
    bic: dict[int, FiniteFloat] = Field(description="Number of components -> BIC (lower is better).")

    @property
    def one_group(self) -> str | None:
        """Why BIC prefers a single component, where it does."""
        if self.bic[1] > self.bic[2]:
            return None
        return f"BIC prefers one component ({self.bic[1]:.1f}) to two ({self.bic[2]:.1f}): no second group to find"


class AUROC(Record):
    """How well the score separates correct from wrong responses, with its interval."""

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


class RuleBlock(Record):
    """A stopping rule other than ReASC: its name, its parameters, and what was learned for it."""

    class PriorPart(Record):
        """A component of the prior on how answers agree: a Pitman–Yor process; discount below 0: a Dirichlet."""

        discount: Annotated[FiniteFloat, Field(lt=1)]
        concentration: FiniteFloat
        weight: Probability

    class KnownOdds(Record):
        """The probability that a response with this score is right, or agrees with the majority."""

        score: FiniteFloat
        p: Annotated[FiniteFloat, Field(gt=0, lt=1)]

    name: Name
    parameters: Annotated[dict[Name, FiniteFloat | int | str | bool | None], Field(max_length=32)] = Field(
        default_factory=dict
    )
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
        """Return the block of the agreement rule; with ``odds``, votes are also weighed as in a Bayesian vote."""
        parameters = {"threshold": threshold}
        if odds is not None:
            parameters |= {
                "vote_threshold": vote_threshold,
                "alternatives": alternatives,
                "average": _probability(odds.average),
            }
        parts = zip(prior.components, prior.weights, strict=True)
        return cls(
            name=Agreement.name,
            parameters=parameters,
            prior=tuple(cls.PriorPart(discount=d, concentration=a, weight=weight) for (d, a), weight in parts),
            odds=tuple(cls.KnownOdds(score=s, p=_probability(logit)) for s, logit in (odds.points if odds else ())),
        )

    @model_validator(mode="after")
    def _names_a_rule(self) -> Self:
        try:
            self.rule(budget=1)
        except (ConfigurationError, KeyError, TypeError) as error:
            raise ValueError(f"no rule {self.name} can be made of this: {error}") from None
        return self

    def rule(self, *, budget: int, on_missing_confidence: Literal["error", "count"] = "error") -> StoppingRule:
        """Return the rule itself.

        Raises:
            ConfigurationError: there is no such rule, or it has no such parameters.
        """
        if self.name != Agreement.name:
            return rule_named(self.name, self.parameters)
        parameters: dict[str, Any] = dict(self.parameters)
        components = tuple(Component(part.discount, part.concentration) for part in self.prior)
        vote = None
        if self.odds:
            vote = BayesianVote(
                PointOdds(
                    tuple((known.score, _log_odds(known.p)) for known in self.odds),
                    average=_log_odds(parameters["average"]),
                ),
                parameters["vote_threshold"],
                alternatives=parameters["alternatives"],
                on_missing_confidence=on_missing_confidence,
            )
        prior = _prior(components, tuple(part.weight for part in self.prior))
        return Agreement(prior, parameters["threshold"], budget, vote)


class SupportCurve(Record):
    """The probability that an answer is right, or agrees with further responses, by the support of its decision."""

    statistic: Literal["support"] = Field(default="support", description="The winner's share, (v + 1)/(Σv + 2).")
    points: Annotated[tuple[tuple[FiniteFloat, Probability], ...], Field(min_length=1)] = Field(
        description="(support, probability), both rising; straight lines between, constant outside."
    )
    n: int = Field(ge=2, description="Decisions it was fitted on.")
    right: Probability = Field(description="Share of them that were right, or that agreed.")
    rule: str | None = Field(default=None, description="The rule that decided; null: it holds for any rule.")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for before, after in pairwise(self.points):
            if not (before[0] < after[0] and before[1] <= after[1]):
                raise ValueError(f"the probability rises with the support, but {after} comes after {before}")
        return self

    def probability(self, support: float) -> float:
        """Return the probability at this support."""
        known, probabilities = zip(*self.points, strict=True)
        return float(np.interp(support, known, probabilities))

    def holds_for(self, rule: str) -> bool:
        """Whether it was fitted on decisions of the rule of this name."""
        return self.rule in (None, rule)


class Calibration(Record):
    """μ, σ and τ_gate for one model, prompt and sampling, with how they were found. Immutable."""

    schema_version: Literal[2]
    method: Literal["offline", "mixture", "consensus"] = Field(
        description="offline: Algorithm 1, on labels; mixture: Algorithm 2, on first responses without labels; "
        "consensus: on how far the responses to each question agree."
    )
    signal: Literal[(*SIGNALS, VERBALIZED)] | None = Field(  # type: ignore[valid-type]
        description="Token signal; or verbalized, the confidence that the model states; null: only answers count."
    )
    score: Literal[(*SCORES, *SPAN_SCORES)] | None = Field(  # type: ignore[valid-type]
        description="How token signals become one response score; null without a signal."
    )
    window: int | None = Field(ge=1, description="W, tokens per group; null without a signal.")
    top_k: int | None = Field(
        default=None, ge=1, description="k, alternatives per token behind top_k or neg_entropy (V: all of them)."
    )
    vocabulary_size: int | None = Field(default=None, ge=1, description="V of the model, where known.")
    n: int = Field(ge=2, description="Calibration responses; by consensus: questions.")
    mean: FiniteFloat | None = Field(description="μ of the response scores; null without a signal.")
    std: Positive | None = Field(description="σ of the response scores (population); null without a signal.")
    lambda_: Positive = Field(default=0.7, alias="lambda", description="λ in the weight max(1, exp(λ z)).")
    weight: Literal[tuple(WEIGHTS)] = "reasc"  # type: ignore[valid-type]
    p_target: Annotated[FiniteFloat, Field(gt=0, lt=1)] = 0.9
    gate: Gate
    fallback: str | None = Field(default=None, description="Why a live run counts votes (ASC) and ignores the rest.")
    unweighed: str | None = Field(default=None, description="Why Stage 2 of a live run counts votes, unweighed.")
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
    rule_: RuleBlock | None = Field(default=None, alias="rule", description="The stopping rule, if it is not ReASC.")
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
        "where there are too few questions.",
    )
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)
    library_version: str
    created_at: AwareDatetime

    @classmethod
    def now(cls, **fields: Any) -> Self:
        """Return a calibration made now by this version of the library."""
        return cls(
            schema_version=2,
            library_version=__version__,
            created_at=datetime.now(UTC).replace(microsecond=0),
            **fields,
        )

    @classmethod
    def of_scores(cls, scores: npt.NDArray[np.float64], measure: Measure, **fields: Any) -> Self:
        """Return a calibration made now on these response scores, shape (n,)."""
        return cls.now(
            signal=measure.signal,
            score=measure.score,
            window=measure.window,
            n=scores.size,
            mean=float(scores.mean()),
            std=float(scores.std()),
            **fields,
        )

    @model_validator(mode="after")
    def _measured_or_counted(self) -> Self:
        given = [self.signal, self.score, self.window, self.mean, self.std]
        if len({value is None for value in given}) > 1 or (self.signal is None and self.method != "consensus"):
            raise ValueError("signal, score, window, mean and std are null together, and only by consensus")
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
        """Return the stopping rule of this calibration.

        Args:
            confidence: C_threshold of the Beta rule.
            on_missing_confidence: see :class:`~langchain_reasc.method.stopping.ReASC`.
            safeguard: ``"default"`` uses gate, weights and measure only where the calibration data support them: the
                gate is the safe one, Stage 2 counts votes where ``unweighed`` says so, and the rule is ASC where
                ``fallback`` is set or nothing else is left. ``"paper"`` gives the paper's rule regardless.
            budget: responses to a question at most, which the agreement rule looks ahead to.

        Raises:
            ConfigurationError: ``safeguard`` or ``confidence`` is invalid.
        """
        if safeguard not in ("default", "paper"):
            raise ConfigurationError(f"safeguard is 'default' or 'paper', got {safeguard!r}")
        if self.counts(safeguard):
            return ASC(confidence)
        if self.rule_ is not None:
            return self.rule_.rule(budget=budget, on_missing_confidence=on_missing_confidence)
        assert self.mean is not None and self.std is not None  # only a calibration by consensus has none
        return ReASC(
            Standardizer(self.mean, self.std, self.lambda_),
            gate=self.gate.under(safeguard)[0],
            weight="count" if safeguard == "default" and self.unweighed is not None else self.weight,
            confidence=confidence,
            on_missing_confidence=on_missing_confidence,
        )

    def counts(self, safeguard: Safeguard = "default") -> bool:
        """Whether the safeguard makes the rule count votes (ASC), whatever the scores."""
        unused = self.unweighed is not None and self.gate.under(safeguard)[0] is None
        return safeguard == "default" and (self.fallback is not None or unused)

    def notices(self, safeguard: Safeguard = "default") -> tuple[str, ...]:
        """Return what a person should know about decisions by this rule."""
        guarded = safeguard == "default"
        if guarded and self.fallback is not None:
            return (f"counting votes (ASC): {self.fallback}",)
        if self.method == "consensus":  # whose rule has no gate
            return () if self.untrusted is None else (f"votes are counted, not weighed: {self.untrusted}",)
        threshold, closed_because = self.gate.under(safeguard)
        notices = [] if closed_because is None else [f"the gate is closed: {closed_because}"]
        if threshold is not None and self.mixture is not None and self.mixture.one_group:
            notices.append(f"the gate stands by the paper's rule, but {self.mixture.one_group}")
        if guarded and self.unweighed is not None:
            notices.append(f"Stage 2 counts votes: {self.unweighed}")
        return tuple(notices)

    def gate_promise(self, safeguard: Safeguard = "default") -> str:
        """Return in words how many of the first responses that the gate accepts are right."""
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
        """Return one line for a person."""
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
        if self.measure is None:
            return f"votes are counted, not weighed: {self.untrusted}" if self.untrusted else "votes are counted"
        within = self.within
        auroc = f", AUROC within a question {within.value:.2f} [{within.low:.2f}, {within.high:.2f}]" if within else ""
        return f"votes weigh by {self.measure}{auroc}"


def save_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> Path:
    """Write a calibration as indented JSON. A reader sees the old file or the new one, never a part.

    Raises:
        CalibrationFileError: the file cannot be written; what was there before is untouched.
    """
    target = Path(path)
    try:
        write_atomically(target, calibration.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise CalibrationFileError(f"cannot write the calibration to {target}: {error.strerror or error}") from error
    return target


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Read and validate a calibration.

    Raises:
        CalibrationFileError: missing, empty or truncated file, unknown schema version, missing or invalid field.
    """
    try:
        return read_record(Calibration, path, f"the calibration at {path}", "calibrate again")
    except FileNotFoundError:
        raise CalibrationFileError(
            f"no calibration at {path}; make one with `reasc calibrate`, or pass calibration=None to count votes"
        ) from None


T = TypeVar("T", bound=BaseModel)


def read_record(model: type[T], path: str | os.PathLike[str], what: str, advice: str, *, values: bool = True) -> T:
    """Read a JSON file as a pydantic model.

    Args:
        model: what the file holds.
        path: the file.
        what: what to call it in errors.
        advice: what to do about an invalid file.
        values: whether errors show values from the file.

    Raises:
        FileNotFoundError: there is no such file.
        CalibrationFileError: it cannot be read, or holds something else.
    """
    try:
        text = read_text(Path(path))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationFileError(f"cannot read {what}: {error}") from error
    if not text.strip():
        raise CalibrationFileError(f"{what} is empty; {advice}")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            reason = first["ctx"]["error"].replace("recursion limit exceeded", "nested too deeply")
            why = f"is not valid JSON (truncated?): {reason}"
        else:
            why = f"is invalid: {findings(error, values=values)[0]}"
        raise CalibrationFileError(f"{what} {why}; {advice}") from None


_PRIORS: Final = 16  # kept: a prior caches what it has worked out, and a rule is made for every question


@lru_cache(maxsize=_PRIORS)
def _prior(components: tuple[Component, ...], weights: tuple[float, ...]) -> Prior:
    return Prior(components, weights)


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _log_odds(p: float) -> float:
    return math.log(p / (1 - p))

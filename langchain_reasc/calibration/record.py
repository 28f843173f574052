"""The calibration record and its file: parameters of the rule, and the data they were measured on.

The models below read top-down like the JSON file. ``Calibration.model_json_schema()`` gives its JSON Schema.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from langchain_reasc._version import __version__
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import CalibrationFileError, ConfigurationError
from langchain_reasc.files import read_text, write_atomically
from langchain_reasc.method.agreement import LARGEST_HORIZON, Agreement, Component, Prior
from langchain_reasc.method.bayesian_vote import BayesianVote, PointOdds
from langchain_reasc.method.confidence import SCORES, SPAN_SCORES, Measure
from langchain_reasc.method.decision import Decision, support
from langchain_reasc.method.evidence import WEIGHTS, Standardizer, check_weight
from langchain_reasc.method.registry import rule_named
from langchain_reasc.method.stopping import (
    ASC,
    DEFAULT_BUDGET,
    DEFAULT_CONFIDENCE,
    FirstAccepted,
    ReASC,
    StoppingRule,
)
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.method.value import ValueStop, check_worth

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
    """A part of what a model is asked, compared by its hash.

    Attributes:
        shown: a description for a person: the names of tools, the roles of messages.
        sha256: SHA-256 of its canonical form; null: there is no such part.
    """

    shown: str
    sha256: str | None = None

    def __str__(self) -> str:
        return self.shown if self.sha256 is None else f"{self.shown} ({self.sha256[:12]})"


class Fingerprint(Record):
    """What the calibration was measured on. Null means unknown, and an unknown field is never compared.

    Attributes:
        model: model name, or the file name of a local model.
        model_sha256: SHA-256 of a local model file.
        quantization: quantisation of the weights, such as Q4_K_M.
        sampling: sampling parameters: temperature, top_p, top_k, ...
        prompt_sha256: SHA-256 of the system messages before each question.
        prompt: fixed part of the prompt: system message, few-shot turns, words around a question.
        tools: the tools the model may call, and whether it must.
        response_format: the schema of structured output.
        grammar: the grammar that responses follow.
        stop: strings that end a response, sorted; none: [].
        ask_confidence: how the model is asked to state its confidence; null: it is not asked.
        answer: name of the answer format, such as boxed, or of a function.
    """

    model: str | None = None
    model_sha256: str | None = None
    quantization: str | None = None
    sampling: dict[str, FiniteFloat | int | str | bool | None] = Field(default_factory=dict)
    prompt_sha256: str | None = None
    prompt: HashedPart | None = None
    tools: HashedPart | None = None
    response_format: HashedPart | None = None
    grammar: HashedPart | None = None
    stop: tuple[str, ...] | None = None
    ask_confidence: HashedPart | None = None
    answer: str | None = None

    @property
    def kind(self) -> str:
        """The kind of request: a hash of all that a model is asked besides a question, without how it samples."""
        parts = (self.prompt, self.tools, self.response_format, self.grammar)
        asked = (self.model, self.prompt_sha256, *(part and part.sha256 for part in parts), self.answer)
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]

    def unbound(self) -> Self:
        """Return a copy that knows nothing of tools, response format, grammar and stop strings."""
        return self.model_copy(update=dict.fromkeys(("tools", "response_format", "grammar", "stop")))


class Gate(Record):
    """The score from which on a first response is accepted alone: the paper's threshold, and a safe one.

    Attributes:
        threshold: the paper's τ_gate, the larger of its two parts; null: closed.
        mean_part: mean score of correct responses (offline) or of the mixture's upper component.
        target_part: smallest score whose accuracy (offline) or mixture posterior reaches p_target.
        closed_because: why no first response is accepted, if none is.
        level: 1 - δ of the safe threshold, how sure it is; null: no safe threshold was computed.
        safe_threshold: smallest threshold that holds at this level, at least mean_part; null: none holds.
        accepted: responses that the smallest threshold accepts.
        lower_bound: Clopper-Pearson lower bound of their accuracy, at this level.
        safe_closed_because: why no threshold holds, if none does.
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
            raise ValueError("a gate has either a threshold or a reason for being closed")
        safe = (self.level, self.safe_threshold, self.accepted, self.lower_bound, self.safe_closed_because)
        given = [value is not None for value in safe]
        if given not in ([False] * 5, [True] * 4 + [False], [True, False, False, False, True]):
            raise ValueError(
                "a gate with a level has either safe_threshold, accepted and lower_bound, or safe_closed_because"
            )
        return self

    def __str__(self) -> str:
        threshold, _ = self.under("default")
        if threshold is None:
            return "gate closed"
        return f"gate {threshold:.4g}" + (f" (holds at {100 * self.level:g} %)" if self.level else "")

    def under(self, safeguard: Safeguard) -> tuple[float | None, str | None]:
        """Return the threshold that applies, or None and why there is none."""
        if safeguard == "paper" or self.level is None:
            return self.threshold, self.closed_because
        return self.safe_threshold, self.safe_closed_because


class Mixture(Record):
    """The Gaussian mixture of Algorithm 2, lower component first.

    Attributes:
        weights: of the two components; so are means and stds.
        converged: whether the fit did.
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
        """Why BIC prefers a single component, where it does."""
        if self.bic[1] > self.bic[2]:
            return None
        return f"BIC prefers one component ({self.bic[1]:.1f}) to two ({self.bic[2]:.1f}): no second group to find"


class AUROC(Record):
    """How well the score separates correct from wrong responses, with its interval.

    Attributes:
        value: P(S(right) > S(wrong)), ties counting half.
        low: lower end of the interval.
        high: upper end of the interval.
        cross_validated: AUROC on held-out folds of the measure chosen on the others, with ``measure="auto"``.
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

    signal: str
    score: str
    window: int
    auroc: Probability
    behind: FiniteFloat


class PriorPart(Record):
    """A component of the prior on how answers agree: a Pitman–Yor process; discount below 0: a Dirichlet."""

    discount: Annotated[FiniteFloat, Field(lt=1)]
    concentration: FiniteFloat
    weight: Probability


class KnownOdds(Record):
    """The probability that a response with this score is right, or agrees with the majority."""

    score: FiniteFloat
    p: Annotated[FiniteFloat, Field(gt=0, lt=1)]


class RuleBlock(Record):
    """A stopping rule other than ReASC.

    Attributes:
        name: of the rule.
        parameters: its parameters.
        prior: how answers agree; of the rule agreement.
        odds: P(right) at some scores, ascending, straight lines of log-odds between them; of the rule agreement.
    """

    name: Name
    parameters: Annotated[dict[Name, FiniteFloat | int | str | bool | None], Field(max_length=32)] = Field(
        default_factory=dict
    )
    prior: tuple[PriorPart, ...] = ()
    odds: tuple[KnownOdds, ...] = ()

    @classmethod
    def agreement(cls, prior: Prior, odds: PointOdds | None = None, **parameters: float) -> Self:
        """Return the block of the agreement rule; with ``odds``, votes are also weighed as in a Bayesian vote.

        Args:
            prior: how answers agree.
            odds: logit p from a score.
            parameters: ``threshold``; ``worth`` if not 0; with odds also the vote's ``vote_threshold`` and
                ``alternatives``.
        """
        if odds is not None:
            parameters["average"] = _probability(odds.average)
        return cls(
            name=Agreement.name,
            parameters=parameters,
            prior=prior_parts(prior),
            odds=tuple(KnownOdds(score=s, p=_probability(logit)) for s, logit in (odds.points if odds else ())),
        )

    def with_prior(self, prior: Prior) -> Self:
        """Return the block with another prior; of the rule agreement."""
        return self.model_copy(update={"prior": prior_parts(prior)})

    @property
    def agreement_prior(self) -> Prior:
        """How answers agree; of the rule agreement."""
        return _prior_of(self.prior)

    @model_validator(mode="after")
    def _names_a_rule(self) -> Self:
        try:
            self.rule(budget=1)
        except (ConfigurationError, KeyError, TypeError) as error:
            raise ValueError(f"no rule {self.name} can be made of this: {error}") from None
        return self

    def rule(
        self,
        *,
        budget: int,
        on_missing_confidence: Literal["error", "count"] = "error",
        worth: float | None = None,
    ) -> StoppingRule:
        """Return the rule itself; see :meth:`Calibration.rule`.

        Raises:
            ConfigurationError: there is no such rule, or it has no such parameters.
        """
        if self.name != Agreement.name:
            return rule_named(self.name, self.parameters)
        parameters: dict[str, Any] = dict(self.parameters)
        vote = None
        if self.odds:
            vote = BayesianVote(
                PointOdds(
                    tuple((known.score, _log_odds(known.p)) for known in self.odds), _log_odds(parameters["average"])
                ),
                parameters["vote_threshold"],
                alternatives=parameters["alternatives"],
                on_missing_confidence=on_missing_confidence,
            )
        prior = self.agreement_prior
        agreement = Agreement(prior, parameters["threshold"], budget, vote)
        worth = parameters.get("worth", 0) if worth is None else worth
        check_worth(worth)
        if not worth or budget > LARGEST_HORIZON:
            return agreement
        return agreement | ValueStop(prior, worth, budget, agreement.vote)


def prior_parts(prior: Prior) -> tuple[PriorPart, ...]:
    return tuple(
        PriorPart(discount=d, concentration=a, weight=weight)
        for (d, a), weight in zip(prior.components, prior.weights, strict=True)
    )


def _prior_of(parts: Iterable[PriorPart]) -> Prior:
    return _prior(tuple((part.discount, part.concentration, part.weight) for part in parts))


@lru_cache(maxsize=128)  # a prior caches what it has worked out, and a rule is made for every question
def _prior(parts: tuple[tuple[float, float, float], ...]) -> Prior:
    return Prior(tuple(Component(d, a) for d, a, _ in parts), tuple(weight for *_, weight in parts))


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _log_odds(p: float) -> float:
    return math.log(p / (1 - p))


class SupportCurve(Record):
    """The probability that an answer is right, or agrees with further responses, by the support of its decision.

    Attributes:
        statistic: what is known of a decision: the winner's expected share, see :meth:`support`.
        prior: how answers agree, from which that share is expected; empty: (v + 1)/(Σv + 2).
        points: (support, probability), both rising; straight lines between, constant outside.
        n: decisions it was fitted on.
        right: share of them that were right, or that agreed.
        rule: the rule that decided; null: it holds for any rule.
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
                raise ValueError(f"the probability rises with the support, but {after} comes after {before}")
        return self

    def support(self, decision: Decision) -> float | None:
        """Return the support of a decision as the curve reads it; None where there was no vote.

        Under the prior, a share of few votes is drawn to that of other questions. So the curve holds for decisions on
        more votes than it was fitted on: 8 of 16 say more than 2 of 4.
        """
        return support(decision, _prior_of(self.prior).share) if self.prior else support(decision)

    def probability(self, support: float) -> float:
        """Return the probability at this support."""
        known, probabilities = zip(*self.points, strict=True)
        return float(np.interp(support, known, probabilities))

    def holds_for(self, rule: str) -> bool:
        """Whether it was fitted on decisions of the rule of this name."""
        return self.rule in (None, rule)


class Calibration(Record):
    """μ, σ and τ_gate for one model, prompt and sampling, with how they were found. Immutable.

    Attributes:
        schema_version: 2.
        method: offline: Algorithm 1, on labels; mixture: Algorithm 2, on first responses without labels; consensus: on
            how far the responses to each question agree.
        signal: token signal; or verbalized, the confidence that the model states; null: only answers count.
        score: how token signals become one response score; null without a signal.
        window: W, tokens per group; null without a signal.
        top_k: k, alternatives per token behind top_k or neg_entropy (V: all of them).
        vocabulary_size: V of the model, where known.
        n: calibration responses; by consensus: questions.
        mean: μ of the response scores; null without a signal.
        std: σ of the response scores (population); null without a signal.
        lambda_: λ in the weight max(1, exp(λ z)); ``lambda`` in the file.
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        p_target: accuracy asked of what the gate accepts.
        gate: from which score on a first response is accepted alone.
        fallback: why a live run counts votes (ASC) and ignores the rest.
        unweighed: why a live run counts votes instead of weighing them by confidence.
        auroc: of right against wrong first responses; by consensus, of agreeing responses against others; null where
            one class is empty.
        within: between responses to the same question, averaged; null where that is unknown.
        accuracy: share of correct calibration responses (offline).
        mixture: Algorithm 2 only.
        rejected: the measures that ``measure="auto"`` did not choose.
        rule_: the stopping rule, if it is not ReASC; ``rule`` in the file.
        untrusted: by consensus: why no measure of confidence is used; null where one is.
        guarantee: by consensus: what is promised, in words.
        p_correct: how likely an answer is right; null without labels, or with one response to each.
        p_agree: by consensus: how likely further responses agree with an answer, which is not correctness; null where
            there are too few questions.
        fingerprint: what it was measured on.
        library_version: the version that made it.
        created_at: when it was made.
    """

    schema_version: Literal[2]
    method: Literal["offline", "mixture", "consensus"]
    signal: Literal[(*SIGNALS, VERBALIZED)] | None  # type: ignore[valid-type]
    score: Literal[(*SCORES, *SPAN_SCORES)] | None  # type: ignore[valid-type]
    window: int | None = Field(ge=1)
    top_k: int | None = Field(default=None, ge=1)
    vocabulary_size: int | None = Field(default=None, ge=1)
    n: int = Field(ge=2)
    mean: FiniteFloat | None
    std: Positive | None
    lambda_: Positive = Field(default=0.7, alias="lambda")
    weight: Literal[tuple(WEIGHTS)] = "reasc"  # type: ignore[valid-type]
    p_target: Annotated[FiniteFloat, Field(gt=0, lt=1)] = 0.9
    gate: Gate
    fallback: str | None = None
    unweighed: str | None = None
    auroc: AUROC | None = None
    within: AUROC | None = None
    accuracy: Probability | None = None
    mixture: Mixture | None = None
    rejected: tuple[RejectedMeasure, ...] = ()
    rule_: RuleBlock | None = Field(default=None, alias="rule")
    untrusted: str | None = None
    guarantee: str | None = None
    p_correct: SupportCurve | None = None
    p_agree: SupportCurve | None = None
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)
    library_version: str
    created_at: AwareDatetime

    @classmethod
    def now(cls, measure: Measure | None, scores: npt.NDArray[np.float64] | None = None, **fields: Any) -> Self:
        """Return a calibration made now by this version of the library.

        Args:
            measure: how responses are scored; None where only answers count.
            scores: shape (n,), of which μ and σ are taken; without a measure, None.
            fields: all other fields.
        """
        return cls(
            schema_version=2,
            library_version=__version__,
            created_at=datetime.now(UTC).replace(microsecond=0),
            signal=measure and measure.signal,
            score=measure and measure.score,
            window=measure and measure.window,
            mean=None if scores is None else float(scores.mean()),
            std=None if scores is None else float(scores.std()),
            **fields,
        )

    @model_validator(mode="before")
    @classmethod
    def _without_cutting(cls, given: Any) -> Any:
        """Drop what earlier versions learned about cutting weak samples in the middle; nothing else depends on it."""
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name not in ("cutting", "uncut")}
        return given

    @model_validator(mode="after")
    def _measured_or_counted(self) -> Self:
        given = {value is None for value in (self.signal, self.score, self.window, self.mean, self.std)}
        if len(given) > 1 or (self.signal is None and self.method != "consensus"):
            raise ValueError("signal, score, window, mean and std are null together, and only by consensus")
        if self.mean is not None:
            check_weight(self.weight, self.mean)
        return self

    @property
    def measure(self) -> Measure | None:
        """How a response is scored under this calibration; None where only answers count."""
        if self.signal is None or self.score is None or self.window is None:
            return None
        return Measure(self.signal, self.score, self.window)

    def rule(
        self,
        *,
        confidence: float = DEFAULT_CONFIDENCE,
        on_missing_confidence: Literal["error", "count"] = "error",
        safeguard: Safeguard = "default",
        budget: int = DEFAULT_BUDGET,
        worth: float | None = None,
    ) -> StoppingRule:
        """Return the stopping rule of this calibration.

        Args:
            confidence: the posterior at which the votes are sufficient (the paper's C_threshold).
            on_missing_confidence: see :class:`~langchain_reasc.method.stopping.ReASC`.
            safeguard: ``"default"`` uses gate, weights and measure only where the calibration data support them: the
                gate is the safe one, votes are counted where ``unweighed`` says so, and the rule is ASC where
                ``fallback`` is set or nothing else is left. ``"paper"`` gives the paper's rule regardless.
            budget: responses to a question at most, which the agreement rule looks ahead to.
            worth: samples that a question may cost for one more point of agreement, where the rule was learned without
                labels (:class:`~langchain_reasc.method.value.ValueStop`); 0 for any number, None for what was chosen
                when it was calibrated. Any number where the budget is above 24.

        Raises:
            ConfigurationError: ``safeguard`` or ``confidence`` is invalid.
        """
        if safeguard not in ("default", "paper"):
            raise ConfigurationError(f"safeguard is 'default' or 'paper', got {safeguard!r}")
        if self.counts(safeguard):
            return ASC(confidence)
        if self.rule_ is not None and self.by_agreement(safeguard):
            rule = self.rule_.rule(budget=budget, on_missing_confidence=on_missing_confidence, worth=worth)
            gate, _ = self.gate.under(safeguard)
            return rule if gate is None or self.fallback is not None else rule | FirstAccepted(gate)
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
        if safeguard == "paper" or self.by_agreement(safeguard):
            return False
        return self.fallback is not None or (self.unweighed is not None and self.gate.under(safeguard)[0] is None)

    def by_agreement(self, safeguard: Safeguard = "default") -> bool:
        """Whether the agreement rule decides, and not Algorithm 1 or 2."""
        return self.rule_ is not None and (safeguard == "default" or self.method == "consensus")

    def notices(self, safeguard: Safeguard = "default") -> tuple[str, ...]:
        """Return what a person should know about decisions by this rule."""
        if self.by_agreement(safeguard):
            return (f"votes are counted, not weighed: {self.untrusted}",) if self.untrusted else ()
        guarded = safeguard == "default"
        if guarded and self.fallback is not None:
            return (f"counting votes (ASC): {self.fallback}",)
        notices = []
        if self.method != "consensus":  # whose rule has no gate
            threshold, closed_because = self.gate.under(safeguard)
            if threshold is None:
                notices.append(f"the gate is closed: {closed_because}")
            elif one_group := self.mixture and self.mixture.one_group:
                notices.append(f"the gate stands by the paper's rule, but {one_group}")
        if guarded and self.unweighed:
            notices.append(f"votes are counted, not weighed: {self.unweighed}")
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
        if self.method != "consensus":
            head, of = f"{self.method} on {self.n} responses", _shown(self.auroc, "AUROC")
            parts = [f"{self.measure}, μ {self.mean:.4g}, σ {self.std:.4g}, {self.gate}{of}"]
            parts.append((self.mixture and self.mixture.one_group) or "")
        else:
            head, of = f"consensus on {self.n} questions", _shown(self.within, "AUROC within a question")
            parts = [f"votes weigh by {self.measure}{of}" if self.measure else ""]
        if self.by_agreement():
            parts.append(f"votes are counted, not weighed: {self.untrusted}" if self.untrusted else "")
        elif self.fallback:
            parts.append(f"votes are counted (ASC): {self.fallback}")
        elif why := self.unweighed:
            parts.append(f"votes are counted, not weighed: {why}")
        return f"{head}: {'; '.join(filter(None, parts)) or 'votes are counted'}"


def _shown(auroc: AUROC | None, name: str) -> str:
    return f", {name} {auroc.value:.2f} [{auroc.low:.2f}, {auroc.high:.2f}]" if auroc else ""


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

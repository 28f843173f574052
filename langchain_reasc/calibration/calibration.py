"""The calibration of a model: what was measured, and the stopping rule that follows
from it.

The fields read top-down like the JSON file. ``Calibration.model_json_schema()`` gives
the JSON Schema.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import AwareDatetime, ConfigDict, Field, FiniteFloat, model_validator

from langchain_reasc._version import __version__
from langchain_reasc.calibration.escalation import LearnedEscalation
from langchain_reasc.calibration.parts import (
    AUROC,
    Expectation,
    Gate,
    Mixture,
    Positive,
    Probability,
    Record,
    RejectedMeasure,
)
from langchain_reasc.calibration.stored_rule import RuleBlock, SupportCurve
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import SCORES, SPAN_SCORES, Measure
from langchain_reasc.method.evidence import WEIGHTS, Standardizer
from langchain_reasc.method.stopping import (
    ASC,
    DEFAULT_BUDGET,
    DEFAULT_CONFIDENCE,
    ReASC,
    StoppingRule,
)
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["Calibration", "Fingerprint"]

_UNANSWERED: Final = 0.25
"""Share of the responses: where more have no answer, that is to be mended first."""
_FEWEST: Final = 16
"""Questions that a calibration needs to be relied on."""
_ENOUGH_LABELS: Final = 64
"""Right answers below which P(correct) may be off by a tenth."""
_AS_MANY: Final = 0.95
"""Samples with a calibration, in those without it, from which on it saves nothing."""


class Calibration(Record):
    """What was measured on one model, prompt and sampling. Immutable.

    Attributes:
        schema_version: 3.
        method: ``offline``: Algorithm 1 on labels; ``mixture``: Algorithm 2 on first
            responses without labels; ``consensus``: how far the responses to each
            question agree.
        signal: the token signal, or ``verbalized`` (the confidence that the model
            states); null if only answers count.
        score: how token signals become one response score; null without a signal.
        window: W, tokens per group; null without a signal.
        top_k: k, alternatives per token behind ``top_k`` or ``neg_entropy`` (V if all
            of them).
        vocabulary_size: V of the model, if known.
        n: calibration responses; with ``consensus`` questions.
        mean: μ of the response scores; null without a signal.
        std: σ of the response scores (population); null without a signal.
        lambda_: λ in the weight max(1, exp(λ z)); ``lambda`` in the file.
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        p_target: accuracy required of the responses that the gate accepts.
        gate: the score at which a first response is accepted alone.
        fallback: why a live run counts votes (ASC) and ignores the scores; null if it
            does not.
        unweighed: why a live run does not weigh votes by confidence; null if it does.
        auroc: of right against wrong first responses; null if one class is empty.
        within: the same within a question, averaged over questions; null if unknown.
        accuracy: share of correct calibration responses; with labels.
        mixture: the mixture of Algorithm 2.
        rejected: the measures that ``measure="auto"`` did not choose.
        rule_: the agreement rule, if it decides; ``rule`` in the file.
        untrusted: why the agreement rule reads no scores; null if it reads them.
        guarantee: what the agreement rule promises, in words.
        p_correct: how likely an answer is right; null without labels, or with one
            response to each question.
        expected: what to expect of its rule; null if nobody asked.
        escalation: which answers of the model may stand without asking a larger one;
            null if none was asked.
        fingerprint: the model, sampling and prompt that it was measured on.
        large: the larger model, its sampling and its prompt; null without
            ``escalation``.
        library_version: the version that made it.
        created_at: when it was made.
    """

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    schema_version: Literal[3]
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
    expected: Expectation | None = None
    escalation: LearnedEscalation | None = None
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)
    large: Fingerprint | None = None
    library_version: str
    created_at: AwareDatetime

    @classmethod
    def now(
        cls,
        measure: Measure | None,
        scores: npt.NDArray[np.float64] | None = None,
        **fields: Any,
    ) -> Self:
        """Return a calibration with the current time and version of the library.

        Args:
            measure: how responses are scored; None if only answers count.
            scores: shape (n,), from which μ and σ are computed; None without a measure.
            fields: all other fields.
        """
        return cls(
            schema_version=3,
            library_version=__version__,
            created_at=datetime.now(UTC).replace(microsecond=0),
            signal=measure and measure.signal,
            score=measure and measure.score,
            window=measure and measure.window,
            mean=None if scores is None else float(scores.mean()),
            std=None if scores is None else float(scores.std()),
            **fields,
        )

    @classmethod
    def of_escalation(
        cls,
        known: LearnedEscalation,
        measure: Measure | None,
        fingerprint: Fingerprint,
        large: Fingerprint,
    ) -> Self:
        """Return a calibration that says only when a larger model is asked.

        Args:
            known: what is known of the two models.
            measure: how the first response of the small model is scored; None if it is
                not.
            fingerprint: the small model.
            large: the large model.
        """
        reason = "it only says when a larger model is asked"
        scores = np.array(known.first_scores)
        # No rule by confidence is tested on equal scores, or without scores.
        if not scores.size or not scores.std() > 0:
            measure = None
        return cls.now(
            measure,
            scores if measure else None,
            method="consensus",
            # A calibration file has no smaller number.
            n=max(2, known.rows),
            gate=Gate(threshold=None, closed_because=reason),
            fallback=reason,
            escalation=known,
            fingerprint=fingerprint,
            large=large,
        )

    @model_validator(mode="after")
    def _measured_or_counted(self) -> Self:
        values = (self.signal, self.score, self.window, self.mean, self.std)
        missing = values.count(None)
        if missing not in (0, 5) or (missing and self.method != "consensus"):
            raise ValueError(
                "signal, score, window, mean and std are null together, and only by "
                "consensus"
            )
        return self

    @property
    def measure(self) -> Measure | None:
        """How a response is scored under this calibration; None if only answers count."""
        if self.signal is None or self.score is None or self.window is None:
            return None
        return Measure(self.signal, self.score, self.window)

    @property
    def provenance(self) -> dict[str, int | None]:
        """The ``top_k`` and ``vocabulary_size`` that the scores were computed from."""
        return {"top_k": self.top_k, "vocabulary_size": self.vocabulary_size}

    def rule(
        self,
        *,
        confidence: float = DEFAULT_CONFIDENCE,
        on_missing_confidence: Literal["error", "count"] = "error",
        budget: int = DEFAULT_BUDGET,
    ) -> StoppingRule:
        """Return the stopping rule of this calibration.

        It uses gate, weights and measure only if the calibration data support them: it
        takes the safe gate if there is one, counts votes if ``unweighed`` is set, and
        is ASC if ``fallback`` is set or nothing else is left.

        Args:
            confidence: the posterior at which the votes are sufficient (the paper's
                C_threshold).
            on_missing_confidence: see :class:`~langchain_reasc.method.stopping.ReASC`.
                The agreement rule takes a response without a score as a count.
            budget: responses to a question at most. The agreement rule looks ahead to
                them.

        Raises:
            ConfigurationError: ``confidence`` is invalid.
        """
        if self.counts:
            return ASC(confidence)
        if self.rule_ is not None:
            return self.rule_.rule(budget=budget)
        gate, _ = self.gate.in_use
        # Only a calibration by consensus lacks them.
        assert self.mean is not None and self.std is not None
        return ReASC(
            Standardizer(self.mean, self.std, self.lambda_),
            gate=gate,
            weight="count" if self.unweighed is not None else self.weight,
            confidence=confidence,
            on_missing_confidence=on_missing_confidence,
        )

    def as_in_paper(self) -> Self:
        """Return the same calibration with the paper's rule: Algorithm 1 as it stands,
        without what guards it.

        Raises:
            CalibrationDataError: labels determined no gate and no weights, or there
                were none.
        """
        if self.method == "consensus":
            raise CalibrationDataError(
                "the paper's rule cannot be had of these responses: "
                f"{self.gate.closed_because}"
            )
        unguarded = {
            "gate": self.gate.as_in_paper(),
            "fallback": None,
            "unweighed": None,
            "rule_": None,
            "untrusted": None,
            "guarantee": None,
            "expected": None,
        }
        return self.model_copy(update=unguarded)

    @property
    def counts(self) -> bool:
        """Whether the rule counts votes (ASC) and ignores the scores."""
        if self.by_agreement:
            return False
        return self.fallback is not None or (
            self.unweighed is not None and self.gate.in_use[0] is None
        )

    @property
    def by_agreement(self) -> bool:
        """Whether the agreement rule decides, rather than Algorithm 1 or 2."""
        return self.rule_ is not None

    def notices(self) -> tuple[str, ...]:
        """Return remarks about the rule, for people."""
        if self.fallback is not None and not self.by_agreement:
            return (f"counting votes (ASC): {self.fallback}",)
        notices = []
        if self.method != "consensus" and not self.by_agreement:
            threshold, closed_because = self.gate.in_use
            if threshold is None:
                notices.append(f"the gate is closed: {closed_because}")
            elif self.mixture and self.mixture.one_group:
                notices.append(
                    f"the gate stands by the paper's rule, but {self.mixture.one_group}"
                )
        unweighed = self.untrusted if self.by_agreement else self.unweighed
        if unweighed:
            notices.append(f"votes are counted, not weighed: {unweighed}")
        return tuple(notices)

    def gate_accepts(self, score: float | None) -> bool:
        """Whether a first response with this score is one of those that
        :meth:`gate_promise` describes.
        """
        threshold, _ = self.gate.in_use
        if score is None or threshold is None or self.fallback is not None:
            return False
        return score >= threshold

    def gate_promise(self) -> str:
        """Say how many of the first responses that the gate accepts are right."""
        gate = self.gate
        if gate.level is not None and gate.lower_bound is not None:
            return (
                f"of such responses {gate.lower_bound:.0%} or more are right, "
                f"{gate.level:.0%} sure by the {gate.accepted} that calibration "
                "accepted"
            )
        if self.method == "mixture":
            return (
                f"{self.p_target:.0%} of such responses are right, by two groups of "
                "scores and no labels"
            )
        return (
            f"in calibration {self.p_target:.0%} or more of such responses were right, "
            "an optimistic figure"
        )

    def __repr__(self) -> str:
        model = f" of {self.fingerprint.model}" if self.fingerprint.model else ""
        return f"<Calibration{model}: {self.summary()}>"

    def __str__(self) -> str:
        sentence, advice = self.plain_words()
        return (
            f"{sentence} Next: {advice or 'ReASCRunnable(model=..., calibration=...)'}."
        )

    def summary(self) -> str:
        """Say in a sentence what it will do for its user."""
        return self.plain_words()[0]

    def plain_words(self) -> tuple[str, str | None]:
        """Return what a calibration will do for its user, and what to do next, in
        Python's words; None: use it.
        """
        if self.escalation is not None:
            return self.escalation.plain_words()
        problem, advice = self._problem()
        if problem:
            sentence = f"This calibration is of little use: {problem}."
            return sentence, advice
        if self.expected and self.expected.all_equal:
            same = "All responses to a question gave the same answer"
            if self.fingerprint.sampling.get("temperature") == 0:
                sentence = f"{same} (temperature 0), so asking once is enough."
                return sentence, "raise the temperature, and calibrate again"
            sentence = f"{same}, so asking once is enough."
            return sentence, "ask once, without ReASC, if all questions are like these"
        return self._savings()

    def _problem(self) -> tuple[str, str]:
        """Return what makes the calibration of little use, and what to do about it."""
        expected = self.expected
        if expected and expected.unanswered >= _UNANSWERED:
            cut_off = expected.cut_off
            if cut_off is not None and cut_off > expected.unanswered / 2:
                return (
                    f"{cut_off:.0%} of the responses were cut off before their answer",
                    "allow the model more tokens (max_tokens=...), and calibrate again",
                )
            advice = "say where the answer is (answer=...)"
            if cut_off is None:
                advice += (
                    ", or allow more tokens (max_tokens=...) if responses are cut off"
                )
            return (
                f"no answer was found in {expected.unanswered:.0%} of the responses",
                f"{advice}, and calibrate again",
            )
        if self.accuracy == 0:
            return (
                f"none of the {self.n} first responses is right",
                "say where the answer is (answer=...), or which field has the right "
                "answers (answer_field=...), and calibrate again",
            )
        if self.n < _FEWEST:
            return (
                f"{self.n} questions are too few",
                "calibrate on 64 questions or more",
            )
        return "", ""

    def _savings(self) -> tuple[str, str | None]:
        """Return how many samples the calibration saves, and what to do next."""
        expected = self.expected
        why_counted = self.untrusted or self.fallback or self.unweighed
        remark = "."
        if why_counted:
            remark = f", because votes are counted: {why_counted}."
        if self.p_correct:
            remark += " Results have p_correct."
        if (
            expected is None
            or expected.samples is None
            or expected.uncalibrated is None
        ):
            if self.counts:
                return (
                    "This calibration saves nothing: votes are counted, as without "
                    f"it{remark}",
                    "calibrate on several responses to each question (max_samples=...)",
                )
            reason = "confident responses count for more"
            # The gate saves most, so it is named first.
            if self.gate.in_use[0] is not None:
                reason = "a confident first response is accepted alone"
            elif why_counted:
                reason = "votes agree sooner"
            return f"Expect fewer samples: {reason}.", None
        samples = _rounded(expected.samples)
        without = _rounded(expected.uncalibrated)
        if expected.samples >= _AS_MANY * expected.uncalibrated:
            return (
                f"This calibration saves nothing: about {samples} samples of "
                f"{expected.budget} are asked with it, and about {without} without "
                f"it{remark}",
                None if self.p_correct else "leave it out",
            )
        sentence = (
            f"Expect about {samples} samples in place of {expected.budget} for nearly "
            f"the same answers; without this calibration it would be about {without}."
        )
        if self.p_correct:
            sentence += " It also tells how likely an answer is right."
            if self.p_correct.n < _ENOUGH_LABELS:
                return sentence, (
                    f"give {_ENOUGH_LABELS} right answers or more: {self.p_correct.n} "
                    "leave that probability uncertain"
                )
        return sentence, None


def _rounded(samples: float) -> str:
    if samples < 10:
        return f"{samples:.1f}"
    return f"{samples:.0f}"

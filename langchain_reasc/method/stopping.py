"""Stopping rules: (responses so far) → go on, or stop with an answer, and why.

A rule is a pure function of the responses in launch order. Rules compose: ``ReASC(...) | Cap(16)`` stops when either
does, ``a & b`` when both do; the evidence and the answer are always those of the left one. Live sampling, ``batch``,
replay over recorded samples and the tests all call :func:`decide`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.checks import (
    check_budget,
    check_on_missing,
    check_probability,
    check_statistics,
    missing_score,
)
from langchain_reasc.method.decision import Decision, Reason, Response
from langchain_reasc.method.evidence import WEIGHTS, Standardizer, evidence_by_answer, leader, posterior
from langchain_reasc.method.levels import by_kind

__all__ = ["ASC", "ESC", "Cap", "Decision", "FixedBudget", "ReASC", "Response", "StoppingRule", "decide"]

DEFAULT_CONFIDENCE = 0.95  # C_threshold
DEFAULT_BUDGET = 16


class StoppingRule(ABC):
    """A pure function ``Sequence[Response] -> Decision`` that composes with ``|`` and ``&``.

    Attributes:
        called: what accounts call the method.
        whole_budget: whether it never stops by itself, and is to be combined with :class:`Cap`.
    """

    called: ClassVar[str]
    whole_budget: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What accounts call the method: of several that are composed, the left one."""
        return self.called

    @property
    def may_accept_first(self) -> bool:
        """Whether it may stop after one response, which is then launched alone."""
        return False

    @property
    def reads_scores(self) -> bool:
        """Whether it reads the scores of responses, and not their answers alone."""
        return False

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> Decision:
        """Decide after exactly these responses, without looking for an earlier stop."""

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """The evidence each response contributes to its answer: one, unless the rule reads confidence."""
        return [1.0] * len(responses)

    def __or__(self, other: "StoppingRule") -> "StoppingRule":
        return _Either(self, other)

    def __and__(self, other: "StoppingRule") -> "StoppingRule":
        return _Both(self, other)

    def _tally(self, responses: Sequence[Response], reason: Reason | None = None) -> Decision:
        answers = (response.answer for response in responses)
        evidence = evidence_by_answer(zip(answers, self.weights(responses), strict=True))
        return Decision(
            stop=reason is not None,
            answer=leader(evidence),
            reason=reason,
            samples=len(responses),
            evidence=evidence,
            posterior=posterior(evidence),
        )


def decide(rule: StoppingRule, responses: Sequence[Response]) -> Decision:
    """The decision at the earliest prefix where ``rule`` stops, or "go on" after all of them.

    Responses are taken in launch order, so the outcome does not depend on which of a wave arrived first. Where any has
    a kind, the kinds are voted on first (:mod:`.levels`). A first response that is to be taken ``alone`` is the answer.
    """
    if responses and responses[0].alone:
        return Decision(stop=True, answer=responses[0].answer, reason="alone", samples=1)
    if any(response.alone for response in responses):
        responses = [one.voting(None) if one.alone else one for one in responses]
    for n in range(1, len(responses) + 1):
        decision = _after(rule, responses[:n])
        if decision.stop:
            return decision
    return _after(rule, responses)


def _after(rule: StoppingRule, responses: Sequence[Response]) -> Decision:
    if any(response.kind is not None for response in responses):
        return by_kind(rule, responses)
    return rule(responses)


@dataclass(frozen=True)
class Cap(StoppingRule):
    """Stop at ``samples`` responses, whatever they say; on its own, self-consistency with a fixed budget."""

    called: ClassVar[str] = "fixed_budget"
    samples: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_budget(self.samples)

    def __call__(self, responses: Sequence[Response]) -> Decision:
        return self._tally(responses, "budget" if len(responses) >= self.samples else None)


FixedBudget = Cap
"""Self-consistency SC@k is ``FixedBudget(k)``, pass@1 is ``FixedBudget(1)``."""


@dataclass(frozen=True)
class ASC(StoppingRule):
    """Adaptive-Consistency (Aggarwal et al. 2023): the Beta rule on counts."""

    called: ClassVar[str] = "asc"
    confidence: float = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        check_probability("confidence", self.confidence)

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self._tally(responses)
        return replace(tally, stop=True, reason="evidence") if tally.posterior >= self.confidence else tally


@dataclass(frozen=True)
class ESC(StoppingRule):
    """Early-Stopping Self-Consistency (Li et al. 2024): stop when one of the disjoint windows is unanimous.

    The answer is that window's; while none is, the majority of all responses.
    """

    called: ClassVar[str] = "esc"
    window: int = 4

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigurationError(f"an ESC window holds at least 1 response, got {self.window}")

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self._tally(responses)
        for start in range(0, len(responses) - self.window + 1, self.window):
            answers = {response.answer for response in responses[start : start + self.window]}
            if len(answers) == 1 and None not in answers:
                return replace(tally, stop=True, reason="window", answer=answers.pop())
        return tally


@dataclass(frozen=True)
class ReASC(StoppingRule):
    """Reliability-aware adaptive self-consistency.

    Stage 1 accepts the first response when ``S(y) ≥ gate``; it is otherwise the first vote of Stage 2, where each
    response adds ``weight(z)`` to its answer until the Beta posterior reaches ``confidence``.

    Attributes:
        statistics: μ, σ and λ of the calibration.
        gate: τ_gate, or None for a closed gate (every input goes on to Stage 2).
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        confidence: C_threshold of the Beta rule.
        on_missing_confidence: ``"error"``, or ``"count"`` to let a response without a score count as one vote.
    """

    called: ClassVar[str] = "reasc"
    statistics: Standardizer
    gate: float | None = None
    weight: str = "reasc"
    confidence: float = DEFAULT_CONFIDENCE
    on_missing_confidence: Literal["error", "count"] = "error"

    def __post_init__(self) -> None:
        check_probability("confidence", self.confidence)
        if self.weight not in WEIGHTS:
            raise ConfigurationError(f"unknown weight {self.weight!r}; choose one of {', '.join(WEIGHTS)}")
        check_on_missing(self.on_missing_confidence)
        check_statistics(self.statistics)

    @property
    def may_accept_first(self) -> bool:
        return self.gate is not None

    @property
    def reads_scores(self) -> bool:
        return self.gate is not None or self.weight != "count"

    def __call__(self, responses: Sequence[Response]) -> Decision:
        if len(responses) == 1 and self._accepts(responses[0]):
            return self._tally(responses, "gate")
        tally = self._tally(responses)
        return replace(tally, stop=True, reason="evidence") if tally.posterior >= self.confidence else tally

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """``max(1, exp(λ z))`` for each response, or the alternative that ``weight`` names."""
        return [self._weight(response) for response in responses]

    def _accepts(self, response: Response) -> bool:
        if self.gate is None or response.answer is None or response.score is None or response.cut_off:
            return False
        return response.score >= self.gate

    def _weight(self, response: Response) -> float:
        if response.answer is None or response.alone:
            return 0.0  # no vote, so its confidence is not asked for
        if response.score is None:
            if self.on_missing_confidence == "error" and self.weight != "count":
                raise missing_score()
            return 1.0
        return WEIGHTS[self.weight](response.score, self.statistics)


@dataclass(frozen=True)
class _Either(StoppingRule):
    left: StoppingRule
    right: StoppingRule

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.left(responses)
        if decision.stop:
            return decision
        other = self.right(responses)
        return replace(decision, stop=other.stop, reason=other.reason)

    @property
    def name(self) -> str:
        return self.left.name

    @property
    def may_accept_first(self) -> bool:
        return self.left.may_accept_first or self.right.may_accept_first

    @property
    def reads_scores(self) -> bool:
        return self.left.reads_scores or self.right.reads_scores

    def weights(self, responses: Sequence[Response]) -> list[float]:
        return self.left.weights(responses)


@dataclass(frozen=True)
class _Both(_Either):
    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.left(responses)
        stop = decision.stop and self.right(responses).stop
        return replace(decision, stop=stop, reason=decision.reason if stop else None)

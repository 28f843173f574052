"""Stopping rules: map the responses so far to a decision to go on, or to stop with an answer and a reason.

A rule is a pure function of the responses in launch order. Rules compose: ``ReASC(...) | Cap(16)`` stops when either
does, ``a & b`` when both do; the evidence and the answer are those of the left one. Live sampling, ``batch``, replay
over recorded samples and the tests all call :func:`decide`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from numbers import Integral
from typing import ClassVar, Literal

from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.decision import Decision, Reason, Response, decide_by_kind
from langchain_reasc.method.evidence import WEIGHTS, Standardizer, evidence_by_answer, leader, posterior

__all__ = [
    "ASC",
    "ESC",
    "Cap",
    "Decision",
    "FirstAccepted",
    "FixedBudget",
    "OnMissing",
    "ReASC",
    "Response",
    "StoppingRule",
    "Supported",
    "check_budget",
    "check_on_missing",
    "check_probability",
    "decide",
    "fewest_further",
    "missing_score",
]

DEFAULT_CONFIDENCE = 0.95  # C_threshold
DEFAULT_BUDGET = 16
_LARGEST_BUDGET = 10_000

OnMissing = Literal["error", "count"]
"""What becomes of a response without a score."""


class StoppingRule(ABC):
    """A pure function ``Sequence[Response] -> Decision`` that composes with ``|`` and ``&``.

    Attributes:
        name: what results and calibration files call the method; of a composed rule, that of the left one.
        earliest: responses before which it never stops.
        may_accept_first: whether it may stop after one response, which is then launched alone.
        reads_scores: whether it reads the scores of responses, and not their answers alone.
    """

    name: ClassVar[str]

    @property
    def earliest(self) -> int:
        return 1

    @property
    def may_accept_first(self) -> bool:
        return False

    @property
    def reads_scores(self) -> bool:
        return False

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> Decision:
        """Decide after exactly these responses, without looking for an earlier stop."""

    def prepare(self) -> None:  # noqa: B027 (most rules look up nothing)
        """Work out what decisions look up, once: for a rule that looks ahead it takes up to half a second."""

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return the evidence each response contributes to its answer: one, unless the rule reads confidence."""
        return [1.0] * len(responses)

    def tally(self, responses: Sequence[Response], reason: Reason | None = None) -> Decision:
        """Return the decision for the answer with the most evidence: to stop for this reason, or to go on."""
        answers = [response.answer for response in responses]
        evidence = evidence_by_answer(zip(answers, self.weights(responses), strict=True))
        stop = reason is not None
        return Decision(stop, leader(evidence), reason, len(responses), evidence, posterior(evidence))

    def __or__(self, other: "StoppingRule") -> "StoppingRule":
        return _Either(self, other)

    def __and__(self, other: "StoppingRule") -> "StoppingRule":
        return _Both(self, other)


def decide(rule: StoppingRule, responses: Sequence[Response], *, undecided: int = 0) -> Decision:
    """Return the decision at the earliest prefix where ``rule`` stops, or "go on" after all of them.

    Responses are taken in launch order, so the outcome does not depend on which of a wave arrived first. Where any has
    a kind, the kinds are voted on first. Where the first that says anything is to be taken ``alone``, it
    is the answer.

    Args:
        rule: decides after exactly the responses it is given.
        responses: in launch order.
        undecided: how many of them are known to decide nothing.
    """
    first = next((at for at, one in enumerate(responses) if one.instead != ""), None)
    if first is not None and responses[first].alone:
        return Decision(stop=True, answer=responses[first].answer, reason="alone", samples=first + 1)
    if any(response.alone for response in responses):
        responses = [one.voting(None) if one.alone else one for one in responses]
    flat = next((at for at, one in enumerate(responses) if one.kind is not None), len(responses))
    for n in range(min(max(rule.earliest, undecided + 1), len(responses)), len(responses) + 1):
        decision = rule(responses[:n]) if n <= flat else decide_by_kind(rule, responses[:n])
        if decision.stop:
            break
    return decision


def fewest_further(rule: StoppingRule, responses: Sequence[Response], most: int) -> int:
    """Return how many further responses could decide; ``most`` where fewer could not.

    They are taken to repeat the leading answer, or the last one (a window may be full with it next), each with the
    largest weight that a response with that answer had so far. A response that weighs more may decide earlier. Where
    none has an answer yet, they agree on any, or have none either; a rule that reads scores foresees the latter alone.

    Args:
        rule: has not stopped yet.
        responses: so far, in launch order.
        most: one or more.
    """
    weighed = zip(responses, rule.weights(responses), strict=True)
    heaviest = {one.answer: one for one, _ in sorted(weighed, key=lambda pair: pair[1]) if one.answer is not None}
    known = len(responses)
    leading = decide(rule, responses, undecided=known)
    last = next((one.answer for one in reversed(responses) if one.answer is not None), None)
    further = [heaviest[answer] for answer in {leading.answer, leading.whole, last} if answer in heaviest]
    if not heaviest:
        further = [*responses[-1:], *([] if rule.reads_scores else [Response("")])]
    for more in range(1, most):
        given = ([*responses, *[one] * more] for one in further)
        if any(decide(rule, one, undecided=known + more - 1).stop for one in given):
            return more
    return most


@dataclass(frozen=True)
class Cap(StoppingRule):
    """Stop at ``samples`` responses, whatever they say; on its own, self-consistency with a fixed budget."""

    name: ClassVar[str] = "fixed_budget"
    samples: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_budget(self.samples)

    @property
    def earliest(self) -> int:
        return self.samples

    def __call__(self, responses: Sequence[Response]) -> Decision:
        return self.tally(responses, "budget" if len(responses) >= self.samples else None)


FixedBudget = Cap
"""Self-consistency SC@k is ``FixedBudget(k)``, pass@1 is ``FixedBudget(1)``."""


@dataclass(frozen=True)
class ASC(StoppingRule):
    """Adaptive-Consistency (Aggarwal et al. 2023): the Beta rule on counts."""

    name: ClassVar[str] = "asc"
    confidence: float = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        check_probability("confidence", self.confidence)

    @cached_property
    def earliest(self) -> int:
        return next(n for n in count(1) if 1 - 0.5 ** (n + 1) >= self.confidence)  # Eq. 5 without other votes

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        return replace(votes, stop=True, reason="evidence") if votes.posterior >= self.confidence else votes


@dataclass(frozen=True)
class ESC(StoppingRule):
    """Early-Stopping Self-Consistency (Li et al. 2024): stop when one of the disjoint windows is unanimous.

    The answer is that window's; while none is, the majority of all responses.
    """

    name: ClassVar[str] = "esc"
    window: int = 4

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigurationError(f"an ESC window holds at least 1 response, got {self.window}")

    @property
    def earliest(self) -> int:
        return self.window

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        for start in range(0, len(responses) - self.window + 1, self.window):
            answers = {response.answer for response in responses[start : start + self.window]}
            if len(answers) == 1 and None not in answers:
                return replace(votes, stop=True, reason="window", answer=answers.pop())
        return votes


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

    name: ClassVar[str] = "reasc"
    statistics: Standardizer
    gate: float | None = None
    weight: str = "reasc"
    confidence: float = DEFAULT_CONFIDENCE
    on_missing_confidence: OnMissing = "error"

    def __post_init__(self) -> None:
        check_probability("confidence", self.confidence)
        check_on_missing(self.on_missing_confidence)
        if self.weight not in WEIGHTS:
            raise ConfigurationError(f"unknown weight {self.weight!r}; choose one of {', '.join(WEIGHTS)}")
        if not self.statistics.std > 0:
            raise ConfigurationError(f"σ must be above zero, got {self.statistics.std}")

    @property
    def may_accept_first(self) -> bool:
        return self.gate is not None

    @property
    def reads_scores(self) -> bool:
        return self.gate is not None or self.weight != "count"

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        if self.gate is not None and _accepts(self.gate, responses):
            return replace(votes, stop=True, reason="gate")
        return replace(votes, stop=True, reason="evidence") if votes.posterior >= self.confidence else votes

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return ``max(1, exp(λ z))`` for each response, or the alternative that ``weight`` names."""
        return [self._weight(response) for response in responses]

    def _weight(self, response: Response) -> float:
        if response.answer is None or response.alone:
            return 0.0  # no vote, so that it needs no score
        if response.score is None:
            if self.on_missing_confidence == "error" and self.weight != "count":
                raise missing_score()
            return 1.0
        return WEIGHTS[self.weight](response.score, self.statistics)


@dataclass(frozen=True)
class FirstAccepted(StoppingRule):
    """Stage 1 alone: accept the first response when ``S(y) ≥ gate``. It goes with a rule: ``rule | FirstAccepted(t)``.

    Attributes:
        gate: τ_gate.
    """

    name: ClassVar[str] = "gate"
    gate: float

    @property
    def may_accept_first(self) -> bool:
        return True

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        return replace(votes, stop=True, reason="gate") if _accepts(self.gate, responses) else votes


def _accepts(gate: float, responses: Sequence[Response]) -> bool:
    first = responses[0] if len(responses) == 1 else None
    if first is None or first.answer is None or first.score is None or first.cut_off:
        return False
    return first.score >= gate


@dataclass(frozen=True)
class Supported(StoppingRule):
    """Apply a rule, and accept its answer only once it has more than ``share`` of the evidence.

    A rule that looks ahead stops on 4 votes of 15 if no other answer can overtake them: the vote would not change, but
    most responses say something else. Here sampling then goes on while the samples left, if all of them give the
    leader, can lift it above the share. Once they cannot, sampling stops: the reason is ``plurality``, and the answer
    counts as undecided. A response without an answer counts as one vote against the leader, and a sample to come counts
    as much as the votes so far do on average.

    Attributes:
        rule: what decides.
        share: from 0, which accepts every answer, to below 1.
        budget: responses in all.
    """

    name: ClassVar[str] = "supported"
    rule: StoppingRule
    share: float = 0.5
    budget: int = DEFAULT_BUDGET

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.rule(responses)
        if decision.answer is None or decision.undecided:
            return decision
        unanswered = sum(one.answer is None for one in responses)
        given = sum(decision.evidence.values())
        lead, total = decision.evidence.get(decision.answer, 0.0), given + unanswered
        if decision.stop and lead > self.share * total:
            return decision
        votes = sum(one.answer is not None for one in responses)
        left = max(0, self.budget - len(responses)) * given / votes
        if lead + left > self.share * (total + left):
            return replace(decision, stop=False, reason=None)
        return replace(decision, stop=True, reason="plurality")

    @property
    def earliest(self) -> int:
        return self.rule.earliest

    @property
    def may_accept_first(self) -> bool:
        return self.rule.may_accept_first

    @property
    def reads_scores(self) -> bool:
        return self.rule.reads_scores

    def weights(self, responses: Sequence[Response]) -> list[float]:
        return self.rule.weights(responses)


@dataclass(frozen=True)
class _Either(StoppingRule):
    left: StoppingRule
    right: StoppingRule

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.left(responses)
        if decision.stop or len(responses) < self.right.earliest:
            return decision
        other = self.right(responses)
        return replace(decision, stop=True, reason=other.reason) if other.stop else decision

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.left.name

    @property
    def earliest(self) -> int:
        return min(self.left.earliest, self.right.earliest)

    @property
    def may_accept_first(self) -> bool:
        return self.left.may_accept_first or self.right.may_accept_first

    @property
    def reads_scores(self) -> bool:
        return self.left.reads_scores or self.right.reads_scores

    def prepare(self) -> None:
        self.left.prepare()
        self.right.prepare()

    def weights(self, responses: Sequence[Response]) -> list[float]:
        return self.left.weights(responses)


@dataclass(frozen=True)
class _Both(_Either):
    @property
    def earliest(self) -> int:
        return max(self.left.earliest, self.right.earliest)

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.left(responses)
        if decision.stop and not self.right(responses).stop:
            return replace(decision, stop=False, reason=None)
        return decision


def check_probability(name: str, value: float) -> None:
    """Refuse what is no probability above one half, which no votes at all give already, and below one."""
    if not 0.5 < value < 1.0:
        raise ConfigurationError(f"{name} is a probability above 0.5 and below 1, got {value}")


def check_budget(samples: int) -> None:
    """Require a whole number of 1 to 10,000 responses: the time to look ahead grows with the square of the budget."""
    if not isinstance(samples, Integral) or samples < 1:
        raise ConfigurationError(f"a budget is a whole number of at least 1 sample, got {samples}")
    if samples > _LARGEST_BUDGET:
        raise ConfigurationError(f"a budget is at most {_LARGEST_BUDGET:,} samples, got {samples}")


def check_on_missing(value: str) -> None:
    """Refuse an unknown way to take a response without a score."""
    if value not in ("error", "count"):
        raise ConfigurationError(f"on_missing_confidence is 'error' or 'count', got {value!r}")


def missing_score() -> LogprobsUnavailable:
    """Build the error for a response without a score, where ``on_missing_confidence`` is ``"error"``."""
    return LogprobsUnavailable(
        "a response has no confidence score; make the model return logprobs, or accept plain counting with "
        "on_missing_confidence='count'"
    )

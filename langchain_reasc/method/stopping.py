"""Stopping rules: decide from the responses so far whether to continue, or to stop with
an answer and a reason.

A rule is a pure function of the responses in launch order. Rules compose:
``ReASC(...) | Cap(16)`` stops when either rule stops, and ``a & b`` when both do. The
evidence and the answer are those of the left rule. Live sampling, ``batch``, replay of
recorded samples and the tests all call :func:`decide`.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from numbers import Integral
from typing import ClassVar, Literal

from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.decision import (
    BLANK,
    Decision,
    Reason,
    Response,
    decide_by_kind,
    is_cut_off_alone,
    joined,
)
from langchain_reasc.method.evidence import (
    WEIGHTS,
    Standardizer,
    check_weight,
    evidence_by_answer,
    leader,
    posterior,
    two_largest,
)

logger = logging.getLogger(__name__)

__all__ = [
    "ASC",
    "ESC",
    "Cap",
    "Decision",
    "FirstAccepted",
    "FixedBudget",
    "Lead",
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
"""How to treat a response without a score."""


class StoppingRule(ABC):
    """A pure function ``Sequence[Response] -> Decision`` that composes with ``|`` and
    ``&``.

    When a runnable is made, its rule is asked once about a made-up answer, so that what
    the rule computes ahead is ready for the first question.

    Attributes:
        name: the method's name in results and calibration files. A composed rule has
            the name of its left rule.
        first_wave: the most responses to launch before any has come; None for any
            number. A rule that may accept the first response has 1.
        reads_scores: whether it reads scores, and not only answers.
    """

    name: ClassVar[str]

    @property
    def first_wave(self) -> int | None:
        return None

    @property
    def reads_scores(self) -> bool:
        return False

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> Decision:
        """Decide after exactly these responses, without checking for an earlier stop."""

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return the evidence that each response adds to its answer: one, unless the
        rule reads confidence.
        """
        return [1.0] * len(responses)

    def tally(
        self, responses: Sequence[Response], reason: Reason | None = None
    ) -> Decision:
        """Return a decision for the answer with the most evidence: stop for this
        reason, or continue if None.
        """
        answers = [response.answer for response in responses]
        evidence = evidence_by_answer(
            zip(answers, self.weights(responses), strict=True)
        )
        stop = reason is not None
        return Decision(
            stop,
            leader(evidence),
            reason,
            len(responses),
            evidence,
            posterior(evidence),
        )

    def __or__(self, other: "StoppingRule") -> "StoppingRule":
        return _Either(self, other)

    def __and__(self, other: "StoppingRule") -> "StoppingRule":
        return _Both(self, other)


def decide(
    rule: StoppingRule, responses: Sequence[Response], *, undecided: int = 0
) -> Decision:
    """Return the decision at the earliest prefix of the responses at which ``rule``
    stops, or else the last decision.

    Responses are in launch order, so the result does not depend on their order of
    arrival. If any response has a kind, the kinds are voted on first. If the first
    response that is not empty is marked ``not_voted``, it is the answer.

    Args:
        rule: decides after exactly the responses it is given.
        responses: responses in launch order.
        undecided: the number of first responses that are known not to stop the rule.
    """
    for index, response in enumerate(responses):
        if response.instead == "":  # an empty one
            continue
        if response.not_voted:
            return Decision(
                stop=True, answer=response.answer, reason="alone", samples=index + 1
            )
        break
    if any(response.not_voted for response in responses):
        responses = [
            response.voting(None) if response.not_voted else response
            for response in responses
        ]
    has_kind = [response.kind is not None for response in responses]
    # The responses before the first one that has a kind.
    flat = has_kind.index(True) if any(has_kind) else len(responses)
    shortest = min(undecided + 1, len(responses))
    for samples in range(shortest, len(responses) + 1):
        first_responses = joined(responses[:samples])
        if samples <= flat:
            decision = rule(first_responses)
        else:
            decision = decide_by_kind(rule, first_responses)
        if decision.stop:
            break
    return decision


def warm_up(rule: StoppingRule) -> None:
    """Let a rule compute the tables that its decisions need. For a rule that looks
    ahead this takes up to half a second.
    """
    try:
        rule([Response("5", 0.0)])
    except Exception:  # of a user's rule, which may not read such an answer
        logger.debug("%s decides nothing on a made-up answer", rule, exc_info=True)


def fewest_further(rule: StoppingRule, responses: Sequence[Response], most: int) -> int:
    """Return the fewest further responses that could stop the rule, at most ``most``.

    Assume that they repeat the leading answer, or the last answer (which may complete a
    window), each with the largest weight and score of a response with that answer so
    far, or that all are blank, if one was. A response with a larger weight or score may
    stop the rule earlier. If no response has an answer yet, assume that they all agree,
    or that none has an answer; for a rule that reads scores, only the latter.

    Args:
        rule: a rule that has not stopped yet.
        responses: the responses so far, in launch order.
        most: one or more.
    """
    heaviest: dict[str, Response] = {}
    highest: dict[str, tuple[float, float]] = {}
    for response, weight in zip(responses, rule.weights(responses), strict=True):
        answer = response.answer
        if answer is None:
            continue
        score = -math.inf if response.score is None else response.score
        if answer not in highest or (weight, score) >= highest[answer]:
            heaviest[answer] = response
            highest[answer] = (weight, score)
    if heaviest:
        further = _leading_and_last(rule, responses, heaviest)
    else:
        further = list(responses[-1:])
        if not rule.reads_scores:
            further.append(Response(""))
    for more in range(1, most):
        undecided = len(responses) + more - 1
        for response in further:
            longer = [*responses, *[response] * more]
            if decide(rule, longer, undecided=undecided).stop:
                return more
    return most


def _leading_and_last(
    rule: StoppingRule,
    responses: Sequence[Response],
    heaviest: Mapping[str, Response],
) -> list[Response]:
    """Return responses that may come: the heaviest with the leading answer and with the
    last one, and one that is blank, if one was.
    """
    leading = decide(rule, responses, undecided=len(responses))
    last = [response.answer for response in responses if response.answer is not None]
    answers = {leading.answer, leading.whole, last[-1]}
    further = [response for answer, response in heaviest.items() if answer in answers]
    for response in responses:
        if response.blank:
            return [*further, response]
    return further


@dataclass(frozen=True)
class Cap(StoppingRule):
    """Stop at ``samples`` responses. Alone, this is self-consistency with a fixed
    budget.
    """

    name: ClassVar[str] = "fixed_budget"
    samples: int = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        check_budget(self.samples)

    @property
    def first_wave(self) -> int:
        return self.samples

    def __call__(self, responses: Sequence[Response]) -> Decision:
        return self.tally(
            responses, "budget" if len(responses) >= self.samples else None
        )


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
    def first_wave(self) -> int:
        # Eq. 5 without other votes.
        return next(n for n in count(1) if 1 - 0.5 ** (n + 1) >= self.confidence)

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        if votes.posterior >= self.confidence:
            return replace(votes, stop=True, reason="evidence")
        return votes


@dataclass(frozen=True)
class ESC(StoppingRule):
    """Early-Stopping Self-Consistency (Li et al. 2024): stop when one of the disjoint
    windows is unanimous.

    The answer is that of the window, or the majority of all responses if no window is
    unanimous.
    """

    name: ClassVar[str] = "esc"
    window: int = 4

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigurationError(
                f"window must be at least 1 response, got {self.window}"
            )

    @property
    def first_wave(self) -> int:
        return self.window

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        for start in range(0, len(responses) - self.window + 1, self.window):
            answers = {
                response.answer for response in responses[start : start + self.window]
            }
            if len(answers) == 1 and answers.isdisjoint({None, BLANK}):
                return replace(votes, stop=True, reason="window", answer=answers.pop())
        return votes


@dataclass(frozen=True)
class Lead(StoppingRule):
    """Stop when the leader has ``k`` votes more than every other answer.

    This is the rule of MAKER (Meyerson et al. 2025; arXiv 2511.09030), whose runs had k
    = 3. If each response is right with probability p, and all wrong responses agree,
    this is the gambler's ruin, and the leader is right with probability
    ``1 / (1 + ((1 − p) / p)^k)``. A lead of 2 takes fewer samples, a lead of 3 is
    safer. The posterior is that of Eq. 5. The rule itself does not stop at the end of
    the budget; combine it with :class:`Cap`.

    Attributes:
        k: the lead in votes, at least 1.

    Raises:
        ConfigurationError: k is not an integer, or below 1.
    """

    name: ClassVar[str] = "lead"
    k: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.k, Integral) or self.k < 1:
            raise ConfigurationError(
                f"k must be an integer >= 1, the lead in votes; got {self.k}"
            )

    @property
    def first_wave(self) -> int:
        return self.k

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        first, second = two_largest(votes.evidence)
        if first - second >= self.k:
            return replace(votes, stop=True, reason="evidence")
        return votes


@dataclass(frozen=True)
class ReASC(StoppingRule):
    """Reliability-aware adaptive self-consistency.

    Stage 1 accepts the first response if ``S(y) ≥ gate``. Otherwise it becomes the
    first vote of Stage 2, in which each response adds ``weight(z)`` to its answer until
    the Beta posterior reaches ``confidence``.

    Attributes:
        statistics: μ, σ and λ of the calibration.
        gate: τ_gate, or None for a closed gate (every question continues with Stage 2).
        weight: a name in :data:`~langchain_reasc.method.evidence.WEIGHTS`.
        confidence: C_threshold of the Beta rule.
        on_missing_confidence: ``"error"``, or ``"count"`` to count a response without a
            score as one vote.
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
        check_weight(self.weight)
        if not self.statistics.std > 0:
            raise ConfigurationError(f"σ must be above zero, got {self.statistics.std}")

    @property
    def first_wave(self) -> int | None:
        return None if self.gate is None else 1

    @property
    def reads_scores(self) -> bool:
        return self.gate is not None or self.weight != "count"

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        if self.gate is not None and _accepts(self.gate, responses):
            return replace(votes, stop=True, reason="gate")
        if votes.posterior >= self.confidence:
            return replace(votes, stop=True, reason="evidence")
        return votes

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return ``max(1, exp(λ z))`` for each response, or one if ``weight`` is
        ``"count"``.
        """
        return [self._weight(response) for response in responses]

    def _weight(self, response: Response) -> float:
        if response.answer is None or response.not_voted:
            return 0.0  # no vote, so that it needs no score
        if response.blank:
            return 1.0
        if response.score is None:
            if self.on_missing_confidence == "error" and self.weight != "count":
                raise missing_score()
            return 1.0
        return self.weight_of(response.score)

    def weight_of(self, score: float) -> float:
        """Return the weight of a response with this score."""
        return WEIGHTS[self.weight](score, self.statistics)


@dataclass(frozen=True)
class FirstAccepted(StoppingRule):
    """Stage 1 alone: accept the first response if ``S(y) ≥ gate``. Combine it:
    ``rule | FirstAccepted(t)``.

    Attributes:
        gate: τ_gate.
    """

    name: ClassVar[str] = "gate"
    gate: float

    @property
    def first_wave(self) -> int:
        return 1

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        if _accepts(self.gate, responses):
            return replace(votes, stop=True, reason="gate")
        return votes


def _accepts(gate: float, responses: Sequence[Response]) -> bool:
    """Return whether a gate accepts the responses, which are the first one alone."""
    if len(responses) != 1 or is_cut_off_alone(responses):
        return False
    first = responses[0]
    return first.answer is not None and first.score is not None and first.score >= gate


class Around(StoppingRule):
    """A rule around another one, whose properties it has.

    Attributes:
        rule: the other rule.
    """

    rule: StoppingRule

    @property
    def first_wave(self) -> int | None:
        return self.rule.first_wave

    @property
    def reads_scores(self) -> bool:
        return self.rule.reads_scores

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return those of the other rule."""
        return self.rule.weights(responses)


@dataclass(frozen=True)
class Supported(Around):
    """Apply a rule, and accept its answer only if it has more than ``share`` of the
    evidence.

    A rule that looks ahead may stop with 4 votes of 15 because no other answer can
    overtake, although most responses disagree. This rule then continues as long as the
    remaining samples could lift the leader above the share, if all of them gave the
    leader. When they no longer can, sampling stops with the reason ``plurality``, and
    the answer counts as undecided. A response without an answer counts as one vote
    against the leader, and a future sample weighs as much as the average vote so far.

    Attributes:
        rule: the rule that decides.
        share: from 0 (accept every answer) to below 1.
        budget: the total number of responses.
    """

    name: ClassVar[str] = "supported"
    rule: StoppingRule
    share: float = 0.5
    budget: int = DEFAULT_BUDGET

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.rule(responses)
        if decision.answer is None or decision.undecided:
            return decision
        # With scores, the share that further responses would have counts, too.
        by_scores = decision.agrees if self.reads_scores else None
        if decision.stop and by_scores is not None and by_scores > self.share:
            return decision
        votes = sum(response.answer is not None for response in responses)
        evidence = sum(decision.evidence.values())
        lead = decision.evidence.get(decision.answer, 0.0)
        total = evidence + len(responses) - votes
        if decision.stop and lead > self.share * total:
            return decision
        remaining = max(0, self.budget - len(responses))
        left = remaining * evidence / votes  # each as heavy as the average vote so far
        if lead + left > self.share * (total + left):
            return replace(decision, stop=False, reason=None)
        return replace(decision, stop=True, reason="plurality")


@dataclass(frozen=True)
class _Either(StoppingRule):
    left: StoppingRule
    right: StoppingRule

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.left(responses)
        if decision.stop:
            return decision
        # Most rules end with a cap, which needs no tally to say that it is not reached.
        if isinstance(self.right, Cap) and len(responses) < self.right.samples:
            return decision
        right = self.right(responses)
        if right.stop:
            return replace(decision, stop=True, reason=right.reason)
        return decision

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.left.name

    @property
    def first_wave(self) -> int | None:
        waves = (self.left.first_wave, self.right.first_wave)
        return min((wave for wave in waves if wave is not None), default=None)

    @property
    def reads_scores(self) -> bool:
        return self.left.reads_scores or self.right.reads_scores

    def weights(self, responses: Sequence[Response]) -> list[float]:
        return self.left.weights(responses)


@dataclass(frozen=True)
class _Both(_Either):
    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.left(responses)
        if decision.stop and not self.right(responses).stop:
            return replace(decision, stop=False, reason=None)
        return decision


def check_probability(name: str, value: float) -> None:
    """Require 0.5 < value < 1, since the posterior is already 0.5 without votes."""
    if not 0.5 < value < 1.0:
        raise ConfigurationError(
            f"{name} must be a probability above 0.5 and below 1, got {value}"
        )


def check_budget(samples: int) -> None:
    """Require an integer from 1 to 10,000, since the time to look ahead grows with the
    square of the budget.
    """
    if not isinstance(samples, Integral) or samples < 1:
        raise ConfigurationError(f"budget must be an integer >= 1, got {samples}")
    if samples > _LARGEST_BUDGET:
        raise ConfigurationError(
            f"budget must be at most {_LARGEST_BUDGET:,} samples, got {samples}"
        )


def check_on_missing(value: str) -> None:
    """Require a known value of ``on_missing_confidence``."""
    if value not in ("error", "count"):
        raise ConfigurationError(
            f"on_missing_confidence must be 'error' or 'count', got {value!r}"
        )


def missing_score() -> LogprobsUnavailable:
    """Build the error for a response without a score, if ``on_missing_confidence`` is
    ``"error"``.
    """
    return LogprobsUnavailable(
        "a response has no confidence score; make the model return logprobs, or accept "
        "plain counting with on_missing_confidence='count'"
    )

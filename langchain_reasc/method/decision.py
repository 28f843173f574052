"""The input and output of a stopping rule: responses, and the decision on them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from langchain_reasc.exceptions import ConfidenceError

__all__ = [
    "ANSWER",
    "BLANK",
    "Decision",
    "Reason",
    "Response",
    "answer_among",
    "combine",
    "decide_by_kind",
    "is_cut_off_alone",
    "joined",
    "share_of_answer",
    "support",
]

_Sufficient = Literal[
    "gate", "evidence", "agreement", "window", "unanimous", "escalated", "alone"
]
_Insufficient = Literal[
    "budget", "timeout", "hopeless", "plurality", "unanswered", "contested"
]
Reason = _Sufficient | _Insufficient
"""Why sampling stopped; each is explained on the page of results."""

UNDECIDED: Final[tuple[Reason, ...]] = get_args(_Insufficient)
"""Reasons to stop without sufficient evidence. If parts of a decision have different
reasons, the first one counts.
"""

_LONGEST_CHAIN: Final = 4

ANSWER: Final = "answer"
"""The kind of an answer without a kind, if other answers have one."""

BLANK: Final = "\0blank"
"""The answer of a blank response while a rule counts it as a candidate. A decision
never has it.
"""


@dataclass(frozen=True, slots=True)
class Response:
    """One response, as far as a decision depends on it.

    Attributes:
        answer: the extracted, normalized answer; None if there is no answer, and so no
            vote.
        score: S(y), finite, or None if no confidence could be read.
        cut_off: whether the response was cut off before its end. Such a response is
            never accepted alone.
        kind: the coarse class of the answer, such as the tools that are called. If any
            response has a kind, the kinds are voted on first, and answers without a
            kind have the kind :data:`ANSWER`.
        fields: the fields of an answer that is an object, name -> value as JSON. Only
            :class:`~langchain_reasc.method.fields.ByField` reads them.
        not_voted: whether the response is not voted on. It casts no vote; if all
            responses before it are empty, it is the answer.
        key: what the answer is compared by; None for the answer as it is written.
        weaker: the keys of answers that say the same and leave something out, such as a
            unit: ``5`` of ``5 km``.
        instead: content without an answer: the calls that were refused, or ``""`` for
            an empty response. None if that does not matter.
        blank: whether the response is complete and states no answer. It did not fail,
            was not cut off or refused, and calls no tool.
    """

    answer: str | None
    score: float | None = None
    cut_off: bool = False
    kind: str | None = None
    fields: Mapping[str, str] | None = None
    not_voted: bool = False
    instead: str | None = None
    key: str | None = None
    weaker: tuple[str, ...] = ()
    blank: bool = False

    def __post_init__(self) -> None:
        # max(1, exp(nan)) would count it as a vote
        if self.score is not None and not math.isfinite(self.score):
            raise ConfidenceError(
                f"a response score is {self.score}; use None if no confidence could be "
                "read"
            )

    def voting(self, answer: str | None) -> "Response":
        """Return the response with this answer and without fields."""
        if answer == self.answer and self.fields is None:
            return self
        return Response(
            answer, self.score, self.cut_off, self.kind, not_voted=self.not_voted
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do after ``samples`` responses.

    Attributes:
        stop: whether to stop sampling.
        answer: the leading answer so far; None if no response has an answer.
        reason: why sampling stopped: ``gate`` (Stage 1), ``evidence`` (the posterior of
            the answer), ``agreement`` (the whole budget would most likely give the same
            answer), ``window`` (ESC), ``unanimous`` (all votes of a race are equal),
            ``contested`` (they are not), ``escalated`` (a larger model answered),
            ``budget``, ``timeout``, ``alone`` (the first response is not voted on),
            ``hopeless`` (some arguments will never agree), ``plurality`` (too few
            responses give the answer), ``unanswered`` (no response has an answer, and
            more would hardly have one). None if sampling continues. If parts of a
            decision have different reasons, the first one in :data:`UNDECIDED`.
        samples: the number of responses that the decision is based on.
        evidence: answer -> accumulated weight, in the order first seen.
        posterior: P(the leader stays ahead of the runner-up forever), Eq. 5; of the
            agreement rule, P(the whole budget would give the answer). For a decision in
            parts, that of the least certain part.
        agrees: P(one further response would give the answer), if the rule tells it. For
            a decision in parts, that of the least certain part.
        parts: the decisions on ``kind`` and ``answer``, or on each field of an object.
            Empty if only whole answers were voted on.
        whole: if the answer is assembled from fields, the best object that a single
            response gave.
        never_agrees: if that is the reason, the arguments or fields that will never
            agree.
    """

    stop: bool
    answer: str | None
    reason: Reason | None
    samples: int
    evidence: dict[str, float] = field(default_factory=dict)
    posterior: float = 0.5
    parts: Mapping[str, "Decision"] = field(default_factory=dict)
    whole: str | None = None
    never_agrees: tuple[str, ...] = ()
    agrees: float | None = None

    @property
    def stage(self) -> Literal[1, 2]:
        """1 if the gate accepted a single response, else 2 (also if nothing was voted
        on).
        """
        return 1 if self.reason == "gate" else 2

    @property
    def undecided(self) -> bool:
        """Whether sampling stopped for one of the reasons in :data:`UNDECIDED`, without
        sufficient evidence.
        """
        return self.reason in UNDECIDED


def joined(responses: Sequence[Response]) -> list[Response]:
    """Return the responses with one spelling for equal answers: that of the first
    response which gives the whole of it.

    Answers are equal if their keys are. An answer that leaves something out joins the
    only answer that has it: ``5`` joins ``5 km``, unless another response says ``5 m``.
    """
    if all(response.key is None for response in responses):
        return list(responses)
    stronger: dict[str, set[str]] = {}
    for response in responses:
        for weak in response.weaker:
            if response.key is not None and weak != response.key:
                stronger.setdefault(weak, set()).add(response.key)
    keys: list[str | None] = []
    spellings: dict[str, str] = {}
    for response in responses:
        own_key = response.key or response.answer
        key = _strongest(own_key, stronger)
        keys.append(key)
        # "5" that joins "5 km" does not say how "5 km" is spelled.
        if response.answer is not None and key is not None and key == own_key:
            spellings.setdefault(key, response.answer)
    spelled: list[Response] = []
    for response, key in zip(responses, keys, strict=True):
        if key is not None:
            answer = spellings.get(key, response.answer)
            response = replace(response, answer=answer, key=None, weaker=())
        spelled.append(response)
    return spelled


def answer_among(responses: Sequence[Response], response: Response) -> str | None:
    """Return the answer of one more response, spelled as :func:`joined` spells it in
    ``responses`` if they have it.
    """
    *rejoined, last = joined([*responses, response])
    if last.answer is None:
        return None
    # The response may have changed how its class is spelled.
    for before, joined_again in zip(joined(responses), rejoined, strict=True):
        if joined_again.answer == last.answer:
            return before.answer
    return last.answer


def _strongest(key: str | None, stronger: Mapping[str, set[str]]) -> str | None:
    """Return the key that an answer is counted under: the only one that says more, as
    far as that goes, or its own.
    """
    for _ in range(_LONGEST_CHAIN):
        if key is None or key not in stronger:
            break
        stronger_keys = stronger[key]
        # "5 km on foot" says more than "5 km", which says more than "5".
        strongest = [
            candidate
            for candidate in stronger_keys
            if stronger_keys.isdisjoint(stronger.get(candidate, ()))
        ]
        if len(strongest) != 1:
            break
        key = strongest[0]
    return key


def is_cut_off_alone(responses: Sequence[Response]) -> bool:
    """Return whether there is one response, which was cut off before its end. Such a
    response is never accepted alone.
    """
    return len(responses) == 1 and responses[0].cut_off


def succession(evidence: Sequence[float]) -> float:
    """Return ``(v + 1) / (Σv + 2)`` of the first: the mean of its share under a uniform
    prior (Laplace).
    """
    return (evidence[0] + 1.0) / (sum(evidence) + 2.0)


def support(decision: Decision) -> float | None:
    """Return the support of a decision, from which P(correct) is read.

    It is the probability that one further response would give the answer. If the rule
    does not tell it, it is the answer's share of the evidence, shrunk toward one half
    if there is little evidence: four votes of four give .83, and sixteen of sixteen
    give .94. Negative evidence counts as zero.

    Args:
        decision: a decision of any rule. For a decision in parts, the least supported
            part counts.

    Returns:
        None if there was no vote: no response has an answer, or the first response is
        not voted on.
    """
    if decision.answer is None or decision.reason == "alone":
        return None
    if decision.parts:
        return _least(support(part) for part in decision.parts.values())
    if decision.agrees is not None:
        return decision.agrees
    weights = [max(0.0, decision.evidence.get(decision.answer, 0.0))]
    for answer, weight in decision.evidence.items():
        if answer != decision.answer and weight > 0:
            weights.append(weight)
    return succession(weights)


def share_of_answer(decision: Decision, unanswered: int) -> float | None:
    """Return the answer's share of all evidence. A response without an answer counts as
    one vote.

    Args:
        decision: a decision of any rule. If the answer is assembled from fields, the
            smallest share of a field counts.
        unanswered: the number of responses without an answer.

    Returns:
        None if there is no answer, or if the first response is not voted on.
    """
    if decision.answer is None or decision.reason == "alone":
        return None
    if decision.whole is not None:
        return _least(
            share_of_answer(part, unanswered) for part in decision.parts.values()
        )
    total = sum(decision.evidence.values()) + unanswered
    if total <= 0:
        return 0.0
    return decision.evidence.get(decision.answer, 0.0) / total


def _least(values: Iterable[float | None]) -> float | None:
    """Return the least of the values that are known; None if none is."""
    return min((value for value in values if value is not None), default=None)


def decide_by_kind(
    rule: Callable[[Sequence[Response]], Decision], responses: Sequence[Response]
) -> Decision:
    """Apply a rule to the kinds, and to the answers of the leading kind. Stop when both
    votes have stopped.

    If three responses call one tool with different arguments and two call no tool, the
    two would win a flat vote. The vote on kinds decides to call the tool, and the vote
    on the arguments continues. Responses of other kinds keep their places without a
    vote, so that windows, a cap and the gate see the launch order. So do blank
    responses, which are a candidate in the vote on kinds.
    """
    votes_on_kind: list[Response] = []
    for response in responses:
        kind = None
        if response.answer is not None:
            kind = response.kind or ANSWER
        votes_on_kind.append(response.voting(kind))
    by_kind = rule(votes_on_kind)
    votes_within_kind: list[Response] = []
    for response, vote in zip(responses, votes_on_kind, strict=True):
        is_of_kind = vote.answer == by_kind.answer
        votes_within_kind.append(response if is_of_kind else Response(None))
    within_kind = rule(votes_within_kind)
    votes = rule([response.voting(response.answer) for response in responses])
    parts = {"kind": by_kind, "answer": within_kind}
    return combine(
        parts, answer=within_kind.answer, votes=votes, whole=within_kind.whole
    )


def combine(
    parts: Mapping[str, Decision],
    *,
    answer: str | None,
    votes: Decision,
    whole: str | None = None,
) -> Decision:
    """Combine the decisions on parts: stop when all parts stop, with the certainty of
    the least certain part.

    A contested part stops the whole, because no further response could make the votes
    equal.

    ``votes`` is the decision on whole answers, whose evidence is kept; for ``whole``
    see :class:`Decision`.
    """
    reasons = [part.reason for part in parts.values() if part.reason]
    stop = "contested" in reasons or all(part.stop for part in parts.values())
    reason: Reason | None = None
    never_agrees: dict[str, None] = {}
    if stop:
        if reasons:
            undecided = (reason for reason in UNDECIDED if reason in reasons)
            reason = next(undecided, reasons[-1])
        for part in parts.values():
            never_agrees.update(dict.fromkeys(part.never_agrees))
    return replace(
        votes,
        stop=stop,
        answer=answer,
        reason=reason,
        posterior=min(part.posterior for part in parts.values()),
        agrees=_least(part.agrees for part in parts.values()),
        parts=dict(parts),
        whole=whole,
        never_agrees=tuple(never_agrees),
    )

"""What a decision is made of, and what it says: responses in, go on or stop out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from langchain_reasc.exceptions import ConfidenceError

__all__ = ["Decision", "Reason", "Response"]

Reason = Literal["gate", "evidence", "agreement", "window", "budget", "timeout", "alone", "hopeless"]


@dataclass(frozen=True, slots=True)
class Response:
    """What a decision needs to know of one response.

    Attributes:
        answer: the extracted, normalized answer; None when there is none (it then casts no vote).
        score: S(y), finite, or None where no confidence could be read.
        cut_off: whether the response was cut off before its end: such a one is never accepted alone.
        kind: the coarse class of the answer, such as which tools are called. Where any response has one, the kinds are
            voted on first; an answer without a kind is then of the kind
            :data:`~langchain_reasc.method.levels.ANSWER`.
        fields: the fields of an answer that is an object, name -> spelling as JSON. Read by
            :class:`~langchain_reasc.method.fields.ByField` alone.
        alone: whether the response is to be taken as it is. It casts no vote, and where it comes first, it is the
            answer.
    """

    answer: str | None
    score: float | None = None
    cut_off: bool = False
    kind: str | None = None
    fields: Mapping[str, str] | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        if self.score is not None and not math.isfinite(self.score):  # max(1, exp(nan)) would count it as a vote
            raise ConfidenceError(f"a response score is {self.score}; use None where no confidence could be read")

    def voting(self, answer: str | None) -> "Response":
        """The same response with this answer for its own, and without fields."""
        return Response(answer, self.score, self.cut_off, self.kind, alone=self.alone)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do after ``samples`` responses.

    Attributes:
        stop: whether the evidence is sufficient (or the budget spent).
        answer: the leading answer so far; None when no response has one.
        reason: why it stopped: ``gate`` (Stage 1), ``evidence`` (the posterior of the answer), ``agreement`` (calls are
            left, and the whole budget would most likely answer the same), ``window`` (ESC), ``budget``, ``timeout``
            (the question had had its time), ``alone`` (the first response is not voted on), ``hopeless`` (what differs
            will never agree); None while it goes on. Of a decision in parts, ``budget``, or else ``hopeless``, where
            that ended one of them.
        samples: responses the decision rests on.
        evidence: answer -> accumulated weight, in the order first seen.
        posterior: what the rule compares with its threshold: P(the leader stays ahead), Eq. 5, of the Beta rules, and
            of rules that look ahead to a budget once that is spent. Of a decision in parts, that of the least certain
            one.
        parts: what was decided one by one: ``kind`` and ``answer``, or each field of an object. Empty where the answers
            alone were voted on.
        whole: where the answer is put together from fields, the best object that one response gave.
        hopeless: the arguments or fields that will never agree, where that ended it.
    """

    stop: bool
    answer: str | None
    reason: Reason | None
    samples: int
    evidence: dict[str, float] = field(default_factory=dict)
    posterior: float = 0.5
    parts: Mapping[str, "Decision"] = field(default_factory=dict)
    whole: str | None = None
    hopeless: tuple[str, ...] = ()

    @property
    def stage(self) -> Literal[1, 2]:
        """1 when a single response was accepted by the gate, else 2 (also where nothing was voted on)."""
        return 1 if self.reason == "gate" else 2

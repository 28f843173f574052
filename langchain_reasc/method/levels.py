"""Votes on two levels: first on the kind of answer, then on the answer among those of the leading kind.

Three responses that call the same tool with three arguments, against two that call none: flat, the two win. Nobody
disputes that the tool is to be called, though: the vote on the kinds says so, and the vote on the arguments goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from langchain_reasc.method.decision import Decision, Response

__all__ = ["ANSWER", "by_kind", "joined"]

ANSWER: Final = "answer"
"""The kind of an answer that names none, among others that do."""

Rule = Callable[[Sequence[Response]], Decision]


def by_kind(rule: Rule, responses: Sequence[Response]) -> Decision:
    """The rule applied to the kinds, and to the answers of the leading kind; it stops when both have stopped.

    Responses of other kinds stay in their places, without a vote, so that windows, a cap and the gate see the launch
    order.

    Args:
        rule: decides after exactly the responses it is given.
        responses: in launch order.
    """
    kinds = [_kind(response) for response in responses]
    coarse = rule([one.voting(kind) for one, kind in zip(responses, kinds, strict=True)])
    fine = rule([_only(coarse.answer, one, kind) for one, kind in zip(responses, kinds, strict=True)])
    votes = rule([one.voting(one.answer) for one in responses])
    return joined({"kind": coarse, "answer": fine}, answer=fine.answer, votes=votes, whole=fine.whole)


def joined(parts: Mapping[str, Decision], *, answer: str | None, votes: Decision, whole: str | None = None) -> Decision:
    """The decision that all parts make together: it stops when all have, and is as certain as the least certain one.

    Args:
        parts: what was decided one by one; not empty.
        answer: what they come to.
        votes: the decision on whole answers, which has their evidence.
        whole: as in :class:`Decision`.
    """
    stop = all(part.stop for part in parts.values())
    reasons = [part.reason for part in parts.values() if part.reason]
    undecided = (why for why in ("budget", "hopeless") if why in reasons)
    reason = next(undecided, reasons[-1]) if stop and reasons else None
    return replace(
        votes,
        stop=stop,
        answer=answer,
        reason=reason,
        posterior=min(part.posterior for part in parts.values()),
        parts=dict(parts),
        whole=whole,
        hopeless=tuple(dict.fromkeys(name for part in parts.values() for name in part.hopeless)) if stop else (),
    )


def _kind(response: Response) -> str | None:
    return None if response.answer is None else response.kind or ANSWER


def _only(leading: str | None, response: Response, kind: str | None) -> Response:
    return response if kind == leading else response.voting(None)

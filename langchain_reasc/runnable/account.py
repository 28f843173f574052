"""What a message says of the decision behind it: 4 KB at most, however many answers there are, and however long.

A message lives on in histories, checkpoints, traces and browsers. Whole answers, and all figures of each response, are
in :class:`~langchain_reasc.ReASCResult`.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage

from langchain_reasc.answers import extractor, kind_of, vote_of
from langchain_reasc.method.stopping import Decision

__all__ = ["abridged", "account_of", "whole_answer"]

_LARGEST: Final = 4096 - 256
"""Bytes of an account as JSON, without what is said of an abstention."""

_SHORTENED: Final = re.compile(r" … \[\d+ characters, sha256 ([0-9a-f]{12})\] … ")


class _Detail(NamedTuple):
    """How much is said.

    Attributes:
        answer: bytes of an answer as JSON.
        notice: bytes of a notice.
        entries: answers in a vote, parts and notices.
    """

    answer: int
    notice: int
    entries: int


_DETAILS: Final = (
    _Detail(240, 1000, 64),
    _Detail(128, 500, 32),
    *(_Detail(96, 250, entries) for entries in (32, 16, 8)),
    *(_Detail(96, 96, entries) for entries in (4, 2)),
)
"""From most to least; the least fits, whatever is said."""


def account_of(
    decision: Decision, message: AIMessage, notices: Sequence[str], figures: Mapping[str, Any]
) -> dict[str, Any]:
    """The account of a decision as JSON, of 4 KB at most.

    Long answers are shortened, with a hash by which equal ones are recognised. Where the winner's own cannot be read
    from its message again, it is here in full, beside these 4 KB.

    Args:
        decision: what was decided.
        message: the winning response.
        notices: what the caller should know.
        figures: what else is said.
    """
    account: dict[str, Any] = {}
    for detail in _DETAILS:
        account = _account(decision, notices, figures, detail)
        if _size(account) <= _LARGEST:
            break
    if account["answer"] != decision.answer and decision.answer not in (found := [*_answers_in(message)]):
        # Calls that were voted on with defaults of their tools are read from the message without them.
        account["whole_answer"] = abridged(found[0]) if found[0] and kind_of(decision.answer) else decision.answer
    return account


def whole_answer(message: AIMessage) -> str | None:
    """The winning answer that a message with an account was given for; None where it abstains or has none.

    Raises:
        LookupError: the account has it shortened, and the message was changed, so that it cannot be read from there.
    """
    account = message.response_metadata["reasc"]
    if account.get("abstained"):
        return None
    answer: str | None = account.get("whole_answer", account["answer"])
    mark = _SHORTENED.search(answer or "")
    if mark is None:
        return answer
    for found in _answers_in(message):
        if found is not None and _digest(found) == mark[1]:
            return found
    raise LookupError(answer)


def abridged(text: str, size: int = 240) -> str:
    """A text that is longer than this as its beginning, its length, a hash and its end.

    Args:
        text: any text.
        size: bytes as JSON, 96 or more.
    """
    if _size(text) <= size:
        return text
    mark = f" … [{len(text)} characters, sha256 {_digest(text)}] … "
    room = size - _size(mark)
    end = _fitting(text[: -room - 1 : -1], room // 3)[::-1]
    return _fitting(text[:room], room - room // 3) + mark + end


def _account(decision: Decision, notices: Sequence[str], figures: Mapping[str, Any], detail: _Detail) -> dict[str, Any]:
    told = {
        name: abridged(value, detail.notice) if isinstance(value, str) else value for name, value in figures.items()
    }
    parts = sorted(decision.parts, key=lambda name: decision.parts[name].posterior)[: detail.entries]
    if decision.parts:  # the least certain ones, in their own order
        told["parts"] = {
            abridged(name, detail.answer): _votes(part, detail)
            for name, part in decision.parts.items()
            if name in parts
        }
        if left := len(decision.parts) - len(parts):
            told["parts_left_out"] = left
    said = [abridged(notice, detail.notice) for notice in notices[: detail.entries]]
    if left := len(notices) - len(said):
        said.append(f"{left} more notices are in the result that solve() returns")
    return {**_votes(decision, detail), "stage": decision.stage, "reason": decision.reason, **told, "notices": said}


def _votes(decision: Decision, detail: _Detail) -> dict[str, Any]:
    """What was voted for: the answer, the evidence, and how certain it is."""
    evidence = decision.evidence
    heaviest = set(sorted(evidence, key=lambda answer: -evidence[answer])[: detail.entries])
    kept = {answer: weight for answer, weight in evidence.items() if answer in heaviest}
    others = {"answers": len(evidence) - len(kept), "evidence": sum(evidence.values()) - sum(kept.values())}
    return {
        "answer": None if decision.answer is None else abridged(decision.answer, detail.answer),
        "evidence": {abridged(answer, detail.answer): weight for answer, weight in kept.items()},
        **({"others": others} if others["answers"] else {}),
        "posterior": decision.posterior,
    }


def _answers_in(message: AIMessage) -> Iterator[str | None]:
    """What a message may be taken to answer: its calls, its text, its object."""
    return (vote_of(message, extractor(spec)).answer for spec in ("message", "text", "json"))


def _size(value: Any) -> int:
    return len(json.dumps(value))


def _fitting(text: str, size: int) -> str:
    """As much of the beginning of a text as has this size."""
    while text and _size(text) - 2 > size:
        text = text[: -max(1, (_size(text) - 2 - size) // 12)]
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

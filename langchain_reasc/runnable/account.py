"""The account of a decision in a message's metadata: the answer, its votes and what was
spent.

A message lives on in histories, checkpoints, traces and browsers. So the account names
the strongest answers only, cuts long ones, and does not repeat a long call that stands
in the message; :class:`~langchain_reasc.ReASCResult` has all.
"""

from collections.abc import Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Any, Final

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation

from langchain_reasc.answers import arguments_of
from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.contract import (
    FAILED_ATTEMPTS,
    GENERATED_TEXT,
    LOGPROBS_REFUSED,
    RECEIVED_TOKENS,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
)
from langchain_reasc.models.payloads import LOGPROBS_KEYS
from langchain_reasc.runnable.result import Usage
from langchain_reasc.sampling import Sample

_MOST: Final = 16
"""Answers of a vote, parts and notices that an account names."""
_LONG: Final = 200
"""Characters of an answer in the votes from which on it is cut."""
_LONG_NOTICE: Final = 1000
_DROPPED: Final = frozenset(
    {
        TOKEN_SIGNALS,
        TOKEN_SIGNALS_INFO,
        GENERATED_TEXT,
        LOGPROBS_REFUSED,
        FAILED_ATTEMPTS,
        RECEIVED_TOKENS,
    }
)


class ReASCAnswerParser(BaseGenerationOutputParser[str | None]):
    """``prompt | ReASCRunnable(...) | ReASCAnswerParser()`` gives the winning answer.

    The answer is None if no response had one, or if ReASC abstains.
    """

    def parse_result(
        self, result: list[Generation], *, partial: bool = False
    ) -> str | None:
        """Return the answer that the account of a decision names.

        Raises:
            OutputParserException: the message is not one of ReASC's.
        """
        first = result[0] if result else None
        account = (
            first.message.response_metadata.get("reasc")
            if isinstance(first, ChatGeneration)
            else None
        )
        if not isinstance(account, dict):
            raise OutputParserException(
                "ReASCAnswerParser reads response_metadata['reasc'], which this "
                "message does not have; put it right behind a ReASCRunnable"
            )
        answer: str | None = None if account.get("abstained") else account["answer"]
        return answer


def add_account(
    winner: AIMessage,
    decision: Decision,
    notices: Sequence[str],
    usage: Usage,
    figures: Mapping[str, Any],
    *,
    keep_logprobs: bool,
) -> AIMessage:
    """Return the winning response with the bill, and the account of the decision as
    JSON.

    ``figures`` is what else the account says. With ``keep_logprobs`` the message keeps
    the provider's logprobs.
    """
    repeated = (
        len(decision.answer or "") > _LONG
        and arguments_of(decision.answer or "") is not None
    )
    account = {
        **_votes(decision, whole=not repeated),
        "stage": decision.stage,
        "reason": decision.reason,
        **figures,
        **_parts(decision.parts),
        "notices": _notices(notices),
    }
    metadata = {**kept_metadata(winner, logprobs=keep_logprobs), "reasc": account}
    return winner.model_copy(
        update={"response_metadata": metadata, "usage_metadata": usage.bill}
    )


def failure_notices(samples: Sequence[Sample]) -> list[str]:
    """Return notices of samples that failed, and of requests that a backend had to make
    again (``failed_attempts``).
    """
    failed, attempts = 0, list[Any]()
    for sample in samples:
        failed += sample.status == "failed"
        attempts += (
            sample.message.response_metadata.get(FAILED_ATTEMPTS, ())
            if sample.message
            else ()
        )
    notices = [f"{failed} of {len(samples)} samples failed"] if failed else []
    if attempts:
        lost = sum(attempt.get(RECEIVED_TOKENS, 0) for attempt in attempts)
        notices.append(
            f"{len(attempts)} requests failed and were made again; {lost} tokens that "
            "had come were lost"
        )
    return notices


def kept_metadata(message: AIMessage, *, logprobs: bool) -> dict[str, Any]:
    """Return the metadata of a response without figures of single tokens, and requests
    that failed.

    Those stay in ReASCResult.responses: a message lives on in histories, traces and
    checkpoints, and the logprobs of 1,000 tokens with 20 alternatives each are 0.9 MB.
    With ``logprobs`` the provider's own are kept.
    """
    dropped = _DROPPED if logprobs else _DROPPED | LOGPROBS_KEYS
    return {
        key: value
        for key, value in message.response_metadata.items()
        if key not in dropped
    }


def _votes(decision: Decision, *, whole: bool) -> dict[str, Any]:
    """Return what was voted for: the answer, the evidence, and how certain it is.

    Args:
        decision: of the question, or of a part of it.
        whole: whether the answer is not cut, however long it is. The evidence names
            long answers by their beginning.
    """
    evidence, winner = decision.evidence, decision.answer
    # Two long answers may begin alike, so the number of the answer stands behind each.
    names = {
        answer: _cut(answer, f"… [answer {number}]")
        for number, answer in enumerate(evidence, 1)
    }
    heaviest = set(nlargest(_MOST, evidence, key=evidence.__getitem__))
    named = {
        names[answer]: weight
        for answer, weight in evidence.items()
        if answer in heaviest
    }
    votes = {
        "answer": winner
        if whole or winner is None
        else names.get(winner, _cut(winner)),
        "evidence": named,
    }
    if left_out := len(evidence) - len(named):
        votes["others"] = {
            "answers": left_out,
            "evidence": sum(evidence.values()) - sum(named.values()),
        }
    return {**votes, "posterior": decision.posterior}


def _parts(parts: Mapping[str, Decision]) -> dict[str, Any]:
    """Return the votes on the least certain parts, in their own order."""
    if not parts:
        return {}
    least_certain = nsmallest(_MOST, parts, key=lambda name: parts[name].posterior)
    named = {
        name: _votes(parts[name], whole=False)
        for name in parts
        if name in least_certain
    }
    left_out = len(parts) - len(named)
    return {"parts": named, **({"parts_left_out": left_out} if left_out else {})}


def _notices(notices: Sequence[str]) -> list[str]:
    named = [_cut(notice, "…", _LONG_NOTICE) for notice in notices[:_MOST]]
    if left_out := len(notices) - len(named):
        named.append(
            f"{left_out} more are in the notices of the result that solve() returns"
        )
    return named


def _cut(text: str, mark: str = "…", length: int = _LONG) -> str:
    return text if len(text) <= length else text[:length] + mark

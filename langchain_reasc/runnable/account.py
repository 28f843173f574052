"""What a message says of the decision behind it: 4 KB at most, however many answers there are, and however long.

A message lives on in histories, checkpoints, traces and browsers. Whole answers, and all figures of each response, are
in :class:`~langchain_reasc.ReASCResult`.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation

from langchain_reasc.answers import extractor, kind_of, vote_of
from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.contract import (
    FAILED_ATTEMPTS,
    GENERATED_TEXT,
    LOGPROBS_REFUSED,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
)
from langchain_reasc.runnable.result import Likelihood, SampledResponse, Usage

__all__ = ["ReASCAnswerParser", "abridged", "account_of", "accounted", "kept_metadata", "whole_answer"]

_LARGEST: Final = 4096 - 256
"""Bytes of an account as JSON, without what is said of an abstention."""
_SHORTENED: Final = re.compile(r" … \[\d+ characters, sha256 ([0-9a-f]{12})\] … ")
_DROPPED: Final = frozenset({TOKEN_SIGNALS, TOKEN_SIGNALS_INFO, GENERATED_TEXT, LOGPROBS_REFUSED, FAILED_ATTEMPTS})
_LOGPROBS: Final = frozenset({"logprobs", "logprobs_result"})


class ReASCAnswerParser(BaseGenerationOutputParser[str | None]):
    """``prompt | ReASCRunnable(...) | ReASCAnswerParser()`` gives the winning answer; None where there was none.

    Where ReASC abstains, there is none. A long answer is whole here, also where the account has it shortened.
    """

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> str | None:
        """Return the answer that the account of a decision names.

        Raises:
            OutputParserException: the message is not one of ReASC's, or was changed since.
        """
        first = result[0] if result else None
        message: Any = first.message if isinstance(first, ChatGeneration) else None
        if message is None or not isinstance(message.response_metadata.get("reasc"), dict):
            raise OutputParserException(
                "ReASCAnswerParser reads response_metadata['reasc'], which this message does not have; put it right "
                "behind a ReASCRunnable"
            )
        try:
            return whole_answer(message)
        except LookupError as error:
            raise OutputParserException(
                "the answer is read from the message, as its account has it shortened, and the message was changed: "
                f"{error}"
            ) from error


def accounted(
    winner: AIMessage,
    responses: Sequence[SampledResponse],
    decision: Decision,
    usage: Usage,
    notices: Sequence[str],
    *,
    method: str,
    without_confidence: int = 0,
    keep_logprobs: bool = True,
    likelihoods: Mapping[str, Likelihood] | None = None,
    guarantee: str | None = None,
) -> AIMessage:
    """Return the winning response, carrying the account of the decision and the bill."""
    judge = usage.judge
    figures = {
        "method": method,
        "samples": decision.samples,
        "launched": len(responses),
        "failed": sum(response.status == "failed" for response in responses),
        "without_confidence": without_confidence,
        **(likelihoods or {}),
        **({"guarantee": guarantee} if guarantee else {}),
        "tokens": {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "unused_output": usage.unused_output_tokens,
            "estimated": usage.estimated,
            **({"judge": {"input": judge["input_tokens"], "output": judge["output_tokens"]}} if judge else {}),
        },
    }
    account = account_of(decision, winner, notices, figures)
    kept = kept_metadata(winner, logprobs=keep_logprobs)
    return winner.model_copy(update={"response_metadata": {**kept, "reasc": account}, "usage_metadata": usage.bill})


def kept_metadata(message: AIMessage, *, logprobs: bool) -> dict[str, Any]:
    """Return the metadata of a response without figures of single tokens, and requests that failed.

    Those stay in ReASCResult.responses: a message lives on in histories, traces and checkpoints, and the logprobs of
    1,000 tokens with 20 alternatives each are 0.9 MB.

    Args:
        message: the response.
        logprobs: whether the provider's logprobs are kept, since the user asked for them.
    """
    dropped = _DROPPED if logprobs else _DROPPED | _LOGPROBS
    return {key: value for key, value in message.response_metadata.items() if key not in dropped}


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


_DETAILS: Final = tuple(
    _Detail(*sizes)
    for sizes in ((240, 1000, 64), (128, 500, 32), (96, 250, 32), (96, 250, 16), (96, 250, 8), (96, 96, 4), (96, 96, 2))
)
"""From most to least; the least fits, whatever is said."""


def account_of(
    decision: Decision, message: AIMessage, notices: Sequence[str], figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the account of a decision as JSON, of 4 KB at most.

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
    """Return the winning answer that a message with an account was given for; None where it abstains or has none.

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
    """Shorten a text that is longer than this to its beginning, its length, a hash and its end.

    Args:
        text: any text.
        size: bytes as JSON, 96 or more.
    """
    if _size(text) <= size:
        return text
    mark = f" … [{len(text)} characters, sha256 {_digest(text)}] … "
    left = size - _size(mark)
    end = _fitting(text[: -left - 1 : -1], left // 3)[::-1]
    return _fitting(text[:left], left - left // 3) + mark + end


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

"""The account in a message's metadata: the decision and its votes, in 4 KB at most.

A message lives on in histories, checkpoints, traces and browsers. Whole answers, and all figures of each response, are
in :class:`~langchain_reasc.ReASCResult`.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

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
    RECEIVED_TOKENS,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
)
from langchain_reasc.models.payloads import LOGPROBS_KEYS
from langchain_reasc.runnable.result import Usage
from langchain_reasc.sampling import Sample

__all__ = ["ReASCAnswerParser", "abridge", "add_account", "failure_notices", "kept_metadata", "whole_answer"]

_LARGEST: Final = 4096 - 256
"""Bytes of an account as JSON, without what is said of an abstention."""
_DETAILS: Final = (
    *((240, 1000, 64), (128, 500, 32)),
    *((96, 250, 32), (96, 250, 16), (96, 250, 8), (96, 96, 4), (96, 96, 2)),
)
"""Bytes of an answer as JSON, bytes of a notice, and how many answers of a vote, parts and notices are named; the last
fits, whatever is said."""
_SHORTENED: Final = re.compile(r" … \[\d+ characters, sha256 ([0-9a-f]{12})\] … ")
_DROPPED: Final = frozenset(
    {TOKEN_SIGNALS, TOKEN_SIGNALS_INFO, GENERATED_TEXT, LOGPROBS_REFUSED, FAILED_ATTEMPTS, RECEIVED_TOKENS}
)


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


def add_account(
    winner: AIMessage,
    decision: Decision,
    notices: Sequence[str],
    usage: Usage,
    figures: Mapping[str, Any],
    *,
    keep_logprobs: bool,
) -> AIMessage:
    """Return the winning response, carrying the account of the decision as JSON, of 4 KB at most, and the bill.

    Long answers are shortened, with a hash by which equal ones are recognised. Where the winner's own cannot be read
    from its message again, it is here in full, beside these 4 KB.

    Args:
        winner: the winning response.
        decision: what was decided.
        notices: what the caller should know.
        usage: what was spent.
        figures: what else the account says.
        keep_logprobs: whether the message keeps the provider's logprobs.
    """
    account: dict[str, Any] = {}
    for answer_size, notice_size, entries in _DETAILS:
        account = _account(decision, notices, figures, answer_size, notice_size, entries)
        if _size(account) <= _LARGEST:
            break
    if account["answer"] != decision.answer and decision.answer not in (found := [*_answers_in(winner)]):
        # Calls that were voted on with defaults of their tools are read from the message without them.
        account["whole_answer"] = abridge(found[0]) if found[0] and kind_of(decision.answer) else decision.answer
    metadata = {**kept_metadata(winner, logprobs=keep_logprobs), "reasc": account}
    return winner.model_copy(update={"response_metadata": metadata, "usage_metadata": usage.bill})


def failure_notices(samples: Sequence[Sample]) -> list[str]:
    """Return notices of samples that failed, and of requests that a backend had to make again (``failed_attempts``)."""
    failed, attempts = 0, list[Any]()
    for sample in samples:
        failed += sample.status == "failed"
        attempts += sample.message.response_metadata.get(FAILED_ATTEMPTS, ()) if sample.message else ()
    notices = [f"{failed} of {len(samples)} samples failed"] if failed else []
    if attempts:
        lost = sum(attempt.get(RECEIVED_TOKENS, 0) for attempt in attempts)
        notices.append(f"{len(attempts)} requests failed and were made again; {lost} tokens that had come were lost")
    return notices


def kept_metadata(message: AIMessage, *, logprobs: bool) -> dict[str, Any]:
    """Return the metadata of a response without figures of single tokens, and requests that failed.

    Those stay in ReASCResult.responses: a message lives on in histories, traces and checkpoints, and the logprobs of
    1,000 tokens with 20 alternatives each are 0.9 MB.

    Args:
        message: the response.
        logprobs: whether the provider's logprobs are kept, since the user asked for them.
    """
    dropped = _DROPPED if logprobs else _DROPPED | LOGPROBS_KEYS
    return {key: value for key, value in message.response_metadata.items() if key not in dropped}


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


def abridge(text: str, size: int = 240) -> str:
    """Shorten a text that is longer than this to its beginning, its length, a hash and its end.

    Args:
        text: any text.
        size: bytes as JSON, 96 or more.
    """
    if _size(text) <= size:
        return text
    mark = f" … [{len(text)} characters, sha256 {_digest(text)}] … "
    left = size - _size(mark)
    end = _prefix(text[: -left - 1 : -1], left // 3)[::-1]
    return _prefix(text[:left], left - left // 3) + mark + end


def _account(
    decision: Decision,
    notices: Sequence[str],
    figures: Mapping[str, Any],
    answer_size: int,
    notice_size: int,
    entries: int,
) -> dict[str, Any]:
    """Return the account in so much detail: bytes of an answer and of a notice; answers of a vote, parts, notices."""
    kept_figures = {
        name: abridge(value, notice_size) if isinstance(value, str) else value for name, value in figures.items()
    }
    if parts := decision.parts:  # the least certain ones, in their own order
        kept = sorted(parts, key=lambda name: parts[name].posterior)[:entries]
        kept_figures["parts"] = {
            abridge(name, answer_size): _votes(parts[name], answer_size, entries) for name in parts if name in kept
        }
        if len(parts) > entries:
            kept_figures["parts_left_out"] = len(parts) - entries
    kept_notices = [abridge(notice, notice_size) for notice in notices[:entries]]
    if len(notices) > entries:
        kept_notices.append(f"{len(notices) - entries} more notices are in the result that solve() returns")
    voted = _votes(decision, answer_size, entries)
    return {**voted, "stage": decision.stage, "reason": decision.reason, **kept_figures, "notices": kept_notices}


def _votes(decision: Decision, answer_size: int, entries: int) -> dict[str, Any]:
    """Return what was voted for: the answer, the evidence, and how certain it is."""
    evidence = decision.evidence
    heaviest = set(nlargest(entries, evidence, key=evidence.__getitem__))
    kept = {answer: weight for answer, weight in evidence.items() if answer in heaviest}
    voted: dict[str, Any] = {
        "answer": None if decision.answer is None else abridge(decision.answer, answer_size),
        "evidence": {abridge(answer, answer_size): weight for answer, weight in kept.items()},
    }
    if others := len(evidence) - len(kept):
        voted["others"] = {"answers": others, "evidence": sum(evidence.values()) - sum(kept.values())}
    return {**voted, "posterior": decision.posterior}


def _answers_in(message: AIMessage) -> Iterator[str | None]:
    """Return the readings of a message: its calls, its text, its object."""
    return (vote_of(message, extractor(spec)).answer for spec in ("message", "text", "json"))


def _size(value: Any) -> int:
    return len(json.dumps(value))


def _prefix(text: str, size: int) -> str:
    """Return as much of the beginning of a text as has this size."""
    while text and _size(text) - 2 > size:
        text = text[: -max(1, (_size(text) - 2 - size) // 12)]
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

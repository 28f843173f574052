"""The account of a decision in a message's metadata: the answer, its votes and what was
spent.

A message lives on in histories, checkpoints, traces and browsers. So the account names
the strongest answers only, cuts long ones, and does not repeat a long call that stands
in the message; :class:`~langchain_reasc.ReASCResult` has all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import nlargest, nsmallest
from typing import Any, Final, Literal

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation

from langchain_reasc.answers import arguments_of
from langchain_reasc.exceptions import reason_of
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
from langchain_reasc.models.usage import Usage
from langchain_reasc.runnable.decision_plan import ProbabilityName
from langchain_reasc.sampling import SampledResponse

_MOST: Final = 16
"""Answers of a vote, parts and notices that an account names."""
_LONG: Final = 200
"""Characters of an answer in the votes from which on it is cut."""
_LONG_NOTICE: Final = 1000
_SOURCES: Final = {"p_correct": "labels", "p_agree": "consensus"}
"""What each probability was learned from."""
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
        account = None
        if isinstance(first, ChatGeneration):
            account = first.message.response_metadata.get("reasc")
        if not isinstance(account, dict):
            raise OutputParserException(
                "ReASCAnswerParser reads response_metadata['reasc'], which this "
                "message does not have; put it right behind a ReASCRunnable"
            )
        if account.get("abstained"):
            return None
        answer: str | None = account["answer"]
        return answer


@dataclass(frozen=True, kw_only=True)
class ModelAccount:
    """What one of two models answered, and what it cost.

    Attributes:
        answer: its answer.
        evidence: answer -> weight, as the account of its own decision names them.
        reason: why its sampling stopped; ``failed`` if it gave no response, and
            ``answered`` if it was asked once and did.
        launched: samples.
        input: prompt tokens.
        output: generated tokens.
        cost: in dollars, or in tokens of the small model if only the ratio of prices is
            known.
    """

    answer: str | None
    evidence: Mapping[str, float]
    reason: str | None
    launched: int
    input: int
    output: int
    cost: float


@dataclass(frozen=True)
class FailedModel:
    """One of two models that failed, so that the other one answers.

    Attributes:
        name: which model.
        error: what it failed with.
    """

    name: Literal["small", "large"]
    error: Exception

    @property
    def notice(self) -> str:
        """What the caller should know."""
        answering = "small" if self.name == "large" else "large"
        return f"the {self.name} model failed, so the {answering} one answers"


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the account of a decision tells beside the decision and the bill.

    Attributes:
        method: the name of the rule that decided, or sent the question to the large
            model.
        launched: samples launched.
        failed: samples that failed.
        without_confidence: responses whose votes count as one each, for want of
            confidence.
        output_of_winner: tokens of the winning response.
        id: names the question, so that its outcome can be reported; None if nothing is
            learned from that.
        kind: the kind of request, with an id.
        answered_by: which of two models answered; None if there is one.
        is_merged: whether the answer was put together from several responses.
        probabilities: ``p_correct`` and ``p_agree``, as far as they are known.
        interval: the 95 % interval of ``p_correct``; None without it.
        guarantee: what a calibration guarantees of such answers, in words.
        is_shadowed: whether both models were asked, to learn.
        models: what each of two models answered; empty if there is one.
        failed_model: the model that the other one answers for.
        abstained: whether the message is empty, because the answer is not trusted.
        doubt: why it is not trusted, if its probability is too low.
    """

    method: str
    launched: int
    failed: int
    without_confidence: int
    output_of_winner: int
    id: str | None = None
    kind: str = ""
    answered_by: Literal["small", "large"] | None = None
    is_merged: bool = False
    probabilities: Mapping[ProbabilityName, float] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    guarantee: str | None = None
    is_shadowed: bool = False
    models: Mapping[str, ModelAccount] = field(default_factory=dict)
    failed_model: FailedModel | None = None
    abstained: bool = False
    doubt: str | None = None


def to_account(
    account: Account, decision: Decision, usage: Usage, notices: Sequence[str]
) -> dict[str, Any]:
    """Return the account of a decision as JSON, as it stands in a message."""
    plain = named_votes(decision)
    plain["stage"] = decision.stage
    plain["reason"] = decision.reason
    if account.id is not None:
        plain["id"] = account.id
        plain["kind"] = account.kind
    plain["method"] = account.method
    if account.answered_by is not None:
        plain["answered_by"] = account.answered_by
    plain["samples"] = decision.samples
    plain["launched"] = account.launched
    plain["failed"] = account.failed
    plain["without_confidence"] = account.without_confidence
    if account.is_merged:
        plain["merged"] = True
    for name, value in account.probabilities.items():
        plain[name] = {"value": value, "source": _SOURCES[name]}
    if account.interval is not None:
        plain["p_correct"]["interval"] = list(account.interval)
    if account.guarantee is not None:
        plain["guarantee"] = account.guarantee
    plain["tokens"] = {**usage.account, "winner": account.output_of_winner}
    plain.update(_parts(decision.parts))
    plain.update(_of_two_models(account))
    plain["notices"] = _notices(notices)
    if account.failed_model is not None:
        # The error stands in failed_because.
        plain["notices"][0] = account.failed_model.notice
    if account.abstained:
        plain["abstained"] = True
        if account.doubt is not None:
            plain["abstained_because"] = account.doubt
    return plain


def _of_two_models(account: Account) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    if account.failed_model is not None:
        error = account.failed_model.error
        plain["failed_model"] = account.failed_model.name
        plain["failed_because"] = repr(error)
        plain["failed_reason"] = reason_of(error)
    if account.is_shadowed:
        plain["shadowed"] = True
    if account.models:
        plain["models"] = {
            name: asdict(model) for name, model in account.models.items()
        }
    return plain


def failure_notices(samples: Sequence[SampledResponse]) -> list[str]:
    """Return notices of samples that failed, and of requests that a backend had to make
    again (``failed_attempts``).
    """
    failed = 0
    attempts: list[Any] = []
    for sample in samples:
        failed += sample.status == "failed"
        if sample.message is not None:
            attempts += sample.message.response_metadata.get(FAILED_ATTEMPTS, ())
    notices = []
    if failed:
        notices.append(f"{failed} of {len(samples)} samples failed")
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
    dropped = _DROPPED
    if not logprobs:
        dropped = dropped | LOGPROBS_KEYS
    return {
        name: value
        for name, value in message.response_metadata.items()
        if name not in dropped
    }


def named_votes(decision: Decision) -> dict[str, Any]:
    """Return what was voted for, as an account names it: the answer, the evidence, and
    how certain it is.
    """
    answer = decision.answer or ""
    # A long call stands in the message, and is not repeated.
    is_repeated = len(answer) > _LONG and arguments_of(answer) is not None
    return _votes(decision, whole=not is_repeated)


def _votes(decision: Decision, *, whole: bool) -> dict[str, Any]:
    """Return what was voted for in a question, or in a part of it.

    Args:
        decision: on the question, or on the part.
        whole: whether the answer is not cut, however long it is. The evidence names
            long answers by their beginning.
    """
    evidence = decision.evidence
    answer = decision.answer
    heaviest = set(nlargest(_MOST, evidence, key=evidence.__getitem__))
    strongest = {}
    for number, candidate in enumerate(evidence, 1):
        # Two long answers may begin alike, so each ends with its number.
        name = _cut(candidate, f"… [answer {number}]")
        if candidate in heaviest:
            strongest[name] = evidence[candidate]
        if candidate == answer and not whole:
            answer = name
    if answer is not None and not whole and decision.answer not in evidence:
        answer = _cut(answer)
    votes: dict[str, Any] = {"answer": answer, "evidence": strongest}
    left_out = len(evidence) - len(strongest)
    if left_out:
        votes["others"] = {
            "answers": left_out,
            "evidence": sum(evidence.values()) - sum(strongest.values()),
        }
    votes["posterior"] = decision.posterior
    return votes


def _parts(parts: Mapping[str, Decision]) -> dict[str, Any]:
    """Return the votes on the least certain parts, in their own order."""
    if not parts:
        return {}
    least_certain = nsmallest(_MOST, parts, key=lambda name: parts[name].posterior)
    least_certain_parts = {
        name: _votes(part, whole=False)
        for name, part in parts.items()
        if name in least_certain
    }
    plain: dict[str, Any] = {"parts": least_certain_parts}
    left_out = len(parts) - len(least_certain_parts)
    if left_out:
        plain["parts_left_out"] = left_out
    return plain


def _notices(notices: Sequence[str]) -> list[str]:
    plain = [_cut(notice, "…", _LONG_NOTICE) for notice in notices[:_MOST]]
    left_out = len(notices) - len(plain)
    if left_out:
        plain.append(
            f"{left_out} more are in the notices of the result that solve() returns"
        )
    return plain


def _cut(text: str, mark: str = "…", length: int = _LONG) -> str:
    return text if len(text) <= length else text[:length] + mark

"""What a question came to: the decision, every response behind it, and what was spent."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata, add_usage

from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.contract import (
    FAILED_ATTEMPTS,
    GENERATED_TEXT,
    LOGPROBS_REFUSED,
    RECEIVED_TOKENS,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
)
from langchain_reasc.models.usage import estimated_usage, is_estimated, output_tokens, reported_usage
from langchain_reasc.runnable.account import account_of
from langchain_reasc.runnable.summary import as_html, as_text, sentence, shortened
from langchain_reasc.sampling import Sample

__all__ = ["Likelihood", "ReASCResult", "SampledResponse", "Usage"]

_DROPPED: Final = frozenset({TOKEN_SIGNALS, TOKEN_SIGNALS_INFO, GENERATED_TEXT, LOGPROBS_REFUSED, FAILED_ATTEMPTS})
_LOGPROBS: Final = frozenset({"logprobs", "logprobs_result"})


@dataclass(frozen=True, slots=True)
class SampledResponse:
    """One sample as the decision saw it.

    Attributes:
        index: its place in launch order.
        message: what the model said, with its token signals; None when it failed before the first token.
        status: ``complete``, ``cancelled`` or ``failed``.
        used: whether the decision rests on it; others were launched beside it and paid for all the same.
        answer: the normalized answer, or None.
        score: S(y), or None where no confidence was read.
        weight: the evidence it contributed; 0 when it was not used or has no answer.
        output_tokens: how many tokens were generated.
        error: what a failed sample raised.
    """

    index: int
    message: AIMessage | None
    status: Literal["complete", "cancelled", "failed"]
    used: bool
    answer: str | None
    score: float | None
    weight: float
    output_tokens: int
    error: Exception | None = None

    def __repr__(self) -> str:
        """One line, without the token signals of the message, which are thousands of numbers."""
        said = self.error if self.message is None else self.message.text
        score = "None" if self.score is None else f"{self.score:.4g}"
        return (
            f"SampledResponse(index={self.index}, status={self.status!r}, used={self.used}, "
            f"answer='{shortened(self.answer)}', score={score}, weight={self.weight:.4g}, "
            f"output_tokens={self.output_tokens}, text='{shortened(said)}')"
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens paid for one question, over all its samples.

    Attributes:
        bill: the sum as LangChain has it: prompt tokens as often as the model was given the prompt, generated tokens of
            unused and cancelled samples too, and of both what providers tell in detail (cached, reasoning, audio).
        unused_output_tokens: generated tokens of samples that the decision does not rest on.
        estimated: whether some sample, or the judge, came without usage and its tokens were counted from what arrived.
        judge: the tokens of a judge that told which answers mean the same, which are no part of the bill: it is another
            model. None where no judge is asked.
    """

    bill: UsageMetadata
    unused_output_tokens: int = 0
    estimated: bool = False
    judge: UsageMetadata | None = None

    @property
    def input_tokens(self) -> int:
        """Prompt tokens."""
        return self.bill["input_tokens"]

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again (a shared prefill)."""
        return self.bill.get("input_token_details", {}).get("cache_read", 0)

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return self.bill["output_tokens"]


class Likelihood(TypedDict):
    """How likely an answer is right, or agrees with further responses; and what that was learned from."""

    value: float
    source: Literal["labels", "consensus"]


@dataclass(frozen=True, slots=True)
class ReASCResult:
    """The outcome for one input.

    Attributes:
        message: the winning response, with ``response_metadata["reasc"]``; its ``usage_metadata`` is the whole bill.
        decision: the answer, the evidence, and why sampling stopped.
        responses: every sample launched, in launch order.
        usage: what was spent.
        notices: what the caller should know, such as that votes were counted for want of a calibration.
        doubt: why the answer is not taken for one, where ``p_correct`` or ``p_agree`` is below ``abstain_below``.
    """

    message: AIMessage
    decision: Decision
    responses: tuple[SampledResponse, ...]
    usage: Usage
    notices: tuple[str, ...] = ()
    doubt: str | None = None

    def __repr__(self) -> str:
        """Some ten lines; the attributes have everything."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """The same in a notebook, with the votes as a small table."""
        return as_html(self)

    def summary(self) -> str:
        """Whether the answer is decided, how many responses gave it, and how sure that is, in one sentence."""
        return sentence(self)

    @property
    def answer(self) -> str | None:
        """The winning answer; None when no response had one."""
        return self.decision.answer

    @property
    def p_correct(self) -> float | None:
        """How likely the answer is right; None where no calibration on labels tells that."""
        return self._likelihood("p_correct")

    @property
    def p_agree(self) -> float | None:
        """How likely further responses agree with the answer, which does not make it right.

        None where no calibration without labels tells that.
        """
        return self._likelihood("p_agree")

    def _likelihood(self, name: str) -> float | None:
        likelihood: Likelihood | None = self.message.response_metadata["reasc"].get(name)
        return likelihood["value"] if likelihood else None

    @property
    def undecided(self) -> bool:
        """Whether the evidence was not sufficient when budget or time was spent, never will be, or is doubted."""
        return self.decision.reason in ("budget", "timeout", "hopeless") or self.doubt is not None

    def abstained(self) -> "ReASCResult":
        """The same with an empty message in place of the winning one, with its account and its bill."""
        message = self.message
        account = {**message.response_metadata["reasc"], "abstained": True}
        if self.doubt is not None:
            account["abstained_because"] = self.doubt
        metadata = {**message.response_metadata, "reasc": account}
        empty = AIMessage("", id=message.id, response_metadata=metadata, usage_metadata=message.usage_metadata)
        return replace(self, message=empty)

    @property
    def failures(self) -> tuple[Exception, ...]:
        """What the failed samples raised, in launch order."""
        return tuple(response.error for response in self.responses if response.error is not None)


def failures_told(samples: Sequence[Sample]) -> list[str]:
    """Notices of samples that failed, and of requests that a backend had to make again (``failed_attempts``)."""
    failed = sum(sample.status == "failed" for sample in samples)
    told = [f"{failed} of {len(samples)} samples failed"] if failed else []
    metadata = [sample.message.response_metadata for sample in samples if sample.message]
    attempts = [attempt for one in metadata for attempt in one.get(FAILED_ATTEMPTS, ())]
    if attempts:
        lost = sum(attempt.get(RECEIVED_TOKENS, 0) for attempt in attempts)
        told.append(f"{len(attempts)} requests failed and were made again; {lost} tokens that had come were lost")
    return told


def total_usage(samples: Sequence[Sample], used: Collection[int], *, lost: Sequence[Sample] = ()) -> Usage:
    """Add up what a question cost.

    Args:
        samples: its samples.
        used: indices of those that the decision rests on.
        lost: others that were drawn for it and are paid for.
    """
    unused = [sample.message for sample in (*samples, *lost) if sample.index not in used or sample in lost]
    drawn = [sample.message for sample in (*samples, *lost) if sample.message is not None]
    # All samples had the same prompt, so one that came without usage cost what the others did.
    prompt = max((usage["input_tokens"] for one in drawn if (usage := reported_usage(one))), default=0)
    bill = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
    for message in drawn:
        bill = add_usage(bill, reported_usage(message) or estimated_usage(message, prompt_tokens=prompt))
    return Usage(bill, sum(map(output_tokens, unused)), estimated=any(map(is_estimated, drawn)))


def winner_of(
    responses: Sequence[SampledResponse],
    decision: Decision,
    written: Callable[[AIMessage, str], AIMessage | None],
) -> tuple[AIMessage, Decision]:
    """The most trusted response that gives the winning answer, and the decision it stands for.

    Args:
        responses: every sample.
        decision: what was decided.
        written: writes an answer that was put together from several into one of them; None where it is refused. Then
            the best answer that one response gave as a whole has won.
    """
    used = [response for response in responses if response.used and response.message is not None]
    given = decision.answer if decision.whole is None else decision.whole
    agreeing = [response for response in used if response.answer == given]
    winner = max(agreeing or used, key=lambda response: response.weight).message
    assert winner is not None
    if given != decision.answer and decision.answer is not None:
        if (together := written(winner, decision.answer)) is not None:
            return together, decision
        decision = replace(decision, answer=given)
    return winner, decision


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
    """The winning response, carrying the account of the decision."""
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
            **_told_of(usage.judge),
        },
    }
    account = account_of(decision, winner, notices, figures)
    kept = kept_metadata(winner, logprobs=keep_logprobs)
    return winner.model_copy(update={"response_metadata": {**kept, "reasc": account}, "usage_metadata": usage.bill})


def kept_metadata(message: AIMessage, *, logprobs: bool) -> dict[str, Any]:
    """The metadata of a response but for figures of single tokens, and requests that failed.

    Those stay in ReASCResult.responses: a message lives on in histories, traces and checkpoints, and the logprobs of
    1,000 tokens with 20 alternatives each are 0.9 MB.

    Args:
        message: the response.
        logprobs: whether the provider's logprobs are kept, since the user asked for them.
    """
    dropped = _DROPPED if logprobs else _DROPPED | _LOGPROBS
    return {key: value for key, value in message.response_metadata.items() if key not in dropped}


def _told_of(judge: UsageMetadata | None) -> dict[str, Any]:
    if judge is None:
        return {}
    return {"judge": {"input": judge["input_tokens"], "output": judge["output_tokens"]}}

"""What a question came to: the decision, every response behind it, and what was spent."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.logprobs import count_tokens
from langchain_reasc.sampling import Sample

__all__ = ["ReASCResult", "SampledResponse", "Usage"]


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
        output_tokens: tokens generated.
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


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens paid for one question, over all its samples.

    Attributes:
        input_tokens: prompt tokens, as often as the model was given the prompt.
        cached_tokens: those of them that were not computed again (a shared prefill).
        output_tokens: generated tokens, of unused and cancelled samples too.
        unused_output_tokens: those of samples the decision does not rest on.
        estimated: whether some sample came without usage and its tokens were counted from what arrived.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    unused_output_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ReASCResult:
    """The outcome for one input.

    Attributes:
        message: the winning response, with ``response_metadata["reasc"]``; its ``usage_metadata`` is the whole bill.
        decision: the answer, the evidence, and why sampling stopped.
        responses: every sample launched, in launch order.
        usage: what was spent.
        notices: what the caller should know, such as that votes were counted for want of a calibration.
    """

    message: AIMessage
    decision: Decision
    responses: tuple[SampledResponse, ...]
    usage: Usage
    notices: tuple[str, ...] = ()

    @property
    def answer(self) -> str | None:
        """The winning answer; None when no response had one."""
        return self.decision.answer

    @property
    def failures(self) -> tuple[Exception, ...]:
        """What the failed samples raised, in launch order."""
        return tuple(response.error for response in self.responses if response.error is not None)


def output_tokens(message: AIMessage | None) -> tuple[int, bool]:
    """Tokens generated for a message, and whether that is counted rather than reported."""
    if message is None:
        return 0, True
    if (usage := _reported(message)) is not None:
        return usage["output_tokens"], False
    listed = count_tokens(message.response_metadata) or message.response_metadata.get("received_tokens")
    return listed or -(-len(str(message.text)) // 4), True  # four characters a token, where nothing says better


def failures_told(samples: Sequence[Sample]) -> list[str]:
    """Notices of samples that failed, and of requests that a backend had to make again (``failed_attempts``)."""
    failed = sum(sample.status == "failed" for sample in samples)
    told = [f"{failed} of {len(samples)} samples failed"] if failed else []
    metadata = [sample.message.response_metadata for sample in samples if sample.message]
    attempts = [attempt for one in metadata for attempt in one.get("failed_attempts", ())]
    if attempts:
        lost = sum(attempt.get("received_tokens", 0) for attempt in attempts)
        told.append(f"{len(attempts)} requests failed and were made again; {lost} tokens that had come were lost")
    return told


def _reported(message: AIMessage | None) -> UsageMetadata | None:
    """The usage that came with a response, where it can be true: not below zero, nor no token for a text."""
    usage = message.usage_metadata if message else None
    if not message or usage is None or min(usage["input_tokens"], usage["output_tokens"]) < 0:
        return None
    return None if usage["output_tokens"] == 0 and (message.text or message.tool_calls) else usage


def total_usage(samples: Sequence[Sample], used: Collection[int]) -> Usage:
    """Add up a question's samples; ``used`` are the indices of those that the decision rests on."""
    reported = [usage for sample in samples if (usage := _reported(sample.message)) is not None]
    prompt = max((usage["input_tokens"] for usage in reported), default=0)
    counts = {sample.index: output_tokens(sample.message) for sample in samples}
    return Usage(
        # All samples had the same prompt, so one that was cut off before its usage came cost what the others did.
        input_tokens=sum(usage["input_tokens"] for usage in reported) + prompt * (len(samples) - len(reported)),
        cached_tokens=sum(usage.get("input_token_details", {}).get("cache_read", 0) or 0 for usage in reported),
        output_tokens=sum(count for count, _ in counts.values()),
        unused_output_tokens=sum(count for index, (count, _) in counts.items() if index not in used),
        estimated=any(estimated for _, estimated in counts.values()),
    )


def winning_message(
    responses: Sequence[SampledResponse],
    decision: Decision,
    usage: Usage,
    notices: Sequence[str],
    *,
    method: str,
    without_confidence: int = 0,
) -> AIMessage:
    """The most trusted response that gives the winning answer, carrying the account of the decision."""
    used = [response for response in responses if response.used and response.message is not None]
    agreeing = [response for response in used if response.answer == decision.answer]
    winner = max(agreeing or used, key=lambda response: response.weight).message
    assert winner is not None
    account: Mapping[str, Any] = {
        "method": method,
        "answer": decision.answer,
        "stage": decision.stage,
        "reason": decision.reason,
        "samples": decision.samples,
        "launched": len(responses),
        "failed": sum(response.status == "failed" for response in responses),
        "without_confidence": without_confidence,
        "evidence": decision.evidence,
        "posterior": decision.posterior,
        "tokens": {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "unused_output": usage.unused_output_tokens,
            "estimated": usage.estimated,
        },
        "notices": list(notices),
    }
    # Per-token signals stay in ReASCResult.responses: a message lives on in histories and traces.
    kept = {key: value for key, value in winner.response_metadata.items() if not key.startswith("token_signals")}
    bill = UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_token_details={"cache_read": usage.cached_tokens},
    )
    return winner.model_copy(update={"response_metadata": {**kept, "reasc": account}, "usage_metadata": bill})

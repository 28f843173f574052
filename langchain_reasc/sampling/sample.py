"""What a drawn sample is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.merging import message_of

__all__ = ["Sample", "merged", "streamed"]

# What langchain-openai's client and its children call themselves.
_OPENAI_CLIENTS: Final = ("openai", "deepseek", "xai")


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn sample.

    Attributes:
        index: its place in launch order, from 0.
        message: what the model said; partial when cancelled, None when it failed before the first token.
        status: ``complete``, ``cancelled`` (cut off once the decision had fallen) or ``failed``.
        error: what a failed sample raised.
        seconds: from the launch of its wave to its end, where that was timed.
    """

    index: int
    message: AIMessage | None
    status: Literal["complete", "cancelled", "failed"] = "complete"
    error: Exception | None = None
    seconds: float | None = None


def merged(chunks: Sequence[Any]) -> AIMessage:
    """The message that a stream's chunks make, or the one message itself.

    Raises:
        ConfigurationError: there is none, or it is no ``AIMessage``.
    """
    first = chunks[0] if chunks else None
    if isinstance(first, AIMessageChunk):
        return message_of(chunks)
    if not isinstance(first, AIMessage):
        raise ConfigurationError(
            f"the model must return AIMessages, got {type(first).__name__}; put ReASCRunnable before the output parser"
        )
    return first


def streamed(chunks: Sequence[Any]) -> AIMessage:
    """The message of a stream that has ended by itself.

    Raises:
        SamplingError: it was cut off in good order for HTTP. OpenAI's protocol names a reason at each stream's end, and
            its client does not miss it; half an answer would then be taken for a whole one.
    """
    message = merged(chunks)
    metadata = message.response_metadata
    if metadata.get("model_provider") in _OPENAI_CLIENTS and not metadata.get("finish_reason"):
        raise SamplingError("the stream ended without a finish reason, so the response may have been cut off")
    return message

"""What a drawn sample is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_reasc.answers import says_how_it_ended
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.merging import message_of

__all__ = ["Sample", "merged", "streamed"]


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


def streamed(chunks: Sequence[Any], *, names_end: bool) -> AIMessage:
    """The message of a stream that has ended by itself.

    Args:
        chunks: of the stream.
        names_end: whether the provider names a reason at each stream's end.

    Raises:
        SamplingError: it was cut off in good order for HTTP. Clients do not miss the reason; half an answer would then
            be taken for a whole one.
    """
    message = merged(chunks)
    if names_end and not says_how_it_ended(message.response_metadata):
        raise SamplingError(
            "the stream ended without a finish reason (finish_reason, stop_reason, status), so the response may have "
            "been cut off"
        )
    return message

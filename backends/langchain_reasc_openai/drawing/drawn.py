"""One sample, while it is drawn and after: what it said, what it cost, and what became of it."""

from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.models.chunks import message_of, salvaged
from langchain_reasc.models.contract import (
    CANCELLED,
    FAILED_ATTEMPTS,
    FINISH_REASON,
    RECEIVED_TOKENS,
    FailedSample,
    sample_id,
)
from langchain_reasc_openai.routing.reading import messages_in, received_tokens

__all__ = ["Drawn"]


@dataclass(eq=False)
class Drawn:
    """One sample, while it is drawn and after.

    Attributes:
        index: the sample's index.
        chunks: what it said, in the last attempt.
        server: the server that was asked last; None before the first.
        error: what the last attempt failed with.
        cancelled: whether it was cut off.
        over: whether it was handed over.
        shares_prompt: whether another sample of the same request is billed the prompt.
        usage: what it is billed, where its chunks do not say.
        lost: the attempts that failed before the last.
    """

    index: int
    chunks: list[ChatGenerationChunk] = field(default_factory=list)
    server: str | None = None
    error: Exception | None = None
    cancelled: bool = False
    over: bool = False
    shares_prompt: bool = False
    usage: UsageMetadata | None = None
    lost: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, server: str) -> None:
        """Start, or start again elsewhere: what the failed attempt generated is put down as lost, once."""
        if self.server is not None:
            error = f"{type(self.error).__name__}: {self.error}".splitlines()[0]
            self.lost.append({"server": self.server, "error": error, RECEIVED_TOKENS: received_tokens(self.chunks)})
        self.chunks, self.server, self.error = [], server, None

    @property
    def missing(self) -> bool:
        """Whether it was asked for, and the server answered without it."""
        return self.server is not None and not (self.over or self.cancelled or self.error or self.chunks)

    def outcome(self) -> tuple[int, AIMessage | FailedSample]:
        """What comes out of the stream of samples: one that failed is a ``FailedSample``."""
        parts = messages_in(self.chunks)
        if self.error is None:
            try:
                return self.index, self._message(message_of(parts) if parts else AIMessage(""))
            except Exception as error:  # they do not add up
                self.error = error
        paid = salvaged(parts)
        return self.index, FailedSample(self.error, None if paid is None else self._message(paid))

    def _message(self, message: AIMessage) -> AIMessage:
        """The response, with what is known of it here."""
        usage = self.usage
        metadata = {**message.response_metadata, "server": self.server}
        if self.lost:
            metadata[FAILED_ATTEMPTS] = self.lost
        if self.cancelled or self.error:
            metadata[RECEIVED_TOKENS] = received_tokens(self.chunks)
            metadata[FINISH_REASON] = CANCELLED if self.cancelled else "error"
        if self.shares_prompt:
            tokens = received_tokens(self.chunks)
            usage = UsageMetadata(input_tokens=0, output_tokens=tokens, total_tokens=tokens)
        update: dict[str, Any] = {"response_metadata": metadata, "id": message.id or sample_id()}
        return message.model_copy(update=update if usage is None else {**update, "usage_metadata": usage})

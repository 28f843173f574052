"""Completions as LangChain messages."""

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from langchain_reasc_llama_cpp.request import Completion

__all__ = ["MessageMaker"]


class MessageMaker:
    """Turns completions of one request into messages.

    Attributes:
        model_name: name of the model file.
        info: what the token signals were computed over: ``vocabulary_size`` and ``top_k``.
    """

    def __init__(self, model_name: str, info: dict[str, int]) -> None:
        self.model_name, self.info = model_name, info

    def message(self, completion: Completion) -> AIMessage:
        """A whole response."""
        return AIMessage(
            content=completion.text, response_metadata=self._metadata(completion), usage_metadata=_usage(completion)
        )

    def last_chunk(self, completion: Completion) -> AIMessageChunk:
        """The chunk that ends a stream: no text, but everything known about it."""
        return AIMessageChunk(
            content="",
            response_metadata=self._metadata(completion),
            usage_metadata=_usage(completion),
            chunk_position="last",
        )

    def _metadata(self, completion: Completion) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "model_name": self.model_name,
            "model_provider": "llama_cpp",
            "finish_reason": completion.finish_reason,
            "seed": completion.seed,
        }
        if completion.signals:
            metadata |= {"token_signals": completion.signals, "token_signals_info": dict(self.info)}
        return metadata


def _usage(completion: Completion) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=completion.prompt_tokens,
        output_tokens=completion.output_tokens,
        total_tokens=completion.prompt_tokens + completion.output_tokens,
        input_token_details=InputTokenDetails(cache_read=completion.cached_tokens),
    )

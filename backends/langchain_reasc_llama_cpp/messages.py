"""Convert completions and their parts to LangChain messages."""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk

from langchain_reasc.models.contract import (
    FINISH_REASON,
    GENERATED_TEXT,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
    sample_id,
)
from langchain_reasc_llama_cpp.engine.request import Completion, Event, TextDelta
from langchain_reasc_llama_cpp.tools.tool_calls import ToolCallReader


class MessageMaker:
    """Turns completions of one request into messages.

    Attributes:
        model_name: name of the model file.
        info: the ``vocabulary_size`` and ``top_k`` of the token signals.
        reader: makes the reader that separates tool calls from text in one response, or
            None without tools.
        dropped: the number of messages left out of the prompt because it did not fit.
    """

    def __init__(
        self,
        model_name: str,
        info: dict[str, int],
        reader: Callable[[], ToolCallReader | None] = lambda: None,
    ) -> None:
        self.model_name, self.info, self.reader = model_name, info, reader
        self.dropped = 0

    def message(self, completion: Completion) -> AIMessage:
        """Make the message of a whole response."""
        reader = self.reader()
        content = (
            completion.text
            if reader is None
            else reader.read_text(completion.text, final=True)[0]
        )
        calls, broken = ([], []) if reader is None else reader.calls()
        metadata = self.metadata(completion, calls=bool(calls)) | _logprobs(
            completion.logprobs
        )
        return AIMessage(
            content=content,
            tool_calls=calls,
            invalid_tool_calls=broken,
            response_metadata=metadata,
            usage_metadata=_usage(completion),
        )

    def sample(self, completion: Completion) -> tuple[int, AIMessage]:
        """Return the index and message of one of several responses, with an id in
        LangChain's form.
        """
        message = self.message(completion)
        message.id = sample_id()
        return completion.index, message

    def generation(self, completion: Completion) -> ChatGeneration:
        """Make the generation of a whole response, as ``generate`` returns it."""
        message = self.message(completion)
        info = {
            "finish_reason": message.response_metadata["finish_reason"],
            **_logprobs(completion.logprobs),
        }
        return ChatGeneration(message=message, generation_info=info)

    def metadata(self, completion: Completion, *, calls: bool) -> dict[str, Any]:
        """Return a response's metadata without logprobs; ``calls`` says whether the
        response has tool calls.
        """
        ended = completion.finish_reason
        metadata: dict[str, Any] = {
            "model_name": self.model_name,
            "model_provider": "llama_cpp",
            FINISH_REASON: "tool_calls" if calls and ended == "stop" else ended,
            "seed": completion.seed,
            "timing": completion.timing,
        }
        if self.dropped:
            metadata["dropped_messages"] = self.dropped
        if completion.signals:
            metadata |= {
                TOKEN_SIGNALS: completion.signals,
                TOKEN_SIGNALS_INFO: dict(self.info),
            }
        # so that the tokens of the calls, or of the answer, can be found
        if completion.sizes is not None:
            metadata[GENERATED_TEXT] = {
                "text": completion.text,
                "sizes": completion.sizes,
            }
        return metadata


class ChunkMaker:
    """Turns the events of one streamed response into message chunks."""

    def __init__(self, maker: MessageMaker) -> None:
        self._maker = maker
        self._reader = maker.reader()

    def chunk(self, event: Event) -> ChatGenerationChunk:
        """Return the chunk for a part of the response, or for its end with all
        metadata.
        """
        assert isinstance(event, TextDelta | Completion)
        logprobs = _logprobs(event.logprobs)  # of the tokens since the last text
        if isinstance(event, TextDelta):
            content, calls = self._read(event.text, final=False)
            message = AIMessageChunk(
                content=content, tool_call_chunks=calls, response_metadata=logprobs
            )
            return ChatGenerationChunk(
                message=message, generation_info=logprobs or None
            )
        content, calls = self._read("", final=True)
        metadata = self._maker.metadata(
            event, calls=self._reader is not None and bool(self._reader.calls()[0])
        )
        message = AIMessageChunk(
            content=content,
            tool_call_chunks=calls,
            response_metadata=metadata | logprobs,
            usage_metadata=_usage(event),
            chunk_position="last",
        )
        info = {FINISH_REASON: metadata[FINISH_REASON], **logprobs}
        return ChatGenerationChunk(message=message, generation_info=info)

    def _read(self, text: str, *, final: bool) -> tuple[str, list[ToolCallChunk]]:
        """More of the text, as far as it is known whether it is text or a call."""
        return (
            (text, [])
            if self._reader is None
            else self._reader.read_text(text, final=final)
        )


def _logprobs(entries: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {} if entries is None else {"logprobs": {"content": entries}}


def _usage(completion: Completion) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=completion.prompt_tokens,
        output_tokens=completion.output_tokens,
        total_tokens=completion.prompt_tokens + completion.output_tokens,
        input_token_details=InputTokenDetails(cache_read=completion.cached_tokens),
    )

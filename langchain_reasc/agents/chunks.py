"""A whole message as a chunk of a stream."""

from langchain_core.messages import AIMessage, AIMessageChunk

__all__ = ["chunk_of"]


def chunk_of(message: AIMessage) -> AIMessageChunk:
    """The only chunk of a stream that is this message.

    It is not cut in pieces: how content blocks, tool calls and provider metadata belong together differs from provider
    to provider, and LangChain reads a chunk that is marked as the last as it reads a whole message.
    """
    chunk = AIMessageChunk(
        content=message.content,
        id=message.id,
        name=message.name,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )
    for index, call in enumerate(chunk.tool_call_chunks):
        call["index"] = index
    return chunk

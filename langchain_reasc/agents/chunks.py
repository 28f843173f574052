"""A whole message as a chunk of a stream."""

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.utils.json import parse_partial_json

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
        if index >= len(message.tool_calls):
            call["args"] = _unrepairable(call["args"] or "")
    return chunk


def _unrepairable(args: str) -> str:
    """The arguments of an invalid call, so that it stays invalid where the chunk is added to others.

    LangChain then completes what looks like the beginning of an object, and takes nothing at all for an empty one. A
    bracket that closes nothing keeps it from both.
    """
    try:
        repaired = parse_partial_json(args) if args else {}
    except (ValueError, RecursionError):
        return args
    return f"]{args}" if isinstance(repaired, dict) else args

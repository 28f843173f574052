"""A whole message as the chunks of a stream, which add up to it."""

import json
from collections.abc import Iterator

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

__all__ = ["chunks_of"]


def chunks_of(message: AIMessage) -> Iterator[AIMessageChunk]:
    """The text or each content block, each tool call, and last what is said of the whole: usage, metadata."""
    empty: str | list[str | dict[str, object]] = "" if isinstance(message.content, str) else []
    if isinstance(message.content, str):
        if message.content:
            yield AIMessageChunk(content=message.content, id=message.id)
    else:
        for block in message.content:
            yield AIMessageChunk(content=[block], id=message.id)
    made = [(call["name"], json.dumps(call["args"], ensure_ascii=False), call["id"]) for call in message.tool_calls]
    failed = [(call["name"], call["args"], call["id"]) for call in message.invalid_tool_calls]
    for index, (name, args, call_id) in enumerate([*made, *failed]):
        call = tool_call_chunk(name=name, args=args, id=call_id, index=index)
        yield AIMessageChunk(content=empty, tool_call_chunks=[call], id=message.id)
    yield AIMessageChunk(
        content=empty,
        id=message.id,
        name=message.name,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )

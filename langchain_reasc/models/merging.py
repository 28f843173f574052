"""One message out of the chunks of a stream, with its calls of tools as a response that comes whole would have them.

LangChain completes the JSON of streamed arguments, so that ``{"folder": "/tm`` becomes a valid call, while ``invoke``
keeps such a call in ``invalid_tool_calls``. Nothing that was cut in half, or is no JSON, may run or be voted for, so
the arguments are read here as ``invoke`` reads them.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    message_chunk_to_message,
)
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks, add_usage
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call
from langchain_core.output_parsers.openai_tools import parse_tool_call
from langchain_core.utils._merge import merge_lists

from langchain_reasc.exceptions import SamplingError

__all__ = ["message_of", "salvaged"]


def message_of(chunks: Sequence[BaseMessage]) -> AIMessage:
    """The message that chunks add up to; a call whose arguments are no JSON object is in ``invalid_tool_calls``.

    Args:
        chunks: at least one.

    Raises:
        SamplingError: some are no parts of an ``AIMessage``.
        Exception: they cannot be added up: a server gave one name values of two types, say.
    """
    parts = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if len(parts) < len(chunks):
        odd = next(chunk for chunk in chunks if not isinstance(chunk, AIMessageChunk))
        raise SamplingError(f"the model streamed a {type(odd).__name__}, which is no part of an AIMessage")
    # Without their calls, which LangChain would complete, and in quadratic time where they are no JSON.
    whole = add_ai_message_chunks(*(part.model_copy(update={"tool_call_chunks": []}) for part in parts))
    message = message_chunk_to_message(whole)
    assert isinstance(message, AIMessage)
    pieces = merge_lists([], *(part.tool_call_chunks for part in parts))
    if not pieces:
        return message
    valid: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for piece in _joined(pieces):
        raw = {"function": {"name": piece["name"], "arguments": piece["args"]}, "id": piece["id"]}
        try:
            call: Any = parse_tool_call(raw)
            if not isinstance(call["args"], dict):
                raise ValueError(f"the arguments of {piece['name']} are no JSON object")
            valid.append(call)
        except (ValueError, RecursionError) as error:
            invalid.append(invalid_tool_call(name=piece["name"], args=piece["args"], id=piece["id"], error=str(error)))
    update: dict[str, Any] = {"tool_calls": valid, "invalid_tool_calls": invalid}
    if isinstance(message.content, list):
        dropped = {call["id"] for call in invalid}
        update["content"] = [
            _finished(block, [*valid, *invalid])
            for block in message.content
            if not (isinstance(block, dict) and block.get("type") == "tool_use" and block.get("id") in dropped)
        ]  # Anthropic's and Bedrock's blocks of invalid calls are left out: LangChain shows valid calls in their place
    return message.model_copy(update=update)


def salvaged(chunks: Sequence[BaseMessage]) -> AIMessage | None:
    """What there is of a response that failed, for its bill; never raises.

    Where chunks do not add up, it is their text alone, with their usage where at least that adds up.
    """
    if not chunks:
        return None
    try:
        return message_of(chunks)
    except Exception:
        text = "".join(chunk.content for chunk in chunks if isinstance(chunk.content, str))
    try:
        usage: UsageMetadata | None = None
        for chunk in chunks:
            usage = add_usage(usage, getattr(chunk, "usage_metadata", None))
        return AIMessage(text, usage_metadata=usage)
    except Exception:
        return AIMessage(text)


def _joined(pieces: Sequence[ToolCallChunk]) -> list[ToolCallChunk]:
    """The calls, each whole: a piece without a name goes on with the latest call of its index.

    LangChain adds pieces up by index and id, but some servers give no index, and ``ChatMistralAI`` each piece a new id.
    """
    calls: list[ToolCallChunk] = []
    for piece in pieces:
        begun = None if piece["name"] else _latest(calls, piece["index"])
        if begun is None:
            calls.append(piece)
        else:
            calls[begun] = {**calls[begun], "args": (calls[begun]["args"] or "") + (piece["args"] or "")}
    return calls


def _latest(calls: Sequence[ToolCallChunk], index: int | None) -> int | None:
    return next((at for at in reversed(range(len(calls))) if index in (None, calls[at]["index"])), None)


def _finished(block: Any, calls: Sequence[ToolCall | InvalidToolCall]) -> Any:
    """A content block; a piece of a call, as ``output_version="v1"`` has them, becomes the call."""
    if not isinstance(block, dict) or block.get("type") != "tool_call_chunk":
        return block
    extras = {"extras": block["extras"]} if "extras" in block else {}
    return next(({**call, **extras} for call in calls if call["id"] == block.get("id")), block)

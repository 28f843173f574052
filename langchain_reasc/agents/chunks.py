"""What a stream says of a response: a whole message as one chunk, or its own chunks as they come."""

from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.utils.utils import LC_ID_PREFIX

from langchain_reasc.runnable.account import kept_metadata

__all__ = ["PassedOn", "chunks_of", "given_id", "without_token_usage"]


def chunks_of(message: AIMessage) -> list[AIMessageChunk]:
    """The stream that is this message: one chunk, and one before it with the invalid calls that it would not show.

    The message is not cut in pieces: how content blocks, tool calls and provider metadata belong together differs from
    provider to provider, and LangChain reads a chunk that is marked as the last as it reads a whole message. Its v3
    events then show only those invalid calls that are blocks of the content.
    """
    if not message.invalid_tool_calls or any(_shows_invalid_call(block) for block in message.content):
        return [_whole(message)]
    calls = AIMessageChunk(content=_empty(message), id=message.id, invalid_tool_calls=message.invalid_tool_calls)
    for call in calls.tool_call_chunks:
        call["args"] = _unrepairable(call["args"])
    raw = {"tool_calls"}  # as some providers' models keep them, where LangChain would look for calls and complete them
    left = {"invalid_tool_calls": [], "additional_kwargs": _without(message.additional_kwargs, raw)}
    return [calls, _whole(message.model_copy(update=left))]


def _whole(message: AIMessage) -> AIMessageChunk:
    chunk = AIMessageChunk(
        content=_content_of(message),
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
            call["args"] = _unrepairable(call["args"])
    return chunk


def _shows_invalid_call(block: Any) -> bool:
    """Whether it is an invalid call, or any call of the Responses API, which LangChain shows as invalid if it is."""
    return isinstance(block, dict) and block.get("type") in ("invalid_tool_call", "function_call")


def _unrepairable(args: str | None) -> str:
    """The arguments of an invalid call, so that it stays invalid where the chunk is added to others.

    LangChain then completes what looks like the beginning of an object, takes nothing at all for an empty one, and
    fails on a list. A bracket that closes nothing keeps it from all that.
    """
    return f"]{args or ''}"


def _empty(message: AIMessage) -> Any:
    return type(message.content)()


def _content_of(message: AIMessage) -> str | list[str | dict[str, Any]]:
    """Content in which each block is told from the others, as LangChain's events read it.

    With ``output_version="v1"`` LangChain's streams give a call of a tool the index of a text, or of another call, and
    then add the two up to one block. Calls that are lost so are put in again, and blocks of one index told apart.
    """
    if isinstance(message.content, str):
        return message.content
    blocks = message.content
    found = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_call"]
    if message.response_metadata.get("output_version") == "v1" and len(found) < len(message.tool_calls):
        blocks = [*(block for block in blocks if block not in found), *(dict(call) for call in message.tool_calls)]
    indices = [block["index"] for block in blocks if isinstance(block, dict) and "index" in block]
    if len(set(indices)) == len(indices):
        return blocks
    return [
        {**block, "index": place} if isinstance(block, dict) and "index" in block else block
        for place, block in enumerate(blocks)
    ]


class PassedOn:
    """The chunks of a response while it comes, and what is left to say at its end.

    Usage, which is told at the end of all samples, is taken out of them. Calls of tools are not passed on either: where
    a response is passed on no tools were offered, and a call that comes all the same is voted on first.

    Args:
        logprobs: whether the provider's logprobs are kept, since the user asked for them.
    """

    def __init__(self, *, logprobs: bool) -> None:
        self._logprobs = logprobs
        self._chunks: list[AIMessageChunk] = []
        self._calls = False

    def next(self, chunk: AIMessageChunk) -> AIMessageChunk | None:
        """A chunk as it is passed on; None where it is not."""
        self._calls = self._calls or bool(chunk.tool_call_chunks)
        if self._calls:
            return None
        metadata = without_token_usage(kept_metadata(chunk, logprobs=self._logprobs))
        told = {"usage_metadata": None, "chunk_position": None, "response_metadata": metadata}
        passed = chunk.model_copy(update={"id": given_id(chunk), **told})
        if not (passed.content or passed.response_metadata or passed.additional_kwargs):
            return None
        self._chunks.append(passed)
        return passed

    def last(self, message: AIMessage) -> list[AIMessageChunk]:
        """What is left to say of the response, or of the one that has won over it."""
        if not self._chunks:
            return chunks_of(message)
        metadata = {name for chunk in self._chunks for name in chunk.response_metadata}
        extras = {name for chunk in self._chunks for name in chunk.additional_kwargs}
        left = {
            "content": _empty(message),
            "response_metadata": _without(message.response_metadata, metadata),
            "additional_kwargs": _without(message.additional_kwargs, extras),
        }
        return chunks_of(message.model_copy(update=left))


def given_id(message: AIMessage) -> str | None:
    """The id that a provider gave a response; None for one named after a call of the model inside."""
    return None if message.id is None or message.id.startswith(LC_ID_PREFIX) else message.id


def without_token_usage(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a response but for what OpenAI's clients say there of its tokens: the bill is of all samples."""
    return _without(metadata, {"token_usage"})


def _without(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}

"""Reading the streamed responses to a request, and telling a whole one from one that was cut."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.chunks import ResponseBound, metadata_of, token_limit
from langchain_reasc.models.contract import FINISH_REASON
from langchain_reasc_openai.routing import Attempt

__all__ = ["finish_reason", "has_content", "logprobs_of", "messages_in", "read", "received_tokens"]


async def read(
    attempt: Attempt,
    messages: list[BaseMessage],
    kwargs: Mapping[str, Any],
    take: Callable[[int, ChatGenerationChunk], None],
    n: int = 1,
) -> UsageMetadata | None:
    """Read n responses to their ends; cancelled, it closes the connection, so that the server stops generating.

    Each chunk is given to ``take`` with the number of its response, from 0. A response that goes on past its limit of
    tokens is ended there, as the server should have. A server that ignores ``n`` leaves some responses out.

    Returns:
        The usage of all together where n is above 1 and the server reported it; one response has its own.

    Raises:
        TimeoutError: the stream was silent for too long.
        SamplingError: the stream ended without a finish reason. Without a length in the headers, nothing else tells
            a cut connection from a response that ended.
        Exception: what the server's client raised.
    """
    server, usage = attempt.replica, None
    begun, ended, cut = set[int](), set[int](), set[int]()
    limit = token_limit(server.client, kwargs)
    bounds = [ResponseBound(limit) for _ in range(n)]

    def receive(index: int, chunk: ChatGenerationChunk) -> None:
        begun.add(index)
        if finish_reason(chunk) is not None:
            ended.add(index)
        take(index, chunk)

    clock = asyncio.get_running_loop().time
    try:
        async with (
            asyncio.timeout(server.silence) as scope,
            aclosing(server.client.chunks(messages, kwargs, n)) as chunks,
        ):
            async for index, chunk in chunks:
                if server.silence is not None:
                    scope.reschedule(clock() + server.silence)
                attempt.prove()
                if index is None:
                    usage = getattr(chunk.message, "usage_metadata", None)
                elif index < n and index not in cut:
                    receive(index, chunk)
                    bounds[index].take(chunk)
                    if bounds[index].passed:
                        cut.add(index)
                        for last in bounds[index].cut(_at_limit):
                            receive(index, last)
                    if cut and all(bound.over for bound in bounds):
                        break
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise TimeoutError(f"{server.url} was silent for {server.silence:g} s (stream_chunk_timeout)") from error
    if not ended or begun != ended:
        raise SamplingError(
            f"{server.url} ended the stream before the response had a finish_reason"
            if begun
            else f"{server.url} answered without a single event of a stream; is that the address of an "
            "OpenAI-compatible API?"
        )
    return usage


def _at_limit(_: object) -> ChatGenerationChunk:
    """Return the last chunk of a response that was read no further than its limit of tokens."""
    return ChatGenerationChunk(message=AIMessageChunk(content=""), generation_info={FINISH_REASON: "length"})


def finish_reason(chunk: ChatGenerationChunk) -> str | None:
    """Return why the response ended; None in the chunks before the last."""
    return (chunk.generation_info or {}).get(FINISH_REASON) or chunk.message.response_metadata.get(FINISH_REASON)


def logprobs_of(chunk: ChatGenerationChunk) -> Any:
    """Return the provider's logprobs of a chunk, as langchain-openai hands them to callbacks."""
    return (chunk.generation_info or {}).get("logprobs")


def has_content(chunk: ChatGenerationChunk) -> bool:
    """Whether a chunk carries a part of the response; the first often names only the role."""
    message, info = chunk.message, chunk.generation_info or {}
    if message.content or message.additional_kwargs or info.keys() & {FINISH_REASON, "logprobs"}:
        return True
    return isinstance(message, AIMessageChunk) and bool(message.tool_call_chunks or message.usage_metadata)


def received_tokens(chunks: Sequence[ChatGenerationChunk]) -> int:
    """Count the tokens of a response that was cut off: those with logprobs, or else the chunks that say something."""
    with_logprobs = sum(len((logprobs_of(chunk) or {}).get("content") or ()) for chunk in chunks)
    return with_logprobs or sum(bool(chunk.text or chunk.message.additional_kwargs) for chunk in chunks)


def messages_in(chunks: Sequence[ChatGenerationChunk]) -> list[BaseMessage]:
    """Return the chunks' messages, with what was said beside them in their metadata."""
    return [chunk.message.model_copy(update={"response_metadata": metadata_of(chunk)}) for chunk in chunks]

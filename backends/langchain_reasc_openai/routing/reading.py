"""Reading one streamed response, and telling a whole one from one that was cut."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.chunks import ResponseBound, bounded, token_limit
from langchain_reasc.models.contract import FINISH_REASON
from langchain_reasc_openai.langchain_openai_internals import stream
from langchain_reasc_openai.routing.attempts import Attempt

__all__ = [
    "at_limit",
    "cut_off",
    "finish_reason",
    "listen",
    "logprobs_of",
    "messages_in",
    "read",
    "received_tokens",
    "says_something",
]

T = TypeVar("T")


async def read(
    attempt: Attempt,
    messages: list[BaseMessage],
    kwargs: dict[str, Any],
    take: Callable[[ChatGenerationChunk], None],
) -> None:
    """Read a response to its end; cancelled, it closes the connection, so that the server stops generating.

    A response that goes on past its limit of tokens is ended there, as the server should have.

    Raises:
        TimeoutError: the stream was silent for too long.
        SamplingError: the stream ended without a finish reason. Without a length in the headers, nothing else tells
            a cut connection from a response that ended.
        Exception: what the server's client raised.
    """
    begun = whole = False

    def note(chunk: ChatGenerationChunk) -> None:
        nonlocal begun, whole
        begun, whole = True, whole or finish_reason(chunk) is not None
        take(chunk)

    client = attempt.replica.client
    bound = ResponseBound(token_limit(client, kwargs))
    await listen(attempt, bounded(stream(client, messages, kwargs), bound, at_limit), note)
    if not whole:
        raise cut_off(attempt, begun=begun)


def at_limit(_: object = None) -> ChatGenerationChunk:
    """The last chunk of a response that was read no further than its limit of tokens."""
    return ChatGenerationChunk(message=AIMessageChunk(content=""), generation_info={FINISH_REASON: "length"})


def cut_off(attempt: Attempt, *, begun: bool) -> SamplingError:
    """What is wrong with a stream that ended without a finish reason, in the middle or before it had begun."""
    if begun:
        return SamplingError(f"{attempt.replica.url} ended the stream before the response had a finish_reason")
    return SamplingError(
        f"{attempt.replica.url} answered without a single event of a stream; is that the address of an "
        "OpenAI-compatible API?"
    )


async def listen(attempt: Attempt, items: AsyncIterator[T], take: Callable[[T], None]) -> None:
    """Hand over what a server sends, while it sends something often enough.

    Raises:
        TimeoutError: the stream was silent for too long.
        Exception: what the server's client raised.
    """
    replica, loop = attempt.replica, asyncio.get_running_loop()
    try:
        async with asyncio.timeout(replica.silence) as scope, aclosing(items):  # type: ignore[type-var]
            async for item in items:
                if replica.silence is not None:
                    scope.reschedule(loop.time() + replica.silence)
                attempt.prove()
                take(item)
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise TimeoutError(f"{replica.url} was silent for {replica.silence:g} s (stream_chunk_timeout)") from error


def finish_reason(chunk: ChatGenerationChunk) -> str | None:
    """Why the response ended; None in the chunks before the last."""
    said = chunk.generation_info or chunk.message.response_metadata
    return said.get("finish_reason") or chunk.message.response_metadata.get("finish_reason")


def logprobs_of(chunk: ChatGenerationChunk) -> Any:
    """The provider's logprobs of a chunk, as langchain-openai hands them to callbacks."""
    return (chunk.generation_info or {}).get("logprobs")


def says_something(chunk: ChatGenerationChunk) -> bool:
    """Whether a chunk carries a part of the response; the first often names only the role."""
    message = chunk.message
    called = isinstance(message, AIMessageChunk) and bool(message.tool_call_chunks or message.usage_metadata)
    said = {**(chunk.generation_info or {})}
    return bool(message.content or message.additional_kwargs or said.keys() & {"finish_reason", "logprobs"}) or called


def received_tokens(chunks: Sequence[ChatGenerationChunk]) -> int:
    """Tokens of a response that was cut off: as many as have logprobs, or else one per chunk that says something."""
    listed = sum(len((logprobs_of(chunk) or {}).get("content") or ()) for chunk in chunks)
    return listed or sum(bool(chunk.text or chunk.message.additional_kwargs) for chunk in chunks)


def messages_in(chunks: Sequence[ChatGenerationChunk]) -> list[BaseMessage]:
    """The chunks' messages, with what was said beside them in their metadata."""
    told = [{**(chunk.generation_info or {}), **chunk.message.response_metadata} for chunk in chunks]
    pairs = zip(chunks, told, strict=True)
    return [chunk.message.model_copy(update={"response_metadata": metadata}) for chunk, metadata in pairs]

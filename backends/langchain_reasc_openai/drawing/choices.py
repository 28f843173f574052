"""Several responses in one streamed request (``n``), told apart.

langchain-openai reads only the first choice of a chunk and ignores its index, so that a stream with ``n`` would mix the
responses up. Here its own payload, client and conversion are used, one choice at a time.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.models.chunks import ResponseBound, token_limit
from langchain_reasc.models.refusal import LogprobsMemory
from langchain_reasc_openai.client import ServerClient, keyless, without_logprobs
from langchain_reasc_openai.langchain_openai_internals import chunk_of, is_of_langchain_openai, send_streamed
from langchain_reasc_openai.routing.attempts import Attempt
from langchain_reasc_openai.routing.reading import at_limit, listen

__all__ = ["read_choices", "reads_choices"]


def reads_choices(client: BaseChatModel, kwargs: Mapping[str, Any]) -> bool:
    """Whether a chat model's responses can be told apart; structured output takes another way through the client."""
    return is_of_langchain_openai(client) and "response_format" not in {**client.model_kwargs, **kwargs}


async def read_choices(
    attempt: Attempt,
    messages: list[BaseMessage],
    kwargs: Mapping[str, Any],
    *,
    n: int,
    take: Callable[[int, ChatGenerationChunk], None],
) -> UsageMetadata | None:
    """Read n responses to their ends; cancelled, it closes the connection.

    Each chunk is given to ``take`` with the number of its response, from 0. A response that goes on past its limit of
    tokens is ended there.

    Returns:
        The usage of all together, where the server reported it.

    Raises:
        TimeoutError: the stream was silent for too long.
        Exception: what the server's client raised.
    """
    usage: UsageMetadata | None = None
    client = attempt.replica.client
    assert is_of_langchain_openai(client)
    limit = token_limit(client, kwargs)
    bounds = [ResponseBound(limit) for _ in range(n)]

    def tell_apart(event: dict[str, Any]) -> None:
        nonlocal usage
        together = chunk_of(client, {**event, "choices": []})
        if together and isinstance(together.message, AIMessageChunk) and together.message.usage_metadata:
            usage = together.message.usage_metadata
        for choice in event.get("choices") or ():
            index = choice.get("index") or 0
            if index >= n or bounds[index].passed:
                continue  # more than was asked for
            if (alone := chunk_of(client, {**event, "choices": [choice], "usage": None})) is not None:
                take(index, alone)
                bounds[index].take(alone)
                if bounds[index].passed:
                    for last in bounds[index].cut(at_limit):
                        take(index, last)

    async def needed() -> AsyncIterator[dict[str, Any]]:
        async with aclosing(_events(client, messages, {**kwargs, "n": n})) as events:
            async for event in events:
                yield event
                if any(bound.passed for bound in bounds) and all(bound.over for bound in bounds):
                    return

    await listen(attempt, needed(), tell_apart)
    return usage


async def _events(client: Any, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    stop, _ = kwargs.pop("stop", None), kwargs.pop("stream_usage", None)
    with keyless(client.openai_api_key):
        send = partial(send_streamed, client, messages, stop)
        memory = client.logprobs_memory if isinstance(client, ServerClient) else LogprobsMemory()
        if kwargs.get("logprobs"):
            opening = memory.agenerate(
                lambda with_logprobs: send(kwargs if with_logprobs else without_logprobs(kwargs))
            )
        else:
            opening = send(kwargs)
        async with await opening as response:
            async for chunk in response:
                yield chunk if isinstance(chunk, dict) else chunk.model_dump()

"""Several responses in one streamed request (``n``), told apart.

langchain-openai reads only the first choice of a chunk and ignores its index, so that a stream with ``n`` would mix the
responses up. Here its own payload, client and conversion are used, one choice at a time.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc_openai.client import keyless
from langchain_reasc_openai.langchain_openai_internals import chunk_of, is_of_langchain_openai, send_streamed
from langchain_reasc_openai.routing.attempts import Attempt
from langchain_reasc_openai.routing.reading import listen

__all__ = ["read_choices", "reads_choices"]

Piece = tuple[int, ChatGenerationChunk] | UsageMetadata


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

    Args:
        attempt: whom to ask.
        messages: the prompt.
        kwargs: arguments of the chat model's call.
        n: how many.
        take: given each chunk with the number of its response, from 0.

    Returns:
        The usage of all together, where the server reported it.

    Raises:
        TimeoutError: the stream was silent for too long.
        Exception: what the server's client raised.
    """
    usage: UsageMetadata | None = None

    def sort(piece: Piece) -> None:
        nonlocal usage
        if isinstance(piece, tuple):
            take(*piece)
        else:
            usage = piece

    client = attempt.replica.client
    assert is_of_langchain_openai(client)
    await listen(attempt, _pieces(client, messages, {**kwargs, "n": n}), sort)
    return usage


async def _pieces(client: Any, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AsyncIterator[Piece]:
    stop, _ = kwargs.pop("stop", None), kwargs.pop("stream_usage", None)
    with keyless(client.openai_api_key):
        async with await send_streamed(client, messages, stop, kwargs) as response:
            async for chunk in response:
                for piece in _sorted(client, chunk if isinstance(chunk, dict) else chunk.model_dump()):
                    yield piece


def _sorted(client: Any, event: dict[str, Any]) -> Iterator[Piece]:
    usage = chunk_of(client, {**event, "choices": []})
    if usage and isinstance(usage.message, AIMessageChunk) and usage.message.usage_metadata:
        yield usage.message.usage_metadata
    for choice in event.get("choices") or ():
        alone = {**event, "choices": [choice], "usage": None}
        converted = chunk_of(client, alone)
        if converted is not None:
            yield choice.get("index") or 0, converted

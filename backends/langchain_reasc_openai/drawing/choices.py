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
from langchain_openai.chat_models.base import BaseChatOpenAI

from langchain_reasc_openai.client import keyless
from langchain_reasc_openai.routing.attempts import Attempt
from langchain_reasc_openai.routing.reading import listen

__all__ = ["read_choices", "reads_choices"]

Piece = tuple[int, ChatGenerationChunk] | UsageMetadata


def reads_choices(client: BaseChatModel, kwargs: Mapping[str, Any]) -> bool:
    """Whether a chat model's responses can be told apart; structured output takes another way through the client."""
    return isinstance(client, BaseChatOpenAI) and "response_format" not in {**client.model_kwargs, **kwargs}


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
    assert isinstance(client, BaseChatOpenAI)
    await listen(attempt, _pieces(client, messages, {**kwargs, "n": n}), sort)
    return usage


async def _pieces(client: BaseChatOpenAI, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AsyncIterator[Piece]:
    stop, _ = kwargs.pop("stop", None), kwargs.pop("stream_usage", None)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    payload = client._get_request_payload(messages, stop=stop, **{**kwargs, **options})
    with keyless(client.openai_api_key):
        async with await client.async_client.create(**payload) as response:
            async for chunk in response:
                for piece in _sorted(client, chunk if isinstance(chunk, dict) else chunk.model_dump()):
                    yield piece


def _sorted(client: BaseChatOpenAI, event: dict[str, Any]) -> Iterator[Piece]:
    usage = client._convert_chunk_to_generation_chunk({**event, "choices": []}, AIMessageChunk, None)
    if usage and isinstance(usage.message, AIMessageChunk) and usage.message.usage_metadata:
        yield usage.message.usage_metadata
    for choice in event.get("choices") or ():
        alone = {**event, "choices": [choice], "usage": None}
        converted = client._convert_chunk_to_generation_chunk(alone, AIMessageChunk, None)
        if converted is not None:
            yield choice.get("index") or 0, converted

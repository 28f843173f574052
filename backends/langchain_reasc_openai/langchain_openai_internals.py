"""All that this package uses of langchain-openai beyond its public interface, each with why and what would replace it.

``tests/backends/openai/test_langchain_openai_internals.py`` names what a release of langchain-openai has changed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeGuard

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI
from openai import BaseModel

from langchain_reasc_openai.routing.transport import bounded_client

__all__ = [
    "CLIENT_FIELDS",
    "AdaptedChatOpenAI",
    "chunk_of",
    "chunk_timeout",
    "default_parameters",
    "is_of_langchain_openai",
    "messages_of",
    "response",
    "send_streamed",
    "stream",
    "with_own_connections",
]

CLIENT_FIELDS: Final = ("client", "async_client", "root_client", "root_async_client")
"""What ChatOpenAI connects with, and keeps in fields. Needed to leave them out of a pickle, which cannot hold them;
replaced when ChatOpenAI can be pickled by itself."""


class AdaptedChatOpenAI(ChatOpenAI):
    """ChatOpenAI, with what it sends and what it makes of an answer put right for other servers."""

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Needed as Ollama and LM Studio know ``max_tokens`` only; ChatOpenAI always writes ``max_completion_tokens``.

        A field of ChatOpenAI that names the limit would replace it.
        """
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "max_tokens" in kwargs and "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")
        return payload

    def _create_chat_result(
        self, response: dict[str, Any] | BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        """Needed as each of several choices is said to have the usage of all, so that a sum bills it n times.

        Replaced when langchain-openai reports the usage of a request once: here, with the first choice.
        """
        result = super()._create_chat_result(response, generation_info)
        for generation in result.generations[1:]:
            if isinstance(generation.message, AIMessage):
                generation.message.usage_metadata = None
        return result


def is_of_langchain_openai(client: BaseChatModel) -> TypeGuard[BaseChatOpenAI]:
    """Whether the rest of this file can be used on a chat model.

    ``BaseChatOpenAI`` has no public name; one would replace it.
    """
    return isinstance(client, BaseChatOpenAI)


def stream(client: BaseChatModel, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
    """The chunks of a response, by ``_astream``, the hook that langchain-core has each chat model fill in.

    Needed as ``astream`` would make a run of its own, be traced and billed beside ours, and drop ``generation_info``.
    Public streaming without a run would replace it.
    """
    return client._astream(messages, **kwargs)


def response(client: BaseChatModel, messages: list[BaseMessage], kwargs: dict[str, Any]) -> Awaitable[ChatResult]:
    """A response in one piece, by the hook ``_agenerate``; needed, and replaced, as :func:`stream` is."""
    return client._agenerate(messages, **kwargs)


async def send_streamed(client: BaseChatOpenAI, messages: list[BaseMessage], stop: Any, kwargs: dict[str, Any]) -> Any:
    """The open stream of a request as openai's client returns it, with every choice in it.

    Needed as langchain-openai reads the first choice of each chunk and drops its index, so that responses of one
    request (``n``) would run into each other: its payload (``_get_request_payload``) goes out by its own
    ``async_client``. Streams with several choices in langchain-openai would replace it and :func:`chunk_of`.
    """
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return await client.async_client.create(**client._get_request_payload(messages, stop=stop, **{**kwargs, **options}))


def chunk_of(client: BaseChatOpenAI, event: dict[str, Any]) -> ChatGenerationChunk | None:
    """An event of :func:`send_streamed` as LangChain's chunk, by ``_convert_chunk_to_generation_chunk``."""
    return client._convert_chunk_to_generation_chunk(event, AIMessageChunk, None)


def default_parameters(model: BaseChatOpenAI) -> dict[str, Any]:
    """What the model's fields say of a request, by ``_default_params``.

    Needed as a request is made by another object, the server's client, from the fields of the model that a caller (or
    ``model_copy``) has set. Public access to a model's request parameters would replace it.
    """
    return dict(model._default_params)


def messages_of(model: BaseChatModel, given: LanguageModelInput) -> list[BaseMessage]:
    """The prompt in any form that ``invoke`` takes, as messages, by langchain-core's ``_convert_input``.

    Needed by ``sample``, which takes what ``invoke`` takes; a public conversion would replace it.
    """
    return model._convert_input(given).to_messages()


def with_own_connections(client: BaseChatModel) -> tuple[BaseChatModel, Callable[[], Awaitable[None]] | None]:
    """A copy of a chat model whose asynchronous connections nobody else uses, and what closes them.

    Needed as langchain-openai shares one asynchronous HTTP client among all models of a base URL and all event loops of
    the process (``_cached_async_httpx_client``), where a connection left by one loop hangs or breaks in the next: the
    copy has another ``root_async_client`` and ``async_client``. Models of other packages, and those that were given an
    ``http_async_client``, keep what they have. The copy makes no retries and waits for chunks as long as they take: the
    pool does both, the latter by :func:`chunk_timeout`. Connections for each event loop would replace it.
    """
    if not is_of_langchain_openai(client) or client.root_async_client is None:
        return client, None
    http = None if client.http_async_client else bounded_client(client.root_async_client.base_url)
    changes = {"max_retries": 0} if http is None else {"max_retries": 0, "http_client": http}
    root = client.root_async_client.with_options(**changes)
    update = {"root_async_client": root, "async_client": root.chat.completions, "stream_chunk_timeout": None}
    return client.model_copy(update=update), None if http is None else http.aclose


def chunk_timeout(client: BaseChatModel) -> float | None:
    """Seconds for which a stream may be silent: ``stream_chunk_timeout``, taken over by :func:`with_own_connections`.

    Needed as langchain-openai waits with ``asyncio.wait_for``, which before Python 3.12 swallows a cancellation that
    comes with a chunk: a sample would be read on after it was cut off. Replaced when 3.11 is no longer supported.
    """
    return getattr(client, "stream_chunk_timeout", None) or None

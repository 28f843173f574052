"""HTTP connections of the pool's own: a connection belongs to one event loop."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from langchain_core.language_models import BaseChatModel
from langchain_openai.chat_models.base import BaseChatOpenAI
from openai import DefaultAsyncHttpxClient

__all__ = ["chunk_timeout", "close_all", "with_own_connections"]

Close = Callable[[], Awaitable[None]]


def with_own_connections(client: BaseChatModel) -> tuple[BaseChatModel, Close | None]:
    """A copy of a chat model whose asynchronous connections nobody else uses, and what closes them.

    langchain-openai shares one asynchronous HTTP client among all models of a base URL and all event loops of the
    process (``_cached_async_httpx_client``), where a connection left by one loop hangs or breaks in the next. Models of
    other packages, and those that were given an ``http_async_client``, keep what they have. The copy makes no retries
    and waits for chunks as long as they take: the pool does both, the latter by :func:`chunk_timeout`.
    """
    if not isinstance(client, BaseChatOpenAI) or client.root_async_client is None:
        return client, None
    http = None if client.http_async_client else DefaultAsyncHttpxClient()
    changes = {"max_retries": 0} if http is None else {"max_retries": 0, "http_client": http}
    root = client.root_async_client.with_options(**changes)
    update = {"root_async_client": root, "async_client": root.chat.completions, "stream_chunk_timeout": None}
    return client.model_copy(update=update), None if http is None else http.aclose


def chunk_timeout(client: BaseChatModel) -> float | None:
    """Seconds for which a stream may be silent: langchain-openai's field, taken over by :func:`with_own_connections`.

    langchain-openai waits with ``asyncio.wait_for``, which before Python 3.12 swallows a cancellation that comes with a
    chunk: a sample would be read on after it was cut off.
    """
    return getattr(client, "stream_chunk_timeout", None) or None


async def close_all(closes: Sequence[Close]) -> None:
    """Close every connection, whatever happens to the others."""
    for close in closes:
        with suppress(Exception):
            await close()

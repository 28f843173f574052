"""HTTP connections of the pool's own: a connection belongs to one event loop."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from langchain_core.language_models import BaseChatModel
from langchain_openai.chat_models.base import BaseChatOpenAI
from openai import DefaultAsyncHttpxClient

__all__ = ["close_all", "with_own_connections"]

Close = Callable[[], Awaitable[None]]


def with_own_connections(client: BaseChatModel) -> tuple[BaseChatModel, Close | None]:
    """A copy of a chat model whose asynchronous connections nobody else uses, and what closes them.

    langchain-openai shares one asynchronous HTTP client among all models of a base URL and all event loops of the
    process (``_cached_async_httpx_client``), where a connection left by one loop hangs or breaks in the next. Models of
    other packages, and those that were given an ``http_async_client``, are taken as they are. The copy makes no
    retries: the pool does.
    """
    if not isinstance(client, BaseChatOpenAI) or client.root_async_client is None:
        return client, None
    http = None if client.http_async_client else DefaultAsyncHttpxClient()
    changes = {"max_retries": 0} if http is None else {"max_retries": 0, "http_client": http}
    root = client.root_async_client.with_options(**changes)
    copy = client.model_copy(update={"root_async_client": root, "async_client": root.chat.completions})
    return copy, None if http is None else http.aclose


async def close_all(closes: Sequence[Close]) -> None:
    """Close every connection, whatever happens to the others."""
    for close in closes:
        with suppress(Exception):
            await close()

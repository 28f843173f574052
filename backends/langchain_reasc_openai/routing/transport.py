"""What is told to servers over HTTP, and taken from them: nothing secret elsewhere, and nothing without end."""

import importlib
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from openai import DefaultAsyncHttpxClient

from langchain_reasc.exceptions import SamplingError

__all__ = ["bounded_client"]

# openai's client changed from httpx to httpx2
_httpx: Final[Any] = importlib.import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
_MOST_OF_AN_ERROR: Final = 1 << 20  # bytes; the rest is not read
_LONGEST_EVENT: Final = 16 << 20  # bytes; one token with 20 alternatives has 2,000
_LARGEST_REPLY: Final = 256 << 20  # bytes; 100,000 such tokens in one piece
_HARMLESS: Final = ("host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent")
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")


def bounded_client(base_url: Any) -> Any:
    """An asynchronous HTTP client that raises :class:`SamplingError` where a server sends too much at once.

    It asks for uncompressed replies, since what a few bytes unpack to is bounded by nobody. A redirect to another host
    or port gets neither the key nor other headers of the caller's.

    Args:
        base_url: of the server that it is for, an ``httpx.URL``.
    """

    async def without_secrets(request: Any) -> None:
        if not _same_server(base_url, request.url):
            for name in [name for name in request.headers if name not in _HARMLESS]:
                del request.headers[name]

    return DefaultAsyncHttpxClient(
        headers={"accept-encoding": "identity"}, event_hooks={"request": [without_secrets], "response": [_bound]}
    )


async def _bound(response: Any) -> None:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise SamplingError(f"{_origin(response)} compresses its reply ({encoding}), though it was asked not to")
    response.stream = _Bounded(response)


class _Bounded(_httpx.AsyncByteStream):  # type: ignore[misc]
    """The body of a reply, as far as it is taken.

    Whoever reads it reads on where the last reader stopped: openai's client reads a body twice, the second time for
    what follows the last event. One iterator serves both, and is closed with the body: one that is left to the garbage
    collector ends in another thread, when its event loop has gone.
    """

    def __init__(self, response: Any) -> None:
        self._stream, self._server = response.stream, _origin(response)
        self._is_error = response.status_code >= 400
        self._is_events = response.headers.get("content-type", "").startswith("text/event-stream")
        self._pieces = self._stream.__aiter__()
        self._size, self._tail, self._over = 0, b"", False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        piece: bytes = await self._pieces.__anext__()
        self._size += len(piece)
        if self._is_error and self._size > _MOST_OF_AN_ERROR:
            self._over = True
            return piece[: max(0, len(piece) - (self._size - _MOST_OF_AN_ERROR))]
        if self._is_events and not self._is_error:
            joined = self._tail + piece
            ends = [at + len(mark) for mark in _EVENT_ENDS if (at := joined.rfind(mark)) >= 0]
            self._size, self._tail = len(joined) - max(ends) if ends else self._size, joined[-3:]
        limit = _LONGEST_EVENT if self._is_events else _LARGEST_REPLY
        if self._size > limit:
            self._over = True
            what = "an event" if self._is_events else "a reply"
            raise SamplingError(f"{self._server} sends {what} of more than {limit >> 20} MiB")
        return piece

    async def aclose(self) -> None:
        self._over = True
        with suppress(RuntimeError):  # it is being read in another task, which this ends
            await getattr(self._pieces, "aclose", _nothing)()
        await self._stream.aclose()


async def _nothing() -> None: ...


def _same_server(asked: Any, target: Any) -> bool:
    if (asked.scheme, asked.host, asked.port) == (target.scheme, target.host, target.port):
        return True
    upgraded = (asked.scheme, target.scheme) == ("http", "https") and asked.port is None and target.port is None
    return bool(upgraded and asked.host == target.host)


def _origin(response: Any) -> str:
    url = response.request.url
    return f"{url.scheme}://{url.host}" + ("" if url.port is None else f":{url.port}")

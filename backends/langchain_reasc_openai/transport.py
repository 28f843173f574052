"""The connections to one server. They hide secrets, limit the size of replies, and read
streams quickly.
"""

import asyncio
import importlib
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from openai import DefaultAsyncHttpxClient

from langchain_reasc.exceptions import SamplingError, ServerError

# openai's client changed from httpx to httpx2
_HTTPX: Final = DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]
_httpx: Final[Any] = importlib.import_module(_HTTPX)
_httpx_aiohttp: Final[Any] = importlib.import_module(
    "httpx_aiohttp" if _HTTPX == "httpx" else f"httpx_aiohttp.{_HTTPX}"
)
_MOST_OF_AN_ERROR: Final = 1 << 20  # bytes; the rest is not read
_LONGEST_EVENT: Final = 16 << 20  # bytes; one token with 20 alternatives has 2,000
_CLOSING: Final[set[asyncio.Future[None]]] = set()
_LARGEST_REPLY: Final = 256 << 20  # bytes; 100,000 such tokens in one piece
_KEEP_THE_REQUEST: Final = (307, 308)  # redirects; after others, a client sends a GET
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_KEPT_ALIVE: Final = 4.0  # seconds; servers close an idle connection after 5 and more
_LOOKS_EVERY: Final = (
    2.0  # seconds between two looks at whether a silent connection is still there
)
_LONGEST_HEADER: Final = 65_536  # bytes


def bounded_http_client(base_url: str, *, proxy: str | None = None) -> Any:
    """Return an asynchronous HTTP client that raises :class:`SamplingError` if a server
    sends too much at once.

    The client asks for uncompressed replies, because a few compressed bytes can become
    many. It follows no redirect to another host or port, which is to see neither the
    key nor the prompt, and none that turns the request into a GET.

    Args:
        base_url: the address of the server.
        proxy: the URL of a proxy to go through.
    """
    own = {} if proxy or proxy_to(base_url) else {"transport": _Transport()}
    return DefaultAsyncHttpxClient(
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_refuse_redirect, _bound]},
        proxy=proxy,
        **own,
    )


def proxy_to(url: str) -> str | None:
    """Return the proxy that the environment names for an address."""
    parts, named = urlsplit(url), getproxies()
    return (
        None
        if proxy_bypass(parts.netloc)
        else named.get(parts.scheme, named.get("all"))
    )


class _Connector(aiohttp.TCPConnector):
    """A pool of connections that a forked process does not close, because that would
    stop its parent's connections.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._process = os.getpid()

    def __del__(self, *args: Any) -> None:
        if self._process == os.getpid():
            super().__del__(*args)


class _Transport(_httpx_aiohttp.AiohttpTransport):  # type: ignore[misc]
    """Sends httpx's requests by aiohttp, which takes a third of the time for each event
    of a stream.

    Errors are httpx's own. httpx-aiohttp reports a lost connection as a timeout, and
    keeps aiohttp's error as the cause, which has the key among its headers.
    """

    def __init__(self) -> None:
        super().__init__(client=self._session)

    def _session(self) -> aiohttp.ClientSession:
        connector = _Connector(
            limit=0, keepalive_timeout=_KEPT_ALIVE, ssl=self.ssl_context
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )

    async def handle_async_request(self, request: Any) -> Any:
        allowed = request.extensions.get("timeout", {})
        seconds = [allowed.get(name) for name in ("connect", "write", "read")]
        try:
            async with asyncio.timeout(None if None in seconds else sum(seconds)):
                response = await super().handle_async_request(request)
                # Another version of httpx-aiohttp may name it otherwise.
                if hasattr(response.stream, "_aiohttp_response"):
                    response.stream = _Body(response.stream)
                return response
        except TimeoutError:
            failure: Exception = _httpx.WriteTimeout(
                "the server does not read the request"
            )
        except (aiohttp.ClientError, _httpx.TransportError, ValueError) as error:
            failure = _as_httpx(error)
        # outside the except clause, so that the other error is not its context
        raise failure


_KINDS: Final = (
    (aiohttp.ConnectionTimeoutError, _httpx.ConnectTimeout),
    (aiohttp.ServerTimeoutError, _httpx.ReadTimeout),
    (aiohttp.ClientConnectorError, _httpx.ConnectError),
    (OSError, _httpx.ReadError),
    (ValueError, _httpx.LocalProtocolError),
)


def _as_httpx(error: Exception) -> Exception:
    """Convert an error of aiohttp to httpx's, without the request in it."""
    cause = error.__cause__ if isinstance(error, _httpx.TransportError) else error
    if not isinstance(cause, aiohttp.ClientError | ValueError):
        return error
    kind = next(
        (kind for types, kind in _KINDS if isinstance(cause, types)),
        _httpx.RemoteProtocolError,
    )
    said = str(cause) or type(cause).__name__
    if isinstance(cause, ValueError):
        said = "the request has a header that HTTP does not allow"
    elif isinstance(cause, aiohttp.ClientResponseError):
        # its text has the headers of the request
        problem = cause.message.strip().partition("\n")[
            0
        ]  # further lines quote the reply
        said = f"the reply is not HTTP: {problem.rstrip(':')}"
    found: Exception = kind(said)
    found.__cause__ = getattr(cause, "certificate_error", None) or getattr(
        cause, "os_error", None
    )
    return found


async def _refuse_redirect(response: Any) -> None:
    if not response.has_redirect_location:
        return
    asked, location = response.request.url, response.headers["location"]
    try:
        target = asked.join(location)
    except (_httpx.InvalidURL, ValueError):
        target = None
    if (
        response.status_code in _KEEP_THE_REQUEST
        and target is not None
        and _same_server(asked, target)
    ):
        return
    where = (
        "an address that cannot be read"
        if target is None
        else f"{_server_of(target)}{target.path}"
    )
    raise ServerError(
        f"{_origin(response)} redirects ({response.status_code}) to {where}, which is "
        "not followed; if that is the server, give its address as base_url"
    )


async def _bound(response: Any) -> None:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise SamplingError(
            f"{_origin(response)} compresses its reply ({encoding}), though it was "
            "asked not to"
        )
    response.stream = _BoundedBody(response)


async def body_parts(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they come, at some 4 µs more than aiohttp takes.

    If a chunk is malformed, aiohttp closes the connection, drops its time limit, and
    lets the reader wait for ever. So the reader looks once in a while whether the
    connection is still there.

    Raises:
        aiohttp.ClientError: the body breaks off, or the server was silent for too long.
    """
    while True:
        try:
            async with asyncio.timeout(_LOOKS_EVERY):
                part = await response.content.readany()
        except aiohttp.ClientError:
            # aiohttp's own time limit is a TimeoutError, too.
            raise
        except TimeoutError:
            connection = response.connection
            if connection is None or connection.closed:
                raise aiohttp.ClientPayloadError("a chunk is malformed") from None
            continue
        if not part:
            return
        yield part


class _Body(_httpx.AsyncByteStream):  # type: ignore[misc]
    """The body of a reply, read by :func:`body_parts`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return body_parts(self._stream._aiohttp_response)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedBody(_httpx.AsyncByteStream):  # type: ignore[misc]
    """The body of a reply, up to the largest allowed size.

    A second reader continues where the first one stopped, because openai's client reads
    a body twice, the second time for the rest after the last event. One iterator serves
    both and is closed with the body. If it were left to the garbage collector, it would
    end in another thread, after its event loop.
    """

    def __init__(self, response: Any) -> None:
        self._stream, self._server = response.stream, _origin(response)
        self._is_error = response.status_code >= 400
        self._is_events = response.headers.get("content-type", "").startswith(
            "text/event-stream"
        )
        self._pieces = self._stream.__aiter__()
        self._size, self._tail, self._over = 0, b"", False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        failure = None
        try:
            piece: bytes = await self._pieces.__anext__()
        except (aiohttp.ClientError, _httpx.TransportError) as error:
            failure = _as_httpx(error)
        if failure is not None:
            raise failure
        self._size += len(piece)
        if self._is_error:
            self._over = self._size > _MOST_OF_AN_ERROR
            return piece[: max(0, len(piece) - max(0, self._size - _MOST_OF_AN_ERROR))]
        if self._is_events:
            self._count_from_last_event(piece)
        limit = _LONGEST_EVENT if self._is_events else _LARGEST_REPLY
        if self._size > limit:
            self._over = True
            what = "an event" if self._is_events else "a reply"
            raise SamplingError(
                f"{self._server} sends {what} of more than {limit >> 20} MiB"
            )
        return piece

    def _count_from_last_event(self, piece: bytes) -> None:
        if piece.endswith(b"\n\n"):
            self._size, self._tail = 0, b""
            return
        joined = self._tail + piece
        ends = [
            at + len(mark) for mark in _EVENT_ENDS if (at := joined.rfind(mark)) >= 0
        ]
        if ends:
            self._size = len(joined) - max(ends)
        self._tail = joined[-3:]

    async def aclose(self) -> None:
        """Close it, whatever becomes of the reader: httpcore keeps a request for ever
        whose closing is cancelled.
        """
        self._over = True
        closing = asyncio.ensure_future(self._close())
        _CLOSING.add(
            closing
            # or it might be collected as garbage before its end, once nobody waits for it
        )
        closing.add_done_callback(_CLOSING.discard)
        await asyncio.shield(closing)

    async def _close(self) -> None:
        # it is being read in another task, which this ends
        with suppress(RuntimeError):
            if close := getattr(self._pieces, "aclose", None):
                await close()
        await self._stream.aclose()


def _same_server(asked: Any, target: Any) -> bool:
    if (asked.scheme, asked.host, asked.port) == (
        target.scheme,
        target.host,
        target.port,
    ):
        return True
    upgraded = (
        (asked.scheme, target.scheme) == ("http", "https")
        and asked.port is None
        and target.port is None
    )
    return bool(upgraded and asked.host == target.host)


def _origin(response: Any) -> str:
    return _server_of(response.request.url)


def _server_of(url: Any) -> str:
    return f"{url.scheme}://{url.host}" + ("" if url.port is None else f":{url.port}")

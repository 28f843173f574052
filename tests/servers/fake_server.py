"""A loopback server for faults that a real server cannot be made to show. A coroutine answers each request.

What it says is a :class:`~.chat_wire.Chat`, or what speaks another provider's API; how that is sent are the methods of
:class:`~.exchange.Exchange`, and faults are made of them; what came in is kept in :class:`Served`. All this imports
little, so that the processes of a load test start fast.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .chat_wire import Refused, Request
from .exchange import Answer, Exchange, refuses

T = TypeVar("T")
__all__ = ["Served", "in_thread", "listening", "running", "serving"]


@dataclass
class Served:
    """A running server.

    Attributes:
        answer: replies to each POST; may be exchanged while it runs.
        get: replies to each GET.
        root: its address; ``url`` is the base URL for OpenAI's clients.
        exchanges: all POSTs, in order of arrival.
        gets: the paths of all GETs.
        errors: what went wrong in ``answer``.
    """

    answer: Answer
    get: Answer
    root: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def requests(self) -> list[Request]:
        return [exchange.body for exchange in self.exchanges]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [exchange.headers for exchange in self.exchanges]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection, and close it."""
        try:
            await self._one(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # clients that hang up are part of the plan
        except Exception as error:
            self.errors.append(error)
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = await reader.readexactly(1)
        if not start.isalpha():  # TLS, which is not spoken here
            return
        head = start + await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").strip().split("\r\n")
        method, path, _ = line.split()
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        exchange = Exchange(path, headers, body, len(self.exchanges), self.exchanges, writer)
        if method == "GET":
            self.gets.append(path)
        else:
            self.exchanges.append(exchange)
        watching = asyncio.create_task(_watch(reader, exchange.gone))
        try:
            await (self.get if method == "GET" else self.answer)(exchange)
            await exchange.end_stream()
        except Refused as error:
            await exchange.refuse(error.status, str(error))
        except OSError:  # the write failed before `watching` ran
            exchange.gone.set()
            raise
        finally:
            watching.cancel()


@asynccontextmanager
async def listening(
    connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Accept connections on 127.0.0.1, and yield the port. Port 0 means any that is free."""
    server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def running(
    answer: Answer, *, get: Answer | None = None, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Served]:
    """Run a server as a task of this event loop."""
    served = Served(answer, get or refuses(404))
    async with listening(served.connected, port, tls) as port:
        served.root = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield served


@contextmanager
def in_thread(running: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run an asynchronous context manager in an event loop in another thread."""
    began: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        ended = asyncio.Event()
        async with running as made:
            began.set_result((made, asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="fake-server")
    thread.start()
    made, loop, ended = began.result(10)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@contextmanager
def serving(answer: Answer, **options: Any) -> Iterator[Served]:
    """Run a server in a thread of this process.

    Raises:
        Exception: whatever went wrong in ``answer``, when the server ends.
    """
    with in_thread(running(answer, **options)) as served:
        yield served
    for error in served.errors:
        raise error


async def _watch(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    with suppress(OSError):
        await reader.read(1)  # returns when the client closes
    gone.set()

"""A server that answers at once, and a client that asks at times of its own choosing,
both thin beside a gateway.

They read as much of HTTP as they must and keep connections open. In one process each,
on two cores, they carry some thousands of requests a second, which ``serve_latency``
measures before all else.
"""

import asyncio
import json
import multiprocessing
import re
import select
import selectors
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, TypeVar

import numpy as np

__all__ = ["Client", "Timed", "precisely", "upstream"]

T = TypeVar("T")
_SHORT: Final = 16
"""Tokens of an answer to a request without ``max_tokens``. With it, an answer has so
many.
"""
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_STREAMED: Final = re.compile(rb'"stream": *true')
_ALTERNATIVES: Final = re.compile(rb'"top_logprobs": *([0-9]+)')
_LIMIT: Final = re.compile(rb'max_(?:completion_)?tokens": *([0-9]+)')
_LAST_CHUNK: Final = b"0\r\n\r\n"
_REFUSED: Final = {"error": {"message": "stream is not supported", "param": "stream"}}


@contextmanager
def upstream(*, streams: bool = True) -> Iterator[str]:
    """Run the server in a process of its own; gives its base URL. It may refuse to
    stream.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, streams), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _serve(connection: Any, streams: bool) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(
            partial(_Upstream, streams), "127.0.0.1", 0, backlog=1024
        )
        connection.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await server.serve_forever()

    asyncio.run(main())


class _Upstream(asyncio.Protocol):
    """A connection to the server: whole answers go out in one piece, streams event by
    event, unless streams are refused.
    """

    def __init__(self, streams: bool) -> None:
        self._streams = streams

    def connection_made(self, transport: Any) -> None:
        self._transport, self._got = transport, b""

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, mark, rest = self._got.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if mark and len(rest) >= size:
            self._got = rest[size:]
            limit = _LIMIT.search(rest)
            tokens = int(limit[1]) if limit else _SHORT
            alternatives = _ALTERNATIVES.search(rest)
            k = int(alternatives[1]) if alternatives else 0
            if not _STREAMED.search(rest):
                self._send([_reply(tokens, k)])
            elif self._streams:
                self._send(_events(tokens, k))
            else:
                self._send([_in_one_piece(400, _REFUSED)])

    def _send(self, pieces: Sequence[bytes]) -> None:
        self._transport.write(pieces[0])
        if len(pieces) > 1 and not self._transport.is_closing():
            asyncio.get_running_loop().call_soon(self._send, pieces[1:])


def _document(kind: str, **fields: Any) -> Any:
    return {"id": "c", "object": kind, "created": 1, "model": "tiny", **fields}


def _words(tokens: int) -> list[str]:
    return ["it", " is", " 42", *[" so"] * (tokens - 3)]


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def _logprobs(words: Sequence[str], k: int) -> Any:
    """Return the log-probabilities of tokens, with k alternatives each."""
    ranked = [
        {"token": f" w{at}", "logprob": -3.5 - at / 3, "bytes": [*f" w{at}".encode()]}
        for at in range(k - 1)
    ]
    own = (
        {"token": word, "logprob": -0.13, "bytes": [*word.encode()]} for word in words
    )
    return {
        "content": [{**one, "top_logprobs": [one, *ranked]} for one in own],
        "refusal": None,
    }


@cache
def _reply(tokens: int, k: int) -> bytes:
    words = _words(tokens)
    logprobs = _logprobs(words, k) if k else None
    message = {"role": "assistant", "content": "".join(words)}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": "stop",
    }
    return _in_one_piece(
        200, _document("chat.completion", choices=[choice], usage=_usage(tokens))
    )


def _in_one_piece(status: int, document: Any) -> bytes:
    body = json.dumps(document).encode()
    return (
        b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )


@cache
def _events(tokens: int, k: int) -> list[bytes]:
    choices: list[dict[str, Any]] = [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": word},
            "finish_reason": None,
        }
        | ({"logprobs": _logprobs([word], k)} if k else {})
        for word in _words(tokens)
    ]
    choices += [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    said = [
        json.dumps(_document("chat.completion.chunk", choices=[one])) for one in choices
    ]
    said += [
        json.dumps(
            _document("chat.completion.chunk", choices=[], usage=_usage(tokens))
        ),
        "[DONE]",
    ]
    pieces = [b"data: %b\n\n" % one.encode() for one in said]
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    chunks[0] = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunks[0]
    )
    return [*chunks[:-1], chunks[-1] + _LAST_CHUNK]


@dataclass
class Timed:
    """What became of requests.

    Attributes:
        first: seconds from the time at which each was to be sent to the first byte of
            its answer's body.
        end: to the end of its answer.
        failed: how many have no answer of status 200.
    """

    first: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    failed: int = 0


class Client:
    """Sends one request again and again."""

    def __init__(self, url: str, body: Any, **headers: str) -> None:
        """Name the address, and what is asked."""
        host, _, path = url.removeprefix("http://").partition("/")
        self._host, self._port = host.split(":")
        text = json.dumps(body).encode()
        given = {
            "host": host,
            "content-type": "application/json",
            "content-length": str(len(text)),
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self._request = (
            f"POST /{path}/chat/completions HTTP/1.1\r\n{lines}\r\n".encode() + text
        )
        self._idle: list[_Connection] = []

    async def saturate(self, seconds: float, at_once: int) -> float:
        """Return how many requests a second are answered where so many always wait."""
        loop, timed = asyncio.get_running_loop(), Timed()
        begun = loop.time()

        async def ask() -> None:
            while (now := loop.time()) < begun + seconds:
                await self._ask(now, timed)

        await asyncio.gather(*(ask() for _ in range(at_once)))
        return len(timed.end) / (loop.time() - begun)

    async def arrive(
        self, rate: float, seconds: float, generator: np.random.Generator
    ) -> Timed:
        """Send requests at random times, so many a second (a Poisson process), however
        late the answers come.
        """
        loop, timed = asyncio.get_running_loop(), Timed()
        times = (
            np.cumsum(generator.exponential(1 / rate, round(rate * seconds)))
            + loop.time()
        )
        async with asyncio.TaskGroup() as group:
            for at in times:
                await asyncio.sleep(at - loop.time())
                group.create_task(self._ask(float(at), timed))
        return timed

    async def _ask(self, at: float, timed: Timed) -> None:
        """Send one that is due ``at``."""
        try:
            connection = self._idle.pop() if self._idle else None
            # which servers do when it is idle
            if connection is None or connection.is_closed:
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(
                    _Connection, self._host, int(self._port)
                )
            first, end = await connection.ask(self._request)
        except OSError:
            timed.failed += 1
            return
        timed.first.append(first - at)
        timed.end.append(end - at)
        self._idle.append(connection)

    def close(self) -> None:
        """Close its connections."""
        for connection in self._idle:
            connection.close()


class _Connection(asyncio.Protocol):
    """A connection of the client, with one request at a time."""

    def connection_made(self, transport: Any) -> None:
        self._transport, self._loop = transport, asyncio.get_running_loop()
        self._answer: asyncio.Future[tuple[float, float]] | None = None

    async def ask(self, request: bytes) -> tuple[float, float]:
        """Send a request; return when the first byte of its answer's body came, and
        when it had ended.

        Raises:
            OSError: its status is not 200, or the connection was closed.
        """
        self._got, self._body, self._first = b"", 0, 0.0
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._body and (at := self._got.find(b"\r\n\r\n")) >= 0:
            self._body = at + 4
            length = _LENGTH.search(self._got[: self._body])
            self._end = None if length is None else self._body + int(length[1])
        if 0 < self._body < len(self._got) and self._answer is not None:
            self._first = self._first or self._loop.time()
            if self._is_whole:
                self._hand_over(self._answer)

    @property
    def _is_whole(self) -> bool:
        return (
            self._got.endswith(_LAST_CHUNK)
            if self._end is None
            else len(self._got) >= self._end
        )

    def _hand_over(self, answer: asyncio.Future[tuple[float, float]]) -> None:
        self._answer = None
        if self._got.startswith(b"HTTP/1.1 200"):
            answer.set_result((self._first, self._loop.time()))
        else:
            self._transport.close()
            answer.set_exception(OSError(self._got[:100].decode(errors="replace")))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.set_exception(error or ConnectionResetError())

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or about to be."""
        return bool(self._transport.is_closing())

    def close(self) -> None:
        """Close it."""
        self._transport.close()


class _PreciseSelector(selectors.EpollSelector):
    """Waits to the microsecond: epoll itself rounds to 1 ms."""

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            select.select([self.fileno()], [], [], timeout)
        return super().select(0)


def precisely(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop that wakes up when it should."""
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(_PreciseSelector())
    ) as runner:
        return runner.run(main)

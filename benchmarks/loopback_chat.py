"""A small asyncio server of OpenAI's streaming chat API on loopback, whose answers a coroutine makes."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final

__all__ = ["PROMPT_TOKENS", "Answer", "Exchange", "serve", "serving"]

PROMPT_TOKENS: Final = 7


class Exchange:
    """One request, and the ways to answer it.

    Attributes:
        body: of the request.
        sent: tokens sent.
    """

    def __init__(self, body: dict[str, Any], writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        """Answer on ``writer``; ``gone`` is set when the client closes the connection."""
        self.body, self.sent, self.gone = body, 0, gone
        self._writer, self._began = writer, False

    @property
    def question(self) -> str:
        """The last message."""
        question: str = self.body["messages"][-1]["content"]
        return question

    async def error(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Refuse."""
        text = json.dumps({"error": {"message": f"refused with {status}", "type": "test"}})
        await self.write(_head(status, {"content-type": "application/json", **(headers or {})}, len(text)) + text)

    async def token(self, text: str, *, choice: int = 0) -> None:
        """Send a token of a response."""
        logprobs = None
        if self.body.get("logprobs"):
            listed = {"token": text, "logprob": -0.1, "bytes": None}
            logprobs = {"content": [{**listed, "top_logprobs": [listed] * self.body.get("top_logprobs", 1)}]}
        delta = {"role": "assistant", "content": text}
        await self.event(choices=[{"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": None}])
        self.sent += 1

    async def finish(self, *, choices: int = 1) -> None:
        """End the response with a finish reason and its usage."""
        for choice in range(choices):
            await self.event(choices=[{"index": choice, "delta": {}, "finish_reason": "stop"}])
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": self.sent}
        await self.event(choices=[], usage={**usage, "total_tokens": PROMPT_TOKENS + self.sent})
        await self.write("data: [DONE]\n\n")

    async def say(self, text: str) -> None:
        """Answer with the words of a text, each a token."""
        for at, word in enumerate(text.split()):
            await self.token(word if at == 0 else f" {word}")
        await self.finish()

    async def begin(self) -> None:
        """Send the head of a stream, and no token yet."""
        if not self._began:
            self._began = True
            await self.write(_head(200, {"content-type": "text/event-stream", "connection": "close"}))

    async def write(self, text: str) -> None:
        """Send anything.

        Raises:
            ConnectionError: the client is gone.
        """
        if self.gone.is_set():
            raise ConnectionResetError("the client closed the connection")
        self._writer.write(text.encode())
        await self._writer.drain()

    async def event(self, **fields: Any) -> None:
        """Send a chunk with these fields."""
        await self.begin()
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "loopback", **fields}
        await self.write(f"data: {json.dumps(chunk)}\n\n")


Answer = Callable[[Exchange], Awaitable[None]]


async def serve(answer: Answer, *, port: int = 0) -> asyncio.Server:
    """Start the server; every request is answered by ``answer``, then its connection is closed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            body, gone = await _request(reader), asyncio.Event()
            watching = asyncio.create_task(_watch(reader, gone))
            try:
                await answer(Exchange(body, writer, gone))
            finally:
                watching.cancel()
        writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", port)


@contextmanager
def serving(answer: Answer, *, port: int = 0) -> Iterator[str]:
    """The server in a thread of this process; gives its base URL."""
    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve_until(answer, port, began)), name="loopback-chat")
    thread.start()
    loop, ended, bound = began.result()
    try:
        yield f"http://127.0.0.1:{bound}/v1"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


async def _serve_until(answer: Answer, port: int, began: "Future[Any]") -> None:
    server, ended = await serve(answer, port=port), asyncio.Event()
    began.set_result((asyncio.get_running_loop(), ended, server.sockets[0].getsockname()[1]))
    await ended.wait()
    server.close()


async def _request(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length:")[2].partition("\r\n")[0])
    body: dict[str, Any] = json.loads(await reader.readexactly(length))
    return body


async def _watch(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    with suppress(ConnectionError):
        await reader.read(1)  # returns when the client closes
    gone.set()


def _head(status: int, headers: Mapping[str, str], length: int | None = None) -> str:
    sized = {} if length is None else {"content-length": str(length), "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, **sized}.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n"

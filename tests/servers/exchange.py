"""One request to a fake server, and the ways to answer it: right, wrong, or half."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from .chat_wire import DONE, Chat, Request, words_of

__all__ = ["JSON", "Answer", "Exchange", "refuses"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_CHAT: Final = Chat()


@dataclass(eq=False)
class Exchange:
    """One request, and the ways to answer it.

    Attributes:
        path: what was asked for, with its query.
        headers: their names in lower case.
        body: the request's JSON, empty for a GET.
        at: how many requests came before it.
        all: requests that came in so far.
        writer: to the client.
        gone: set when the client closes the connection.
        sent: tokens sent one by one.
    """

    path: str
    headers: dict[str, str]
    body: Request
    at: int
    all: "list[Exchange]"
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0
    _chunked: bool = False

    @property
    def question(self) -> str:
        """The last message."""
        question: str = self.body["messages"][-1]["content"]
        return question

    @property
    def sample(self) -> int:
        """The number of the sample: its seed, if the client counts seeds from 0."""
        return self.body.get("seed") or 0

    @property
    def attempt(self) -> int:
        """How often the same request came before."""
        return sum((one.sample, one.question) == (self.sample, self.question) for one in self.all[: self.at])

    async def reply(self, status: int, body: Any = "", *, content_type: str = JSON, **headers: str) -> None:
        """Send a reply of known length. Anything but a text becomes JSON."""
        text = body if isinstance(body, str) else json.dumps(body)
        await self.write(_head(status, content_type, content_length=str(len(text.encode())), **headers) + text)

    async def refuse(self, status: int, message: str = "", **headers: str) -> None:
        """Send an error in OpenAI's form."""
        error = {"message": message or f"refused with {status}", "type": "test", "code": None}
        await self.reply(status, {"error": error}, **headers)

    async def begin_stream(self, content_type: str = EVENTS) -> None:
        """Send the head of a chunked reply, from which a client can tell whether the end is missing."""
        if not self._chunked:
            await self.write(_head(200, content_type, transfer_encoding="chunked"))
            self._chunked = True

    async def write(self, text: str | bytes) -> None:
        """Send anything unchanged, or as a chunk of the reply that has begun.

        Raises:
            ConnectionError: the client is gone.
        """
        if self.gone.is_set():
            raise ConnectionResetError("the client closed the connection")
        raw = text if isinstance(text, bytes) else text.encode()
        self.writer.write(b"%x\r\n%s\r\n" % (len(raw), raw) if self._chunked else raw)
        await self.writer.drain()

    async def stream(self, documents: Iterable[Any], content_type: str = EVENTS) -> None:
        """Send events, or lines of JSON. Texts are unchanged, and the type of an object becomes the event's name."""
        await self.begin_stream(content_type)
        for one in documents:
            text = one if isinstance(one, str) else json.dumps(one)
            name = f"event: {one['type']}\n" if "type" in one and not isinstance(one, str) else ""
            await self.write(f"{text}\n" if content_type.endswith("ndjson") else f"{name}data: {text}\n\n")

    async def event(self, **fields: Any) -> None:
        """Send a chunk of a chat completion with these fields."""
        await self.stream([_CHAT.chunk(**fields)])

    async def token(self, text: str, *, choice: int = 0) -> None:
        """Send a token of a response."""
        await self.stream([_CHAT.token(text, self.body, index=choice)])
        self.sent += 1

    async def finish(self) -> None:
        """Send the end of a response: a finish reason and the usage."""
        await self.event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
        await self.stream([_CHAT.chunk(choices=[], usage=_CHAT.usage([["so"] * self.sent])), DONE])

    async def say(self, text: str) -> None:
        """Send a text, each word as a token, and the end of the response."""
        for word in words_of(text):
            await self.token(word)
        await self.finish()

    async def hang(self) -> None:
        """Send nothing more until the client has gone."""
        await self.gone.wait()

    async def cut(self) -> None:
        """Close the connection in the middle of a reply."""
        self._chunked = False

    async def end_stream(self) -> None:
        """Send the end of a chunked reply, unless the reply was cut off."""
        if self._chunked:
            await self.write("")
            self._chunked = False


Answer = Callable[[Exchange], Awaitable[None]]


def refuses(status: int, **headers: str) -> Answer:
    """Return an answer that is an HTTP error."""
    return lambda exchange: exchange.refuse(status, **headers)


def _head(status: int, content_type: str, **headers: str) -> str:
    given = {"content-type": content_type, "connection": "close", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n"

"""Write a response as server-sent events to one client."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from langchain_reasc_server.wire import Json, sse

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def start_response(
    send: Send, status: int, headers: Iterable[tuple[str, str]]
) -> None:
    """Send the head of a response."""
    raw = [
        (name.lower().encode("latin-1"), value.encode(errors="surrogateescape"))
        for name, value in headers
    ]
    await send({"type": "http.response.start", "status": status, "headers": raw})


class EventStream:
    """Writes events to a client. The head of the response is sent with the first event."""

    def __init__(self, send: Send, headers: Mapping[str, str] | None = None) -> None:
        self._send, self.headers = send, dict(headers or {})
        self.begun = False

    async def write(self, *parts: bytes | Json) -> None:
        """Send events, or bytes unchanged, in one part."""
        if not self.begun:
            given = {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                **self.headers,
            }
            given["x-accel-buffering"] = "no"  # else nginx holds events back
            self.begun = True
            await start_response(self._send, 200, given.items())
        body = b"".join(
            part if isinstance(part, bytes) else sse(part) for part in parts
        )
        await self._send(
            {"type": "http.response.body", "body": body, "more_body": True}
        )

    async def close(self) -> None:
        """Send the end of the response."""
        await self._send(
            {"type": "http.response.body", "body": b"", "more_body": False}
        )

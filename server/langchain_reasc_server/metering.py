"""What a request has used: tokens that a reply tells of, or else an estimate of them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langchain_reasc_openai.events import events_in

from langchain_reasc.models.usage import estimated_tokens
from langchain_reasc_server.calls import Hear
from langchain_reasc_server.events import Send
from langchain_reasc_server.wire import Json

__all__ = ["Drawn", "Meter"]

_USAGE: Final = re.compile(rb'"usage"\s*:\s*(?=\{)')
_PIECE: Final = re.compile(rb'"(?:delta|text)"\s*:')
"""What an event has that says something; in a string the quotes would be escaped."""
_LONGEST: Final = 4096  # bytes of a usage
_SUMMANDS: Final = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")


class Meter:
    """Counts the tokens of a request that passes through, by the reply, which it leaves as it is.

    Where the reply has no ``usage`` (or its client has left before it came), the request is estimated, and so is a
    reply in one piece; of a stream, each event that says something is a token. An error costs nothing.
    """

    def __init__(self, send: Send, asked: bytes, pay: Callable[[int], None]) -> None:
        """Count from nothing.

        Args:
            send: what the reply goes to.
            asked: the body of the request.
            pay: called once with the tokens, before the end of the reply goes out.
        """
        self._send, self._asked, self._pay = send, asked, pay
        self._told = self._written = 0
        self._rest = b""
        self._kind = ""
        self._begun = self._paid = False

    def end(self, *, left: bool = False) -> None:
        """Have it paid for, unless it is.

        Args:
            left: whether the client has left, so that the upstream may have begun, though nothing of it came.
        """
        if not self._paid:
            self._paid = True
            tokens = self._told or estimated_tokens(self._asked) + self._written
            self._pay(tokens if self._begun or left else 0)

    async def __call__(self, message: Any) -> None:
        """Send a message of ASGI's on, once it is counted."""
        if message["type"] == "http.response.start":
            self._begun = message["status"] < 400
            headers = {name.lower(): value for name, value in message["headers"]}
            self._kind = headers.get(b"content-type", b"").decode("latin-1")
        else:
            if self._kind.startswith(("text/", "application/json")):
                self._read(message.get("body", b""))
            if not message.get("more_body"):
                self.end()
        await self._send(message)

    def _read(self, part: bytes) -> None:
        """Take a part of a reply; what is after its last line's end may go on in the next one."""
        text, earlier = self._rest + part, len(self._rest)
        self._told = max(self._told, *(_tokens_at(text, found.end()) for found in _USAGE.finditer(text)), 0)
        if self._kind.startswith("text/event-stream"):
            self._written += sum(found.end() > earlier for found in _PIECE.finditer(text))
        elif not self._told:
            self._written += estimated_tokens(part)
        self._rest = text[max(text.rfind(b"\n") + 1, len(text) - _LONGEST) :]


def _tokens_at(text: bytes, place: int) -> int:
    """Return the tokens of the usage that is written there; 0 where it is cut off."""
    try:
        usage, _ = _DECODER.raw_decode(text[place : place + _LONGEST].decode(errors="replace"))
    except (ValueError, RecursionError):
        return 0
    return _total(usage)


_DECODER: Final = json.JSONDecoder()


def _total(usage: Mapping[str, Any]) -> int:
    counts = {name: number for name, number in usage.items() if isinstance(number, int)}
    return counts.get("total_tokens") or sum(counts.get(name, 0) for name in _SUMMANDS)


class Drawn:
    """What has come of a vote's samples so far, for a vote that comes to no end."""

    def __init__(self, hear: Hear) -> None:
        """Listen beside another listener."""
        self._beside = hear
        self._responses: dict[int, list[bytes]] = {}

    def hear(self, events: list[bytes]) -> None:
        """Take the events of a response so far, from any thread."""
        if events:
            self._responses[id(events)] = events
        self._beside(events)

    @property
    def samples(self) -> int:
        """Samples of which something has come."""
        return len(self._responses)

    def tokens(self, prompt: int) -> int:
        """Return the tokens of these samples: those that they tell of, or else one an event beside the prompt's."""
        return sum(_told_by(events_in(events)) or prompt + len(events) for events in [*self._responses.values()])


def _told_by(events: Sequence[Json]) -> int:
    usages = (event["usage"] for event in reversed(events) if isinstance(event.get("usage"), dict))
    return next((_total(usage) for usage in usages), 0)

"""What a request has used: the tokens that its reply reports, or else an estimate of them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_reasc.models.usage import estimated_tokens
from langchain_reasc_server.calls import Hear
from langchain_reasc_server.events import Send

__all__ = ["Drawn", "Meter"]

_TAIL: Final = 16_384
"""Bytes that are kept of a reply: the usage stands near its end."""
_SUMMANDS: Final = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
_DECODER: Final = json.JSONDecoder()


class Meter:
    """Passes a reply on unchanged, and counts the tokens of its request.

    If the end of the reply reports no ``usage`` (or the client left before the end), the prompt is estimated, and so is
    a reply in one piece; each event of a stream counts as a token. A stream is never charged less than its events. An
    error is free.
    """

    def __init__(self, send: Send, asked: bytes, pay: Callable[[int], None]) -> None:
        """Count from zero.

        Args:
            send: where the reply goes.
            asked: the body of the request.
            pay: called once with the tokens, before the end of the reply is sent.
        """
        self._send, self._asked, self._pay = send, asked, pay
        self._written = 0
        self._tail = b"\n"
        self._kind = ""
        self._begun = self._paid = False

    def end(self, *, left: bool = False) -> None:
        """Charge the client once.

        Args:
            left: whether the client has left, so that the upstream may have begun without a reply yet.
        """
        if not self._paid:
            self._paid = True
            reported = _reported_in(self._tail)
            events = self._written if self._is_stream else 0
            tokens = max(reported, events) if reported else estimated_tokens(self._asked) + self._written
            self._pay(tokens if self._begun or left else 0)

    async def __call__(self, message: Any) -> None:
        """Count a message of ASGI's, and send it on."""
        if message["type"] == "http.response.start":
            self._begun = message["status"] < 400
            headers = {name.lower(): value for name, value in message["headers"]}
            self._kind = headers.get(b"content-type", b"").decode("latin-1")
        else:
            if self._kind.startswith(("text/", "application/json")):
                self._count(message.get("body", b""))
            if not message.get("more_body"):
                self.end()
        await self._send(message)

    @property
    def _is_stream(self) -> bool:
        return self._kind.startswith("text/event-stream")

    def _count(self, part: bytes) -> None:
        begin = b"\ndata:"
        if self._is_stream:
            self._written += (self._tail[1 - len(begin) :] + part).count(begin)
        else:
            self._written += estimated_tokens(part)
        self._tail = (self._tail + part)[-_TAIL:]


def _reported_in(text: bytes) -> int:
    """Return the most tokens that any usage in a text reports; 0 if there is none."""
    _, *found = text.split(b'"usage"')  # in a string the quotes would be escaped
    return max((_usage_at(rest) for rest in found), default=0)


def _usage_at(text: bytes) -> int:
    try:
        usage, _ = _DECODER.raw_decode(text.decode(errors="replace").lstrip(": "))
    except (ValueError, RecursionError):
        return 0
    return _total(usage) if isinstance(usage, dict) else 0


def _total(usage: Mapping[str, Any]) -> int:
    counts = {name: number for name, number in usage.items() if isinstance(number, int)}
    return counts.get("total_tokens") or sum(counts.get(name, 0) for name in _SUMMANDS)


class Drawn:
    """The events of a vote's samples so far, to charge a vote that fails or whose client leaves."""

    def __init__(self, hear: Hear) -> None:
        """Listen, and tell another listener too."""
        self._beside = hear
        self._responses: dict[int, list[bytes]] = {}

    def hear(self, events: list[bytes]) -> None:
        """Keep the events of a response so far, from any thread."""
        if events:
            self._responses[id(events)] = events
        self._beside(events)

    @property
    def samples(self) -> int:
        """How many samples have begun."""
        return len(self._responses)

    def tokens(self, prompt: int) -> int:
        """Return the tokens of these samples: what each reports, or else its prompt and one token for each event."""
        responses = [*self._responses.values()]
        return sum(_reported_in(b"".join(events)) or prompt + len(events) for events in responses)

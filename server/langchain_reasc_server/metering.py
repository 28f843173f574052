"""Count the tokens of a request: those that its reply reports, or else an estimate."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_reasc.models.usage import estimated_tokens
from langchain_reasc_server.calls import Hear
from langchain_reasc_server.events import Send

TAIL: Final = 16_384
"""The last bytes of a reply that are kept, because the usage is near the end."""
_SUMMANDS: Final = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",  # which Anthropic does not count as input_tokens
)
_DECODER: Final = json.JSONDecoder()


class Meter:
    """Passes on a reply unchanged, and counts the tokens of its request.

    If the reply reports no ``usage``, or the client disconnects before the end, the
    tokens of the prompt and of a whole reply are estimated, and each event of a stream
    counts as a token. A stream costs at least one token per event. An error is free.
    """

    def __init__(self, send: Send, asked: bytes, pay: Callable[[int], None]) -> None:
        """Start counting the tokens of a request with the body ``asked``. They are paid
        before its reply ends.
        """
        self._send, self._asked, self._pay = send, asked, pay
        self._written = 0
        self._tail = b"\n"
        self._kind = ""
        self._begun = self._paid = False

    def charge(self, *, left: bool = False) -> None:
        """Charge the client once. If it has ``left``, the upstream may have begun
        without a reply yet.
        """
        if not self._paid:
            self._paid = True
            reported = reported_tokens(self._tail)
            events = self._written if self._is_stream else 0
            tokens = (
                max(reported, events)
                if reported
                else estimated_tokens(self._asked) + self._written
            )
            self._pay(tokens if self._begun or left else 0)

    async def __call__(self, message: Any) -> None:
        """Count an ASGI message, and pass it on."""
        if message["type"] == "http.response.start":
            self._begun = message["status"] < 400
            headers = {name.lower(): value for name, value in message["headers"]}
            self._kind = headers.get(b"content-type", b"").decode("latin-1")
        else:
            if self._kind.startswith(("text/", "application/json")):
                self._count(message.get("body", b""))
            if not message.get("more_body"):
                self.charge()
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
        self._tail = (self._tail + part)[-TAIL:]


def reported_tokens(text: bytes) -> int:
    """Return the largest usage that a text reports, in tokens; 0 if there is no usage."""
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
    """Collects the events of a vote's samples, to charge for a vote that fails or whose
    client disconnects.
    """

    def __init__(self, hear: Hear) -> None:
        """Collect events, and pass them to another listener."""
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
        """Return the tokens of these samples: as each reports, or else its prompt and
        one token per event.
        """
        responses = [*self._responses.values()]
        return sum(
            reported_tokens(b"".join(events)) or prompt + len(events)
            for events in responses
        )

"""Translate a chat completion, whole or streamed, into the reply of another API."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from langchain_reasc_openai.events import (
    EventDecoder,
    Normalizer,
    is_of_function,
    parsed,
    text_in,
    usable,
)

from langchain_reasc.answers import UnknownFinish, ending_in, finish_of
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.events import Send
from langchain_reasc_server.wire import Json, encoded, sse

_OF_CHAT: Final = ("id", "object", "created", "model", "choices", "usage")
_OF_CHOICE: Final = ("index", "delta", "message", "logprobs", "finish_reason")


class ReplyWriter(ABC):
    """Turns the events of a chat completion into events of another API, and builds the
    whole reply.

    Attributes:
        streamed: whether the client wants a stream.
    """

    def __init__(self, asked: Mapping[str, Any], model: str) -> None:
        """Create a reply without content.

        Args:
            asked: the client's request.
            model: the model of the reply, unless the events name another.
        """
        self.streamed = bool(asked.get("stream"))
        self._model = model
        self._unknown: Json = {}  # fields that the API of chat completions lacks
        self._usage: Json | None = None
        self._error: Any = None
        self._normalizer = Normalizer()
        self._finish_reason: str | None = None
        self._unknown_finish = UnknownFinish()
        self._has_begun = self._has_ended = False

    @property
    @abstractmethod
    def whole(self) -> Json:
        """The whole reply.

        Raises:
            Refused: the other API has no form for a reply that has failed.
        """

    @abstractmethod
    def comment_events(self, comment: bytes) -> Iterator[bytes]:
        """Yield the events for a comment, which keeps a stream alive."""

    @abstractmethod
    def _first_events(self) -> Iterator[bytes]:
        """Yield the events that begin the reply."""

    @abstractmethod
    def _write(self, kind: str, text: str, logprobs: Any) -> Iterator[bytes]:
        """Yield the events for a piece of text: ``reasoning_text``, ``output_text`` or
        ``refusal``.
        """

    @abstractmethod
    def _call(self, piece: Json) -> Iterator[bytes]:
        """Yield the events for a piece of a function call."""

    @abstractmethod
    def _last_events(self) -> Iterator[bytes]:
        """Yield the events that end the reply."""

    @property
    def _ending(self) -> str:
        """How the chat completion ended: whole, cut off or filtered."""
        return ending_in({"finish_reason": self._finish_reason})

    def events_for(self, event: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events for an event of the chat completion."""
        if self._has_ended:
            return
        if error := event.get("error"):
            self._error = error
            yield from self.closing_events()
            return
        self._unknown |= _beside(event, _OF_CHAT)
        self._model = event.get("model") or self._model
        # which have the fields that the first event brings
        yield from self._opening_events()
        self._usage = event.get("usage") or self._usage
        for choice in (event.get("choices") or ())[:1]:
            self._unknown |= _beside(choice, _OF_CHOICE)
            reason = choice.get("finish_reason")
            finish = finish_of(reason)
            if finish == "ended":
                self._finish_reason = reason
            delta = choice.get("delta") or {}
            self._unknown_finish.add(reason, says=bool(text_in(delta)))
            delta = self._normalizer.repaired(
                delta, reason if finish == "ended" else None
            )
            yield from self._said(delta, choice.get("logprobs"))
            if finish == "failed":
                self._error = {
                    "message": "the upstream failed to generate the response"
                }
                yield from self.closing_events()

    def closing_events(self, *, complete: bool = False) -> Iterator[bytes]:
        """Yield the events that end the reply.

        Args:
            complete: whether the chat completion has ended, even if the server gave no
                finish reason.
        """
        if self._has_ended:
            return
        self._has_ended = True
        yield from self._opening_events()
        complete = (
            complete
            or self._finish_reason is not None
            or self._unknown_finish.reason is not None
        )
        if self._error is None and not complete:
            self._error = {"message": "the upstream broke off the response"}
        if self._error is None and self._ending not in ("cut off", "filtered"):
            yield from self._said({"tool_calls": self._normalizer.finish()}, None)
        yield from self._last_events()

    def _opening_events(self) -> Iterator[bytes]:
        """Yield the first events, unless they were."""
        if not self._has_begun:
            self._has_begun = True
            yield from self._first_events()

    def _said(self, delta: Json, logprobs: Any) -> Iterator[bytes]:
        for kind, text in (
            (
                "reasoning_text",
                delta.get("reasoning_content") or delta.get("reasoning"),
            ),
            ("output_text", _text_of(delta.get("content"))),
            ("refusal", delta.get("refusal")),
        ):
            if isinstance(text, str) and text:
                yield from self._write(kind, text, logprobs)
        for call in delta.get("tool_calls") or ():
            if is_of_function(call):
                yield from self._call(call)


def named_event(kind: str, **fields: Any) -> bytes:
    """Return an event of a stream whose events have names."""
    return b"event: " + kind.encode() + b"\n" + sse({"type": kind, **fields})


def new_id(prefix: str) -> str:
    """Return a new id."""
    return f"{prefix}_{uuid.uuid4().hex}"


def _beside(given: Mapping[str, Any], known: Sequence[str]) -> Json:
    return {
        name: value
        for name, value in given.items()
        if name not in known and value is not None
    }


def _text_of(content: Any) -> Any:
    """Return the text of a delta. Some servers give it in parts."""
    if isinstance(content, list):
        return "".join(
            part.get("text") or "" for part in content if isinstance(part, dict)
        )
    return content


class Translated:
    """Sends a chat completion, whole or streamed, as a reply of another API. Errors and
    headers are unchanged.
    """

    def __init__(self, send: Send, writer: ReplyWriter) -> None:
        self._send, self._writer = send, writer
        self._start: Any = None
        self._way = "as it is"
        self._decoder = EventDecoder()
        self._received = b""

    async def __call__(self, message: Any) -> None:
        """Send an ASGI message, or keep it until the reply is complete.

        Raises:
            Refused: the reply is not a chat completion.
        """
        if message["type"] == "http.response.start":
            await self._send_head(message)
        elif self._way == "as it is":
            await self._send(message)
        elif self._way == "stream":
            part = message.get("body", b"")
            is_comment = part.startswith(b":") and part.endswith((b"\n\n", b"\r\n\r\n"))
            if is_comment:
                events = [*self._writer.comment_events(part)]
            else:
                events = [*self._translated(self._decoder.decoded(part))]
            if not message.get("more_body"):
                events += self._writer.closing_events()
            await self._send({**message, "body": b"".join(events)})
        else:
            self._received += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_whole(message)

    async def _send_head(self, message: Any) -> None:
        if message["status"] >= 400:
            await self._send(message)
            return
        headers = [
            (name, value)
            for name, value in message["headers"]
            if name.lower() != b"content-length"
        ]
        self._start = {**message, "headers": headers}
        if not any(b"text/event-stream" in value for _, value in headers):
            self._way = "whole"
            return
        self._way = "stream"
        await self._send(self._start)

    async def _send_whole(self, message: Any) -> None:
        reply, headers = usable(_parsed(self._received)) or {}, self._start["headers"]
        if not any(choice.get("delta") for choice in reply.get("choices") or ()):
            raise Refused(
                502, "the upstream gave no usable response", code="upstream_error"
            )
        events = [
            *self._writer.events_for(reply),
            *self._writer.closing_events(complete=True),
        ]
        body = b"".join(events)
        if self._writer.streamed:  # an upstream that does not stream
            kept = [
                (name, value)
                for name, value in headers
                if name.lower() != b"content-type"
            ]
            headers = [*kept, (b"content-type", b"text/event-stream; charset=utf-8")]
        else:
            body = encoded(self._writer.whole)
        await self._send(
            {
                **self._start,
                "headers": [*headers, (b"content-length", b"%d" % len(body))],
            }
        )
        await self._send({**message, "body": body})

    def _translated(self, datas: Iterable[bytes]) -> Iterator[bytes]:
        for data in datas:
            if data == b"[DONE]":
                yield from self._writer.closing_events(complete=True)
            else:
                yield from self._writer.events_for(_parsed(data))


def _parsed(data: bytes) -> Json:
    with suppress(ValueError):
        if isinstance(event := parsed(data), dict):
            return event
    return {
        "error": {
            "message": "the upstream sent something that is not a chat completion"
        }
    }

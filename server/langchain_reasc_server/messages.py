"""Anthropic's Messages API, replies: write a chat completion as a Message, whole or
streamed, and errors in Anthropic's form.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from starlette.datastructures import MutableHeaders

from langchain_reasc_server.errors import Refused
from langchain_reasc_server.events import Send
from langchain_reasc_server.translated import ReplyWriter, named_event, new_id
from langchain_reasc_server.wire import Json, encoded

_BLOCKS: Final = {
    "reasoning_text": "thinking",
    "output_text": "text",
    "refusal": "text",
}
"""Kind of text -> type of its block. The text of a block is in a field of that name."""
_ENDINGS: Final = {"cut off": "max_tokens", "filtered": "refusal", "refused": "refusal"}
"""How a chat completion ended -> why its Message stopped."""
_STOPPED_BY: Final = ("stop_reason", "matched_stop")
"""Fields in which vLLM and SGLang give the stop sequence."""
_INVALID: Final = "INVALID_JSON"
"""The field for arguments that are not an object, as Anthropic's documentation names
it.
"""
_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Status -> the type of an error; other 4xx are ``invalid_request_error``, and 5xx
``api_error``.
"""
_OF_STREAM: Final = ("invalid_request_error", *_ERROR_TYPES.values())
"""Types of errors in a stream, which have no status; all others are ``api_error``."""


class MessageWriter(ReplyWriter):
    """Turns the events of a chat completion into events of a Message, and builds the
    whole Message.

    A block of text ends when another block begins. Calls end with the Message, because
    the pieces of several calls may alternate.
    """

    def __init__(self, asked: Mapping[str, Any], model: str) -> None:
        """Create a Message without content (see :class:`ReplyWriter`)."""
        super().__init__(asked, model)
        self._id = new_id("msg")
        self._content: list[Json] = []
        self._writing = False  # whether the last block is a text that goes on
        self._calls: dict[int, int] = {}  # index of a call -> its place in the content
        self._arguments: dict[int, str] = {}  # place of a call -> its arguments
        self._stop_sequences = asked.get("stop_sequences") or ()
        self._refused = False
        thinking = asked.get("thinking")
        kind = thinking.get("type") if isinstance(thinking, dict) else None
        self._shows_thoughts = kind not in (None, "disabled")

    @property
    def whole(self) -> Json:
        """The Message.

        Raises:
            Refused: the upstream has failed.
        """
        if self._error:
            raise Refused(502, error_of(self._error)["message"], code="upstream_error")
        return {**self._head(), **self._stop, **self._account()}

    def comment_events(self, comment: bytes) -> Iterator[bytes]:
        """Yield a ping, because clients do not count comments as signs of life."""
        yield from self._opening_events()
        yield named_event("ping")

    def _head(self) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(self._usage or {}),
        }

    def _account(self) -> Json:
        account = self._unknown.get("reasc")
        return {"reasc": account} if account else {}

    @property
    def _stop(self) -> Json:
        """Why the model stopped."""
        by = [self._unknown.get(name) for name in _STOPPED_BY]
        sequence = next((one for one in by if one in self._stop_sequences), None)
        reason = _ENDINGS.get(self._ending)
        if self._refused:
            reason = "refusal"
        elif reason is None and self._calls:
            reason = "tool_use"
        elif reason is None and sequence is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
        return {"stop_reason": reason or "end_turn", "stop_sequence": None}

    def _first_events(self) -> Iterator[bytes]:
        yield named_event("message_start", message=self._head())

    def _write(self, kind: str, text: str, logprobs: Any) -> Iterator[bytes]:
        block = _BLOCKS[kind]
        self._refused = self._refused or kind == "refusal"
        if block == "thinking" and not self._shows_thoughts:
            return
        if not self._writing or self._content[-1]["type"] != block:
            yield from self._end_text()
            signed = {"signature": ""} if block == "thinking" else {}
            yield self._begin({"type": block, block: "", **signed})
            self._writing = True
        self._content[-1][block] += text
        yield self._delta(-1, {"type": f"{block}_delta", block: text})

    def _call(self, piece: Json) -> Iterator[bytes]:
        yield from self._end_text()
        function = piece.get("function") or {}
        place = self._calls.get(piece["index"])
        if place is None:
            place = self._calls[piece["index"]] = len(self._content)
            self._arguments[place] = ""
            named = {
                "id": piece.get("id") or new_id("toolu"),
                "name": function.get("name") or "",
            }
            yield self._begin({"type": "tool_use", **named, "input": {}})
        if arguments := function.get("arguments"):
            self._arguments[place] += arguments
            yield self._delta(
                place, {"type": "input_json_delta", "partial_json": arguments}
            )

    def _last_events(self) -> Iterator[bytes]:
        if self._error:
            yield named_event("error", error=error_of(self._error))
            return
        yield from self._end_text()
        for place, arguments in self._arguments.items():
            self._content[place]["input"] = _input(arguments)
            yield named_event("content_block_stop", index=place)
        yield named_event(
            "message_delta",
            delta=self._stop,
            usage=_usage(self._usage or {}),
            **self._account(),
        )
        yield named_event("message_stop")

    def _begin(self, block: Json) -> bytes:
        self._content.append(block)
        place = len(self._content) - 1
        return named_event("content_block_start", index=place, content_block=block)

    def _delta(self, place: int, delta: Json) -> bytes:
        return named_event(
            "content_block_delta", index=place % len(self._content), delta=delta
        )

    def _end_text(self) -> Iterator[bytes]:
        if self._writing:
            self._writing = False
            yield named_event("content_block_stop", index=len(self._content) - 1)


def _input(arguments: str) -> Json:
    try:
        value = orjson.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {_INVALID: arguments}


def _usage(usage: Json) -> Json:
    """Convert the usage of a chat completion, whose prompt includes cached tokens."""
    prompt = usage.get("prompt_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    said = {
        "input_tokens": prompt - (cached or 0),
        "output_tokens": usage.get("completion_tokens") or 0,
    }
    return said if cached is None else {**said, "cache_read_input_tokens": cached}


def error_of(error: Any, status: int | None = None) -> Json:
    """Convert an error of OpenAI's form, of a response with a status or of a stream."""
    fields = error if isinstance(error, dict) else {"message": error}
    if status is None:
        kind = fields.get("type") if fields.get("type") in _OF_STREAM else "api_error"
    else:
        other = "api_error" if status >= 500 else "invalid_request_error"
        kind = _ERROR_TYPES.get(status, other)
    said = fields.get("message") or fields.get("detail") or "the upstream failed"
    details = {"details": fields["details"]} if fields.get("details") else {}
    return {"type": kind, "message": str(said), **details}


class ErrorsTranslated:
    """ASGI middleware that gives errors Anthropic's form."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer a request."""
        head: Any = None
        body = b""

        async def sending(message: Any) -> None:
            nonlocal head, body
            if message["type"] == "http.response.start" and message["status"] >= 400:
                head = message
            elif head is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body"):
                    await _send_error(head, body, send)

        await self._app(scope, receive, sending)


async def _send_error(head: Any, body: bytes, send: Send) -> None:
    try:
        said = orjson.loads(body)
    except ValueError:
        said = body.decode(errors="replace")
    error = said.get("error", said) if isinstance(said, dict) else said
    written = encoded({"type": "error", "error": error_of(error, head["status"])})
    headers = MutableHeaders(raw=[*head["headers"]])
    headers["content-type"] = "application/json"
    headers["content-length"] = str(len(written))
    await send({**head, "headers": headers.raw})
    await send({"type": "http.response.body", "body": written})

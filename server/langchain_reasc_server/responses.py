"""OpenAI's Responses API, replies: write a chat completion as a Response, whole or
streamed.
"""

import time
import uuid
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
from langchain_reasc_server.responses_request import flat_name, tools_in_namespaces
from langchain_reasc_server.wire import Json, encoded, sse

_ECHOED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(
        (
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "previous_response_id",
            "prompt",
        )
    ),
    **dict.fromkeys(("user", "safety_identifier", "prompt_cache_key")),
    **dict.fromkeys(("temperature", "top_p"), 1.0),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), 0.0),
    "service_tier": "default",
    "background": False,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
}
"""Fields of a request that its Response repeats -> their defaults."""
_TOOL: Final = dict.fromkeys(("description", "parameters", "strict"))
"""Defaults of a function among the tools of a Response."""
_OF_CHAT: Final = ("id", "object", "created", "model", "choices", "usage")
_OF_CHOICE: Final = ("index", "delta", "message", "logprobs", "finish_reason")
_INCOMPLETE: Final = {"cut off": "max_output_tokens", "filtered": "content_filter"}
"""How a chat completion ended -> why its Response is incomplete."""
_PARTS: Final[Mapping[str, Json]] = {
    "output_text": {"text": "", "annotations": [], "logprobs": []},
    "refusal": {"refusal": ""},
    "reasoning_text": {"text": ""},
}
_ERROR_CODES: Final = {
    "rate_limit_error": "rate_limit_exceeded",
    "invalid_request_error": "invalid_prompt",
}
_KEPT_CODES: Final = (
    "context_length_exceeded",
    "insufficient_quota",
    "rate_limit_exceeded",
)
"""Codes of errors that a Response keeps, because clients act on them."""


class ResponseWriter:
    """Turns the events of a chat completion into events of a Response, and builds the
    whole Response.

    A text item is done when another item begins. Function calls are done at the end,
    because the pieces of several calls may alternate.
    """

    def __init__(self, asked: Mapping[str, Any], model: str) -> None:
        """Create a Response without output.

        Args:
            asked: the client's request.
            model: the model of the Response, unless the events name another.
        """
        self._asked, self._model = asked, model
        self.streamed = bool(asked.get("stream"))
        self._head: Json = {
            "id": _new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
        }
        self._output: list[Json] = []
        self._writing = False  # whether the last item is a text that goes on
        self._calls: dict[int, int] = {}  # index of a call -> its place in the output
        self._normalizer = Normalizer()
        self._in_namespaces = {
            flat_name(namespace, tool["name"]): {
                "name": tool["name"],
                "namespace": namespace,
            }
            for tool, namespace in tools_in_namespaces(asked.get("tools") or [])
            if namespace
        }
        self._unknown: Json = {}
        self._usage: Json | None = None
        self._finish_reason: str | None = None
        self._unknown_finish = UnknownFinish()
        self._error: Json | None = None
        self._status = "in_progress"
        self._number = 0
        self._has_begun = False

    @property
    def response(self) -> Json:
        """The Response so far."""
        asked = {
            name: value
            for name, value in self._asked.items()
            if name in _ECHOED and value is not None
        }
        if tools := asked.get("tools"):
            asked["tools"] = [
                {**_TOOL, **tool} if tool.get("type") == "function" else tool
                for tool in tools
            ]
        return {
            **self._head,
            **_ECHOED,
            **asked,
            **self._unknown,
            "status": self._status,
            "completed_at": int(time.time()) if self._status == "completed" else None,
            "error": self._error,
            "incomplete_details": {"reason": self._incomplete}
            if self._status == "incomplete"
            else None,
            "model": self._model,
            "output": self._output,
            "store": False,
            "usage": self._usage,
        }

    @property
    def _incomplete(self) -> str | None:
        """Why the Response is incomplete, or None."""
        return _INCOMPLETE.get(ending_in({"finish_reason": self._finish_reason}))

    def _opening_events(self) -> Iterator[bytes]:
        """Yield the first events, unless they were."""
        if self._has_begun:
            return
        self._has_begun = True
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)

    def events_for(self, event: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events of the Response for an event of the chat completion."""
        if self._status != "in_progress":
            return
        if error := event.get("error"):
            self._error = _error(error)
            yield from self.closing_events()
            return
        self._unknown |= _beside(event, _OF_CHAT)
        self._model = event.get("model") or self._model
        # which have the fields that the first event brings
        yield from self._opening_events()
        self._usage = _usage(event["usage"]) if event.get("usage") else self._usage
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
            yield from self._said(delta, _logprobs(choice.get("logprobs")))
            if finish == "failed":
                self._error = _error(
                    {"message": "the upstream failed to generate the response"}
                )
                yield from self.closing_events()

    def closing_events(self, *, complete: bool = False) -> Iterator[bytes]:
        """Yield the events that end the Response.

        Args:
            complete: whether the chat completion has ended, even if the server gave no
                finish reason.
        """
        if self._status != "in_progress":
            return
        yield from self._opening_events()
        complete = (
            complete
            or self._finish_reason is not None
            or self._unknown_finish.reason is not None
        )
        if self._error is None and not complete:
            self._error = _error({"message": "the upstream broke off the response"})
        self._status = "incomplete" if self._incomplete else "completed"
        self._status = "failed" if self._error else self._status
        if not (self._output or self._error):
            yield from self._begin_text("output_text")
        if self._status == "completed":
            yield from self._said({"tool_calls": self._normalizer.finish()}, [])
        of_last = "completed" if self._status == "completed" else "incomplete"
        yield from self._end_text(of_last)
        for place in sorted(self._calls.values()):
            yield from self._end_call(
                place, of_last if place == len(self._output) - 1 else "completed"
            )
        yield self._event(f"response.{self._status}", response=self.response)

    def _said(self, delta: Json, logprobs: list[Json]) -> Iterator[bytes]:
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

    def _write(self, kind: str, text: str, logprobs: list[Json]) -> Iterator[bytes]:
        if not self._writing or self._output[-1]["content"][0]["type"] != kind:
            yield from self._begin_text(kind)
        part = self._output[-1]["content"][0]
        part["refusal" if kind == "refusal" else "text"] += text
        beside = {}
        if kind == "output_text":
            part["logprobs"] += logprobs
            beside = {"logprobs": logprobs}
        yield self._part_event(f"response.{kind}.delta", delta=text, **beside)

    def _begin_text(self, kind: str) -> Iterator[bytes]:
        yield from self._end_text("completed")
        if kind == "reasoning_text":
            item: Json = {"id": _new_id("rs"), "type": "reasoning", "summary": []}
        else:
            item = {"id": _new_id("msg"), "type": "message", "role": "assistant"}
        self._output.append(item | {"status": "in_progress", "content": []})
        self._writing = True
        yield self._item_event("response.output_item.added", -1)
        part = {
            "type": kind,
            **{name: value[:] for name, value in _PARTS[kind].items()},
        }
        self._output[-1]["content"].append(part)
        yield self._part_event("response.content_part.added", part=part)

    def _end_text(self, status: str) -> Iterator[bytes]:
        if not self._writing:
            return
        self._writing = False
        part = self._output[-1]["content"][0]
        said = {
            name: value
            for name, value in part.items()
            if name not in ("type", "annotations")
        }
        yield self._part_event(f"response.{part['type']}.done", **said)
        yield self._part_event("response.content_part.done", part=part)
        self._output[-1]["status"] = status
        yield self._item_event("response.output_item.done", -1)

    def _call(self, piece: Json) -> Iterator[bytes]:
        yield from self._end_text("completed")
        function = piece.get("function") or {}
        place = self._calls.get(piece["index"])
        if place is None:
            identifier = piece.get("id") or _new_id("call")
            named = function.get("name") or ""
            call = {
                "call_id": identifier,
                "name": named,
                "arguments": "",
                **self._in_namespaces.get(named, {}),
            }
            place = self._calls[piece["index"]] = len(self._output)
            self._output.append(
                {
                    "id": _new_id("fc"),
                    "type": "function_call",
                    "status": "in_progress",
                    **call,
                }
            )
            yield self._item_event("response.output_item.added", place)
        if arguments := function.get("arguments"):
            call = self._output[place]
            call["arguments"] += arguments
            beside = {"item_id": call["id"], "output_index": place}
            yield self._event(
                "response.function_call_arguments.delta", **beside, delta=arguments
            )

    def _end_call(self, place: int, status: str) -> Iterator[bytes]:
        call = self._output[place]
        call["status"] = status
        said = {"name": call["name"], "arguments": call["arguments"]}
        beside = {"item_id": call["id"], "output_index": place}
        yield self._event("response.function_call_arguments.done", **beside, **said)
        yield self._item_event("response.output_item.done", place)

    def _item_event(self, kind: str, place: int) -> bytes:
        return self._event(
            kind, output_index=place % len(self._output), item=self._output[place]
        )

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        item = {
            "item_id": self._output[-1]["id"],
            "output_index": len(self._output) - 1,
            "content_index": 0,
        }
        return self._event(kind, **item, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\n" + sse(event)


def _beside(given: Mapping[str, Any], known: Sequence[str]) -> Json:
    return {
        name: value
        for name, value in given.items()
        if name not in known and value is not None
    }


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _text_of(content: Any) -> Any:
    """Return the text of a delta. Some servers give it in parts."""
    if isinstance(content, list):
        return "".join(
            part.get("text") or "" for part in content if isinstance(part, dict)
        )
    return content


def _logprobs(logprobs: Any) -> list[Json]:
    """Return logprobs with the bytes of each token, which many servers omit."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [
        {
            **_token(one),
            "top_logprobs": [_token(other) for other in one.get("top_logprobs") or ()],
        }
        for one in tokens or ()
    ]


def _token(one: Json) -> Json:
    token = str(one.get("token") or "")
    written = one.get("bytes") or [*token.encode(errors="surrogatepass")]
    return {"token": token, "logprob": one.get("logprob") or 0.0, "bytes": written}


def _usage(usage: Json) -> Json:
    """Convert the usage of a chat completion to that of a Response."""
    prompt, generated = (
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
    )
    return {
        "input_tokens": prompt,
        "input_tokens_details": _details(
            usage, "prompt_tokens_details", "cached_tokens", "cache_write_tokens"
        ),
        "output_tokens": generated,
        "output_tokens_details": _details(
            usage, "completion_tokens_details", "reasoning_tokens"
        ),
        "total_tokens": prompt + generated,
    }


def _details(usage: Json, name: str, *always: str) -> Json:
    given = {
        name: tokens
        for name, tokens in (usage.get(name) or {}).items()
        if tokens is not None
    }
    return {**dict.fromkeys(always, 0), **given}


def _error(error: Any) -> Json:
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code, kind = fields.get("code"), fields.get("type")
    known = code if code in _KEPT_CODES else _ERROR_CODES.get(str(kind), "server_error")
    return {
        "code": known,
        "message": str(fields.get("message") or "the upstream failed"),
    }


class Translated:
    """Sends a chat completion, whole or streamed, as a Response. Errors and headers are
    unchanged.
    """

    def __init__(self, send: Send, writer: ResponseWriter) -> None:
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
            events = (
                [part]
                if is_comment
                else [*self._translated(self._decoder.decoded(part))]
            )
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
            body = encoded(self._writer.response)
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

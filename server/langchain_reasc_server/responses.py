"""OpenAI's Responses API: translate a request into a chat completion, and the reply into a Response.

Nothing is stored, so a request must contain everything that it refers to.
"""

import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from langchain_reasc_openai.events import is_another

from langchain_reasc.files import parse_json
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.events import Send
from langchain_reasc_server.wire import Json, encoded, events_of, sse

__all__ = ["ResponseWriter", "Translated", "Untranslatable", "chat_request"]


class Untranslatable(Exception):
    """A request cannot be translated into a chat completion.

    Attributes:
        why: the field, or the type of a tool or an item, that chat completions lack.
    """

    def __init__(self, why: Any) -> None:
        self.why = why if isinstance(why, str) and re.fullmatch(r"[\w.-]{1,64}", why, re.ASCII) else "not understood"
        super().__init__(self.why)


# Requests

_STATEFUL: Final = ("previous_response_id", "conversation", "background", "prompt", "context_management")
"""Fields that refer to stored objects."""
_REWRITTEN: Final = (
    *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    *("max_output_tokens", "include", "top_logprobs", "stream_options"),
)
_DROPPED: Final = ("truncation", "max_tool_calls", "store", "metadata")
"""Fields without a meaning for a sample. With ``store``, OpenAI would store every sample."""
_LOGPROBS: Final = "message.output_text.logprobs"
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
"""Role of a message -> a role that every chat template knows."""


def chat_request(asked: Mapping[str, Any], limit: str) -> Json:
    """Translate a request of the Responses API into a request for a chat completion.

    Fields that both APIs have, and unknown fields, are unchanged.

    Args:
        asked: the body of the request.
        limit: the upstream's name for the most tokens of a response.

    Raises:
        Untranslatable: the request asks for something that chat completions lack.
        Refused: the request is malformed.
    """
    for name in _STATEFUL:
        if asked.get(name):
            raise Untranslatable(name)
    left_out = (*_STATEFUL, *_REWRITTEN, *_DROPPED)
    body = {name: value for name, value in asked.items() if name not in left_out and value is not None}
    body |= {"messages": _messages(asked), **_tools(asked), **_text_options(_object_in(asked, "text"))}
    options = {
        "reasoning_effort": _object_in(asked, "reasoning").get("effort"),
        limit: asked.get("max_output_tokens"),
        "stream_options": {"include_usage": True} if asked.get("stream") else None,
        **_logprobs_asked(asked),
    }
    return body | {name: value for name, value in options.items() if value is not None}


def _logprobs_asked(asked: Mapping[str, Any]) -> Json:
    include, beside = asked.get("include"), {name: asked[name] for name in ("top_logprobs",) if asked.get(name)}
    return {"logprobs": True, **beside} if beside or (isinstance(include, list) and _LOGPROBS in include) else {}


def _tools(asked: Mapping[str, Any]) -> Json:
    tools = _objects(asked.get("tools") or [], "tools")
    if not tools:
        return {}
    body: Json = {"tools": [_function(tool, namespace) for tool, namespace in _in_namespaces(tools)]}
    if (choice := asked.get("tool_choice")) is not None:
        body["tool_choice"] = choice if isinstance(choice, str) else _choice(choice)
    if (parallel := asked.get("parallel_tool_calls")) is not None:
        body["parallel_tool_calls"] = parallel
    return body


def _in_namespaces(tools: list[Json]) -> Iterator[tuple[Json, str | None]]:
    """Yield (tool, namespace), because chat completions have no namespaces."""
    for tool in tools:
        if tool.get("type") == "namespace":
            namespace = _text_in(tool, "name", "tools")
            yield from ((inner, namespace) for inner in _objects(tool.get("tools"), "tools"))
        else:
            yield tool, None


def _function(tool: Json, namespace: str | None) -> Json:
    if tool.get("type") != "function":
        raise Untranslatable(tool.get("type"))
    named = {name: tool[name] for name in ("description", "parameters", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": {"name": _flat(namespace, _text_in(tool, "name", "tools")), **named}}


def _flat(namespace: Any, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _choice(choice: Any) -> Json:
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind != "function":
        raise Untranslatable(kind)
    return {"type": "function", "function": {"name": _text_in(choice, "name", "tool_choice")}}


def _text_options(text: Json) -> Json:
    body = {name: text[name] for name in ("verbosity",) if text.get(name) is not None}
    form = _object_in(text, "format")
    kind = form.get("type", "text")
    if kind == "json_schema":
        body["response_format"] = {"type": kind, kind: {n: value for n, value in form.items() if n != "type"}}
    elif kind == "json_object":
        body["response_format"] = form
    elif kind != "text":
        raise Untranslatable(kind)
    return body


def _messages(asked: Mapping[str, Any]) -> list[Json]:
    given, messages = asked.get("input"), list[Json]()
    if asked.get("instructions") is not None:
        messages.append({"role": "system", "content": _text_in(asked, "instructions", "instructions")})
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given, "input"):
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        if kind == "reasoning":
            continue
        if not isinstance(kind, str) or kind not in _ITEMS:
            raise Untranslatable(kind)
        _append(messages, _ITEMS[kind](item))
    return messages


def _append(messages: list[Json], message: Json) -> None:
    """Append a message, or merge it with the last one if chat templates expect a single message."""
    last: Json = messages[-1] if messages else {"role": None}
    role, texts = message["role"], [one["content"] for one in (last, message) if one.get("content")]
    if role == last["role"] == "assistant" and len(texts) < 2:
        calls = [*last.get("tool_calls", ()), *message.get("tool_calls", ())]
        messages[-1] = {"role": role, "content": next(iter(texts), None), **({"tool_calls": calls} if calls else {})}
    elif role == last["role"] == "system":
        messages[-1] = {"role": role, "content": "\n\n".join(texts)}
    else:
        messages.append(message)


def _message(item: Json) -> Json:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        _malformed("input", f"the role of a message in input is {str(role)[:40]!r}; it takes {', '.join(_ROLES)}")
    content = _content(item.get("content"))
    if _ROLES[role] == "system" and not isinstance(content, str):
        content = "\n\n".join(_text_in(part, "text", "input") for part in content)
    return {"role": _ROLES[role], "content": content}


def _function_call(item: Json) -> Json:
    identifier, name, arguments = (_text_in(item, key, "input") for key in ("call_id", "name", "arguments"))
    function = {"name": _flat(item.get("namespace"), name), "arguments": arguments}
    call = {"id": identifier, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _function_call_output(item: Json) -> Json:
    content = _content(item.get("output"))
    if not isinstance(content, str) and any(part["type"] != "text" for part in content):
        raise Untranslatable("function_call_output")
    return {"role": "tool", "tool_call_id": _text_in(item, "call_id", "input"), "content": content}


_ITEMS: Final = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
}


def _content(content: Any) -> str | list[Json]:
    """Translate a text or a list of parts. A single text part becomes the text, which every chat template accepts."""
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in _objects(content, "input")]
    return parts[0]["text"] if [part["type"] for part in parts] == ["text"] else parts


def _part(part: Json) -> Json:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": _text_in(part, "text", "input")}
    if kind == "refusal":
        return {"type": kind, kind: _text_in(part, kind, "input")}
    if kind == "input_audio":
        return {"type": kind, kind: _object_in(part, kind)}
    if kind == "input_image" and part.get("image_url"):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and not part.get("file_url"):
        named = ("file_id", "file_data", "filename")
        return {"type": "file", "file": {name: part[name] for name in named if part.get(name)}}
    raise Untranslatable(kind)


def _objects(value: Any, param: str) -> list[Json]:
    if not (isinstance(value, list) and all(isinstance(one, dict) for one in value)):
        also = "a text or " if param == "input" else ""
        _malformed(param, f"{param} must be {also}a list of objects")
    return value


def _object_in(body: Mapping[str, Any], name: str) -> Json:
    value = body.get(name)
    if not isinstance(value, dict | None):
        _malformed(name, f"{name} must be an object, not a {type(value).__name__}")
    return value or {}


def _text_in(body: Mapping[str, Any], name: str, param: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        found = "is missing" if value is None else f"must be a text, not a {type(value).__name__}"
        _malformed(param, f"{name}{'' if name == param else f' in {param}'} {found}")
    return value


def _malformed(param: str, message: str) -> NoReturn:
    raise Refused(400, message, param=param, code="invalid_value")


# Replies

_ECHOED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt")),
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
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
_PARTS: Final[Mapping[str, Json]] = {
    "output_text": {"text": "", "annotations": [], "logprobs": []},
    "refusal": {"refusal": ""},
    "reasoning_text": {"text": ""},
}
_ERROR_CODES: Final = {"rate_limit_error": "rate_limit_exceeded", "invalid_request_error": "invalid_prompt"}
_KEPT_CODES: Final = ("context_length_exceeded", "insufficient_quota", "rate_limit_exceeded")
"""Codes of errors that a Response keeps, because clients act on them."""


class ResponseWriter:
    """Turns the events of a chat completion into events of a Response, and builds the whole Response.

    A text item is done when another item begins. Function calls are done at the end, because the pieces of several
    calls may alternate.
    """

    def __init__(self, asked: Mapping[str, Any], model: str) -> None:
        """Begin a Response.

        Args:
            asked: the request, which :func:`chat_request` has translated.
            model: the model of the Response, unless the events name another.
        """
        self._asked, self._model = asked, model
        self.streamed = bool(asked.get("stream"))
        self._head: Json = {"id": _new_id("resp"), "object": "response", "created_at": int(time.time())}
        self._output: list[Json] = []
        self._writing = False  # whether the last item is a text that goes on
        self._calls: dict[Any, int] = {}
        self._in_namespaces = {
            _flat(namespace, tool["name"]): {"name": tool["name"], "namespace": namespace}
            for tool, namespace in _in_namespaces(asked.get("tools") or [])
            if namespace
        }
        self._unknown: Json = {}
        self._usage: Json | None = None
        self._finish_reason: str | None = None
        self._error: Json | None = None
        self._status = "in_progress"
        self._number = 0

    @property
    def response(self) -> Json:
        """The Response so far."""
        asked = {name: value for name, value in self._asked.items() if name in _ECHOED and value is not None}
        if tools := asked.get("tools"):
            asked["tools"] = [{**_TOOL, **tool} if tool.get("type") == "function" else tool for tool in tools]
        reason = _INCOMPLETE.get(self._finish_reason or "")
        return {
            **self._head,
            **_ECHOED,
            **asked,
            **self._unknown,
            "status": self._status,
            "completed_at": int(time.time()) if self._status == "completed" else None,
            "error": self._error,
            "incomplete_details": {"reason": reason} if self._status == "incomplete" else None,
            "model": self._model,
            "output": self._output,
            "store": False,
            "usage": self._usage,
        }

    def begin(self) -> Iterator[bytes]:
        """Yield the first events."""
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)

    def take(self, event: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events of the Response for an event of the chat completion."""
        if self._status != "in_progress":
            return
        if error := event.get("error"):
            self._error = _error(error)
            yield from self.end()
            return
        self._unknown |= _beside(event, _OF_CHAT)
        self._model = event.get("model") or self._model
        self._usage = _usage(event["usage"]) if event.get("usage") else self._usage
        for choice in (event.get("choices") or ())[:1]:
            self._unknown |= _beside(choice, _OF_CHOICE)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            yield from self._said(choice.get("delta") or {}, _logprobs(choice.get("logprobs")))

    def end(self, *, complete: bool = False) -> Iterator[bytes]:
        """Yield the events that end the Response.

        Args:
            complete: whether the chat completion has ended, even if the server gave no finish reason.
        """
        if self._status != "in_progress":
            return
        if self._error is None and self._finish_reason is None and not complete:
            self._error = _error({"message": "the upstream broke off the response"})
        self._status = "incomplete" if self._finish_reason in _INCOMPLETE else "completed"
        self._status = "failed" if self._error else self._status
        if not (self._output or self._error):
            yield from self._begin_text("output_text")
        of_last = "completed" if self._status == "completed" else "incomplete"
        yield from self._end_text(of_last)
        for place in sorted(self._calls.values()):
            yield from self._end_call(place, of_last if place == len(self._output) - 1 else "completed")
        yield self._event(f"response.{self._status}", response=self.response)

    def _said(self, delta: Json, logprobs: list[Json]) -> Iterator[bytes]:
        for kind, text in (
            ("reasoning_text", delta.get("reasoning_content") or delta.get("reasoning")),
            ("output_text", _text_of(delta.get("content"))),
            ("refusal", delta.get("refusal")),
        ):
            if isinstance(text, str) and text:
                yield from self._write(kind, text, logprobs)
        for call in delta.get("tool_calls") or ():
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
        part = {"type": kind, **{name: value[:] for name, value in _PARTS[kind].items()}}
        self._output[-1]["content"].append(part)
        yield self._part_event("response.content_part.added", part=part)

    def _end_text(self, status: str) -> Iterator[bytes]:
        if not self._writing:
            return
        self._writing = False
        part = self._output[-1]["content"][0]
        said = {name: value for name, value in part.items() if name not in ("type", "annotations")}
        yield self._part_event(f"response.{part['type']}.done", **said)
        yield self._part_event("response.content_part.done", part=part)
        self._output[-1]["status"] = status
        yield self._item_event("response.output_item.done", -1)

    def _call(self, piece: Json) -> Iterator[bytes]:
        yield from self._end_text("completed")
        function = piece.get("function") or {}
        index = piece.get("index")
        place = self._calls.get(index) if isinstance(index, int) else None
        if place is not None and is_another({**self._output[place], "id": self._output[place]["call_id"]}, piece):
            self._calls[self._output[place]["call_id"]] = self._calls.pop(index)
            place = None
        if place is None:
            identifier = piece.get("id") or _new_id("call")
            named = function.get("name") or ""
            call = {"call_id": identifier, "name": named, "arguments": "", **self._in_namespaces.get(named, {})}
            place = len(self._output)
            self._calls[index if isinstance(index, int) else identifier] = place
            self._output.append({"id": _new_id("fc"), "type": "function_call", "status": "in_progress", **call})
            yield self._item_event("response.output_item.added", place)
        if arguments := function.get("arguments"):
            call, text = self._output[place], arguments if isinstance(arguments, str) else encoded(arguments).decode()
            call["arguments"] += text
            beside = {"item_id": call["id"], "output_index": place}
            yield self._event("response.function_call_arguments.delta", **beside, delta=text)

    def _end_call(self, place: int, status: str) -> Iterator[bytes]:
        call = self._output[place]
        call["status"] = status
        said = {"name": call["name"], "arguments": call["arguments"]}
        beside = {"item_id": call["id"], "output_index": place}
        yield self._event("response.function_call_arguments.done", **beside, **said)
        yield self._item_event("response.output_item.done", place)

    def _item_event(self, kind: str, place: int) -> bytes:
        return self._event(kind, output_index=place % len(self._output), item=self._output[place])

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        item = {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1, "content_index": 0}
        return self._event(kind, **item, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\n" + sse(event)


def _beside(given: Mapping[str, Any], known: Sequence[str]) -> Json:
    return {name: value for name, value in given.items() if name not in known and value is not None}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _text_of(content: Any) -> Any:
    """Return the text of a delta. Some servers give it in parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content


def _logprobs(logprobs: Any) -> list[Json]:
    """Return logprobs with the bytes of each token, which many servers omit."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [
        {**_token(one), "top_logprobs": [_token(other) for other in one.get("top_logprobs") or ()]}
        for one in tokens or ()
    ]


def _token(one: Json) -> Json:
    token = str(one.get("token") or "")
    written = one.get("bytes") or [*token.encode(errors="surrogatepass")]
    return {"token": token, "logprob": one.get("logprob") or 0.0, "bytes": written}


def _usage(usage: Json) -> Json:
    """Convert the usage of a chat completion to that of a Response."""
    prompt, generated = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": _details(usage, "prompt_tokens_details", "cached_tokens", "cache_write_tokens"),
        "output_tokens": generated,
        "output_tokens_details": _details(usage, "completion_tokens_details", "reasoning_tokens"),
        "total_tokens": prompt + generated,
    }


def _details(usage: Json, name: str, *always: str) -> Json:
    given = {name: tokens for name, tokens in (usage.get(name) or {}).items() if tokens is not None}
    return {**dict.fromkeys(always, 0), **given}


def _error(error: Any) -> Json:
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code, kind = fields.get("code"), fields.get("type")
    known = code if code in _KEPT_CODES else _ERROR_CODES.get(str(kind), "server_error")
    return {"code": known, "message": str(fields.get("message") or "the upstream failed")}


# Sending

_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")


class Translated:
    """Sends a chat completion, whole or streamed, as a Response. Errors and headers are unchanged."""

    def __init__(self, send: Send, writer: ResponseWriter) -> None:
        self._send, self._writer = send, writer
        self._start: Any = None
        self._way = "as it is"
        self._received = b""

    async def __call__(self, message: Any) -> None:
        """Send an ASGI message, or keep it until the reply is complete.

        Raises:
            Refused: the reply is not a chat completion.
        """
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._way == "as it is":
            await self._send(message)
        elif self._way == "stream":
            events, ended = [*self._events(message.get("body", b""))], not message.get("more_body")
            await self._send({**message, "body": b"".join([*events, *(self._writer.end() if ended else ())])})
        else:
            self._received += message.get("body", b"")
            if not message.get("more_body"):
                body, headers = b"".join(self._events_of_whole()), self._start["headers"]
                if self._writer.streamed:  # an upstream that does not stream
                    kept = [(name, value) for name, value in headers if name.lower() != b"content-type"]
                    headers = [*kept, (b"content-type", b"text/event-stream; charset=utf-8")]
                else:
                    body = encoded(self._writer.response)
                await self._send({**self._start, "headers": [*headers, (b"content-length", b"%d" % len(body))]})
                await self._send({**message, "body": body})

    async def _begin(self, message: Any) -> None:
        if message["status"] >= 400:
            await self._send(message)
            return
        headers = [(name, value) for name, value in message["headers"] if name.lower() != b"content-length"]
        self._start = {**message, "headers": headers}
        if not any(b"text/event-stream" in value for _, value in headers):
            self._way = "whole"
            return
        self._way = "stream"
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": b"".join(self._writer.begin()), "more_body": True})

    def _events(self, body: bytes) -> Iterator[bytes]:
        *parts, self._received = _EVENT_END.split(self._received + body)
        for part in parts:
            lines = [line[5:].strip() for line in part.splitlines() if line.startswith(b"data:")]
            if lines == [b"[DONE]"]:
                yield from self._writer.end(complete=True)
            elif lines:
                yield from self._writer.take(_parsed(b"\n".join(lines)))
            else:  # a comment
                yield part + b"\n\n"

    def _events_of_whole(self) -> Iterator[bytes]:
        reply = _parsed(self._received)
        if not (reply.get("choices") and reply["choices"][0].get("message")):
            raise Refused(502, "the upstream gave no usable response", code="upstream_error")
        beside = {**reply, "choices": [{**reply["choices"][0], "delta": {}}]}
        yield from self._writer.begin()
        for event in (beside, *events_of(reply)):
            yield from self._writer.take(event)
        yield from self._writer.end(complete=True)


def _parsed(data: bytes) -> Json:
    try:
        event = parse_json(data)
    except ValueError:
        event = None
    return (
        event
        if isinstance(event, dict)
        else {"error": {"message": "the upstream sent something that is not a chat completion"}}
    )

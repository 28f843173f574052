"""OpenAI's chat API as JSON: write a message as a reply, and a reply as events.

Fields that a server adds are kept.
"""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_reasc_openai.events import CallRepairer, Json
from pydantic_core import PydanticSerializationError, to_json

from langchain_reasc.answers import ending_of

__all__ = [
    "DONE",
    "PING",
    "Json",
    "chunk_event",
    "encoded",
    "event_of",
    "events_of",
    "message_in",
    "new_id",
    "replayed",
    "reply_of",
    "sse",
    "usage_of",
    "with_message",
]

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"
"""A comment, which keeps a stream alive."""


def new_id() -> str:
    """Return a new id for a response."""
    return f"chatcmpl-{uuid.uuid4().hex}"


def encoded(value: Any) -> bytes:
    """Return a value as JSON. Half of a surrogate pair, which a model may write, is
    escaped.
    """
    try:
        return to_json(value)  # in a third of the time that json.dumps takes
    except PydanticSerializationError:
        return json.dumps(value, separators=(",", ":")).encode()


def sse(event: Mapping[str, Any]) -> bytes:
    """Return an event in the form of server-sent events."""
    return b"data: " + encoded(event) + b"\n\n"


def _first_choices(event: Mapping[str, Any]) -> list[Json]:
    return [one for one in event.get("choices") or () if (one.get("index") or 0) == 0]


def message_in(reply: Mapping[str, Any]) -> Json:
    """Return the message of a reply."""
    message: Json = reply["choices"][0]["message"]
    return message


def usage_of(usage: UsageMetadata | None) -> Json | None:
    """Convert LangChain's usage to OpenAI's form."""
    if usage is None:
        return None
    prompt, generated = usage["input_tokens"], usage["output_tokens"]
    written: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
    }
    if (
        cached := (usage.get("input_token_details") or {}).get("cache_read")
    ) is not None:
        written["prompt_tokens_details"] = {"cached_tokens": cached}
    if (
        reasoning := (usage.get("output_token_details") or {}).get("reasoning")
    ) is not None:
        written["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return written


def reply_of(message: AIMessage, model: str) -> Json:
    """Write any chat model's message as a reply without usage."""
    calls = [
        _call(call["id"], call["name"], json.dumps(call["args"]))
        for call in message.tool_calls
    ]
    calls += [
        _call(call["id"], call["name"], call["args"] or "")
        for call in message.invalid_tool_calls
        if call["name"]
    ]
    said: Json = {
        "role": "assistant",
        "content": str(message.text) or (None if calls else ""),
    }
    if isinstance(reasoning := message.additional_kwargs.get("reasoning_content"), str):
        said["reasoning_content"] = reasoning
    if calls:
        said["tool_calls"] = calls
    metadata = message.response_metadata
    choice = {
        "index": 0,
        "message": said,
        "logprobs": metadata.get("logprobs"),
        "finish_reason": "length"
        if ending_of(message) == "cut off"
        else "tool_calls"
        if calls
        else "stop",
    }
    return {
        "id": new_id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
    }


def _call(identifier: str | None, name: str | None, arguments: str) -> Json:
    function = {"name": name or "", "arguments": arguments}
    return {
        "id": identifier or f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": function,
    }


def with_message(reply: Json, message: AIMessage) -> Json | None:
    """Return a reply with the content of a message, or None if the reply already has
    this content.

    A vote may have replaced the winner's content by an answer assembled from several
    responses, or by an empty one. Content that LangChain does not read (calls of
    another type, say) does not count as changed.
    """
    said = message_in(reply)
    functions = [call.get("function") or {} for call in said.get("tool_calls") or ()]
    called = [
        (function.get("name") or "", _sorted(function.get("arguments")))
        for function in functions
    ]
    same_calls = all(
        (call["name"], json.dumps(call["args"], sort_keys=True)) in called
        for call in message.tool_calls
    )
    is_empty = bool(message.response_metadata.get("reasc", {}).get("abstained"))
    if same_calls and not is_empty and str(message.text) == _text(said.get("content")):
        return None
    written = reply_of(message, reply.get("model") or "")
    choice = {**reply["choices"][0], **written["choices"][0], "logprobs": None}
    return {**reply, "choices": [choice]}


def _text(content: Any) -> str:
    return str(AIMessage(content or "").text)


def _sorted(arguments: Any) -> str | None:
    try:
        value = (
            arguments if isinstance(arguments, dict) else json.loads(arguments or "{}")
        )
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return None


def replayed(events: Iterable[Json]) -> Iterator[Json]:
    """Yield the events of a response without the role, which was already sent, and
    without usage.
    """
    for event in events:
        left = {name: value for name, value in event.items() if name != "usage"}
        choices = _first_choices(event)
        if (event.get("choices") and not choices) or (
            not choices and event.get("usage")
        ):
            continue
        yield left | {
            "choices": [
                {**one, "delta": _without_role(one.get("delta") or {})}
                for one in choices
            ]
        }


def _without_role(delta: Mapping[str, Any]) -> Json:
    return {name: value for name, value in delta.items() if name != "role"}


def events_of(reply: Mapping[str, Any]) -> Iterator[Json]:
    """Yield a reply as the events of a stream: its text, its calls, and its end."""
    choice, message = reply["choices"][0], message_in(reply)
    rest = {
        name: value
        for name, value in message.items()
        if name not in ("role", "tool_calls")
    }
    if any(value is not None for value in rest.values()):
        yield event_of(reply, rest, logprobs=choice.get("logprobs"))
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield event_of(reply, {"tool_calls": [{**call, "index": index}]})
    yield event_of(reply, {}, finish_reason=choice.get("finish_reason") or "stop")


def event_of(
    head: Mapping[str, Any],
    delta: Json | None,
    *,
    finish_reason: str | None = None,
    logprobs: Any = None,
    index: int = 0,
) -> Json:
    """Return an event with all fields of a reply besides its choices and usage. Without
    a delta it has no choice.
    """
    named = {
        name: value
        for name, value in head.items()
        if name not in ("object", "choices", "usage")
    }
    choice = {
        "index": index,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    return {
        **named,
        "object": "chat.completion.chunk",
        "choices": [] if delta is None else [choice],
    }


def chunk_event(
    head: Mapping[str, Any],
    chunk: AIMessageChunk,
    repairer: CallRepairer,
    index: int = 0,
) -> Json | None:
    """Write a chunk of any chat model as an event, or return None for an empty chunk.

    Args:
        head: has the id, time and model of the reply.
        chunk: the chunk.
        repairer: repairs the calls in the response's chunks.
        index: the index of the choice.
    """
    delta: Json = {}
    if text := str(chunk.text):
        delta["content"] = text
    if isinstance(reasoning := chunk.additional_kwargs.get("reasoning_content"), str):
        delta["reasoning_content"] = reasoning
    calls = []
    for call in chunk.tool_call_chunks:
        named = {"id": call["id"], "type": "function"} if call["id"] else {}
        function = {"name": call["name"]} if call["name"] else {}
        calls.append(
            {
                "index": call["index"] or 0,
                **named,
                "function": {**function, "arguments": call["args"] or ""},
            }
        )
    if calls:
        delta["tool_calls"] = calls
    delta = repairer.repaired(delta)
    return (
        event_of(
            head, delta, logprobs=chunk.response_metadata.get("logprobs"), index=index
        )
        if delta
        else None
    )

"""OpenAI's Responses API, requests: translate them into requests for a chat completion.

Nothing is stored, so a request must contain everything that it refers to.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_reasc.models.calls import has_no_arguments
from langchain_reasc_server.conversation import with_call_ids
from langchain_reasc_server.fields import malformed, object_in, objects, text_in
from langchain_reasc_server.wire import Json


class Untranslatable(Exception):
    """A request cannot be translated into a chat completion.

    Attributes:
        why: the field, or the type of a tool or an item, that chat completions lack.
    """

    def __init__(self, why: Any) -> None:
        self.why = (
            why
            if isinstance(why, str) and re.fullmatch(r"[\w.-]{1,64}", why, re.ASCII)
            else "not understood"
        )
        super().__init__(self.why)


_STATEFUL: Final = (
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
    "context_management",
)
"""Fields that refer to stored objects."""
_REWRITTEN: Final = (
    *(
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
    ),
    *("max_output_tokens", "include", "top_logprobs", "stream_options"),
)
_DROPPED: Final = ("truncation", "max_tool_calls", "store", "metadata")
"""Fields without a meaning for a sample. With ``store``, OpenAI would store every
sample.
"""
_LOGPROBS: Final = "message.output_text.logprobs"
_ROLES: Final = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
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
    body = {
        name: value
        for name, value in asked.items()
        if name not in left_out and value is not None
    }
    body |= {
        "messages": _messages(asked),
        **_tools(asked),
        **_text_options(object_in(asked, "text")),
    }
    options = {
        "reasoning_effort": object_in(asked, "reasoning").get("effort"),
        limit: asked.get("max_output_tokens"),
        "stream_options": {"include_usage": True} if asked.get("stream") else None,
        **_logprobs_asked(asked),
    }
    return body | {name: value for name, value in options.items() if value is not None}


def _logprobs_asked(asked: Mapping[str, Any]) -> Json:
    if k := asked.get("top_logprobs"):
        return {"logprobs": True, "top_logprobs": k}
    include = asked.get("include")
    return (
        {"logprobs": True} if isinstance(include, list) and _LOGPROBS in include else {}
    )


def _tools(asked: Mapping[str, Any]) -> Json:
    tools = objects(asked.get("tools") or [], "tools")
    if not tools:
        return {}
    body: Json = {
        "tools": [
            _function(tool, namespace) for tool, namespace in tools_in_namespaces(tools)
        ]
    }
    if (choice := asked.get("tool_choice")) is not None:
        body["tool_choice"] = choice if isinstance(choice, str) else _choice(choice)
    if (parallel := asked.get("parallel_tool_calls")) is not None:
        body["parallel_tool_calls"] = parallel
    return body


def tools_in_namespaces(tools: list[Json]) -> Iterator[tuple[Json, str | None]]:
    """Yield (tool, namespace), because chat completions have no namespaces."""
    for tool in tools:
        if tool.get("type") == "namespace":
            namespace = text_in(tool, "name", "tools")
            yield from (
                (inner, namespace) for inner in objects(tool.get("tools"), "tools")
            )
        else:
            yield tool, None


def _function(tool: Json, namespace: str | None) -> Json:
    if tool.get("type") != "function":
        raise Untranslatable(tool.get("type"))
    named = {
        name: tool[name]
        for name in ("description", "parameters", "strict")
        if tool.get(name) is not None
    }
    return {
        "type": "function",
        "function": {
            "name": flat_name(namespace, text_in(tool, "name", "tools")),
            **named,
        },
    }


def flat_name(namespace: Any, name: str) -> str:
    """Return the name of a function in a namespace for the upstream."""
    return f"{namespace}__{name}" if namespace else name


def _choice(choice: Any) -> Json:
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind != "function":
        raise Untranslatable(kind)
    return {
        "type": "function",
        "function": {"name": text_in(choice, "name", "tool_choice")},
    }


def _text_options(text: Json) -> Json:
    body = {name: text[name] for name in ("verbosity",) if text.get(name) is not None}
    form = object_in(text, "format")
    kind = form.get("type", "text")
    if kind == "json_schema":
        body["response_format"] = {
            "type": kind,
            kind: {n: value for n, value in form.items() if n != "type"},
        }
    elif kind == "json_object":
        body["response_format"] = form
    elif kind != "text":
        raise Untranslatable(kind)
    return body


def _messages(asked: Mapping[str, Any]) -> list[Json]:
    given, messages = asked.get("input"), list[Json]()
    if asked.get("instructions") is not None:
        messages.append(
            {
                "role": "system",
                "content": text_in(asked, "instructions", "instructions"),
            }
        )
    for item in (
        [{"role": "user", "content": given}]
        if isinstance(given, str)
        else objects(given, "input", or_text=True)
    ):
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        if kind == "reasoning":
            continue
        if not isinstance(kind, str) or kind not in _ITEMS:
            raise Untranslatable(kind)
        _append(messages, _ITEMS[kind](item))
    messages = with_call_ids(messages)
    if any(
        message["role"] == "tool" and not message["tool_call_id"]
        for message in messages
    ):
        malformed(
            "input",
            "call_id in input is missing, and no call before the output waits for one",
        )
    return messages


def _append(messages: list[Json], message: Json) -> None:
    """Append a message, or merge it with the last one if chat templates expect a single
    message.
    """
    last: Json = messages[-1] if messages else {"role": None}
    role, texts = (
        message["role"],
        [one["content"] for one in (last, message) if one.get("content")],
    )
    if role == last["role"] == "assistant" and len(texts) < 2:
        calls = [*last.get("tool_calls", ()), *message.get("tool_calls", ())]
        messages[-1] = {
            "role": role,
            "content": next(iter(texts), None),
            **({"tool_calls": calls} if calls else {}),
        }
    elif role == last["role"] == "system":
        messages[-1] = {"role": role, "content": "\n\n".join(texts)}
    else:
        messages.append(message)


def _message(item: Json) -> Json:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        malformed(
            "input",
            (
                f"the role of a message in input is {str(role)[:40]!r}; it takes "
                f"{', '.join(_ROLES)}"
            ),
        )
    content = _content(item.get("content"))
    if _ROLES[role] == "system" and not isinstance(content, str):
        content = "\n\n".join(text_in(part, "text", "input") for part in content)
    return {"role": _ROLES[role], "content": content}


def _function_call(item: Json) -> Json:
    no_arguments = has_no_arguments(item.get("arguments"))
    arguments = "{}" if no_arguments else text_in(item, "arguments", "input")
    name = flat_name(item.get("namespace"), text_in(item, "name", "input"))
    call = {
        "id": _call_id(item),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _function_call_output(item: Json) -> Json:
    content = _content(item.get("output"))
    if not isinstance(content, str) and any(part["type"] != "text" for part in content):
        raise Untranslatable("function_call_output")
    return {"role": "tool", "tool_call_id": _call_id(item), "content": content}


def _call_id(item: Json) -> str:
    """Return the id of a call, or nothing if it has none; :func:`with_call_ids` then
    finds one.
    """
    return "" if item.get("call_id") is None else text_in(item, "call_id", "input")


_ITEMS: Final = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
}


def _content(content: Any) -> str | list[Json]:
    """Translate a text or a list of parts. A single text part becomes the text, which
    every chat template accepts.
    """
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in objects(content, "input", or_text=True)]
    return parts[0]["text"] if [part["type"] for part in parts] == ["text"] else parts


def _part(part: Json) -> Json:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": text_in(part, "text", "input")}
    if kind == "refusal":
        return {"type": kind, kind: text_in(part, kind, "input")}
    if kind == "input_audio":
        return {"type": kind, kind: object_in(part, kind)}
    if kind == "input_image" and part.get("image_url"):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and not part.get("file_url"):
        named = ("file_id", "file_data", "filename")
        return {
            "type": "file",
            "file": {name: part[name] for name in named if part.get(name)},
        }
    raise Untranslatable(kind)

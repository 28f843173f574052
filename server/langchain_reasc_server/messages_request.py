"""Anthropic's Messages API, requests: translate them into requests for a chat
completion.
"""

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from langchain_reasc_server.errors import Refused
from langchain_reasc_server.fields import malformed, object_in, objects, text_in
from langchain_reasc_server.wire import Json

_KEPT: Final = (
    *("model", "stream", "temperature", "top_p", "top_k"),
    *("min_p", "seed", "reasoning_effort", "chat_template_kwargs"),
)
"""Fields that chat completions have under the same name. Others are dropped, because
some servers refuse fields that they do not know.
"""
_REFUSED: Final = ("compaction", "mcp_servers")
"""Fields without which the reply would be another one."""
_NO_THREADS: Final = {"error_code": "thread_unsupported_request", "unsupported": []}
"""The details by which Anthropic's client knows that it has to send the whole
conversation each time.
"""
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
"""Type of a tool choice -> the name that chat completions have for it."""
_THOUGHTS: Final = ("thinking", "redacted_thinking")


def chat_request(asked: Mapping[str, Any], limit: str) -> Json:
    """Translate a request of the Messages API into a request for a chat completion.

    Args:
        asked: the body of the request.
        limit: the upstream's name for the most tokens of a response.

    Raises:
        Refused: the request is malformed, or asks for something that chat completions
            lack.
    """
    for name in _REFUSED:
        if asked.get(name):
            raise _unsupported(name, "leave it out")
    if asked.get("thread"):
        refused = _unsupported("thread", "send the whole conversation")
        refused.error["details"] = _NO_THREADS
        raise refused
    options = {
        **{name: asked.get(name) for name in _KEPT},
        **_tools(asked),
        limit: asked.get("max_tokens"),
        "stop": _stop_sequences(asked) or None,
        "user": object_in(asked, "metadata").get("user_id"),
        "response_format": _response_format(asked),
        "stream_options": {"include_usage": True} if asked.get("stream") else None,
    }
    body = {name: value for name, value in options.items() if value is not None}
    return body | {"messages": [*_system(asked), *_conversation(asked)]}


def _stop_sequences(asked: Mapping[str, Any]) -> list[str]:
    given = asked.get("stop_sequences") or []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        malformed("stop_sequences", "stop_sequences must be a list of texts")
    return given


def _response_format(asked: Mapping[str, Any]) -> Json | None:
    config = object_in(asked, "output_config")
    form = object_in(config, "format") or object_in(asked, "output_format")
    if not form:
        return None
    if form.get("type") != "json_schema":
        raise _unsupported(
            f"the output format {_shown(form.get('type'))}", "use json_schema"
        )
    schema = object_in(form, "schema")
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema},
    }


def _tools(asked: Mapping[str, Any]) -> Json:
    tools = objects(asked.get("tools") or [], "tools")
    if not tools:
        return {}
    body: Json = {"tools": [_function(tool) for tool in tools]}
    choice = object_in(asked, "tool_choice")
    if choice:
        body["tool_choice"] = _choice(choice)
    if choice.get("disable_parallel_tool_use"):
        body["parallel_tool_calls"] = False
    return body


def _choice(choice: Json) -> str | Json:
    kind = str(choice.get("type"))
    if kind == "tool":
        name = text_in(choice, "name", "tool_choice")
        return {"type": "function", "function": {"name": name}}
    if kind not in _CHOICES:
        takes = f"{', '.join(_CHOICES)} and tool"
        malformed("tool_choice", f"tool_choice is {_shown(choice)}; it takes {takes}")
    return _CHOICES[kind]


def _function(tool: Json) -> Json:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        raise _unsupported(
            f"the tool {_shown(kind)}",
            "leave it out, or give a tool of your own with an input_schema",
        )
    function: Json = {
        "name": text_in(tool, "name", "tools"),
        "parameters": object_in(tool, "input_schema"),
    }
    for name in ("description", "strict"):
        if tool.get(name) is not None:
            function[name] = tool[name]
    return {"type": "function", "function": function}


def _system(asked: Mapping[str, Any]) -> list[Json]:
    text = _joined(_blocks(asked.get("system") or ""))
    return [{"role": "system", "content": text}] if text else []


def _joined(blocks: list[Json]) -> str:
    return "\n\n".join(text_in(block, "text", "system") for block in blocks)


def _conversation(asked: Mapping[str, Any]) -> list[Json]:
    """Translate the messages. Consecutive ones of a side are one turn."""
    given = objects(asked.get("messages"), "messages")
    if not given:
        malformed("messages", "messages is empty; it needs at least one message")
    messages: list[Json] = []
    for is_assistant, turn in groupby(given, _is_assistant):
        blocks = [block for message in turn for block in _said(message)]
        if is_assistant:
            messages.append(_assistant_message(blocks))
        else:
            messages += _user_messages(blocks)
    return messages


def _is_assistant(message: Json) -> bool:
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        takes = "user, assistant or system"
        malformed("messages", f"the role of a message is {_shown(role)}, not {takes}")
    return bool(role == "assistant")


def _said(message: Json) -> list[Json]:
    """Return the blocks of a message. A system message becomes the user's, because many
    chat templates refuse one within a conversation.
    """
    blocks = _blocks(message.get("content"))
    if message["role"] != "system":
        return blocks
    # as Claude Code marks it where the API has no such messages
    text = f"<system-reminder>\n{_joined(blocks)}\n</system-reminder>"
    return [{"type": "text", "text": text}]


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects(content, "content", or_text=True)


def _assistant_message(blocks: list[Json]) -> Json:
    """Translate what the model has said, without its thoughts."""
    text = ""
    calls = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            text += text_in(block, "text", "messages")
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind not in _THOUGHTS:
            raise _unsupported_block(block)
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _call(block: Json) -> Json:
    arguments = json.dumps(object_in(block, "input"), ensure_ascii=False)
    name = text_in(block, "name", "messages")
    return {
        "id": text_in(block, "id", "messages"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _user_messages(blocks: list[Json]) -> list[Json]:
    """Translate what the user has said, and what tools have returned.

    Each result becomes a message, before the user's, because results must follow their
    calls. Such a message has only text, so images of results go to the user's message.
    """
    results: list[Json] = []
    parts: list[Json] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            returned = [_part(inner) for inner in _blocks(block.get("content") or "")]
            results.append(_result(block, returned))
            parts += [part for part in returned if part["type"] != "text"]
        else:
            parts.append(_part(block))
    if results and not parts:
        return results
    content: Any = parts
    if all(part["type"] == "text" for part in parts):
        # which every chat template accepts
        content = "\n\n".join(part["text"] for part in parts)
    return [*results, {"role": "user", "content": content}]


def _result(block: Json, returned: list[Json]) -> Json:
    texts = [part["text"] for part in returned if part["type"] == "text"]
    if block.get("is_error"):
        texts.insert(0, "Error:")
    return {
        "role": "tool",
        "tool_call_id": text_in(block, "tool_use_id", "messages"),
        "content": "\n".join(texts),
    }


def _part(block: Json) -> Json:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": text_in(block, "text", "messages")}
    source = object_in(block, "source") if kind == "image" else {}
    if source.get("type") == "url":
        return _image(text_in(source, "url", "source"))
    if source.get("type") == "base64":
        data = text_in(source, "data", "source")
        return _image(f"data:{text_in(source, 'media_type', 'source')};base64,{data}")
    raise _unsupported_block(block)


def _image(url: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


def _unsupported_block(block: Json) -> Refused:
    return _unsupported(f"a block of type {_shown(block.get('type'))}", "leave it out")


def _unsupported(what: str, instead: str) -> Refused:
    said = f"{what} is not supported, because this model only has chat completions"
    return Refused(400, f"{said}; {instead}", code="unsupported_value")


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]

"""Convert LangChain messages to Hugging Face's form for chat templates."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
    convert_to_openai_messages,
    trim_messages,
)

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.tools.tool_calls import ToolFormat

TemplateMessage = dict[str, Any]
"""``role`` and ``content``, and if present ``tool_calls``, ``tool_call_id`` and
``name``.
"""

_SAME_ROLE: Final = {"developer": "system", "function": "tool"}
# blocks that are not text: thoughts, and calls, which are in ``tool_calls``
_LEFT_OUT: Final = (
    *("reasoning", "thinking", "redacted_thinking"),
    *("tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"),
)
_INVALID: Final = "invalid_arguments"
"""The argument under which a model sees the text of a call whose arguments are not a
JSON object.
"""

_INSTRUCTION: Final = """# Tools

You may call functions to help with the user's request. These are their signatures, within <tools></tools>:
<tools>
{tools}
</tools>

To call a function, answer with a JSON object of its name and arguments, within {opening}{closing}:
{opening}
{{"name": "function name", "{arguments}": {{"argument name": "value"}}}}
{closing}
Results of calls are given within <tool_response></tool_response>."""


def template_messages(messages: Sequence[BaseMessage]) -> list[TemplateMessage]:
    """Return the role, text and calls of each message, with a call's arguments as a
    dict, also of an invalid call.

    Raises:
        ConfigurationError: there are no messages, a message has content other than text
            or an unknown role, or a tool's result has no call.
    """
    if not messages:
        raise ConfigurationError("there are no messages to answer; pass at least one")
    _check_results(messages)
    converted = []
    for number, message in enumerate(messages, 1):
        plain = message.model_copy(update={"content": _text(message.content, number)})
        try:
            found = convert_to_openai_messages([plain], text_format="string")[0]
        except (TypeError, ValueError, LookupError) as error:
            raise ConfigurationError(
                f"message {number} ({message.type}) cannot be shown to a model: {error}"
            ) from error
        made: TemplateMessage = {
            "role": _SAME_ROLE.get(found["role"], found["role"]),
            "content": plain.content,
        }
        made |= {key: found[key] for key in ("name", "tool_call_id") if found.get(key)}
        if isinstance(message, AIMessage) and (
            message.tool_calls or message.invalid_tool_calls
        ):
            calls: list[ToolCall | InvalidToolCall] = [
                *message.tool_calls,
                *message.invalid_tool_calls,
            ]
            made["tool_calls"] = [_template_call(call) for call in calls]
        converted.append(made)
    return converted


def _template_call(call: ToolCall | InvalidToolCall) -> dict[str, Any]:
    """Return a call for a template. The text of an invalid call is an argument, as many
    templates take an object.
    """
    arguments = (
        call["args"]
        if isinstance(call["args"], dict)
        else {_INVALID: call["args"] or ""}
    )
    return {
        "type": "function",
        "id": call["id"],
        "function": {"name": call["name"] or "", "arguments": arguments},
    }


def uses_tools(messages: Sequence[TemplateMessage]) -> bool:
    """Return whether a conversation has calls or their results."""
    return any(
        "tool_calls" in message or message["role"] == "tool" for message in messages
    )


def as_plain_turns(
    messages: Sequence[TemplateMessage],
    tools: Sequence[dict[str, Any]],
    form: ToolFormat,
    *,
    system: bool,
) -> list[TemplateMessage]:
    """Write definitions, calls and results of tools as text of the other roles.

    Args:
        messages: the conversation.
        tools: definitions in OpenAI's form, which are shown to the model in a system
            message.
        form: the notation of calls.
        system: False puts the definitions before the first user message, for templates
            without a system role.
    """
    plain: list[TemplateMessage] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        turn = _plain_turn(message, form)
        if is_result and after_result:
            plain[-1]["content"] += "\n" + turn["content"]
        else:
            plain.append(turn)
        after_result = is_result
    if tools:
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        marks = {
            "opening": form.opening,
            "closing": form.closing,
            "arguments": form.arguments,
        }
        _put_first(
            plain,
            _INSTRUCTION.format(tools=listed, **marks),
            "system" if system else "user",
        )
    return plain


def before_user_messages(
    messages: Sequence[TemplateMessage], moved: Sequence[int]
) -> list[TemplateMessage]:
    """Put the texts of the messages at these indices before the next user message.
    Without one, leave them alone.
    """
    kept: list[TemplateMessage] = []
    texts: list[str] = []
    for index, message in enumerate(messages):
        if index in moved:
            texts.append(message["content"])
        elif texts and message["role"] == "user":
            kept.append(
                message | {"content": "\n\n".join([*texts, message["content"]])}
            )
            texts = []
        else:
            kept.append(message)
    return list(messages) if texts else kept


def _plain_turn(message: TemplateMessage, form: ToolFormat) -> TemplateMessage:
    if message["role"] == "tool":
        return {
            "role": "user",
            "content": f"<tool_response>\n{message['content']}\n</tool_response>",
        }
    calls = [call["function"] for call in message.get("tool_calls", ())]
    text = [
        message["content"],
        *(form.call_text(call["name"], call["arguments"]) for call in calls),
    ]
    return {
        "role": message["role"],
        "content": "\n".join(part for part in text if part),
    }


def _put_first(messages: list[TemplateMessage], text: str, role: str) -> None:
    first = next((message for message in messages if message["role"] == role), None)
    if first is None:
        messages.insert(0, {"role": role, "content": text})
    else:
        parts = (
            [first["content"], text] if role == "system" else [text, first["content"]]
        )
        first["content"] = "\n\n".join(parts)


def _check_results(messages: Sequence[BaseMessage]) -> None:
    called: set[str | None] = set()
    for number, message in enumerate(messages, 1):
        if isinstance(message, AIMessage):
            called |= {
                call["id"]
                for call in [*message.tool_calls, *message.invalid_tool_calls]
            }
        elif isinstance(message, ToolMessage) and message.tool_call_id not in called:
            raise ConfigurationError(
                f"message {number} is the result of the tool call "
                f"{message.tool_call_id!r}, but no message before it makes that call; "
                "keep the AI message with the call, or drop the result"
            )


def _text(content: str | list[Any], number: int) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        kind = "text" if isinstance(block, str) else block.get("type")
        if kind == "text":
            texts.append(
                block if isinstance(block, str) else str(block.get("text", ""))
            )
        elif kind not in _LEFT_OUT:
            raise ConfigurationError(
                f"message {number} has a block of type {kind!r}; this model reads only "
                "text"
            )
    return "\n".join(texts)


def newest_turns(
    messages: Sequence[BaseMessage], fits: Callable[[list[BaseMessage]], bool]
) -> list[BaseMessage] | None:
    """Return as many of the newest turns as ``fits`` allows, fewer than all, or None if
    not even the newest fits.

    A turn is a human message and everything up to the next one, so a tool call stays
    with its result. A system message at the beginning is kept.
    """
    least, most = 1, _turns(messages) - 1
    best: list[BaseMessage] | None = None
    while least <= most:
        turns = (least + most) // 2
        kept = trim_messages(
            list(messages),
            max_tokens=turns,
            token_counter=_turns,
            strategy="last",
            start_on="human",
            include_system=True,
        )
        if fits(kept):
            best, least = kept, turns + 1
        else:
            most = turns - 1
    return best


def _turns(messages: Sequence[BaseMessage]) -> int:
    return sum(isinstance(message, HumanMessage) for message in messages)

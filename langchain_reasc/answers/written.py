"""An object that was put together from several responses, written into one of them."""

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from pydantic import BaseModel

from langchain_reasc.answers.json_objects import last_object, parsed_object, replaced_object
from langchain_reasc.answers.json_values import canonical
from langchain_reasc.answers.objects import ObjectVotes

__all__ = ["with_answer"]

_ARGUMENTS = ("input", "args", "arguments")
"""What a call's arguments are named in the blocks of Anthropic, LangChain and OpenAI."""


def with_answer(message: AIMessage, answer: str, votes: ObjectVotes) -> AIMessage | None:
    """A copy of a message that gives another object as its answer, and keeps what it says in fields that do not count.

    It is written wherever the message has its object: in the text, or in the arguments of its tool call with all copies
    of them, and in what a client has parsed (``additional_kwargs["parsed"]``).

    Args:
        message: a response whose answer is an object.
        answer: the object to give, as a decision by field has it.
        votes: how objects are compared, and validated.

    Returns:
        None where the message has no object, or where the schema refuses the one that would be written.
    """
    decided, held = parsed_object(answer), _held(message, votes)
    full = None if held is None else votes.validated(held)
    if decided is None or full is None:
        return None
    value = votes.validated(_merged(full, decided, votes))
    if value is None or votes.spelled(value) != answer:
        return None
    written = _in_call(message, value) if votes.in_calls(message.tool_calls) is not None else _in_text(message, value)
    return None if written is None else _parsed_again(written, value)


def _held(message: AIMessage, votes: ObjectVotes) -> dict[str, Any] | None:
    called = votes.in_calls(message.tool_calls)
    return last_object(str(message.text)) if called is None else called


def _merged(old: Any, new: Any, votes: ObjectVotes, path: tuple[str, ...] = ()) -> Any:
    """The new value, with what does not count as it was."""
    if canonical(votes.compared(old, path)) == canonical(new):
        return old
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {key: one for key, one in old.items() if key in new or votes.is_left_out((*path, key))}
    changed = {key: _merged(old[key], one, votes, (*path, key)) if key in old else one for key, one in new.items()}
    return kept | changed  # in the order of the old one


def _in_text(message: AIMessage, value: dict[str, Any]) -> AIMessage | None:
    if isinstance(message.content, str):
        text = replaced_object(message.content, value)
        return None if text is None else message.model_copy(update={"content": text})
    blocks = list(message.content)
    for at in reversed(range(len(blocks))):
        block = blocks[at]
        said = block if isinstance(block, str) else block.get("text") if block.get("type") == "text" else None
        if isinstance(said, str) and (text := replaced_object(said, value)) is not None:
            blocks[at] = text if isinstance(block, str) else {**block, "text": text}
            return message.model_copy(update={"content": blocks})
    return None


def _in_call(message: AIMessage, value: dict[str, Any]) -> AIMessage:
    [call] = message.tool_calls
    content = message.content
    if not isinstance(content, str):
        content = [_rewritten(block, call["id"], value) for block in content]
    beside = dict(message.additional_kwargs)
    if isinstance(raw := beside.get("tool_calls"), list):
        beside["tool_calls"] = [_rewritten(one, call["id"], value) for one in raw]
    if isinstance(raw := beside.get("function_call"), Mapping):
        beside["function_call"] = {**raw, "arguments": json.dumps(value, ensure_ascii=False)}
    new: dict[str, Any] = {"content": content, "tool_calls": [{**call, "args": value}], "additional_kwargs": beside}
    if isinstance(message, AIMessageChunk):
        new["tool_call_chunks"] = [_rewritten(one, call["id"], value) for one in message.tool_call_chunks]
    return message.model_copy(update=new)


def _rewritten(block: Any, id: str | None, value: dict[str, Any]) -> Any:
    """A copy of the call, in whatever words, with the new arguments; any other block as it is."""
    if not isinstance(block, dict) or id is None or id not in (block.get("id"), block.get("call_id")):
        return block
    if isinstance(function := block.get("function"), Mapping):
        return {**block, "function": {**function, "arguments": json.dumps(value, ensure_ascii=False)}}
    texts = {
        name: json.dumps(value, ensure_ascii=False) if isinstance(block[name], str) else value
        for name in _ARGUMENTS
        if name in block
    }
    return {**block, **texts}


def _parsed_again(message: AIMessage, value: dict[str, Any]) -> AIMessage | None:
    parsed = message.additional_kwargs.get("parsed")
    if parsed is None:
        return message
    again: Any = value
    if isinstance(parsed, BaseModel):
        try:
            again = type(parsed).model_validate(value)
        except Exception:  # a validator of the user's may raise anything
            return None
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, "parsed": again}})

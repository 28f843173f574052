"""Read the conversation of a request.

A call that a model wrote badly stays in the conversation. If it were an error here, the
client could never go on.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from langchain_reasc.models.calls import has_no_arguments, parsed_calls
from langchain_reasc_server.wire import Json


def read_messages(given: Sequence[Json]) -> list[BaseMessage]:
    """Convert the messages of a request.

    Calls are read like those of a response: a call is in ``invalid_tool_calls`` if its
    arguments are not a JSON object.

    Raises:
        Exception: one of them is not a message of the chat API.
    """
    return [
        _message(message, number) for number, message in enumerate(with_call_ids(given))
    ]


def with_call_ids(messages: Iterable[Json]) -> list[Json]:
    """Return messages in which each call has an id, and each result the id of its call.

    A call without an id gets one by its place, so that the same conversation makes the
    same prompt. A result without an id belongs to the first call that has no result,
    and so does one with an unknown id if that call had no id.
    """
    completed: list[Json] = []
    called: set[str] = set()
    # id of a call without a result -> whether the client gave it
    waiting: OrderedDict[str, bool] = OrderedDict()
    for number, message in enumerate(messages):
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message = {
                **message,
                "tool_calls": [
                    _with_id(call, number, place) for place, call in enumerate(calls)
                ],
            }
            pairs = zip(calls, message["tool_calls"], strict=True)
            waiting = OrderedDict(
                (after["id"], after is before)
                for before, after in pairs
                if isinstance(after, dict)
            )
            called |= waiting.keys()
        elif message.get("role") == "tool":
            id: Any = message.get("tool_call_id")
            first = next(iter(waiting), None)
            if first is not None and (
                not id or (id not in called and not waiting[first])
            ):
                id, message = first, {**message, "tool_call_id": first}
            waiting.pop(id, None)
        completed.append(message)
    return completed


def _with_id(call: Any, number: int, place: int) -> Any:
    if not isinstance(call, dict) or (isinstance(call.get("id"), str) and call["id"]):
        return call
    return {**call, "id": f"call_without_id_{number}_{place}"}


def _message(given: Json, number: int) -> BaseMessage:
    fields = {name: value for name, value in given.items() if name != "tool_calls"}
    [message] = convert_to_messages([{"content": None, **fields}])
    calls = given.get("tool_calls")
    if not calls or not isinstance(message, AIMessage):
        return message
    if not isinstance(calls, list):
        raise ValueError(f"messages[{number}].tool_calls is not a list")
    pieces = [
        _piece(call, f"messages[{number}].tool_calls[{place}]")
        for place, call in enumerate(calls)
    ]
    valid, invalid = parsed_calls(pieces)
    return message.model_copy(
        update={"tool_calls": valid, "invalid_tool_calls": invalid}
    )


def _piece(call: Any, where: str) -> ToolCallChunk:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where} has no function with a name")
    arguments = function.get("arguments")
    if has_no_arguments(arguments):
        arguments = "{}"
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return tool_call_chunk(
        name=function["name"], args=arguments, id=call["id"], index=None
    )

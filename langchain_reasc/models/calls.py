"""Tool calls as servers send them: join the pieces of a stream, and read calls without
arguments as ``{}``.

LangChain completes the JSON of streamed arguments, so that ``{"folder": "/tm`` becomes
a valid call, while ``invoke`` keeps such a call in ``invalid_tool_calls``. Nothing that
was cut in half, or is not JSON, may run or be voted for, so the arguments are read here
as ``invoke`` reads them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall
from langchain_core.messages.tool import (
    ToolCallChunk,
    invalid_tool_call,
    tool_call_chunk,
)
from langchain_core.output_parsers.openai_tools import parse_tool_call

from langchain_reasc.answers import ending_of

_NO_ARGUMENTS: Final = ("", "null", "None")
"""What servers send as the arguments of a call without arguments. vLLM streams ``""``
(vllm-project/vllm#28806).
"""
_UNREADABLE: Final = "]"
"""Added to arguments, so that nobody reads or completes them as JSON."""
_HELD_BACK: Final = 8
"""The most pieces of arguments that are held back while they may become ``null``."""


def has_no_arguments(arguments: Any) -> bool:
    """Return whether arguments, as a server sends them, mean that a call has none."""
    return arguments is None or (
        isinstance(arguments, str) and arguments.strip() in _NO_ARGUMENTS
    )


@dataclass(eq=False)
class StreamedCall:
    """A call as far as it has come.

    Attributes:
        id: its id, if it has one.
        name: the name of its tool; empty until it has come.
        indices: the indices of its pieces.
        pieces: the pieces of its arguments.
        begun: whether arguments have come.
        ended: whether no more will come.
    """

    id: str | None = None
    name: str = ""
    indices: set[Any] = field(default_factory=set)
    pieces: list[str] = field(default_factory=list)
    begun: bool = False
    ended: bool = False
    _taken: int = 0

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)

    def take(self) -> str:
        """Return the arguments that have come since the last call; hold back what may
        become ``null``.
        """
        text = "".join(self.pieces[self._taken :])
        # "nu" may become "null", which stands for no arguments.
        may_wait = not self.ended and not self._taken and len(self.pieces) <= _HELD_BACK
        if may_wait and any(word.startswith(text.strip()) for word in _NO_ARGUMENTS):
            return ""
        self._taken = len(self.pieces)
        return text

    def add(self, id: str | None, name: str | None, arguments: str | None) -> None:
        """Add a piece. Some servers repeat the id and the name in each piece."""
        self.id = self.id or id
        if name and name != self.name:
            self.name += name
        if arguments:
            self.pieces.append(arguments)
            self.begun = self.begun or bool(arguments.strip())

    def end(self, *, whole: bool) -> None:
        """End the call. Without arguments it gets ``{}``, unless it was cut off (not
        ``whole``).
        """
        self.ended = True
        if whole and has_no_arguments(self.arguments):
            # The pieces before were passed on already.
            self.pieces[self._taken :] = ["{}"]


class CallJoiner:
    """Joins the pieces of the calls in one response.

    A piece belongs to the call with its index and id. Some servers give no index, or a
    new id in each piece, or several calls the same index. Others send the arguments
    under another index than the name, sometimes with the call's id
    (mudler/LocalAI#9722). Such a piece belongs to the last call, if this is the only
    call without arguments.

    Any other piece that never gets a name is dropped. Then nobody knows which arguments
    are whose, so all calls of the response become unreadable.

    Attributes:
        calls: the calls so far; after :meth:`finish`, those with a name.
    """

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        self._finished = False

    def add(
        self, index: Any, id: str | None, name: str | None, arguments: str | None
    ) -> StreamedCall | None:
        """Add a piece, and return its call; None if the piece says nothing."""
        if name:
            call = self._named(index, id, name)
        else:
            call = self._continued(index, id, arguments)
        if call is None:
            if not (id or name or (arguments or "").strip()):
                return None
            call = StreamedCall()
            self.calls.append(call)
        call.indices.add(index)
        call.add(id, name, arguments)
        return call

    def finish(self, *, whole: bool) -> None:
        """End the response. Calls without arguments get ``{}``, unless the response was
        cut off (not ``whole``).
        """
        if self._finished:
            return
        self._finished = True
        calls = [call for call in self.calls if call.name]
        is_lost = len(calls) < len(self.calls)
        self.calls = calls
        for call in calls:
            # Arguments without a name may be the rest of any call.
            if is_lost:
                call.pieces.append(_UNREADABLE)
            call.end(whole=whole)

    def _named(self, index: Any, id: str | None, name: str) -> StreamedCall | None:
        """Return the call that a piece with a name continues, or None if the piece
        begins a call.
        """
        for call in reversed(self.calls):
            # Several calls may have one index: a new id, or a new name after arguments,
            # begins the next call.
            has_index = index is not None and index in call.indices
            may_have_id = not id or not call.id or id == call.id
            may_have_name = call.name in ("", name) or not call.begun
            if has_index and may_have_id and may_have_name:
                return call
            if id and id == call.id and name == call.name and not call.begun:
                return call
        return None

    def _continued(
        self, index: Any, id: str | None, arguments: str | None
    ) -> StreamedCall | None:
        """Return the call that a piece without a name continues, or None."""
        if index is None:
            candidates = self.calls
        else:
            candidates = [call for call in self.calls if index in call.indices]
        if id:
            for call in reversed(candidates or self.calls):
                if call.id == id:
                    return call
        if candidates:
            return candidates[-1]
        without_arguments = [call for call in self.calls if not call.begun]
        is_last_call = without_arguments == self.calls[-1:]
        if arguments and not id and without_arguments and is_last_call:
            return without_arguments[0]
        return None


def with_calls(message: AIMessage, pieces: Sequence[ToolCallChunk]) -> AIMessage:
    """Return a message with the calls that pieces add up to.

    A call is in ``invalid_tool_calls`` if its arguments are not a JSON object. Copies
    of the arguments in ``additional_kwargs`` and in the content are brought in line.
    """
    joiner = CallJoiner()
    for piece in pieces:
        joiner.add(piece["index"], piece["id"], piece["name"], piece["args"])
    joiner.finish(whole=ending_of(message) == "whole")
    # LangChain would send the provider's own copies back.
    arguments = {call.id: call.arguments for call in joiner.calls}
    valid, invalid = parsed_calls(
        tool_call_chunk(name=call.name, args=call.arguments, id=call.id)
        for call in joiner.calls
    )
    update: dict[str, Any] = {"tool_calls": valid, "invalid_tool_calls": invalid}
    raw_calls = message.additional_kwargs.get("tool_calls")
    if isinstance(raw_calls, list):
        update["additional_kwargs"] = {
            **message.additional_kwargs,
            "tool_calls": _with_arguments(raw_calls, arguments),
        }
    if isinstance(message.content, list):
        invalid_ids = {call["id"] for call in invalid}
        content = []
        for block in message.content:
            # LangChain would show a block of Anthropic's or Bedrock's as a valid call.
            is_invalid = (
                isinstance(block, dict)
                and block.get("type") == "tool_use"
                and block.get("id") in invalid_ids
            )
            if not is_invalid:
                content.append(_finished_block(block, [*valid, *invalid], arguments))
        update["content"] = content
    return message.model_copy(update=update)


def parsed_calls(
    calls: Iterable[ToolCallChunk],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Return the calls with a JSON object as arguments, and all others."""
    valid: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for call in calls:
        try:
            valid.append(_parsed(call))
        # Nested deeply enough, JSON exhausts Python's stack.
        except (ValueError, RecursionError) as error:
            invalid.append(
                invalid_tool_call(
                    name=call["name"],
                    args=call["args"],
                    id=call["id"],
                    error=str(error),
                )
            )
    return valid, invalid


def checked_calls(message: AIMessage) -> AIMessage:
    """Return a message that came in one piece, with its calls read as those of a
    stream.
    """
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    copies: list[Any] = []
    for listed in (message.additional_kwargs.get("tool_calls"), message.content):
        if isinstance(listed, list):
            copies += listed
    is_odd = any(
        not call["name"] or has_no_arguments(call["args"]) for call in calls
    ) or any(map(_lacks_arguments, copies))
    if not is_odd:
        return message
    pieces = []
    for index, call in enumerate(calls):
        arguments = call["args"]
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        pieces.append(
            tool_call_chunk(
                name=call["name"], args=arguments, id=call["id"], index=index
            )
        )
    return with_calls(message, pieces)


def _parsed(call: ToolCallChunk) -> ToolCall:
    """Return a call with its arguments as ``invoke`` reads them.

    Raises:
        ValueError: the arguments are missing, or are not a JSON object.
    """
    if has_no_arguments(call["args"]):
        raise ValueError(
            f"the response was cut off before the arguments of {call['name']}"
        )
    parsed: Any = parse_tool_call(
        {
            "function": {"name": call["name"], "arguments": call["args"]},
            "id": call["id"],
        }
    )
    if not isinstance(parsed["args"], dict):
        raise ValueError(f"the arguments of {call['name']} are not a JSON object")
    return parsed  # type: ignore[no-any-return]


def _lacks_arguments(copy: Any) -> bool:
    """Return whether a raw call, or a content block of the Responses API, is a call
    without arguments.
    """
    if not isinstance(copy, dict):
        return False
    function = copy if copy.get("type") == "function_call" else copy.get("function")
    return isinstance(function, dict) and has_no_arguments(function.get("arguments"))


def _with_arguments(
    raw_calls: list[Any], arguments: dict[str | None, str]
) -> list[Any]:
    """Return raw calls of OpenAI's form, each with the arguments of the call with its
    id, without parts of calls.
    """
    by_id: dict[Any, Any] = {}
    for index, raw in enumerate(raw_calls):
        function = raw.get("function") if isinstance(raw, dict) else None
        if not isinstance(function, dict):
            by_id[index] = raw
        # The later pieces of a call have no name.
        elif function.get("name"):
            id = raw.get("id") or None
            call_arguments: Any = function.get("arguments")
            if id and id in arguments:
                call_arguments = arguments[id]
            by_id.setdefault(
                id or index,
                {**raw, "function": {**function, "arguments": call_arguments}},
            )
    return [*by_id.values()]


def _finished_block(
    block: Any,
    calls: Sequence[ToolCall | InvalidToolCall],
    arguments: dict[str | None, str],
) -> Any:
    """Return a content block, or for a piece of a call the whole call."""
    kind = block.get("type") if isinstance(block, dict) else None
    # as in the Responses API
    if kind == "function_call" and has_no_arguments(block.get("arguments")):
        return {**block, "arguments": arguments.get(block.get("call_id"), "")}
    # as with output_version="v1"
    if kind != "tool_call_chunk":
        return block
    for call in calls:
        if call["id"] == block.get("id"):
            extras = {"extras": block["extras"]} if "extras" in block else {}
            return {**call, **extras}
    return block

"""Raw events of OpenAI's chat completions: decode and check them, and merge those of one response."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import jiter
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.files import parse_json
from langchain_reasc.models.chunks import joined_calls
from langchain_reasc.models.logprobs import listed_tokens
from langchain_reasc.models.usage import is_count, tokens_of_text

__all__ = [
    "EventDecoder",
    "Json",
    "MergedResponse",
    "Normalizer",
    "as_event",
    "parsed",
    "text_in",
    "tokens_in",
    "usable",
]

Json = dict[str, Any]
_STATED: Final = ("role", "type", "id")
"""Strings in a delta that are said, not spelled out."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventDecoder:
    """Decodes server-sent events in place of openai's decoder, which takes several times as long."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._begun = False

    async def aiter_bytes(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
        """Yield the data of events, those together that end in the same piece. The last one needs no empty line."""
        async for piece in pieces:
            if events := self._decoded(piece):
                yield events
        if events := self._decoded(b"\n\n"):
            yield events

    def _decoded(self, piece: bytes) -> list[bytes]:
        self._pieces.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []
        text = b"".join(self._pieces)
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1  # a last \r may be the first half of \r\n
        self._pieces = [text[end:]]
        if not self._begun and end:
            self._begun, text, end = (
                True,
                text.removeprefix(_BYTE_ORDER_MARK),
                end - text.startswith(_BYTE_ORDER_MARK) * 3,
            )
        events = []
        for line in text[:end].splitlines():
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line:
                events.append(b"\n".join(self._data))
                self._data.clear()
        return [event for event in events if event]


def parsed(data: bytes) -> Any:
    """Parse the JSON of an event or a reply.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return jiter.from_json(data)
    except ValueError:  # or half of a surrogate pair, which jiter refuses
        return parse_json(data.decode(errors="replace"))


def usable(event: Any, n: int) -> Json | None:
    """Return an event without choices that were not asked for, and without a usage that cannot be true.

    None stands for an event that is not an object.
    """
    if not isinstance(event, dict):
        return None
    choices, usage = event.get("choices"), event.get("usage")
    kept = [choice for choice in choices if _is_asked_for(choice, n)] if isinstance(choices, list) else []
    if len(kept) > 1:
        kept = [*{choice.get("index"): choice for choice in reversed(kept)}.values()][::-1]  # the first of each index
    changed: Json = {} if choices is None or kept == choices else {"choices": kept}
    if usage is not None and (checked := _checked_usage(usage)) != usage:
        changed["usage"] = checked
    return {**event, **changed} if changed else event


def _is_asked_for(choice: Any, n: int) -> bool:
    index = choice.get("index") if isinstance(choice, dict) else None
    return isinstance(choice, dict) and (index is None or (type(index) is int and 0 <= index < n))


def _checked_usage(usage: Any) -> Json | None:
    counts = usage if isinstance(usage, dict) else {}
    if not all(is_count(counts.get(name)) for name in ("prompt_tokens", "completion_tokens")):
        return None
    return {name: _counts(value) for name, value in counts.items() if is_count(value) or isinstance(value, dict)}


def _counts(value: Any) -> Any:
    return {name: count for name, count in value.items() if is_count(count)} if isinstance(value, dict) else value


def as_event(reply: Any) -> Json:
    """Return a reply in one piece as the only event of a stream."""
    given = reply.get("choices") if isinstance(reply, dict) else None
    choices = [
        {**{name: value for name, value in choice.items() if name != "message"}, "delta": choice.get("message")}
        for choice in (given if isinstance(given, list) else ())
        if isinstance(choice, dict)
    ]
    return {**(reply if isinstance(reply, dict) else {}), "object": "chat.completion.chunk", "choices": choices}


class Normalizer:
    """Puts the choices of one response, event by event, into the form that langchain-openai reads.

    Some servers leave the index of a call out, say its name in each piece, or give its arguments as an object.
    """

    def __init__(self) -> None:
        self._named: dict[Any, tuple[Any, Any]] = {}

    def normalized(self, choice: Json) -> Json:
        """Return the next choice.

        Raises:
            SamplingError: it says something in a form that cannot be read; what is left out would change the answer.
        """
        delta = choice.get("delta")
        if delta is None or not _is_plain(delta):
            delta = {} if delta is None else self._checked(delta)
            return {**choice, "delta": delta}
        return choice

    def _checked(self, delta: Any) -> Json:
        calls = delta.get("tool_calls") if isinstance(delta, dict) else None
        if not (
            isinstance(delta, dict)
            and isinstance(delta.get("content"), str | list | None)
            and isinstance(calls, list | None)
            and all(map(_is_call, calls or ()))
        ):
            raise SamplingError(f"the server sent a delta that is not of OpenAI's form: {json.dumps(delta):.200}")
        return {**delta, "tool_calls": [self._call({"index": at, **call}) for at, call in enumerate(calls or ())]}

    def _call(self, call: Json) -> Json:
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), dict | list):
            function["arguments"] = json.dumps(function["arguments"])
        before, _ = known = self._named.get(call["index"], (None, None))
        said = (call.get("id") or before, function.get("name"))
        if said == known:
            function["name"] = None
        elif function.get("name"):
            self._named[call["index"]] = said
        return {**call, "function": function}


def _is_plain(delta: Any) -> bool:
    return isinstance(delta, dict) and len(delta) == 1 and isinstance(delta.get("content"), str)


def _is_call(call: Any) -> bool:
    function = call.get("function") or {} if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(call.get("id"), str | None)
        and isinstance(call.get("index"), int | None)
        and isinstance(function.get("name"), str | None)
        and isinstance(function.get("arguments"), str | dict | list | None)
    )


def text_in(delta: Json) -> str:
    """Return all that the model wrote in a delta: text, reasoning, a refusal, or arguments of calls."""
    if _is_plain(delta):
        return str(delta["content"])
    functions = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
    blocks = delta["content"] if isinstance(delta.get("content"), list) else ()
    said = [
        *(value for name, value in delta.items() if name not in _STATED),
        *(one.get(name) for one in functions for name in ("name", "arguments")),
    ]
    said += [one.get("text") if isinstance(one, dict) else one for one in blocks]
    return "".join(text for text in said if isinstance(text, str))


def tokens_in(choice: Json) -> int:
    """Return the number of tokens that a choice lists with their log-probabilities."""
    logprobs = choice.get("logprobs")
    listed = (logprobs.get("content") or logprobs.get("refusal")) if isinstance(logprobs, dict) else None
    return len(listed) if isinstance(listed, list) else 0


class MergedResponse:
    """The events of one response, merged to a single one, so that langchain-openai converts one and not hundreds."""

    def __init__(self) -> None:
        self._said = self._size = 0
        self._head: Json = {}
        self._texts: list[str] = []
        self._refusal: list[str] = []
        self._blocks: list[Any] = []
        self._calls: list[ToolCallChunk] = []
        self._function: Json = {}
        self._logprobs: Any = None
        self._reason: str | None = None

    def add(self, event: Json) -> None:
        """Add an event with one normalized choice."""
        [choice] = event["choices"]
        delta: Json = choice["delta"]
        text = text_in(delta)
        self._said += bool(text)
        self._size += len(text.encode(errors="replace"))
        if logprobs := choice.get("logprobs"):
            self._logprobs = _extended(self._logprobs, logprobs)
        if isinstance(content := delta.get("content"), str):
            self._texts.append(content)
        elif content:
            self._blocks += content
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal.append(refusal)
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            piece = {"name": function.get("name"), "args": function.get("arguments"), "id": call.get("id")}
            self._calls.append(tool_call_chunk(**piece, index=call["index"]))
        if isinstance(function := delta.get("function_call"), dict):
            self._function |= {"name": function.get("name") or self._function.get("name")}
            self._function["arguments"] = self._function.get("arguments", "") + str(function.get("arguments") or "")
        if reason := choice.get("finish_reason"):
            self._reason = self._reason or reason
            self._head = event

    @property
    def tokens(self) -> int:
        """About how many tokens it has: those with log-probabilities, and four bytes each of the rest."""
        listed, spelled = listed_tokens({"logprobs": self._logprobs})
        return max(listed + tokens_of_text(max(0, self._size - spelled)), self._said)

    @property
    def event(self) -> Json:
        """All of it as one event."""
        calls = [
            {"id": one["id"], "index": one["index"], "function": {"name": one["name"], "arguments": one["args"]}}
            for one in joined_calls(self._calls)
        ]
        text = "".join(self._texts)
        content = [*([{"type": "text", "text": text}] if text else []), *self._blocks] if self._blocks else text
        delta = {"content": content, "tool_calls": calls, "function_call": self._function or None}
        delta["refusal"] = "".join(self._refusal) or None
        choice = {"delta": delta, "logprobs": self._logprobs, "finish_reason": self._reason}
        return {**self._head, "choices": [choice], "usage": None}


def _extended(before: Any, more: Any) -> Any:
    """Return log-probabilities with those of the next event, whatever lists they come in; nothing is copied."""
    if isinstance(before, list) and isinstance(more, list):
        before += more
        return before
    if isinstance(before, dict) and isinstance(more, dict):
        return {name: _extended(before.get(name), more.get(name)) for name in {**before, **more}}
    if isinstance(more, dict):
        return {name: _extended(None, value) for name, value in more.items()}
    return [*more] if isinstance(more, list) else before if more is None else more

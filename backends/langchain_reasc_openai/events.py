"""Raw events of OpenAI's chat completions: decode and check them, and merge those of
one response.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from langchain_reasc.answers import ending_in, finish_of
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.files import parse_json
from langchain_reasc.models.calls import CallJoiner, StreamedCall
from langchain_reasc.models.contract import FINISH_REASON
from langchain_reasc.models.signal_reading import listed_tokens
from langchain_reasc.models.usage import is_count, tokens_of_text

Json = dict[str, Any]
_STATED: Final = ("role", "type", "id")
"""Strings in a delta that are whole, not pieces: some servers repeat them in each
event.
"""
_PLAIN: Final = {"role", "content"}
"""The fields of most deltas."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventDecoder:
    """Decodes server-sent events in place of openai's decoder, which takes several
    times as long.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._begun = False

    def decoded(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in a piece. The last event needs an
        empty line after it.
        """
        self._pieces.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []
        text = b"".join(self._pieces)
        # a last \r may be the first half of \r\n
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
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
        return orjson.loads(data)
    except ValueError:  # or NaN, or half of a surrogate pair, which orjson refuses
        return parse_json(data.decode(errors="replace"))


def usable(event: Any, n: int = 1) -> Json | None:
    """Remove choices that were not asked for, and an impossible usage, from an event.

    A reply in one piece becomes the only event of a stream. Return None for an event
    that is not an object.
    """
    if not isinstance(event, dict):
        return None
    choices, usage = event.get("choices"), event.get("usage")
    # most events; leaves early to save time
    if usage is None and isinstance(choices, list) and len(choices) == 1:
        only = choices[0]
        if _is_asked_for(only, n) and "message" not in only:
            return event
    kept = (
        [choice for choice in choices if _is_asked_for(choice, n)]
        if isinstance(choices, list)
        else []
    )
    if len(kept) > 1:
        kept = [*{choice.get("index"): choice for choice in reversed(kept)}.values()][
            ::-1
        ]  # the first of each index
    for choice in kept:
        if "message" in choice and choice.get("delta") is None:
            choice["delta"] = choice.pop("message")
            event["object"] = "chat.completion.chunk"
    if choices is not None:
        event["choices"] = kept
    if usage is not None:
        event["usage"] = _checked_usage(usage)
    return event


def events_in(datas: Iterable[bytes]) -> Iterator[Json]:
    """Yield the events of a response from their JSON."""
    for data in datas:
        if (event := usable(parsed(data))) is not None:
            yield event


def _is_asked_for(choice: Any, n: int) -> bool:
    index = choice.get("index") if isinstance(choice, dict) else None
    return isinstance(choice, dict) and (
        index is None or (type(index) is int and 0 <= index < n)
    )


def _checked_usage(usage: Any) -> Json | None:
    counts = usage if isinstance(usage, dict) else {}
    if not all(
        is_count(counts.get(name)) for name in ("prompt_tokens", "completion_tokens")
    ):
        return None
    return {
        name: _counts(value)
        for name, value in counts.items()
        if is_count(value) or isinstance(value, dict)
    }


def _counts(value: Any) -> Any:
    return (
        {name: count for name, count in value.items() if is_count(count)}
        if isinstance(value, dict)
        else value
    )


def checked_text(delta: Any) -> str:
    """Return all that the model wrote in a delta. Leaving out a delta that cannot be
    read would change the answer.

    Raises:
        SamplingError: the delta is not in OpenAI's form.
    """
    if (
        type(delta) is dict
        and type(text := delta.get("content")) is str
        and delta.keys() <= _PLAIN
    ):
        return text
    calls = delta.get("tool_calls") if isinstance(delta, dict) else None
    if not (
        isinstance(delta, dict)
        and isinstance(delta.get("content"), str | list | None)
        and isinstance(calls, list | None)
        and all(map(_is_call, calls or ()))
    ):
        fields = delta.items() if isinstance(delta, dict) else ()
        types = {
            name: type(value).__name__ for name, value in fields
        }  # not values: what a model wrote is not logged
        raise SamplingError(
            "the server sent a delta that is not of OpenAI's form: "
            f"{types or type(delta).__name__!s:.200}"
        )
    return text_in(delta)


def _is_call(call: Any) -> bool:
    function = call.get("function") or {} if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(call.get("id"), str | None)
        and isinstance(call.get("index"), int | None)
        and isinstance(function.get("name"), str | None)
        and isinstance(function.get("arguments"), str | dict | list | None)
    )


class CallRepairer:
    """Repairs the calls in the deltas of one response, event by event.

    Some servers omit the index of a call, give several calls the same index or one call
    two, or send no arguments for a call without arguments. A call is held back until it
    has a name. Calls other than of functions are unchanged.
    """

    def __init__(self) -> None:
        self._joiner = CallJoiner()
        self._indices: dict[StreamedCall, int] = {}
        self._used: set[int] = set()

    def repaired(self, delta: Json, finish_reason: Any = None) -> Json:
        """Return the next delta. The last one, with a finish reason that we know, also
        completes the calls.
        """
        given = delta.get("tool_calls") or []
        ends = finish_reason is not None and finish_of(finish_reason) in (
            "ended",
            "failed",
        )
        if not given and not ends:
            return delta
        pieces = [
            self._next_piece({"index": at, **piece}) for at, piece in enumerate(given)
        ]
        calls = [piece for piece in pieces if piece is not None]
        if ends:
            calls += self.finish(finish_reason)
        if calls:
            return {**delta, "tool_calls": calls}
        return (
            {name: value for name, value in delta.items() if name != "tool_calls"}
            if given
            else delta
        )

    def finish(self, finish_reason: Any = None) -> list[Json]:
        """Return the pieces that complete the calls. Without a finish reason, the
        response was not cut off.
        """
        self._joiner.finish(whole=ending_in({FINISH_REASON: finish_reason}) == "whole")
        texts = [(index, call.take()) for call, index in self._indices.items()]
        return [
            {"index": index, "function": {"arguments": text}}
            for index, text in texts
            if text
        ]

    def _next_piece(self, piece: Json) -> Json | None:
        """Return what is sent on of a piece of a call, or None."""
        if not is_of_function(piece):
            self._used.add(piece["index"] or 0)
            return piece
        function = piece.get("function") or {}
        arguments = _text_of(function.get("arguments"))
        call = self._joiner.add(
            piece["index"], piece.get("id"), function.get("name"), arguments
        )
        if call is None or not call.name:
            return None
        is_first = call not in self._indices
        if is_first:
            # clients count the calls from 0
            self._indices[call] = max(self._used, default=-1) + 1
            self._used.add(self._indices[call])
            function = {**function, "name": call.name}
            piece = {**piece, "id": call.id} if call.id else piece
        index, text = self._indices[call], call.take()
        # clients would append a repeated id or name
        if not is_first and piece["index"] != index:
            piece = {
                name: value
                for name, value in piece.items()
                if name not in ("id", "type")
            }
            function = {
                name: value for name, value in function.items() if name != "name"
            }
        if text != arguments:
            function = {**function, "arguments": text}
        return {**piece, "index": index, "function": function}


class Normalizer(CallRepairer):
    """Converts the calls in deltas to the form that langchain-openai reads.

    Some servers also repeat a call's name in each piece, or send its arguments as an
    object.
    """

    def _next_piece(self, piece: Json) -> Json | None:
        begun = len(self._indices)
        repaired = super()._next_piece(piece)
        if repaired is None or not is_of_function(repaired):
            return repaired
        function = _function_of(repaired)
        if len(self._indices) == begun:
            function.pop("name", None)
        return {**repaired, "function": function}


def is_of_function(call: Mapping[str, Any]) -> bool:
    """Return whether a call, or a piece of one, is of a function, not of a tool of
    another type.
    """
    return "function" in call or call.keys() <= {"index", "id", "type"}


def repaired_events(events: Iterable[Json]) -> Iterator[Json]:
    """Yield the events of one response with repaired calls."""
    repairer = CallRepairer()
    last: Json = {}
    for event in events:
        choice = _first_choice(event)
        delta = (choice or {}).get("delta") or {}
        repaired = repairer.repaired(delta, (choice or {}).get("finish_reason"))
        if repaired is not delta:
            event = {**event, "choices": [{**(choice or {}), "delta": repaired}]}
        last = event
        yield event
    if rest := repairer.finish():
        yield {
            **last,
            "usage": None,
            "choices": [
                {"index": 0, "delta": {"tool_calls": rest}, "finish_reason": None}
            ],
        }


def _first_choice(event: Json) -> Json | None:
    return next(
        (choice for choice in event.get("choices") or () if not choice.get("index")),
        None,
    )


def _function_of(call: Json) -> Json:
    function = dict(call.get("function") or {})
    return {**function, "arguments": _text_of(function.get("arguments"))}


def _text_of(arguments: Any) -> str:
    return (
        json.dumps(arguments) if isinstance(arguments, dict | list) else arguments or ""
    )


def text_in(delta: Json) -> str:
    """Return all that the model wrote in a delta: text, reasoning, a refusal, or
    arguments of calls.
    """
    said = [
        value
        for name, value in delta.items()
        if isinstance(value, str) and name not in _STATED
    ]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        said += [
            text
            for name in ("name", "arguments")
            if isinstance(text := function.get(name), str)
        ]
    if isinstance(blocks := delta.get("content"), list):
        texts = (one.get("text") if isinstance(one, dict) else one for one in blocks)
        said += [text for text in texts if isinstance(text, str)]
    return said[0] if len(said) == 1 else "".join(said)


def tokens_in(choice: Json) -> int:
    """Return the number of tokens that a choice lists with their log-probabilities."""
    logprobs = choice.get("logprobs")
    listed = (
        (logprobs.get("content") or logprobs.get("refusal"))
        if isinstance(logprobs, dict)
        else None
    )
    return len(listed) if isinstance(listed, list) else 0


def merged(events: Iterable[Json]) -> Json:
    """Merge the events of one response into a reply. Choices beyond the first are
    ignored.
    """
    whole = MergedResponse()
    for event in events:
        whole.add_event(event, _first_choice(event))
    return whole.reply


class MergedResponse:
    """The events of one response, merged.

    The calls in deltas are repaired. In a delta, strings are joined and lists are
    merged by their elements' ``index``. Text between blocks of content becomes a block
    in its place. Elsewhere the last value that is not null wins.

    Args:
        kept: converts each token that comes with log-probabilities to what is kept of
            it. The token may be changed.
    """

    def __init__(self, kept: Callable[[Any], Any] | None = None) -> None:
        self._kept = kept
        self._head: Json = {}
        self._choice: Json = {}
        self._message: Json = {}
        self._texts: dict[str, list[str]] = {}
        self._logprobs: Any = None
        self._events = 0  # events with content
        self._repairer = CallRepairer()

    def add_event(self, event: Json, choice: Json | None) -> None:
        """Add an event, with this response's choice in it."""
        if choice is None or choice.get("finish_reason") or not self._head:
            _update(self._head, event, but=("choices",))
            _update(self._choice, choice or {}, but=("delta", "logprobs"))
        if choice is None:
            return
        self._add_delta(self._repairer.repaired(choice.get("delta") or {}))
        if logprobs := choice.get("logprobs"):
            self._logprobs = self._extended(self._logprobs, logprobs)

    def _complete_calls(self) -> None:
        if pieces := self._repairer.finish(self._choice.get("finish_reason")):
            self._add_delta({"tool_calls": pieces})

    def _add_delta(self, delta: Json) -> None:
        says = False
        for name, value in delta.items():
            if type(value) is str and name not in _STATED:
                self._texts.setdefault(name, []).append(value)
                says = says or bool(value)
            elif name not in _STATED or not self._message.get(name):
                # the text comes before these blocks
                if isinstance(value, list) and name in self._texts:
                    text = "".join(self._texts.pop(name))
                    self._message[name] = _added(
                        name, self._message.get(name), _text_block(text)
                    )
                self._message[name] = _added(name, self._message.get(name), value)
                says = says or isinstance(value, list | dict)
        self._events += says

    def _extended(self, before: Any, more: Any) -> Any:
        """Append the log-probabilities of the next event, in whatever lists the server
        sends.
        """
        if more is None:
            return before
        if isinstance(more, dict):
            known = before if isinstance(before, dict) else {}
            for name, value in more.items():
                known[name] = self._extended(known.get(name), value)
            return known
        if isinstance(more, list):
            listed = before if isinstance(before, list) else []
            listed += more if self._kept is None else map(self._kept, more)
            return listed
        return more

    @property
    def tokens(self) -> int:
        """The estimated number of tokens: those with log-probabilities, and one for
        four bytes of other text.
        """
        listed, spelled = listed_tokens({"logprobs": self._logprobs})
        size = len(text_in(self._said).encode(errors="replace"))
        return max(listed + tokens_of_text(max(0, size - spelled)), self._events)

    @property
    def _said(self) -> Json:
        said = dict(self._message)
        for name, pieces in self._texts.items():
            text, blocks = "".join(pieces), said.get(name)
            said[name] = (
                [*blocks, *_text_block(text)] if isinstance(blocks, list) else text
            )
        return said

    @property
    def event(self) -> Json:
        """The response as one event, in the form that langchain-openai reads."""
        self._complete_calls()
        said = self._said
        functions = [
            call for call in said.get("tool_calls") or () if is_of_function(call)
        ]
        calls = [
            {"id": call.get("id"), "index": at, "function": _function_of(call)}
            for at, call in enumerate(functions)
        ]
        delta = {**said, "content": said.get("content") or "", "tool_calls": calls}
        choice = {**self._choice, "delta": delta, "logprobs": self._logprobs}
        return {**self._head, "choices": [choice], "usage": None}

    @property
    def reply(self) -> Json:
        """The response as a reply in one piece.

        The reply always has a finish reason, which some servers omit from their
        streams.
        """
        self._complete_calls()
        message = {"role": "assistant", "content": None, **self._said}
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"}
                for call in calls
            ]
            message["content"] = message["content"] or None
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs,
            **self._choice,
        }
        if finish_of(choice.get("finish_reason")) is None:
            choice["finish_reason"] = "tool_calls" if calls else "stop"
        return {**self._head, "object": "chat.completion", "choices": [choice]}


def _text_block(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text else []


def _update(target: Json, values: Mapping[str, Any], but: tuple[str, ...]) -> None:
    for name, value in values.items():
        if name not in but and (value is not None or name not in target):
            target[name] = value


def _added(name: str, before: Any, value: Any) -> Any:
    """Return a field's value after one more delta."""
    if before is None or value is None:
        return _begun(value) if before is None else before
    if isinstance(before, str) and isinstance(value, str):
        if name in _STATED or (name == "name" and value == before):
            return before or value
        return before + value
    if isinstance(before, dict) and isinstance(value, dict):
        for inner, more in value.items():
            before[inner] = _added(inner, before.get(inner), more)
        return before
    if isinstance(before, list) and isinstance(value, list):
        return _added_elements(before, value)
    return value


def _begun(value: Any) -> Any:
    """Copy a first value, so that later additions do not change the event."""
    if isinstance(value, dict):
        return {name: _begun(inner) for name, inner in value.items()}
    return _added_elements([], value) if isinstance(value, list) else value


def _added_elements(before: list[Any], more: list[Any]) -> list[Any]:
    places = {
        one["index"]: one
        for one in before
        if isinstance(one, dict) and isinstance(one.get("index"), int)
    }
    for one in more:
        index = one.get("index") if isinstance(one, dict) else None
        if isinstance(index, int) and index in places:
            _added("", places[index], one)
            continue
        before.append(new := _begun(one))
        if isinstance(index, int):
            places[index] = new
    return before


def without_bytes(token: Any) -> Any:
    """Remove the bytes of a token's alternatives from the token, and return it.

    Lists of bytes would be most of the memory, and slow down Python's garbage
    collector. The alternatives become new dicts, because the collector does not look at
    dicts that never held a list.
    """
    with suppress(KeyError, TypeError):
        token["top_logprobs"] = [
            {"token": one["token"], "logprob": one["logprob"]}
            for one in token["top_logprobs"]
        ]
    return token

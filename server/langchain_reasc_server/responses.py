"""OpenAI's Responses API, replies: write a chat completion as a Response, whole or
streamed.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_reasc_server.responses_request import flat_name, tools_in_namespaces
from langchain_reasc_server.translated import ReplyWriter, named_event, new_id
from langchain_reasc_server.wire import Json

_ECHOED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(
        (
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "previous_response_id",
            "prompt",
        )
    ),
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
_INCOMPLETE: Final = {"cut off": "max_output_tokens", "filtered": "content_filter"}
"""How a chat completion ended -> why its Response is incomplete."""
_PARTS: Final[Mapping[str, Json]] = {
    "output_text": {"text": "", "annotations": [], "logprobs": []},
    "refusal": {"refusal": ""},
    "reasoning_text": {"text": ""},
}
_ERROR_CODES: Final = {
    "rate_limit_error": "rate_limit_exceeded",
    "invalid_request_error": "invalid_prompt",
}
_KEPT_CODES: Final = (
    "context_length_exceeded",
    "insufficient_quota",
    "rate_limit_exceeded",
)
"""Codes of errors that a Response keeps, because clients act on them."""


class ResponseWriter(ReplyWriter):
    """Turns the events of a chat completion into events of a Response, and builds the
    whole Response.

    A text item is done when another item begins. Function calls are done at the end,
    because the pieces of several calls may alternate.
    """

    def __init__(self, asked: Mapping[str, Any], model: str) -> None:
        """Create a Response without output (see :class:`ReplyWriter`)."""
        super().__init__(asked, model)
        self._asked = asked
        self._head: Json = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
        }
        self._output: list[Json] = []
        self._writing = False  # whether the last item is a text that goes on
        self._calls: dict[int, int] = {}  # index of a call -> its place in the output
        self._in_namespaces = {
            flat_name(namespace, tool["name"]): {
                "name": tool["name"],
                "namespace": namespace,
            }
            for tool, namespace in tools_in_namespaces(asked.get("tools") or [])
            if namespace
        }
        self._status = "in_progress"
        self._number = 0

    @property
    def whole(self) -> Json:
        """The Response so far."""
        asked = {
            name: value
            for name, value in self._asked.items()
            if name in _ECHOED and value is not None
        }
        if tools := asked.get("tools"):
            asked["tools"] = [
                {**_TOOL, **tool} if tool.get("type") == "function" else tool
                for tool in tools
            ]
        return {
            **self._head,
            **_ECHOED,
            **asked,
            **self._unknown,
            "status": self._status,
            "completed_at": int(time.time()) if self._status == "completed" else None,
            "error": _error(self._error) if self._error else None,
            "incomplete_details": {"reason": self._incomplete}
            if self._status == "incomplete"
            else None,
            "model": self._model,
            "output": self._output,
            "store": False,
            "usage": _usage(self._usage) if self._usage else None,
        }

    @property
    def _incomplete(self) -> str | None:
        """Why the Response is incomplete, or None."""
        return _INCOMPLETE.get(self._ending)

    def comment_events(self, comment: bytes) -> Iterator[bytes]:
        """Yield the comment."""
        yield comment

    def _first_events(self) -> Iterator[bytes]:
        yield self._event("response.created", response=self.whole)
        yield self._event("response.in_progress", response=self.whole)

    def _last_events(self) -> Iterator[bytes]:
        self._status = "incomplete" if self._incomplete else "completed"
        self._status = "failed" if self._error else self._status
        if not (self._output or self._error):
            yield from self._begin_text("output_text")
        of_last = "completed" if self._status == "completed" else "incomplete"
        yield from self._end_text(of_last)
        for place in sorted(self._calls.values()):
            yield from self._end_call(
                place, of_last if place == len(self._output) - 1 else "completed"
            )
        yield self._event(f"response.{self._status}", response=self.whole)

    def _write(self, kind: str, text: str, logprobs: Any) -> Iterator[bytes]:
        if not self._writing or self._output[-1]["content"][0]["type"] != kind:
            yield from self._begin_text(kind)
        part = self._output[-1]["content"][0]
        part["refusal" if kind == "refusal" else "text"] += text
        beside = {}
        if kind == "output_text":
            tokens = _logprobs(logprobs)
            part["logprobs"] += tokens
            beside = {"logprobs": tokens}
        yield self._part_event(f"response.{kind}.delta", delta=text, **beside)

    def _begin_text(self, kind: str) -> Iterator[bytes]:
        yield from self._end_text("completed")
        if kind == "reasoning_text":
            item: Json = {"id": new_id("rs"), "type": "reasoning", "summary": []}
        else:
            item = {"id": new_id("msg"), "type": "message", "role": "assistant"}
        self._output.append(item | {"status": "in_progress", "content": []})
        self._writing = True
        yield self._item_event("response.output_item.added", -1)
        part = {
            "type": kind,
            **{name: value[:] for name, value in _PARTS[kind].items()},
        }
        self._output[-1]["content"].append(part)
        yield self._part_event("response.content_part.added", part=part)

    def _end_text(self, status: str) -> Iterator[bytes]:
        if not self._writing:
            return
        self._writing = False
        part = self._output[-1]["content"][0]
        said = {
            name: value
            for name, value in part.items()
            if name not in ("type", "annotations")
        }
        yield self._part_event(f"response.{part['type']}.done", **said)
        yield self._part_event("response.content_part.done", part=part)
        self._output[-1]["status"] = status
        yield self._item_event("response.output_item.done", -1)

    def _call(self, piece: Json) -> Iterator[bytes]:
        yield from self._end_text("completed")
        function = piece.get("function") or {}
        place = self._calls.get(piece["index"])
        if place is None:
            named = function.get("name") or ""
            call = {
                "call_id": piece.get("id") or new_id("call"),
                "name": named,
                "arguments": "",
                **self._in_namespaces.get(named, {}),
            }
            place = self._calls[piece["index"]] = len(self._output)
            self._output.append(
                {
                    "id": new_id("fc"),
                    "type": "function_call",
                    "status": "in_progress",
                    **call,
                }
            )
            yield self._item_event("response.output_item.added", place)
        if arguments := function.get("arguments"):
            call = self._output[place]
            call["arguments"] += arguments
            beside = {"item_id": call["id"], "output_index": place}
            yield self._event(
                "response.function_call_arguments.delta", **beside, delta=arguments
            )

    def _end_call(self, place: int, status: str) -> Iterator[bytes]:
        call = self._output[place]
        call["status"] = status
        said = {"name": call["name"], "arguments": call["arguments"]}
        beside = {"item_id": call["id"], "output_index": place}
        yield self._event("response.function_call_arguments.done", **beside, **said)
        yield self._item_event("response.output_item.done", place)

    def _item_event(self, kind: str, place: int) -> bytes:
        return self._event(
            kind, output_index=place % len(self._output), item=self._output[place]
        )

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        item = {
            "item_id": self._output[-1]["id"],
            "output_index": len(self._output) - 1,
            "content_index": 0,
        }
        return self._event(kind, **item, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._number
        self._number += 1
        return named_event(kind, sequence_number=number, **fields)


def _logprobs(logprobs: Any) -> list[Json]:
    """Return logprobs with the bytes of each token, which many servers omit."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [
        {
            **_token(one),
            "top_logprobs": [_token(other) for other in one.get("top_logprobs") or ()],
        }
        for one in tokens or ()
    ]


def _token(one: Json) -> Json:
    token = str(one.get("token") or "")
    written = one.get("bytes") or [*token.encode(errors="surrogatepass")]
    return {"token": token, "logprob": one.get("logprob") or 0.0, "bytes": written}


def _usage(usage: Json) -> Json:
    """Convert the usage of a chat completion to that of a Response."""
    prompt, generated = (
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
    )
    return {
        "input_tokens": prompt,
        "input_tokens_details": _details(
            usage, "prompt_tokens_details", "cached_tokens", "cache_write_tokens"
        ),
        "output_tokens": generated,
        "output_tokens_details": _details(
            usage, "completion_tokens_details", "reasoning_tokens"
        ),
        "total_tokens": prompt + generated,
    }


def _details(usage: Json, name: str, *always: str) -> Json:
    given = {
        name: tokens
        for name, tokens in (usage.get(name) or {}).items()
        if tokens is not None
    }
    return {**dict.fromkeys(always, 0), **given}


def _error(error: Any) -> Json:
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code, kind = fields.get("code"), fields.get("type")
    known = code if code in _KEPT_CODES else _ERROR_CODES.get(str(kind), "server_error")
    return {
        "code": known,
        "message": str(fields.get("message") or "the upstream failed"),
    }

"""What a span says of a request, its samples and the response, in the names of OpenTelemetry's conventions.

https://github.com/open-telemetry/semantic-conventions-genai, and docs/http/http-spans.md in .../semantic-conventions.
Of an error this is its kind alone: what it says may quote a prompt or a key.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage
from langchain_reasc_openai.client import EVENTS
from langchain_reasc_openai.events import events_in, merged

from langchain_reasc.models.contract import FAILED_ATTEMPTS, FINISH_REASON
from langchain_reasc_server.calls import Call
from langchain_reasc_server.events import Send
from langchain_reasc_server.wire import Json, encoded

__all__ = ["ObservedResponse", "messages_asked", "messages_said", "of_request", "of_sample"]

_TAIL: Final = 1 << 16
"""Bytes that are kept of a stream: its last events say how it ended, and what it cost."""
_LARGEST: Final = 1 << 22
"""Bytes of a reply in one piece, or of a stream whose text is recorded; a longer one is not read."""
_LAST: Final = 8  # events that are read of a stream
_NUMBERS: Final[Mapping[str, str]] = {
    **{name: name for name in ("temperature", "top_p", "top_k", "max_tokens", "seed")},
    **{name: name for name in ("frequency_penalty", "presence_penalty")},
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens"), "max_tokens"),
    "n": "choice.count",
}
"""Fields of a request -> attributes below ``gen_ai.request``."""
_ACCOUNT: Final = ("id", "samples", "stop", "p_correct", "p_agree")


def of_request(call: Call, provider: str) -> dict[str, Any]:
    """Return the attributes that say what is asked for, by a request or one of its samples."""
    numbers = {f"gen_ai.request.{known}": call.body.get(name) for name, known in _NUMBERS.items()}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": call.model,
        "gen_ai.request.stream": call.streamed,
        **{name: value for name, value in numbers.items() if isinstance(value, int | float)},
    }


def of_sample(message: AIMessage) -> dict[str, Any]:
    """Return the attributes that the message of a sample tells."""
    told = message.response_metadata
    events, address = events_in(told.get(EVENTS, ())[:1]) or [{}], urlsplit(told.get("server") or "")
    known = {
        "gen_ai.response.id": events[0].get("id"),
        "gen_ai.response.model": told.get("model_name"),
        "gen_ai.response.finish_reasons": [str(told[FINISH_REASON])] if told.get(FINISH_REASON) else None,
        "server.address": address.hostname,
        "server.port": address.port,
        "reasc.failed_attempts": len(told.get(FAILED_ATTEMPTS) or ()) or None,
    }
    return {name: value for name, value in known.items() if value is not None} | _of_usage(message.usage_metadata or {})


def _of_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {
        "input": usage.get("prompt_tokens", usage.get("input_tokens")),
        "output": usage.get("completion_tokens", usage.get("output_tokens")),
    }
    return {f"gen_ai.usage.{name}_tokens": count for name, count in tokens.items() if count is not None}


class ObservedResponse:
    """The response to a request, as far as it was sent.

    Attributes:
        replies: the reply, or the last events of a stream; of the Responses API's, the Responses in them.
    """

    def __init__(self, state: Mapping[str, Any], *, keeps_text: bool) -> None:
        """Begin with nothing.

        Args:
            state: of the request; its ``call`` is there once a chat completion is known to be asked for. The body of
                anything else is kept of an error alone.
            keeps_text: whether all events of a stream are kept.
        """
        self._state, self._keeps_text = state, keeps_text
        self._status, self._is_whole, self._headers, self._body = 0, False, dict[bytes, bytes](), bytearray()
        self.replies: list[Json] = []

    def watching(self, send: Send) -> Send:
        """Return a ``send`` that is seen here."""

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._status, self._headers = message["status"], dict(message["headers"])
            else:
                self._is_whole = not message.get("more_body", False)
                if "call" in self._state or self._status >= 400:
                    self._keep(message.get("body", b""))
            await send(message)

        return watched

    def _keep(self, part: bytes) -> None:
        kept = _TAIL if self._is_stream and not self._keeps_text else _LARGEST
        self._body += part
        if len(self._body) > 2 * kept:
            del self._body[:-kept]

    @property
    def _is_stream(self) -> bool:
        return b"text/event-stream" in self._headers.get(b"content-type", b"")

    def read(self) -> None:
        """Read what was kept, once all has been sent."""
        parts = [bytes(self._body)] if len(self._body) <= _LARGEST else []
        if self._is_stream:
            lines = [line[5:] for line in bytes(self._body).splitlines() if line.startswith(b"data:")]
            parts = lines if self._keeps_text else lines[-_LAST:]
        for part in parts:
            with suppress(ValueError):
                if isinstance(reply := json.loads(part), dict):
                    self.replies.append(reply["response"] if isinstance(reply.get("response"), dict) else reply)

    @property
    def error(self) -> str | None:
        """The kind of the error that it is, be it in the middle of a stream."""
        told = next((reply["error"] for reply in self.replies if isinstance(reply.get("error"), dict)), None)
        if told is not None:
            return str(told.get("code") or told.get("type") or self._status)[:64]
        return str(self._status) if self._status >= 400 else None if self._is_whole else "disconnected"

    @property
    def is_clients_fault(self) -> bool:
        """Whether it is an error of which HTTP's conventions leave the span's status unset."""
        return 400 <= self._status < 500

    def attributes(self, *, voted: bool) -> dict[str, Any]:
        """Return what it tells; the tokens of a vote are its samples'."""
        found: dict[str, Any] = {"http.response.status_code": self._status} if self._status else {}
        if (why := self._headers.get(b"x-reasc-passed-through")) is not None:
            found["reasc.passed_through"] = why.decode("latin-1")
        ends: list[str] = []
        for reply in self.replies if "call" in self._state else ():
            ends += [str(one["finish_reason"]) for one in reply.get("choices") or () if one.get("finish_reason")]
            found |= {f"gen_ai.response.{name}": reply[name] for name in ("id", "model") if reply.get(name)}
            found |= _of_account(reply.get("reasc") or {}) if voted else _of_usage(reply.get("usage") or {})
        return found | ({"gen_ai.response.finish_reasons": ends} if ends else {})

    @property
    def said(self) -> list[Json]:
        """The choices of a chat completion."""
        told = [reply for reply in self.replies if reply.get("choices")]
        choices: list[Json] = merged(told)["choices"] if self._is_stream else told[0]["choices"] if told else []
        return choices


def _of_account(told: Mapping[str, Any]) -> dict[str, Any]:
    known = {f"reasc.{name}": told[name] for name in _ACCOUNT if name in told}
    return known | {f"reasc.tokens.{name}": tokens for name, tokens in told.get("tokens", {}).items()}


def messages_asked(call: Call) -> str:
    """Return the messages of a request, as JSON in OpenTelemetry's form."""
    messages = call.body.get("messages")
    return encoded([_in_parts(one) for one in messages or () if isinstance(one, dict)]).decode()


def messages_said(choices: Sequence[Json]) -> str:
    """Return choices of OpenAI's, as JSON in OpenTelemetry's form."""
    said = [{**_in_parts(one["message"]), "finish_reason": str(one.get("finish_reason"))} for one in choices]
    return encoded(said).decode()


def _in_parts(message: Mapping[str, Any]) -> Json:
    role, content = message.get("role"), message.get("content")
    parts: list[Any] = [{"type": "text", "content": content}] if isinstance(content, str) else [*(content or ())]
    if role == "tool":
        parts = [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    calls = message.get("tool_calls") or ()
    return {"role": role, "parts": parts + [{"type": "tool_call", "id": one["id"], **one["function"]} for one in calls]}

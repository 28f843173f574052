"""The request log: one line per request on stderr. Lines contain no prompts, answers,
keys or queries.
"""

import json
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import starmap
from typing import Any, Final

from langchain_reasc_server.events import Send
from langchain_reasc_server.metering import TAIL, reported_tokens
from langchain_reasc_server.wire import Json

_UNLOGGED: Final = ("/health", "/health/live", "/health/ready", "/metrics", "/")
"""Paths that are asked again and again, by machines and by an open status page. Only
errors there are logged.
"""
_IN_HEAD: Final = {b"x-request-id": "request", b"x-reasc-passed-through": "passed"}
_LONGEST: Final = 200  # characters of a value that a client or an upstream chooses
_UNNAMED: Final = ("time", "client", "key", "method", "path", "status")
_PLAIN: Final = re.compile(r"[\w.:/@+%~-]+", re.ASCII)


class RequestLog:
    """ASGI middleware that writes a line when a request has ended.

    Each line is one write, so that the lines of several processes do not mix.
    """

    def __init__(
        self, app: Any, *, errors_only: bool = False, as_json: bool = False
    ) -> None:
        """Log all requests, or only those that end in an error, as text or as JSON."""
        self._app, self._errors_only, self._as_json = app, errors_only, as_json

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, state, told, tail = (
            time.monotonic(),
            scope.setdefault("state", {}),
            dict[str, Any](),
            bytearray(),
        )
        status = 499  # nginx's, for a client that disconnects before its answer

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (
                    (_IN_HEAD.get(name.lower()), value)
                    for name, value in message.get("headers", ())
                )
                told.update(
                    {
                        name: value.decode("latin-1")[:_LONGEST]
                        for name, value in named
                        if name
                    }
                )
            elif "passed" in told:
                tail.extend(message.get("body", b"")[-TAIL:])
                if len(tail) > 4 * TAIL:
                    del tail[:-TAIL]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            status = state.get("status", status)
            if (
                status >= 400
                or "refused" in state
                or not (self._errors_only or scope["path"] in _UNLOGGED)
            ):
                seconds = round(time.monotonic() - begun, 3)
                self._write(
                    {
                        **_asked(scope, state),
                        "status": status,
                        "seconds": seconds,
                        **_spent(state, bytes(tail)),
                        **told,
                    }
                )

    def _write(self, line: Mapping[str, Any]) -> None:
        text = (
            json.dumps(line)
            if self._as_json
            else " ".join(starmap(_word, line.items()))
        )
        with suppress(OSError, ValueError):  # nobody reads stderr any more
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def _word(name: str, value: object) -> str:
    word = str(value) if _PLAIN.fullmatch(str(value)) else json.dumps(value)
    return word if name in _UNNAMED else f"{name}={word}"


def _asked(scope: Mapping[str, Any], state: Mapping[str, Any]) -> Json:
    host, *_ = scope.get("client") or ("-",)
    return {
        "time": datetime.now(UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z"),
        "client": host,
        "key": getattr(state.get("client"), "name", "") or "-",
        "method": scope["method"],
        "path": (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")[
            :_LONGEST
        ],
    }


def _spent(state: Mapping[str, Any], tail: bytes) -> Json:
    """Return what a request has cost, as far as that is known, and why it ended.

    Args:
        state: of the request.
        tail: the end of a reply that passed through.
    """
    if (account := state.get("account")) is not None:
        named = {
            name: account[name]
            for name in ("stop", "answered_by", "id")
            if name in account
        }
        return {
            "samples": account["samples"],
            "tokens": account["tokens"]["spent"],
            **named,
        }
    call, refused, tokens = (
        state.get("call"),
        state.get("refused"),
        reported_tokens(tail),
    )
    return {
        **({"samples": call.responses} if call is not None and tail else {}),
        **({"tokens": tokens} if tokens else {}),
        **(
            {"error": str(refused.error["code"] or refused.error["type"])[:_LONGEST]}
            if refused
            else {}
        ),
    }

"""Errors in OpenAI's form, with the status for the client."""

import json
import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any, Final

import openai
from langchain_core import exceptions as core
from langchain_reasc_openai.errors import retry_after
from starlette.responses import Response

from langchain_reasc.exceptions import (
    CalibrationError,
    ConfigurationError,
    FingerprintMismatch,
    MissingExtraError,
    ModelError,
    ReASCError,
    SamplingError,
    ServerBusy,
    ServerMismatch,
    Undecided,
    root_of,
)
from langchain_reasc_server.wire import Json, encoded

_log = logging.getLogger(__name__)
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
"""Status -> the type of an error; other 4xx are ``invalid_request_error``, and 5xx
``server_error``.
"""


_LOGGED_EVERY: Final = 60.0
"""Seconds after which an error that goes on is logged again."""
_MOST_LOGGED: Final = 256


class RepeatedErrors:
    """Logs errors that come with many requests: each once a minute, with how often it
    came in between.
    """

    def __init__(self) -> None:
        self._logged: dict[
            str, tuple[float, int]
        ] = {}  # kind -> when it was logged, and how often it came since

    def log(self, kind: str, message: str) -> None:
        """Log a message unless one of its kind was logged in the last minute."""
        now = time.monotonic()
        logged_at, since = self._logged.get(kind, (-_LOGGED_EVERY, 0))
        if now - logged_at < _LOGGED_EVERY:
            self._logged[kind] = logged_at, since + 1
            return
        if len(self._logged) >= _MOST_LOGGED:
            self._logged.clear()
        self._logged[kind] = now, 0
        _log.error(
            "%s%s",
            message,
            f" ({since:,} times more since it was logged last)" if since else "",
        )


_repeated: Final = RepeatedErrors()


class Refused(Exception):
    """A request is answered with an error.

    Attributes:
        status: the status of the HTTP response.
        error: the value of ``error`` in its body.
        headers: the headers of the response.
        from_upstream: whether the upstream failed or refused the request.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        kind = (
            kind
            or _TYPES.get(status)
            or ("server_error" if status >= 500 else "invalid_request_error")
        )
        self.status, self.headers = status, dict(headers or {})
        self.from_upstream = status >= 502
        self.error: Json = {
            "message": message,
            "type": kind,
            "param": param,
            "code": code,
        }

    @property
    def body(self) -> Json:
        """The body of the response, or the last event of a stream that fails."""
        return {"error": self.error}

    @property
    def response(self) -> Response:
        """The whole response."""
        return Response(
            encoded(self.body), self.status, self.headers, media_type="application/json"
        )


def refusal_of(error: Exception) -> Refused:
    """Return the error for the client. Details that the client must not see, such as
    addresses, are logged.
    """
    if isinstance(error, Refused):
        return error
    if (
        isinstance(error, SamplingError)
        and error.failures
        and isinstance(first := error.failures[0], Exception)
    ):
        return refusal_of(first)  # all servers have asked to wait
    seconds = retry_after(error)
    headers = {} if seconds is None else {"retry-after": str(max(1, round(seconds)))}
    if (status := _status_of(error)) is not None:
        return _upstreams_own(error, status, headers)
    for types, status, code, message in _OURS:
        if isinstance(error, types):
            if message is not None:
                said = _loggable(error)
                if status == 500:
                    _repeated.log(said, said)
                else:
                    _log.warning("%s: %s", message, said)
            status = 429 if isinstance(error, ServerBusy) and headers else status
            return Refused(status, message or str(error), code=code, headers=headers)
    # said in a response of status 200
    if isinstance(error, openai.APIError) and error.body:
        return _upstreams_own(error, 502, headers)
    if isinstance(error, ReASCError | core.ModelError | openai.APIError):
        _log.warning("no response: %s", _loggable(error))
        return Refused(
            502,
            "the upstream gave no usable response",
            code="upstream_error",
            headers=headers,
        )
    _log.error(
        "a request failed: %s\n%s",
        type(error).__name__,
        "".join(traceback.format_tb(error.__traceback__)),
    )
    return Refused(500, _INTERNAL, code="internal_error")


def _loggable(error: Exception) -> str:
    """Say what has failed. The text of another package's error is left out, because it
    may quote a model or a user.
    """
    root = root_of(error)
    is_harmless = isinstance(root, ReASCError | OSError) or isinstance(
        error, openai.APIConnectionError
    )
    return str(root) if is_harmless and str(root) else type(root).__name__


_INTERNAL: Final = "an internal error; the server's log says more"
_OURS: Final[tuple[tuple[Any, int, str, str | None], ...]] = (
    (core.ContextOverflowError, 400, "context_length_exceeded", None),
    (Undecided, 422, "undecided", None),
    (ServerMismatch, 500, "internal_error", _INTERNAL),
    ((ConfigurationError, FingerprintMismatch), 400, "invalid_value", None),
    (
        NotImplementedError,
        400,
        "unsupported",
        "this model does not support what the request asks for",
    ),
    (
        (openai.APITimeoutError, core.ModelTimeoutError, TimeoutError),
        504,
        "timeout",
        "no answer in time",
    ),
    (ServerBusy, 503, "upstream_busy", "the upstream is busy"),
    (
        (openai.APIConnectionError, core.ModelConnectionError, OSError),
        502,
        "unreachable",
        "no upstream server can be reached",
    ),
    (
        (MissingExtraError, CalibrationError, ModelError),
        500,
        "internal_error",
        _INTERNAL,
    ),
)
"""Types of errors, with status, code and message (None for the error's own message)."""


def _status_of(error: Exception) -> int | None:
    """Return the status of the upstream's refusal, also of one in the middle of a
    stream.
    """
    if isinstance(error, openai.APIStatusError):
        return error.status_code if 400 <= error.status_code < 600 else 502
    if isinstance(error, openai.APIError):
        code: Any = error.code or (
            error.body.get("status") if isinstance(error.body, dict) else None
        )
        return int(code) if str(code).isdecimal() and 400 <= int(code) < 600 else None
    return None


def _upstreams_own(
    error: Exception, status: int, headers: Mapping[str, str]
) -> Refused:
    body: Any = getattr(error, "body", None)
    body = body.get("error", body) if isinstance(body, dict) else body
    fields = body if isinstance(body, dict) else {}
    said = (
        fields.get("message")
        or fields.get("detail")
        or body
        or getattr(error, "message", "")
        or str(error)
    )
    refused = Refused(
        status, said if isinstance(said, str) else json.dumps(said), headers=headers
    )
    refused.from_upstream = True
    refused.error |= {
        name: value for name, value in fields.items() if value is not None
    }
    return refused

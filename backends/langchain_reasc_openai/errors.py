"""Classify server errors: whether to try again, whether the server is at fault, and
LangChain's class.
"""

import email.utils
import importlib
import importlib.util
import json
import math
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from typing import Any, Final

import openai
from langchain_core import exceptions as core

from langchain_reasc.exceptions import (
    ReASCError,
    SamplingError,
    ServerBusy,
    ServerError,
)


class Fault(Enum):
    """Who is at fault for an error, and whether to try again."""

    REQUEST = auto()
    """The request is wrong, or its answer unusable, on any server."""
    REFUSED = auto()
    """This server refuses us for good; another may not."""
    BUSY = auto()
    """The server is healthy and has no room now."""
    ONCE = auto()
    """Something went wrong with one request."""
    DOWN = auto()
    """The server is down, or answers nobody."""

    @property
    def may_pass(self) -> bool:
        """Whether the same server may answer later."""
        return self in (Fault.BUSY, Fault.ONCE, Fault.DOWN)


# 408, 409, 429 and 5xx are what openai's own client tries again
# (openai/_base_client.py, `_should_retry`).
_OF_STATUS: Final[Mapping[int, tuple[Fault, type[core.ModelError]]]] = {
    401: (Fault.REFUSED, core.ModelAuthenticationError),
    403: (Fault.REFUSED, core.ModelPermissionDeniedError),
    404: (Fault.REFUSED, core.ModelNotFoundError),
    408: (Fault.ONCE, core.ModelTimeoutError),
    409: (Fault.ONCE, core.ModelAPIError),
    **dict.fromkeys((425, 429), (Fault.BUSY, core.ModelRateLimitError)),
    **dict.fromkeys((502, 503, 504), (Fault.DOWN, core.ModelAPIError)),
}
# The server went away during the handshake, or had not answered it yet when the time
# was up.
_PASSING_TLS: Final = (
    *(ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError),
    *(ssl.SSLWantReadError, ssl.SSLWantWriteError),
)
# openai's client changed from httpx to httpx2.
_HTTPX: Final = [
    importlib.import_module(name)
    for name in ("httpx2", "httpx")
    if importlib.util.find_spec(name)
]
HTTP_ERRORS: Final[tuple[type[Exception], ...]] = tuple(
    module.RequestError for module in _HTTPX
)
HTTP_TIMEOUTS: Final[tuple[type[Exception], ...]] = tuple(
    module.TimeoutException for module in _HTTPX
)
_OF_TYPE: Final[
    Sequence[tuple[tuple[type[Exception], ...], Fault, type[core.ModelError]]]
] = (
    ((openai.APITimeoutError, TimeoutError), Fault.DOWN, core.ModelTimeoutError),
    (
        (openai.APIConnectionError, OSError, *HTTP_ERRORS),
        Fault.DOWN,
        core.ModelConnectionError,
    ),
    (
        (openai.APIResponseValidationError, json.JSONDecodeError),
        Fault.ONCE,
        core.ModelAPIError,
    ),
)
_NOT_PICKLED: Final = ("request", "response", "_request")  # they hold the key


def fault_of(error: BaseException) -> Fault:
    """Return who is at fault for an error of a request."""
    return _fault_and_kind(error)[0]


def classified(error: Exception) -> Exception:
    """Return the error itself if it is one of langchain-core's model errors, else a
    copy that is also one of them.

    A copy keeps the error's class; langchain-openai does this only for the most common
    of openai's errors. If nothing can be derived from the class, as with pydantic's,
    the copy keeps its name and message. ``is_retryable`` is our own judgment: an
    untrusted certificate, for example, will not be trusted next time.
    """
    if (own := _own_error(error)) is not None:
        return own
    fault, kind = _fault_and_kind(error)
    found = error if isinstance(error, core.ModelError) else _copy_as(error, kind)
    found.is_retryable = fault.may_pass
    return found


def retry_after(error: BaseException) -> float | None:
    """Return the seconds to wait that the server asks for, or None.

    This reads both forms of ``Retry-After``, a number of seconds and an HTTP date (RFC
    9110, section 10.2.3), and OpenAI's own ``retry-after-ms``.
    """
    if isinstance(error, ServerBusy):
        return error.retry_after
    headers: Mapping[str, str] = (
        getattr(getattr(error, "response", None), "headers", None) or {}
    )
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        return max(
            0.0,
            email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp()
            - time.time(),
        )
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _own_error(error: BaseException) -> ReASCError | None:
    """Return the error if it is one of ours, or the one of ours inside an error of
    openai's client.
    """
    inner = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
    return inner if isinstance(inner, ReASCError) else None


def _fault_and_kind(error: BaseException) -> tuple[Fault, type[core.ModelError]]:
    own = _own_error(error)
    if isinstance(own, ServerError):  # a redirect that is not followed
        return Fault.REFUSED, core.ModelError
    if own is not None:  # we found a fault in the reply
        return (
            Fault.DOWN if isinstance(own, SamplingError) else Fault.REQUEST
        ), core.ModelError
    if any(
        isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING_TLS)
        for cause in causes(error)
    ):
        return Fault.REFUSED, core.ModelPermissionDeniedError
    for types, fault, kind in _OF_TYPE:
        if isinstance(error, types):
            return fault, kind
    return _of_status(_status(error) if isinstance(error, openai.APIError) else 400)


def _status(error: openai.APIError) -> int:
    """Return the HTTP status; inside a stream vLLM, SGLang and llama-server put it in
    the event's ``code``.
    """
    if isinstance(error, openai.APIStatusError):
        return error.status_code
    code: Any = error.code or (
        error.body.get("status") if isinstance(error.body, dict) else None
    )
    return int(code) if str(code).isdecimal() else 500


def _of_status(status: int) -> tuple[Fault, type[core.ModelError]]:
    other = (
        (Fault.ONCE, core.ModelAPIError)
        if status >= 500
        else (Fault.REQUEST, core.ModelInvalidRequestError)
    )
    return _OF_STATUS.get(status, other)


def _copy_as(error: Exception, kind: type[core.ModelError]) -> core.ModelError:
    own = type(error)
    try:
        return _rebuild(own.__name__, (own, kind), error.args, vars(error))
    except TypeError:  # its class has another constructor
        return _rebuild(own.__name__, (kind,), (str(error),), {})


def _rebuild(
    name: str,
    bases: tuple[type[Exception], ...],
    args: tuple[Any, ...],
    state: Mapping[str, Any],
) -> core.ModelError:
    made = _derived_class(name, bases)
    copy = made.__new__(made, *args)
    copy.args = args
    copy.__dict__.update(state)
    return copy


@cache
def _derived_class(
    name: str, bases: tuple[type[Exception], ...]
) -> type[core.ModelError]:
    def reduced(error: Exception) -> tuple[Any, ...]:
        state = {
            name: value
            for name, value in vars(error).items()
            if name not in _NOT_PICKLED
        }
        return _rebuild, (name, bases, error.args, state)

    names = {
        "__module__": bases[0].__module__,
        "__qualname__": name,
        "__reduce__": reduced,
    }
    made: type[Any] = type(name, bases, names)
    return made

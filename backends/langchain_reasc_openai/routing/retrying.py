"""Which errors of a server are worth another try, and when."""

import email.utils
import importlib
import importlib.util
import json
import math
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

import openai
from langchain_core import exceptions as core
from tenacity import wait_random_exponential

from langchain_reasc.exceptions import ConfigurationError, ReASCError, SamplingError

__all__ = ["Fault", "RetryPolicy", "fault_of", "own_error", "retry_after"]


class Fault(Enum):
    """What an error says of the server, and of asking again; the value is what langchain-core calls it."""

    REQUEST = core.ModelInvalidRequestError
    """The request is wrong, or its answer unusable: no server would do better."""
    REFUSED = core.ModelPermissionDeniedError
    """This server will not serve us: another may, this one never."""
    BUSY = core.ModelRateLimitError
    """The server is well but takes no more now."""
    ONCE = core.ModelAPIError
    """Something went wrong with one request."""
    DOWN = core.ModelConnectionError
    """The server is down, or answers nobody."""

    @property
    def may_pass(self) -> bool:
        """Whether the same server may do better later."""
        return self in (Fault.BUSY, Fault.ONCE, Fault.DOWN)


# 408, 409, 429 and 5xx are what openai's own client tries again (openai/_base_client.py, `_should_retry`).
_OF_STATUS: Final[Mapping[int, Fault]] = {
    **dict.fromkeys((401, 403, 404), Fault.REFUSED),
    **dict.fromkeys((408, 409), Fault.ONCE),
    **dict.fromkeys((425, 429), Fault.BUSY),
    **dict.fromkeys((502, 503, 504), Fault.DOWN),
}


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently a request is tried again.

    A request that failed on one server goes to another at once. Only where there is no other does it wait, a random
    time up to a bound that doubles with each attempt ("full jitter"), or as long as the server asked for in
    ``Retry-After`` and up to ``first_wait`` more, so that not all come back at the same moment.

    Attributes:
        attempts: how many tries there are in all, the first included.
        first_wait: the bound after the first attempt, seconds.
        longest_wait: where that bound stops growing, seconds.
        longest_retry_after: a server that asks for more seconds than this is not waited for.
        sideline: how long a failed server gets no requests while others are well, seconds; doubles with each failure.
            One that is only busy (429) gets none for just as long, where it does not say how long itself.
        longest_sideline: where that stops growing, seconds.

    Raises:
        ConfigurationError: a number is out of range.
    """

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 8.0
    longest_retry_after: float = 60.0
    sideline: float = 1.0
    longest_sideline: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigurationError(f"attempts must be a whole number from 1, got {self.attempts!r}")
        for name in (field.name for field in fields(self) if field.name != "attempts"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ConfigurationError(f"{name} must be a number of seconds from 0, got {value!r}")

    @property
    def wait(self) -> wait_random_exponential:
        """The wait before another attempt on the same server."""
        return wait_random_exponential(multiplier=self.first_wait, max=self.longest_wait)

    def sideline_after(self, failures: int) -> float:
        """Seconds for which a server is left alone after its ``failures``-th failure in a row."""
        doubled: float = self.sideline * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.longest_sideline)


def fault_of(error: BaseException) -> Fault:
    """What an error raised by a request means."""
    if (own := own_error(error)) is not None:  # what we ourselves found wrong with a reply
        return Fault.DOWN if isinstance(own, SamplingError) else Fault.REQUEST
    if isinstance(error, openai.APIStatusError):
        return _fault_of_status(error.status_code)
    if _is_tls(error):
        return Fault.REFUSED
    if isinstance(error, (openai.APIConnectionError, OSError, *_TRANSPORT_ERRORS)):
        return Fault.DOWN  # refused, timed out, or cut
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError):
        return Fault.ONCE
    if isinstance(error, openai.APIError):
        return _fault_of_event(error)
    return Fault.REQUEST


def own_error(error: BaseException) -> ReASCError | None:
    """The error of ours that this is, or that openai's client has put one of its own around."""
    inner = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
    return inner if isinstance(inner, ReASCError) else None


def retry_after(error: BaseException) -> float | None:
    """Seconds that the server asks to be left alone for; None where it does not say.

    Both forms of the header are read, a number of seconds and an HTTP date (RFC 9110, section 10.2.3), and OpenAI's own
    ``retry-after-ms``.
    """
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    return None


def _fault_of_status(status: int) -> Fault:
    return _OF_STATUS.get(status, Fault.ONCE if status >= 500 else Fault.REQUEST)


def _fault_of_event(error: openai.APIError) -> Fault:
    # An error inside a stream has no status of its own: vLLM, SGLang and llama-server put it in the event's `code`.
    code: Any = error.code or (error.body.get("status") if isinstance(error.body, dict) else None)
    return _fault_of_status(int(code)) if str(code).isdecimal() else Fault.ONCE


def _is_tls(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING_TLS) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _transport_errors() -> tuple[type[Exception], ...]:
    # openai's client changed from httpx to httpx2; older ones let its errors through in the middle of a stream.
    found = [importlib.import_module(name) for name in ("httpx2", "httpx") if importlib.util.find_spec(name)]
    return tuple(module.TransportError for module in found)


_TRANSPORT_ERRORS: Final = _transport_errors()

# The server went away during the handshake, or had not answered it yet when the time was up.
_PASSING_TLS: Final = (
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
    ssl.SSLSyscallError,
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
)

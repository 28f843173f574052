"""Errors of a server as kinds that LangChain's retries understand."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import openai
from langchain_core import exceptions as core

from langchain_reasc.exceptions import ReASCError
from langchain_reasc_openai.routing.retrying import Fault, fault_of

__all__ = ["classified"]

_OF_STATUS: Final[Mapping[int, type[core.ModelError]]] = {
    401: core.ModelAuthenticationError,
    403: core.ModelPermissionDeniedError,
    404: core.ModelNotFoundError,
    408: core.ModelTimeoutError,
    429: core.ModelRateLimitError,
}
_OF_FAULT: Final[Mapping[Fault, type[core.ModelError]]] = {
    Fault.REQUEST: core.ModelInvalidRequestError,
    Fault.REFUSED: core.ModelPermissionDeniedError,
    Fault.BUSY: core.ModelRateLimitError,
    Fault.ONCE: core.ModelAPIError,
    Fault.DOWN: core.ModelConnectionError,
}
_NOT_KEPT: Final = ("request", "response", "_request")  # they hold the key


def classified(error: Exception) -> Exception:
    """What LangChain can judge: the error where it is one of core's model errors, else a copy that is one too.

    A copy keeps its class, which langchain-openai does for the most common of openai's errors only. Whether another
    attempt may succeed is said as we ourselves judge it: a certificate that is not trusted will not be next time.
    """
    if isinstance(error, ReASCError):
        return error
    found = error if isinstance(error, core.ModelError) else _copied(error, _kind_of(error))
    found.is_retryable = fault_of(error).may_pass
    return found


def _kind_of(error: Exception) -> type[core.ModelError]:
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return core.ModelTimeoutError
    fault = fault_of(error)
    if fault is Fault.DOWN and isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        return core.ModelAPIError  # it said so itself
    return _OF_STATUS.get(getattr(error, "status_code", 0), _OF_FAULT[fault])


def _copied(error: Exception, kind: type[core.ModelError]) -> core.ModelError:
    try:
        return _restored(type(error), kind, error.args, error.__dict__)
    except TypeError:  # it is made in a way of its own, as pydantic's errors are: its name and its words are kept
        return _worded(type(error).__name__, kind, str(error))


def _worded(name: str, kind: type[core.ModelError], text: str) -> core.ModelError:
    return _named(name, kind)(text)  # type: ignore[arg-type]  # mypy takes classes for unhashable


@cache
def _named(name: str, kind: type[core.ModelError]) -> type[core.ModelError]:
    return type(name, (kind,), {"__reduce__": lambda error: (_worded, (name, kind, str(error)))})


def _restored(
    own: type[Exception], kind: type[core.ModelError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> core.ModelError:
    made = _both(own, kind)  # type: ignore[arg-type]  # mypy takes classes for unhashable
    copy = made.__new__(made, *args)
    copy.args = args
    copy.__dict__.update(state)
    return copy


@cache
def _both(own: type[Exception], kind: type[core.ModelError]) -> type[core.ModelError]:
    def reduced(error: Exception) -> tuple[Any, ...]:
        state = {name: value for name, value in error.__dict__.items() if name not in _NOT_KEPT}
        return _restored, (own, kind, error.args, state)

    names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__reduce__": reduced}
    return type(own.__name__, (own, kind), names)

"""Errors of a server as kinds that LangChain's retries understand."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import openai
from langchain_core import exceptions as core

from langchain_reasc_openai.routing.retrying import Fault, fault_of, own_error

__all__ = ["classified"]

_OF_STATUS: Final[Mapping[int, type[core.ModelError]]] = {
    401: core.ModelAuthenticationError,
    404: core.ModelNotFoundError,
    408: core.ModelTimeoutError,
}
_NOT_KEPT: Final = ("request", "response", "_request")  # they hold the key


def classified(error: Exception) -> Exception:
    """What LangChain can judge: the error where it is one of core's model errors, else a copy that is one too.

    A copy keeps its class, which langchain-openai does for the most common of openai's errors only; of one that nothing
    can be derived from, as pydantic's, it keeps the name and the words. Whether another attempt may succeed is said as
    we ourselves judge it: a certificate that is not trusted will not be next time.
    """
    if (own := own_error(error)) is not None:
        return own
    found = error if isinstance(error, core.ModelError) else _copied(error, _kind_of(error))
    found.is_retryable = fault_of(error).may_pass
    return found


def _kind_of(error: Exception) -> type[core.ModelError]:
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return core.ModelTimeoutError
    fault = fault_of(error)
    if fault is Fault.DOWN and isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        return core.ModelAPIError  # it said so itself
    return _OF_STATUS.get(getattr(error, "status_code", 0), fault.value)


def _copied(error: Exception, kind: type[core.ModelError]) -> core.ModelError:
    own = type(error)
    try:
        return _remade(own.__name__, (own, kind), error.args, vars(error))
    except TypeError:  # it is made in a way of its own
        return _remade(own.__name__, (kind,), (str(error),), {})


def _remade(
    name: str, bases: tuple[type[Exception], ...], args: tuple[Any, ...], state: Mapping[str, Any]
) -> core.ModelError:
    made = _kind(name, bases)
    copy = made.__new__(made, *args)
    copy.args = args
    copy.__dict__.update(state)
    return copy


@cache
def _kind(name: str, bases: tuple[type[Exception], ...]) -> type[core.ModelError]:
    def reduced(error: Exception) -> tuple[Any, ...]:
        state = {name: value for name, value in vars(error).items() if name not in _NOT_KEPT}
        return _remade, (name, bases, error.args, state)

    names = {"__module__": bases[0].__module__, "__qualname__": name, "__reduce__": reduced}
    made: type[Any] = type(name, bases, names)
    return made

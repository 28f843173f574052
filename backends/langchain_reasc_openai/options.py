"""What a caller may say about one response, and how that is put to a server."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from openai.resources.chat.completions import Completions
from pydantic import BaseModel, Field, ValidationError

from langchain_reasc.complaints import explained, nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_openai.probing.capabilities import Capabilities
from langchain_reasc_openai.probing.presets import PRESETS

__all__ = ["SamplerFields", "check_names", "request_of"]


class SamplerFields(BaseModel):
    """Sampling parameters beyond OpenAI's. They go out under the name the server has for them."""

    top_k: Annotated[int | None, Field(ge=-1)] = None
    """Sample among the k likeliest tokens; -1 or 0, as the server has it, for all."""
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """Leave out tokens less likely than this times the likeliest."""
    typical_p: Annotated[float | None, Field(gt=0, le=1)] = None
    """Locally typical sampling."""
    repetition_penalty: Annotated[float | None, Field(gt=0)] = None
    """Divides the logits of tokens that occurred; 1 changes nothing."""
    min_tokens: Annotated[int | None, Field(ge=0)] = None
    """No end before so many tokens."""
    ignore_eos: bool | None = None
    """Go on to the token limit, whatever the model wants; for measurements."""
    bad_words: list[str] | None = None
    """Words that are not generated."""


_OF_LANGCHAIN: Final = {"stream_usage", "stop", "strict"}


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse unknown names, suggesting the nearest, and where a server's own go.

    Raises:
        ConfigurationError: a name is unknown.
    """
    names = set(known)
    for name in given:
        if name not in names:
            near = nearest(name, sorted(names))
            own = f"hat only this server knows goes into extra_body={{{name!r}: ...}}"
            hint = f"w{own}" if near is None else f"did you mean {near!r}? W{own}"
            raise ConfigurationError(f"unknown {what} {name!r}; {hint}")


def request_of(
    defaults: Mapping[str, Any], samplers: Mapping[str, Any], overrides: Mapping[str, Any], server: Capabilities
) -> dict[str, Any]:
    """The arguments of one request.

    Args:
        defaults: OpenAI's parameters as the model has them.
        samplers: the :class:`SamplerFields` that it has; None values are not sent.
        overrides: what the call was given.
        server: what the server supports. What it is known not to have is not asked for, or refused.

    Raises:
        ConfigurationError: an argument is unknown, out of range, or one the server does not know.
    """
    check_names(overrides, _CALL_NAMES, "argument")
    request = {name: value for name, value in {**defaults, **overrides}.items() if name not in _SAMPLERS}
    _name_limit(request, overrides, server)
    _ask_for_logprobs(request, server)
    given = {**samplers, **{name: value for name, value in overrides.items() if name in _SAMPLERS}}
    try:
        wanted = SamplerFields(**given).model_dump(exclude_none=True)
    except ValidationError as error:
        raise explained(error) from None
    if body := {**(request.pop("extra_body", None) or {}), **_renamed(wanted, server)}:
        request["extra_body"] = body
    if (request.get("n") or 1) > 1 and server.n is False:
        raise ConfigurationError(
            f"{_title(server)} gives one response per request, and n is {request['n']}; use sample(messages, n=...)"
        )
    return request


def _name_limit(request: dict[str, Any], overrides: Mapping[str, Any], server: Capabilities) -> None:
    names = ("max_tokens", "max_completion_tokens")
    limits = [one[name] for one in (overrides, request) for name in names if one.get(name) is not None]
    for name in names:
        request.pop(name, None)
    if limits:
        request[server.max_tokens] = limits[0]


def _ask_for_logprobs(request: dict[str, Any], server: Capabilities) -> None:
    count = server.alternatives(request.pop("top_logprobs", None))
    wanted = request.pop("logprobs", None)
    wanted = count is not None if wanted is None else wanted
    if wanted and server.logprobs is not False:
        request["logprobs"] = True
        if count:
            request["top_logprobs"] = count


def _renamed(given: Mapping[str, Any], server: Capabilities) -> dict[str, Any]:
    for name in given:
        if name not in server.samplers:
            known = ", ".join(server.samplers) or "none beyond OpenAI's"
            raise ConfigurationError(
                f"{_title(server)} does not read {name} (it reads {known}); leave it out, or put "
                "what it does read into extra_body"
            )
    return {server.samplers[name]: value for name, value in given.items()}


def _title(server: Capabilities) -> str:
    return "the server" if server.server == "generic" else PRESETS[server.server].title


_SAMPLERS: Final = frozenset(SamplerFields.model_fields)
_CALL_NAMES: Final = frozenset(
    {*inspect.signature(Completions.create).parameters, *_SAMPLERS, *_OF_LANGCHAIN} - {"self", "messages", "stream"}
)

"""Options of a request, and its body for a server."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from openai.resources.chat.completions import Completions
from pydantic import BaseModel, Field, ValidationError

from langchain_reasc.complaints import explained, nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_openai.client import RAW
from langchain_reasc_openai.presets import PRESETS, Capabilities


class SamplerFields(BaseModel):
    """Sampling parameters beyond OpenAI's, sent under the server's names."""

    top_k: Annotated[int | None, Field(ge=-1)] = None
    """Sample among the k likeliest tokens; -1 or 0, depending on the server, for all.
    """
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """Exclude tokens less likely than this times the likeliest."""
    typical_p: Annotated[float | None, Field(gt=0, le=1)] = None
    """Locally typical sampling."""
    repetition_penalty: Annotated[float | None, Field(gt=0)] = None
    """Divides the logits of tokens that occurred; 1 changes nothing."""
    min_tokens: Annotated[int | None, Field(ge=0)] = None
    """The fewest tokens of a response."""
    ignore_eos: bool | None = None
    """Generate up to the token limit, even after the model's end token; for
    measurements.
    """
    bad_words: list[str] | None = None
    """Words that must not be generated."""


_SAMPLERS: Final = frozenset(SamplerFields.model_fields)
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_CALL_NAMES: Final = frozenset(
    {
        *inspect.signature(Completions.create).parameters,
        *_SAMPLERS,
        "stream_usage",
        "stop",
        "strict",
        RAW,
    }
    - {"self", "messages", "stream"}
)


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse unknown names. The error suggests the nearest known name, or
    ``extra_body``.

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


def token_limit_in(*options: Mapping[str, Any]) -> Any:
    """Return the token limit of a response from the first options that set it, under
    either of OpenAI's names.
    """
    return next(
        (
            each[name]
            for each in options
            for name in _LIMITS
            if each.get(name) is not None
        ),
        None,
    )


def request_of(
    defaults: Mapping[str, Any],
    samplers: Mapping[str, Any],
    overrides: Mapping[str, Any],
    server: Capabilities,
) -> dict[str, Any]:
    """Return the arguments of one request.

    Args:
        defaults: the model's values of OpenAI's parameters.
        samplers: the model's :class:`SamplerFields`; None values are not sent.
        overrides: the arguments of the call.
        server: the server's capabilities. Logprobs are not requested from a server
            without them; other arguments that it does not support are refused.

    Raises:
        ConfigurationError: an argument is unknown, out of range, or not supported by
            the server.
    """
    check_names(overrides, _CALL_NAMES, "argument")
    left_out = {*_SAMPLERS, *_LIMITS, "logprobs", "top_logprobs", "extra_body"}
    options = {**defaults, **overrides}
    # LangChain's ProviderStrategy binds [], which strict servers refuse
    if not options.get("tools"):
        left_out |= {"tools", "tool_choice", "parallel_tool_calls"}
    request = {name: value for name, value in options.items() if name not in left_out}
    if (limit := token_limit_in(overrides, defaults)) is not None:
        request[server.max_tokens] = limit
    request |= _logprobs(options, server)
    try:
        given = SamplerFields(
            **{name: overrides.get(name, value) for name, value in samplers.items()}
        )
    except ValidationError as error:
        raise explained(error) from None
    if body := {
        **(options.get("extra_body") or {}),
        **_renamed(given.model_dump(exclude_none=True), server),
    }:
        request["extra_body"] = body
    if (request.get("n") or 1) > 1 and server.n is False:
        raise ConfigurationError(
            f"{_title(server)} gives one response per request, and n is "
            f"{request['n']}; use sample(messages, n=...)"
        )
    return request


def _logprobs(options: Mapping[str, Any], server: Capabilities) -> dict[str, Any]:
    k, logprobs = (
        server.alternatives(options.get("top_logprobs")),
        options.get("logprobs"),
    )
    if server.logprobs is False or not (
        k is not None if logprobs is None else logprobs
    ):
        return {}
    return {"logprobs": True, "top_logprobs": k} if k else {"logprobs": True}


def _renamed(given: Mapping[str, Any], server: Capabilities) -> dict[str, Any]:
    for name in given:
        if name not in server.samplers:
            known = ", ".join(server.samplers) or "none beyond OpenAI's"
            raise ConfigurationError(
                f"{_title(server)} does not read {name} (it reads {known}); leave it "
                "out, or put what it does read into extra_body"
            )
    return {server.samplers[name]: value for name, value in given.items()}


def _title(server: Capabilities) -> str:
    return "the server" if server.server == "generic" else PRESETS[server.server].title

"""The part of the chat model that has a configuration, knows its servers, and says what a request asks for."""

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.base import LangSmithParams
from langchain_reasc_backend.closing import Closing
from pydantic import Field, PrivateAttr, ValidationError

from langchain_reasc.complaints import explained
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.threads import DaemonExecutor
from langchain_reasc_openai.client import WHOLE
from langchain_reasc_openai.connecting import Connection, ServerFields, connection_fields, told_preset
from langchain_reasc_openai.langchain_openai_internals import CLIENT_FIELDS, default_parameters
from langchain_reasc_openai.options import SamplerFields, check_names, request_of
from langchain_reasc_openai.probing.capabilities import Capabilities
from langchain_reasc_openai.routing.replicas import ReplicaStatus

__all__ = ["ServedModel"]

_TRACED = "ls_structured_output_format"
"""What ``with_structured_output`` tells LangSmith; ``invoke`` and its like take it out of the arguments themselves."""
_NOT_SENT = ("model", "stream", "reasoning", "truncation", "include", "context_management")
"""What ChatOpenAI sends of itself but the client says again, or that only the Responses API takes."""


class ServedModel(ServerFields, SamplerFields, Closing):
    """A model on one or several servers."""

    use_responses_api: bool | None = False
    """Always False: the Responses API returns no logprobs through langchain-openai."""
    samples_per_request: int = Field(default=1, ge=1)
    """Samples of :meth:`sample` that share a request, by ``n``; llama-server takes no more than its ``--parallel``."""
    sample_timeout: float | None = Field(default=3600.0, gt=0)
    """Seconds that one of the samples of :meth:`sample` may take, all its attempts together; None for any time."""
    question_timeout: float | None = Field(default=None, gt=0)
    """Seconds that all samples of one call of :meth:`sample` may take."""

    _connection: Connection = PrivateAttr()

    if not TYPE_CHECKING:  # type checkers see the signature of the class that is made

        def __init__(self, **fields: Any) -> None:
            aliases = {field.alias for field in type(self).model_fields.values() if field.alias}
            check_names(fields, {*type(self).model_fields, *aliases}, "option")
            try:
                super().__init__(**connection_fields(fields))
            except ValidationError as error:
                raise explained(error) from None

    def model_post_init(self, context: Any, /) -> None:
        """Set up what copies of the model share."""
        super().model_post_init(context)
        self._connection = Connection()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields that were given, the key among them, for another process: it connects anew."""
        kept = self.model_fields_set - {*CLIENT_FIELDS, "openai_api_base"}
        return partial(type(self), **{name: getattr(self, name) for name in kept}), ()

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Where LangChain's serialisation finds the class."""
        return cls.__module__.split(".")

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """What identifies the model beside its fields."""
        return {}

    @property
    def _llm_type(self) -> str:
        return "openai-compatible-chat"

    def capabilities(self) -> Capabilities:
        """What the servers support: by the preset, or with "auto" by asking the first that answers, once.

        Raises:
            ServerError: no server can be reached, or all refuse the key.
            ConfigurationError: they have no model of that name.
        """
        return self._connection.capabilities(self)

    def status(self) -> list[ReplicaStatus]:
        """The servers with their load and health, in the order given."""
        return self._connection.pool(self).status()

    def close(self) -> None:
        """Cut off what is running and close all connections, for copies of the model too."""
        self._connection.close()

    def calibration_fingerprint(self, **overrides: Any) -> dict[str, Any]:
        """What a calibration measured on this model holds for.

        Args:
            overrides: options given to the calls, such as ``temperature``.

        Returns:
            ``model`` (its name on the servers) and ``sampling`` (parameter name -> value, those that are set).
        """
        names = ("temperature", "top_p", "presence_penalty", "frequency_penalty", *SamplerFields.model_fields)
        set_here = {name: overrides.get(name, getattr(self, name)) for name in names}
        sampling = {**set_here, "max_tokens": self._limit(overrides)}
        return {
            "model": str(overrides.get("model", self.model_name)),
            "sampling": {
                name: json.dumps(value) if isinstance(value, list | tuple) else value
                for name, value in sampling.items()
                if value is not None
            },
        }

    def _limit(self, overrides: dict[str, Any]) -> int | None:
        """Tokens of a response at most."""
        limits = (overrides.get("max_tokens"), overrides.get("max_completion_tokens"), self.max_tokens)
        return next((one for one in limits if one is not None), None)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """What LangSmith shows, and reckons costs by: OpenAI's prices are for OpenAI's servers alone."""
        preset = told_preset(self)
        params: LangSmithParams = super()._get_ls_params(stop=stop, **kwargs)
        params.pop("ls_max_tokens", None)
        if (limit := self._limit(kwargs)) is not None:
            params["ls_max_tokens"] = limit
        told = preset is not None and preset.name != "generic"
        params["ls_provider"] = preset.name.replace("-", "_") if preset and told else "openai_compatible"
        return params

    async def _usable(self) -> Capabilities:
        if (settled := self._connection.settled(self)) is not None:
            return settled
        probing = DaemonExecutor(1, "reasc-probe").submit(self._connection.usable, self)
        return await asyncio.wrap_future(probing)  # unlike asyncio.to_thread, it holds no loop that ends

    def _request(self, server: Capabilities, overrides: dict[str, Any], stop: list[str] | None) -> dict[str, Any]:
        defaults = {name: value for name, value in default_parameters(self).items() if name not in _NOT_SENT}
        samplers = {name: getattr(self, name) for name in SamplerFields.model_fields}
        call = {name: value for name, value in overrides.items() if name != _TRACED}
        if stop is not None:
            call["stop"] = stop
        return request_of({**defaults, "model": self.model_name}, samplers, call, server)

    def _streamed_request(
        self, server: Capabilities, overrides: dict[str, Any], stop: list[str] | None
    ) -> dict[str, Any]:
        request = self._request(server, overrides, stop)
        if (request.pop("n", None) or 1) > 1:
            raise ConfigurationError("a stream carries one response, and n is set; use generate or sample")
        wanted = request.pop("stream_usage", self.stream_usage)
        request["stream_usage"] = server.streamed_usage is not False and wanted is not False
        if server.streamed_logprobs is False and (request.get("logprobs") or server.streamed_usage is False):
            request[WHOLE] = True
        return request

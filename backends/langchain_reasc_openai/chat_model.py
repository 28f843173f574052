"""``ChatOpenAICompatible``: one or several OpenAI-compatible servers as one LangChain
chat model.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_reasc_backend.bridge import AsyncStream, Closing, Start, Stream
from pydantic import Field, PrivateAttr, SecretStr, ValidationError

from langchain_reasc.complaints import explained
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.integrations import Integration, register_integration
from langchain_reasc.threads import DaemonExecutor, as_they_end
from langchain_reasc_openai.client import WHOLE
from langchain_reasc_openai.connection import (
    Connection,
    ServerFields,
    connection_fields,
    known_preset,
)
from langchain_reasc_openai.drawing import (
    AsyncSampleStream,
    Attempted,
    Draw,
    SampleStream,
)
from langchain_reasc_openai.langchain_openai_internals import (
    CLIENT_FIELDS,
    default_parameters,
    messages_of,
)
from langchain_reasc_openai.presets import Capabilities
from langchain_reasc_openai.replicas import ReplicaStatus, logprobs_of
from langchain_reasc_openai.requests import (
    SamplerFields,
    check_names,
    request_of,
    token_limit_in,
)
from langchain_reasc_openai.routing import RetryPolicy

_TRACED: Final = "ls_structured_output_format"
"""An argument of ``with_structured_output`` for LangSmith. ``invoke`` removes it,
``sample`` has to do the same.
"""
_NOT_SENT: Final = (
    "model",
    "stream",
    "reasoning",
    "truncation",
    "include",
    "context_management",
)
"""Parameters of ChatOpenAI that the client sets itself, or that only the Responses API
accepts.
"""


class ChatOpenAICompatible(ServerFields, SamplerFields, Closing):
    """A model behind one or several OpenAI-compatible servers: vLLM, SGLang, llama-server, Ollama, OpenAI, ...

    This is langchain-openai's ``ChatOpenAI``, with the same fields, tools and structured output, for several servers
    and for servers with fewer features. Each request goes to the server that has the prompt in its prefix cache, or the
    least to do. A failed server is sidelined, and its requests start again on another. The ``preset`` says what a
    server supports, or the server is asked once. ``sample`` draws several responses to one prompt, each a stream that
    can be cut off.

    Without ``api_key``, servers get the key "no-key". ``OPENAI_API_KEY`` is read only for OpenAI's own address, and
    with ``preset="openai"`` for the address in ``OPENAI_BASE_URL`` (or ``OPENAI_API_BASE``), such as a gateway's.

    Example:
        .. code-block:: python

            model = ChatOpenAICompatible(base_url="http://localhost:8000/v1", model="Qwen/Qwen2.5-7B-Instruct")
            model = ChatOpenAICompatible(base_url=["http://gpu1:8000", "http://gpu2:8000"], model="...", preset="vllm")
            with model.sample("How much is 17 + 25?", n=8) as samples:
                for index, message in samples:
                    print(index, message.content)

    Raises:
        ConfigurationError: an option is unknown, wrong, or not supported by the server.
        ServerError: with ``preset="auto"``, by the first request, if no server can be reached.
    """

    use_responses_api: bool | None = False
    """Always False: the Responses API returns no logprobs through langchain-openai."""
    samples_per_request: int = Field(default=1, ge=1)
    """Samples of :meth:`sample` that share a request, by ``n``; llama-server accepts at
    most its ``--parallel``.
    """
    sample_timeout: float | None = Field(default=3600.0, gt=0)
    """Seconds for one sample of :meth:`sample`, with all its attempts; None for any
    time.
    """
    question_timeout: float | None = Field(default=None, gt=0)
    """Seconds for all samples of one call of :meth:`sample`."""

    _connection: Connection = PrivateAttr()

    # without pydantic's plugin, a type checker would rename max_tokens
    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            model: str,
            base_url: str | Sequence[str] | None = None,
            api_key: str | SecretStr | None = None,
            preset: str = "auto",
            temperature: float | None = None,
            top_p: float | None = None,
            top_k: int | None = None,
            min_p: float | None = None,
            typical_p: float | None = None,
            repetition_penalty: float | None = None,
            presence_penalty: float | None = None,
            frequency_penalty: float | None = None,
            max_tokens: int | None = None,
            min_tokens: int | None = None,
            ignore_eos: bool | None = None,
            bad_words: list[str] | None = None,
            stop: list[str] | str | None = None,
            seed: int | None = None,
            logprobs: bool | None = None,
            top_logprobs: int | None = None,
            timeout: float | None = None,
            sample_timeout: float | None = 3600.0,
            question_timeout: float | None = None,
            samples_per_request: int = 1,
            max_retries: int | None = None,
            retry: RetryPolicy | None = None,
            affinity: bool = True,
            burst: int = 16,
            **others_of_ChatOpenAI: Any,
        ) -> None: ...

    else:

        def __init__(self, **fields: Any) -> None:
            aliases = {
                field.alias for field in type(self).model_fields.values() if field.alias
            }
            check_names(fields, {*type(self).model_fields, *aliases}, "option")
            try:
                super().__init__(**connection_fields(fields))
            except ValidationError as error:
                raise explained(error) from None

    def model_post_init(self, context: Any, /) -> None:
        """Create the connection, which copies of the model share."""
        super().model_post_init(context)
        self._connection = Connection()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the given fields, including the key, for another process, which
        connects anew.
        """
        # ChatOpenAI made them for the proxy
        made = ("http_client", "http_async_client") if self.openai_proxy else ()
        kept = self.model_fields_set - {*CLIENT_FIELDS, *made, "openai_api_base"}
        return partial(type(self), **{name: getattr(self, name) for name in kept}), ()

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Return the module in which LangChain's serialisation finds the class."""
        return cls.__module__.split(".")

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """Attributes besides the fields that identify the model: none."""
        return {}

    @property
    def _llm_type(self) -> str:
        return "openai-compatible-chat"

    def capabilities(self) -> Capabilities:
        """Return the servers' capabilities from the preset, or with "auto" from the
        first server that answers.

        Raises:
            ServerError: no server can be reached, or all refuse the key.
            ConfigurationError: the servers have no model of that name.
        """
        return self._connection.capabilities(self)

    async def acapabilities(self) -> Capabilities:
        """Like :meth:`capabilities`, without blocking the event loop."""
        return await self._asked(self._connection.capabilities)

    def status(self) -> list[ReplicaStatus]:
        """Return the servers with their load and their health for this model, in the
        order given.
        """
        return self._connection.pool(self).status({"model": self.model_name})

    def close(self) -> None:
        """Cut off running requests and close all connections, also those of the model's
        copies.
        """
        self._connection.close()

    def sample(
        self,
        messages: LanguageModelInput,
        *,
        n: int,
        first: int = 0,
        stop: list[str] | None = None,
        **overrides: Any,
    ) -> SampleStream:
        """Draw n samples of one prompt at once, each a stream that can be cut off.

        With ``samples_per_request`` above 1, several samples share a request and its
        stream, if the server supports ``n``. This is cheaper for a prompt that is not
        in the server's prefix cache: a real llama-server computed it once and not 8
        times, in a third of the time (``python -m benchmarks.abort``). With 1, the
        default, samples fail, move to another server and are seeded one by one. A
        ``rate_limiter`` is asked before each attempt.

        Args:
            messages: the prompt, in any form that ``invoke`` accepts.
            n: the number of samples.
            first: the index of the first sample; sample i is drawn with ``seed + i`` if
                a seed is set.
            stop: strings that end a sample.
            overrides: options of this call, such as ``temperature``, ``top_k`` or
                ``tools``.

        Returns:
            An iterator of ``(index, message)`` in the order in which samples end. A
            failed sample is a ``FailedSample``; the others continue. ``cancel()``
            closes the streams, and the servers stop generating.

        Raises:
            ConfigurationError: an option is wrong, or not supported by the server.
            ServerError: no server can be reached.
        """
        draw = self._draw(
            self._connection.capabilities_for_request(self),
            messages,
            n,
            first,
            stop,
            overrides,
        )
        return SampleStream(draw.start, Attempted.outcome)

    def asample(
        self,
        messages: LanguageModelInput,
        *,
        n: int,
        first: int = 0,
        stop: list[str] | None = None,
        **overrides: Any,
    ) -> AsyncSampleStream:
        """Like :meth:`sample`, for ``async for``. The requests are sent when the
        iteration begins.
        """

        async def prepare() -> Start[Attempted]:
            return self._draw(
                await self._capabilities_for_request(),
                messages,
                n,
                first,
                stop,
                overrides,
            ).start

        return AsyncSampleStream(prepare, Attempted.outcome)

    def calibration_fingerprint(self, **overrides: Any) -> dict[str, Any]:
        """Return the model's name and sampling, to which a calibration is bound.

        Args:
            overrides: options of the calls, such as ``temperature``.

        Returns:
            ``model`` (its name on the servers) and ``sampling`` (parameter name ->
            value, if it is set).
        """
        names = (
            "temperature",
            "top_p",
            "presence_penalty",
            "frequency_penalty",
            *SamplerFields.model_fields,
        )
        sampling = {name: overrides.get(name, getattr(self, name)) for name in names}
        sampling["max_tokens"] = token_limit_in(
            overrides, {"max_tokens": self.max_tokens}
        )
        return {
            "model": str(overrides.get("model", self.model_name)),
            "sampling": {
                name: json.dumps(value) if isinstance(value, list | tuple) else value
                for name, value in sampling.items()
                if value is not None
            },
        }

    def _get_ls_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> LangSmithParams:
        """Return what LangSmith shows and computes costs from. Only OpenAI's servers
        have OpenAI's prices.
        """
        params: LangSmithParams = super()._get_ls_params(stop=stop, **kwargs)
        params.pop("ls_max_tokens", None)
        if (
            limit := token_limit_in(kwargs, {"max_tokens": self.max_tokens})
        ) is not None:
            params["ls_max_tokens"] = limit
        preset = known_preset(self)
        named = preset is not None and preset.name != "generic"
        params["ls_provider"] = (
            preset.name.replace("-", "_") if preset and named else "openai_compatible"
        )
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(
            self._connection.capabilities_for_request(self), kwargs, stop
        )
        future = self._connection.pool(self).generate(
            messages, request, self.rate_limiter
        )
        try:
            next(as_they_end([future]))
            return future.result()
        finally:
            future.cancel()  # on Ctrl-C; a finished future ignores it

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(await self._capabilities_for_request(), kwargs, stop)
        return await asyncio.wrap_future(
            self._connection.pool(self).generate(messages, request, self.rate_limiter)
        )

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request = self._streamed_request(
            self._connection.capabilities_for_request(self), kwargs, stop
        )
        with Stream[ChatGenerationChunk](
            self._connection.pool(self).stream(messages, request, self.rate_limiter)
        ) as chunks:
            for chunk in chunks:
                if run_manager:
                    run_manager.on_llm_new_token(
                        chunk.text, chunk=chunk, logprobs=logprobs_of(chunk)
                    )
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async def prepare() -> Start[ChatGenerationChunk]:
            request = self._streamed_request(
                await self._capabilities_for_request(), kwargs, stop
            )
            return self._connection.pool(self).stream(
                messages, request, self.rate_limiter
            )

        async with AsyncStream[ChatGenerationChunk](prepare) as chunks:
            async for chunk in chunks:
                if run_manager:
                    await run_manager.on_llm_new_token(
                        chunk.text, chunk=chunk, logprobs=logprobs_of(chunk)
                    )
                yield chunk

    def _draw(
        self,
        server: Capabilities,
        messages: LanguageModelInput,
        n: int,
        first: int,
        stop: list[str] | None,
        overrides: dict[str, Any],
    ) -> Draw:
        request = self._streamed_request(server, overrides, stop)
        return Draw(
            self._connection.pool(self),
            messages_of(self, messages),
            n=n,
            first=first,
            seed=request.pop("seed", None),
            kwargs=request,
            per_request=1
            if server.n is False or WHOLE in request
            else self.samples_per_request,
            sample_timeout=self.sample_timeout,
            timeout=self.question_timeout,
            rate_limiter=self.rate_limiter,
        )

    async def _capabilities_for_request(self) -> Capabilities:
        return await self._asked(self._connection.capabilities_for_request)

    async def _asked(self, ask: Callable[[ServerFields], Capabilities]) -> Capabilities:
        if (cached := self._connection.cached(self)) is not None:
            return cached
        asking = DaemonExecutor(1, "reasc-asking").submit(ask, self)
        # unlike asyncio.to_thread, this does not delay the loop's end
        return await asyncio.wrap_future(asking)

    def _request(
        self, server: Capabilities, overrides: dict[str, Any], stop: list[str] | None
    ) -> dict[str, Any]:
        defaults = {
            name: value
            for name, value in default_parameters(self).items()
            if name not in _NOT_SENT
        }
        samplers = {name: getattr(self, name) for name in SamplerFields.model_fields}
        call = {name: value for name, value in overrides.items() if name != _TRACED}
        if stop is not None:
            call["stop"] = stop
        return request_of(
            {**defaults, "model": self.model_name}, samplers, call, server
        )

    def _streamed_request(
        self, server: Capabilities, overrides: dict[str, Any], stop: list[str] | None
    ) -> dict[str, Any]:
        request = self._request(server, overrides, stop)
        if (request.pop("n", None) or 1) > 1:
            raise ConfigurationError(
                "a stream carries one response, and n is set; use generate or sample"
            )
        wanted = request.pop("stream_usage", self.stream_usage)
        request["stream_usage"] = (
            server.streamed_usage is not False and wanted is not False
        )
        if server.streamed_logprobs is False and (
            request.get("logprobs") or server.streamed_usage is False
        ):
            request[WHOLE] = True
        return request


@register_integration("langchain_reasc_openai.ChatOpenAICompatible")
def _integration(model: ChatOpenAICompatible) -> Integration:
    """Return how ReASC asks this model for logprobs, from what is known without asking
    the servers.
    """
    known = model._connection.known(model) or Capabilities()
    if known.logprobs is False:
        return Integration(
            logprobs=None, no_logprobs="; ".join(known.notices) or "the server has none"
        )
    return Integration(
        max_top_logprobs=min(
            20, 20 if known.top_logprobs is None else known.top_logprobs
        )
    )

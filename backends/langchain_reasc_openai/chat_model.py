"""ChatOpenAICompatible: one or several OpenAI-compatible servers as one LangChain chat model."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_reasc_backend.bridge import Start
from pydantic import SecretStr

from langchain_reasc.models.integrations import Integration, register_integration
from langchain_reasc_openai.client import WHOLE
from langchain_reasc_openai.drawing.draw import AsyncSampleStream, Draw, SampleStream
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.langchain_openai_internals import messages_of
from langchain_reasc_openai.probing.capabilities import Capabilities
from langchain_reasc_openai.routing.retrying import RetryPolicy
from langchain_reasc_openai.served_model import ServedModel

__all__ = ["ChatOpenAICompatible"]


class ChatOpenAICompatible(ServedModel):
    """A model behind one or several OpenAI-compatible servers: vLLM, SGLang, llama-server, Ollama, OpenAI, ...

    It is langchain-openai's ``ChatOpenAI`` with its fields, tools and structured output. What differs is where requests
    go and what they ask for. Each goes to the server that has least to do, or has the prompt in its prefix cache; a
    failed server is sidelined, and what it was working on starts again elsewhere. What a server supports is known from
    its ``preset`` or found out by asking it once, and nothing is asked of it that it does not have. ``sample`` draws
    several responses to one prompt, each a stream of its own that can be cut off.

    Without ``api_key`` servers get the word "no-key"; ``OPENAI_API_KEY`` is read for OpenAI's own address alone.

    Example:
        .. code-block:: python

            model = ChatOpenAICompatible(base_url="http://localhost:8000/v1", model="Qwen/Qwen2.5-7B-Instruct")
            model = ChatOpenAICompatible(base_url=["http://gpu1:8000", "http://gpu2:8000"], model="...", preset="vllm")
            with model.sample("How much is 17 + 25?", n=8) as samples:
                for index, message in samples:
                    print(index, message.content)

    Raises:
        ConfigurationError: an option is unknown, wrong, or one the server does not know.
        ServerError: with ``preset="auto"``, when the first request is made and no server can be reached.
    """

    if TYPE_CHECKING:  # without pydantic's plugin they would make one in which max_tokens has another name

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
            probe_cache: str | Path | None = None,
            **others_of_ChatOpenAI: Any,
        ) -> None: ...

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

        With ``samples_per_request`` above 1 several share a request and its stream, where the server knows ``n``. That
        is cheaper for a prompt that is not in its prefix cache: a real llama-server computed it once and not 8 times,
        in a third of the time (``python -m benchmarks.abort``). With 1, the default, each sample fails, moves to
        another server and is seeded by itself. A ``rate_limiter`` is asked before each request, tries included.

        Args:
            messages: the prompt, in any form that ``invoke`` takes.
            n: how many.
            first: the index of the first sample; sample i is drawn with ``seed + i`` where a seed is set.
            stop: strings that end a sample.
            overrides: options of this call, such as ``temperature``, ``top_k`` or ``tools``.

        Returns:
            An iterator of ``(index, message)`` in the order the samples end; one that failed comes out as a
            ``FailedSample`` and costs only itself. ``cancel()`` closes the streams, and the servers stop generating.

        Raises:
            ConfigurationError: an option is wrong, or one the server does not know.
            ServerError: no server can be reached.
        """
        draw = self._draw(self._connection.usable(self), messages, n, first, stop, overrides)
        return SampleStream(draw.start, Drawn.outcome)

    def asample(
        self,
        messages: LanguageModelInput,
        *,
        n: int,
        first: int = 0,
        stop: list[str] | None = None,
        **overrides: Any,
    ) -> AsyncSampleStream:
        """The asynchronous :meth:`sample`, for ``async for``; requests are made when iteration begins."""

        async def begin() -> Start[Drawn]:
            return self._draw(await self._usable(), messages, n, first, stop, overrides).start

        return AsyncSampleStream(begin, Drawn.outcome)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(self._connection.usable(self), kwargs, stop)
        return self._connection.pool(self).generate(
            messages, run_manager=run_manager, rate_limiter=self.rate_limiter, **request
        )

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(await self._usable(), kwargs, stop)
        return await self._connection.pool(self).agenerate(
            messages, run_manager=run_manager, rate_limiter=self.rate_limiter, **request
        )

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request = self._streamed_request(self._connection.usable(self), kwargs, stop)
        yield from self._connection.pool(self).stream(
            messages, run_manager=run_manager, rate_limiter=self.rate_limiter, **request
        )

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = self._streamed_request(await self._usable(), kwargs, stop)
        chunks = self._connection.pool(self).astream(
            messages, run_manager=run_manager, rate_limiter=self.rate_limiter, **request
        )
        async for chunk in chunks:
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
        seed = request.pop("seed", None)
        return Draw(
            self._connection.pool(self),
            messages_of(self, messages),
            n=n,
            first=first,
            kwargs=request,
            per_request=1 if server.n is False or WHOLE in request else self.samples_per_request,
            seeds=None if seed is None else [seed + index for index in range(first, first + n)],
            sample_timeout=self.sample_timeout,
            timeout=self.question_timeout,
            rate_limiter=self.rate_limiter,
        )


@register_integration("langchain_reasc_openai.ChatOpenAICompatible")
def _integration(model: ChatOpenAICompatible) -> Integration:
    """How ReASC asks it for logprobs, as far as that is known without asking the servers."""
    known = model._connection.known(model) or Capabilities()
    if known.logprobs is False:
        return Integration(logprobs=None, no_logprobs="; ".join(known.notices) or "the server has none")
    return Integration(max_top_logprobs=min(20, 20 if known.top_logprobs is None else known.top_logprobs))

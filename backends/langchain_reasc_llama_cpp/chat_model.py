"""ChatLlamaCpp: a GGUF, in process, as a LangChain chat model."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_reasc_backend.bridge import AsyncStream, Start, Stream

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.engine.pacing import apaced, paced
from langchain_reasc_llama_cpp.engine.request import Completion
from langchain_reasc_llama_cpp.engine.streams import AsyncSampleStream, SampleStream, Submit, at_once, generating
from langchain_reasc_llama_cpp.messages import ChunkMaker
from langchain_reasc_llama_cpp.prompted_model import Call, fresh_seed
from langchain_reasc_llama_cpp.tool_model import ToolModel

__all__ = ["ChatLlamaCpp"]


class ChatLlamaCpp(ToolModel):
    """A GGUF model run by llama.cpp in this process, with exact token signals and parallel samples.

    The model is loaded when the object is made. Copies (``model_copy``) share it. It may be used from many threads and
    event loops at once, whose requests are decoded together. Every response carries
    ``response_metadata["token_signals"]``, computed from the raw logits of the whole vocabulary. Tool calls and
    structured output are held to their schemas by a grammar.

    Example:
        .. code-block:: python

            with ChatLlamaCpp(model_path="model.gguf") as model:
                print(model.invoke("How much is 17 + 25?").content)
                with model.sample("How much is 17 + 25?", n=8) as samples:  # one prefill, decoded together
                    for index, message in samples:
                        print(index, message.content)

    Raises:
        ConfigurationError: an option is unknown or out of range.
        ModelFileError: the file is missing, not a GGUF, truncated, or has no chat template.
        ModelError: there is no memory for the context.
        MissingExtraError: llama-cpp-python is not installed.
    """

    def sample(
        self,
        messages: LanguageModelInput,
        *,
        n: int,
        first: int = 0,
        stop: list[str] | None = None,
        **overrides: Any,
    ) -> SampleStream:
        """Generate n samples of one prompt, decoded together after one prefill.

        Sample i (``first`` ≤ i < ``first + n``) is drawn with ``seed + i``. A later call with the same prompt prefills
        nothing. More samples than ``n_parallel`` join as others end. With a ``rate_limiter`` each begins when that
        permits it.

        Args:
            messages: the prompt, in any form that ``invoke`` takes.
            n: how many, 1 to 1,024.
            first: the index of the first sample.
            stop: strings that end a sample.
            overrides: options of this call, such as ``temperature``, ``seed``, ``tools`` or ``response_format``.

        Returns:
            An iterator of ``(index, message)`` in the order the samples end.

        Raises:
            ConfigurationError: an option is wrong.
            ContextOverflowError: the prompt does not fit.
            ModelClosedError: the model was closed.
        """
        call = self._call({"n": n, "first": first, **overrides})
        submit = paced(self._engine, self.rate_limiter) if self.rate_limiter else None
        begin = self._begin(messages, stop, call, self._base_seed, submit=submit)
        return SampleStream(begin, call.maker.sample)

    def asample(
        self,
        messages: LanguageModelInput,
        *,
        n: int,
        first: int = 0,
        stop: list[str] | None = None,
        **overrides: Any,
    ) -> AsyncSampleStream:
        """The asynchronous :meth:`sample`; the prompt is read, and refused, when iteration begins."""
        call = self._call({"n": n, "first": first, **overrides})
        submit = apaced(self._engine, self.rate_limiter) if self.rate_limiter else None
        begin = partial(asyncio.to_thread, self._begin, messages, stop, call, self._base_seed, submit=submit)
        return AsyncSampleStream(begin, call.maker.sample)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(kwargs)
        with Stream[Completion](self._begin(messages, stop, call, fresh_seed())) as completions:
            return self._result(call, completions)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(kwargs)
        begin = partial(asyncio.to_thread, self._begin, messages, stop, call, fresh_seed())
        async with AsyncStream[Completion](begin) as completions:
            return self._result(call, [completion async for completion in completions])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._streaming_call(kwargs)
        begin = self._begin(messages, stop, call, fresh_seed(), stream=True)
        with Stream(begin, ChunkMaker(call.maker).of) as chunks:
            for chunk in chunks:
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = self._streaming_call(kwargs)
        begin = partial(asyncio.to_thread, self._begin, messages, stop, call, fresh_seed(), stream=True)
        async with AsyncStream(begin, ChunkMaker(call.maker).of) as chunks:
            async for chunk in chunks:
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _begin(
        self,
        messages: LanguageModelInput,
        stop: list[str] | None,
        call: Call,
        seed: int,
        *,
        stream: bool = False,
        submit: Submit | None = None,
    ) -> Start[Any]:
        """Read the prompt; what is returned begins to generate."""
        request = self._request_for(messages, stop, call, seed, stream=stream)
        return generating(submit or at_once(self._engine), request)

    def _streaming_call(self, kwargs: dict[str, Any]) -> Call:
        call = self._call(kwargs)
        if call.options.n != 1:
            raise ConfigurationError(f"a stream carries one response, not n={call.options.n}; use generate or sample")
        return call

    def _result(self, call: Call, completions: Iterable[Completion]) -> ChatResult:
        ordered = sorted(completions, key=lambda completion: completion.index)
        prompt, generated = ordered[0].prompt_tokens, sum(c.output_tokens for c in ordered)
        usage = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
        return ChatResult(
            generations=[call.maker.generation(completion) for completion in ordered],
            llm_output={"token_usage": usage, "model_name": self.model_name},
        )

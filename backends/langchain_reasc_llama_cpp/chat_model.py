"""ChatLlamaCpp: a GGUF, in process, as a LangChain chat model."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError
from langchain_reasc_llama_cpp.chat_template import plain_messages
from langchain_reasc_llama_cpp.loaded_model import LoadedModel
from langchain_reasc_llama_cpp.messages import MessageMaker
from langchain_reasc_llama_cpp.options import CallOptions, checked_stop
from langchain_reasc_llama_cpp.request import Completion, Event, GenerationRequest, TextDelta
from langchain_reasc_llama_cpp.sampler import SEEDS
from langchain_reasc_llama_cpp.streams import AsyncEvents, AsyncSampleStream, Events, MakeRequest, SampleStream

__all__ = ["ChatLlamaCpp"]


class ChatLlamaCpp(LoadedModel):
    """A GGUF model run by llama.cpp in this process, with exact token signals and parallel samples.

    The model is loaded when the object is made. Copies (``model_copy``) share it. It may be used from many threads and
    event loops at once: requests take turns. Every response carries ``response_metadata["token_signals"]``, computed
    from the raw logits of the whole vocabulary.

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
        nothing. More samples than ``n_parallel`` join as others end.

        Args:
            messages: whatever ``invoke`` takes.
            n: how many, 1 to 1,024.
            first: index of the first.
            stop: strings that end a sample.
            overrides: options of this call, such as ``temperature``, ``max_tokens`` or ``seed``.

        Returns:
            An iterator of ``(index, message)`` in the order the samples end.

        Raises:
            ConfigurationError: an option is wrong.
            ContextOverflowError: the prompt does not fit.
            ModelClosedError: the model was closed.
        """
        options = self._options({"n": n, "first": first, **overrides})
        request = self._request_for(messages, stop, options, self._base_seed)
        return SampleStream(Events(self._engine, request), self._maker(options).message)

    def asample(
        self,
        messages: LanguageModelInput,
        *,
        n: int,
        first: int = 0,
        stop: list[str] | None = None,
        **overrides: Any,
    ) -> AsyncSampleStream:
        """As :meth:`sample`, for ``async for``; the prompt is read, and refused, when iteration begins."""
        options = self._options({"n": n, "first": first, **overrides})
        prepare = partial(self._request_for, messages, stop, options, self._base_seed)
        return AsyncSampleStream(self._engine, prepare, self._maker(options).message)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        options = self._options(kwargs)
        events = Events(self._engine, self._request_for(messages, stop, options, _fresh_seed()))
        try:
            return self._result(options, [event for event in events if isinstance(event, Completion)])
        finally:
            events.close()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        options = self._options(kwargs)
        events = await AsyncEvents.start(
            self._engine, partial(self._request_for, messages, stop, options, _fresh_seed())
        )
        try:
            return self._result(options, [event async for event in events if isinstance(event, Completion)])
        finally:
            events.close()

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        options = self._streaming_options(kwargs)
        events = Events(self._engine, self._request_for(messages, stop, options, _fresh_seed(), stream=True))
        try:
            for event in events:
                chunk = self._chunk(options, event)
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
        finally:
            events.close()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        options = self._streaming_options(kwargs)
        prepare = partial(self._request_for, messages, stop, options, _fresh_seed(), stream=True)
        events = await AsyncEvents.start(self._engine, prepare)
        try:
            async for event in events:
                chunk = self._chunk(options, event)
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
        finally:
            events.close()

    def get_token_ids(self, text: str) -> list[int]:
        """Token ids of a text, by the model's own tokenizer, without a begin-of-sequence token."""
        self._engine.check_usable()
        return self._engine.model.tokenize(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Any = None) -> int:
        """Tokens of the prompt these messages make, the chat template's own included."""
        return len(self._prompt(messages))

    def _prompt(self, messages: LanguageModelInput) -> list[int]:
        self._engine.check_usable()
        text = self._template.render(plain_messages(self._convert_input(messages).to_messages()))
        model = self._engine.model
        if model.adds_bos and model.bos:
            text = text.removeprefix(model.bos)  # most templates write it, and the tokenizer would again
        return model.tokenize(text, add_special=True)

    def _request_for(
        self,
        messages: LanguageModelInput,
        stop: list[str] | None,
        options: CallOptions,
        seed: int,
        *,
        stream: bool = False,
    ) -> MakeRequest:
        """Everything about a request but where its events go. ``seed`` counts where the options leave it open."""
        stops = checked_stop(self.stop if stop is None else stop)
        prompt = self._prompt(messages)
        room = self._engine.n_ctx - len(prompt)
        if not prompt:
            raise ConfigurationError("the messages make an empty prompt; say something")
        if room < 1:
            raise ContextOverflowError(
                f"the prompt has {len(prompt):,} tokens, but the context holds {self._engine.n_ctx:,} and the response "
                f"needs at least one; shorten the prompt, or load the model with n_ctx={len(prompt) + 256} or more"
            )
        return partial(
            _make_request,
            prompt=np.array(prompt, dtype=np.int32),
            samples=range(options.first, options.first + options.n),
            seed=seed if options.seed is None else options.seed,
            sampling=options.sampling(self._engine.model.metadata),
            max_tokens=options.limit(self._engine.model.metadata, room),
            stop=stops,
            signals=options.signals,
            top_k_signal=options.top_k_signal,
            stream=stream,
        )

    def _streaming_options(self, kwargs: dict[str, Any]) -> CallOptions:
        options = self._options(kwargs)
        if options.n != 1:
            raise ConfigurationError(f"a stream carries one response, not n={options.n}; use generate or sample")
        return options

    def _maker(self, options: CallOptions) -> MessageMaker:
        vocabulary = self._engine.model.vocabulary_size
        info = {"vocabulary_size": vocabulary, "top_k": min(options.top_k_signal, vocabulary)}
        return MessageMaker(self.model_name, info)

    def _chunk(self, options: CallOptions, event: Event) -> ChatGenerationChunk:
        if isinstance(event, TextDelta):
            return ChatGenerationChunk(message=AIMessageChunk(content=event.text))
        assert isinstance(event, Completion)
        info = {"finish_reason": event.finish_reason}
        return ChatGenerationChunk(message=self._maker(options).last_chunk(event), generation_info=info)

    def _result(self, options: CallOptions, completions: Iterable[Completion]) -> ChatResult:
        maker = self._maker(options)
        ordered = sorted(completions, key=lambda completion: completion.index)
        generations = [
            ChatGeneration(message=maker.message(c), generation_info={"finish_reason": c.finish_reason})
            for c in ordered
        ]
        prompt, generated = ordered[0].prompt_tokens, sum(c.output_tokens for c in ordered)
        usage = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
        return ChatResult(generations=generations, llm_output={"token_usage": usage, "model_name": self.model_name})


def _fresh_seed() -> int:
    return secrets.randbelow(SEEDS)


def _make_request(emit: Callable[[Event], None], **request: Any) -> GenerationRequest:
    return GenerationRequest(emit=emit, **request)

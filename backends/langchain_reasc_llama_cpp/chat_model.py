"""``ChatLlamaCpp``: run a GGUF file in this process as a LangChain chat model."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_reasc_backend.bridge import AsyncStream, Start, Stream

from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError
from langchain_reasc.threads import in_thread
from langchain_reasc_llama_cpp.engine.request import (
    Completion,
    GenerationRequest,
    measures,
)
from langchain_reasc_llama_cpp.engine.streams import (
    AsyncSampleStream,
    SampleStream,
    Submit,
    submit_at_once,
    submit_paced,
    submit_paced_async,
)
from langchain_reasc_llama_cpp.grammar.grammar import prepare_grammar
from langchain_reasc_llama_cpp.loaded_model import LoadedModel, random_seed
from langchain_reasc_llama_cpp.messages import ChunkMaker, MessageMaker
from langchain_reasc_llama_cpp.options import TRACED, CallOptions, checked_stop
from langchain_reasc_llama_cpp.prompts.conversation import (
    newest_turns,
    template_messages,
)
from langchain_reasc_llama_cpp.tools.response_shape import (
    ResponseShape,
    ToolChoice,
    openai_tools,
    schema_of,
)
from langchain_reasc_llama_cpp.tools.structured_output import (
    Method,
    check_method,
    json_parser,
    tool_parser,
    unheld_by_grammar,
    warn_of_unheld,
    with_raw,
)


class _Call(NamedTuple):
    """The parameters of one call, besides its messages.

    Attributes:
        options: the model's options, overridden by those of the call.
        shape: the allowed responses.
        maker: makes the call's messages.
    """

    options: CallOptions
    shape: ResponseShape
    maker: MessageMaker

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """Definitions the model is shown."""
        return () if self.shape.tools is None else self.shape.tools.definitions


class ChatLlamaCpp(LoadedModel):
    """A GGUF model run by llama.cpp in this process, with exact token signals and parallel samples.

    The model is loaded when the object is made, and copies (``model_copy``) share it. Many threads and event loops may
    use it at once; their requests are decoded together. Every response has ``response_metadata["token_signals"]``,
    computed from the raw logits of the whole vocabulary. A grammar makes tool calls and structured output follow their
    schemas.

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
        ModelError: there is not enough memory for the context.
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

        Sample i (``first`` ≤ i < ``first + n``) is drawn with ``seed + i``. A later
        call with the same prompt needs no prefill. If ``n`` is larger than
        ``n_parallel``, samples start as others end. With a ``rate_limiter``, each
        sample waits for it.

        Args:
            messages: the prompt, in any form that ``invoke`` accepts.
            n: the number of samples, 1 to 1,024.
            first: the index of the first sample.
            stop: strings that end a sample.
            overrides: options of this call, such as ``temperature``, ``seed``,
                ``tools`` or ``response_format``.

        Returns:
            An iterator of ``(index, message)`` in the order in which samples end.

        Raises:
            ConfigurationError: an option is wrong.
            ContextOverflowError: the prompt does not fit.
            ModelClosedError: the model was closed.
        """
        call = self._call({"n": n, "first": first, **overrides})
        submit = (
            partial(submit_paced, self._engine, self.rate_limiter)
            if self.rate_limiter
            else None
        )
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
        """Like :meth:`sample`, for ``async for``. The prompt is read when the iteration
        begins.
        """
        call = self._call({"n": n, "first": first, **overrides})
        submit = (
            partial(submit_paced_async, self._engine, self.rate_limiter)
            if self.rate_limiter
            else None
        )
        begin = partial(
            in_thread, self._begin, messages, stop, call, self._base_seed, submit=submit
        )
        return AsyncSampleStream(begin, call.maker.sample)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return a model that may call tools.

        A grammar makes each call follow its tool's schema, except for a few keywords: a
        warning names those of a tool that no class validates. Calls are in
        ``tool_calls`` with the finish_reason "tool_calls", or in ``invalid_tool_calls``
        with the finish_reason "length" if ``max_tokens`` cut them off.

        Args:
            tools: functions, LangChain tools, pydantic or TypedDict classes, or
                OpenAI's dicts.
            tool_choice: None or "auto": the model may call a tool. "any", "required" or
                True: it must call one. A tool's name, or OpenAI's dict with it: it must
                call that tool. "none": it does not see the tools.
            parallel_tool_calls: False allows one call per response.
            strict: True requires every argument of every tool.
            kwargs: further options of the calls, such as ``temperature``.

        Raises:
            ConfigurationError: a tool cannot be used, its schema cannot become a
                grammar, or ``tool_choice`` names an unknown tool.
        """
        definitions = openai_tools(tools, strict=strict)
        bound = self._bind_definitions(
            definitions, tool_choice, parallel_tool_calls, **kwargs
        )
        warn_of_unheld(tools, definitions)
        return bound

    def _bind_definitions(
        self,
        definitions: list[dict[str, Any]],
        tool_choice: str | bool | dict[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        unique = {
            definition["function"]["name"]: definition for definition in definitions
        }
        # errors come here, not at the first call
        self._shape(list(unique.values()), tool_choice, parallel_tool_calls)
        given = {"tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls}
        chosen = {name: value for name, value in given.items() if value is not None}
        return self.bind(tools=definitions, **chosen, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        tools: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a model that answers with an object.

        Args:
            schema: a pydantic class, to get its objects; or a TypedDict or JSON schema,
                to get dicts.
            method: "json_schema" makes the response follow the schema by a grammar,
                without showing the schema to the model. "function_calling" shows it to
                the model as a tool, and forces the call. "json_mode" only guarantees a
                JSON object.
            include_raw: return a dict of ``raw``, ``parsed`` and ``parsing_error``
                instead, and raise no error.
            strict: True requires every property, and forbids others.
            tools: tools that the model may call instead, with method "json_schema" and
                ``include_raw``.
            kwargs: further options of the calls, such as ``temperature``.

        Raises:
            ConfigurationError: the schema is not a schema, or cannot become a grammar.

        If the schema is a class, pydantic validates the object. If it is another schema
        with keywords that no grammar can hold, jsonschema does; a warning says if that
        would take too long. An object that is refused, or that ``max_tokens`` cut off,
        raises ``OutputParserException``.
        """
        check_method(method, schema, strict)
        traced: dict[str, Any] = {}
        if schema is not None and not (
            isinstance(schema, dict) and not isinstance(schema.get("type", ""), str)
        ):
            # langchain-core cannot show a union of types
            traced[TRACED] = {
                "kwargs": {"method": method, "strict": strict},
                "schema": schema,
            }
        if method == "function_calling":
            definitions = openai_tools([schema], strict=strict)
            function = definitions[0]["function"]
            model = self._bind_definitions(
                definitions, function["name"], **traced, **kwargs
            )
            parser = tool_parser(
                schema,
                function["name"],
                unheld_by_grammar(schema, function.get("parameters")),
            )
        else:
            response_format: dict[str, Any] = {"type": "json_object"}
            if method == "json_schema":
                json_schema = {"schema": schema_of(schema, strict=strict)}
                response_format = {"type": "json_schema", "json_schema": json_schema}
            options = {"response_format": response_format, **traced, **kwargs}
            if tools:
                options["tools"] = openai_tools(tools, strict=strict)
                warn_of_unheld(tools, options["tools"])
            self._shape(options.get("tools"), response_format=response_format)
            checked = (
                unheld_by_grammar(schema, json_schema["schema"])
                if method == "json_schema"
                else None
            )
            model, parser = self.bind(**options), json_parser(schema, checked)
        return with_raw(model, parser) if include_raw else model | parser

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Count the tokens of the prompt that these messages make, including the chat
        template and the tools.
        """
        return len(self.prompt_tokens(messages, openai_tools(tools or ())))

    def _resolve_model_profile(self) -> ModelProfile:
        """Return the features that agents may use."""
        able = (
            "text_inputs",
            "text_outputs",
            "tool_calling",
            "tool_choice",
            "structured_output",
            "temperature",
        )
        limits = {
            "max_input_tokens": self.context_size,
            "max_output_tokens": self.context_size,
        }
        return cast(ModelProfile, limits | dict.fromkeys(able, True))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(kwargs)
        with Stream[Completion](
            self._begin(messages, stop, call, random_seed())
        ) as completions:
            return self._result(call, completions)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(kwargs)
        begin = partial(in_thread, self._begin, messages, stop, call, random_seed())
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
        begin = self._begin(messages, stop, call, random_seed(), stream=True)
        with Stream(begin, ChunkMaker(call.maker).chunk) as chunks:
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
        begin = partial(
            in_thread, self._begin, messages, stop, call, random_seed(), stream=True
        )
        async with AsyncStream(begin, ChunkMaker(call.maker).chunk) as chunks:
            async for chunk in chunks:
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _call(self, overrides: dict[str, Any]) -> _Call:
        """Check the arguments of a call.

        Raises:
            ConfigurationError: an argument is unknown or wrong, or two arguments
                contradict each other.
        """
        options, model = self.call_options(overrides), self._engine.model
        shape = self._shape(
            options.tools,
            options.tool_choice,
            options.parallel_tool_calls,
            options.response_format,
            options.grammar,
        )
        if shape.grammar is not None:
            # here, so that the thread that decodes finds it prepared
            prepare_grammar(shape.grammar, model)
        info = {
            "vocabulary_size": model.vocabulary_size,
            "top_k": min(options.top_k_signal, model.vocabulary_size),
        }
        return _Call(options, shape, MessageMaker(self.model_name, info, shape.reader))

    def _streaming_call(self, kwargs: dict[str, Any]) -> _Call:
        call = self._call(kwargs)
        if call.options.n != 1:
            raise ConfigurationError(
                f"a stream has one response, not n={call.options.n}; use generate or "
                "sample"
            )
        return call

    def _shape(
        self,
        tools: Sequence[Any] | None,
        tool_choice: Any = None,
        parallel_tool_calls: bool | None = None,
        response_format: Any = None,
        grammar: str | None = None,
    ) -> ResponseShape:
        """Return the allowed responses by the arguments of a call."""
        choice = ToolChoice.from_call(tools, tool_choice, parallel_tool_calls)
        return ResponseShape.from_call(
            self._template.form, choice, response_format, grammar
        )

    def _begin(
        self,
        messages: LanguageModelInput,
        stop: list[str] | None,
        call: _Call,
        seed: int,
        *,
        stream: bool = False,
        submit: Submit | None = None,
    ) -> Start[Any]:
        """Read the prompt and return the request. ``seed`` is used if the options have
        no seed.
        """
        options, metadata = call.options, self._engine.model.metadata
        stops = checked_stop(self.stop if stop is None else stop)
        prompt = self._fitting_prompt(messages, call)
        request: dict[str, Any] = {
            "prompt": np.array(prompt, dtype=np.int32),
            "samples": range(options.first, options.first + options.n),
            "seed": seed if options.seed is None else options.seed,
            "sampling": options.sampling(metadata),
            "max_tokens": options.limit(metadata, self._engine.n_ctx - len(prompt)),
            "stop": stops,
            "measures": measures(
                tuple(options.signals), options.top_k_signal, options.alternatives
            ),
            "grammar": call.shape.grammar,
            "stream": stream,
        }
        submit = submit or partial(submit_at_once, self._engine)
        return lambda sender: submit(GenerationRequest(emit=sender.put, **request))

    def _fitting_prompt(self, messages: LanguageModelInput, call: _Call) -> list[int]:
        """Return the prompt. If it is too long and ``on_overflow`` is "truncate", drop
        its oldest turns.
        """
        given = self._convert_input(messages).to_messages()
        prompt, size = self.prompt_tokens(given, call.tools), self._engine.n_ctx
        if call.options.on_overflow == "truncate":
            reserved = call.options.limit(self._engine.model.metadata, size // 4)
            for limit in (size - reserved, size - 1):
                if len(prompt) > limit and (
                    kept := self._newest_turns(given, limit, call)
                ):
                    prompt, call.maker.dropped = (
                        self.prompt_tokens(kept, call.tools),
                        len(given) - len(kept),
                    )
        if len(prompt) >= size:
            raise ContextOverflowError(
                f"the prompt has {len(prompt):,} tokens, but the context holds "
                f"{size:,} and the response needs at least one; shorten the prompt, or "
                f"load the model with n_ctx={len(prompt) + 256} or more"
            )
        if not prompt:
            raise ConfigurationError(
                "the messages make an empty prompt; pass a message with text"
            )
        return prompt

    def _newest_turns(
        self, messages: list[BaseMessage], limit: int, call: _Call
    ) -> list[BaseMessage] | None:
        return newest_turns(
            messages, lambda kept: len(self.prompt_tokens(kept, call.tools)) <= limit
        )

    def prompt_tokens(
        self, messages: LanguageModelInput, tools: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """Return the tokens of the prompt: the messages and tools in the chat template.

        Only the template writes control tokens. Their texts in messages and tools
        become ordinary tokens.
        """
        self._engine.check_usable()
        converted = template_messages(self._convert_input(messages).to_messages())
        text = self._template.render(*self._marks.hide(converted, tools))
        model = self._engine.model
        if model.adds_bos and model.bos:
            # most templates write it, and the tokenizer would again
            text = text.removeprefix(model.bos)
        return self._marks.tokens(text, model.tokenize)

    def _result(self, call: _Call, completions: Iterable[Completion]) -> ChatResult:
        ordered = sorted(completions, key=lambda completion: completion.index)
        prompt, generated = (
            ordered[0].prompt_tokens,
            sum(c.output_tokens for c in ordered),
        )
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
        }
        return ChatResult(
            generations=[call.maker.generation(completion) for completion in ordered],
            llm_output={"token_usage": usage, "model_name": self.model_name},
        )

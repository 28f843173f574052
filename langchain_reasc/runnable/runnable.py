"""``ReASCRunnable``: a more reliable answer for fewer tokens, as a step in any
LangChain chain.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict

from langchain_reasc.answers import json_object
from langchain_reasc.concurrency import EVENT_LOOP, THREADS, Concurrency
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.chunks import chunks_of
from langchain_reasc.models.settings import bindable
from langchain_reasc.models.wrappers import leaves
from langchain_reasc.runnable.batch import ONE_INPUT_ONLY, Batch, Outcome
from langchain_reasc.runnable.binding import one_method, replace_model, with_bound
from langchain_reasc.runnable.face import Face, typed_schema
from langchain_reasc.runnable.progress import Progress
from langchain_reasc.runnable.question import ResponseListener
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.solve_two_models import start
from langchain_reasc.threads import blocking, blocking_items


class ReASCRunnable(Face, RunnableSerializable[LanguageModelInput, AIMessage]):
    """Samples a chat model until the evidence for one answer is sufficient (ReASC).

    Use it in place of the model:
    ``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser``. The
    output is the winning response. Its ``response_metadata["reasc"]`` reports the
    decision and the cost, and its ``usage_metadata`` is the cost of all samples. Each
    sample is traced as a child run.

    Assigning to a field, and ``model_copy(update=...)``, check all options again.
    Pickling keeps the options. LangChain's serialization (``dumps``) marks the object
    as one that cannot be loaded, since a model may be anything.

    Example:
        >>> reasc = ReASCRunnable(model=llm, calibration="calibration.json")
        >>> message = reasc.invoke("What is 12 times 17?")
        >>> message.response_metadata["reasc"]["samples"]
        1
    """

    model_config = ConfigDict(extra="forbid")  # which LangChain's base would loosen

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Return the winning response.

        Args:
            input: any input of the chat model: a string, messages, a prompt value.
            config: callbacks, tags, metadata, run name; ``max_concurrency`` limits the
                samples in flight.
            **kwargs: passed to every call of the model.

        Raises:
            SamplingError: no sample gave a response; SampleTimeout if none ended in
                time.
            LogprobsUnavailable: a calibration needs logprobs and the model returned
                none.
            FingerprintMismatch: the calibration was measured with other system
                messages.
        """
        if kwargs:
            _refuse_ignored(kwargs)

        def answered(value: LanguageModelInput, config: RunnableConfig) -> AIMessage:
            return blocking(self._answered(value, config, kwargs)).message

        return self._call_with_config(
            cast(Any, answered), input, config, run_type="chain"
        )

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Return the winning response, asynchronously."""
        if kwargs:
            _refuse_ignored(kwargs)

        async def answered(
            value: LanguageModelInput, config: RunnableConfig
        ) -> AIMessage:
            return (await self._answered(value, config, kwargs, io=EVENT_LOOP)).message

        return await self._acall_with_config(
            cast(Any, answered), input, config, run_type="chain"
        )

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        """Yield the winning response as chunks once it is known (stream parsers find no
        tool calls in a message).
        """
        yield from chunks_of(self.invoke(input, config, **kwargs))

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessage]:
        """The asynchronous :meth:`stream`."""
        for chunk in chunks_of(await self.ainvoke(input, config, **kwargs)):
            yield chunk

    def solve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """Like :meth:`invoke`, but return all responses and the details of the
        decision.

        Args:
            input: any input of the chat model.
            config: callbacks, tags, metadata, run name.
            on_response: called with each response and the decision after it, in launch
                order.
            **kwargs: passed to every call of the model.
        """

        def answered(value: LanguageModelInput, config: RunnableConfig) -> Any:
            return blocking(self._answered(value, config, kwargs, on_response))

        return cast(
            "ReASCResult",
            self._call_with_config(
                cast(Any, answered), input, config, run_type="chain"
            ),
        )

    async def asolve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """The asynchronous :meth:`solve`."""

        async def answered(value: LanguageModelInput, config: RunnableConfig) -> Any:
            return await self._answered(
                value, config, kwargs, on_response, io=EVENT_LOOP
            )

        return cast(
            "ReASCResult",
            await self._acall_with_config(
                cast(Any, answered), input, config, run_type="chain"
            ),
        )

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Self:
        """Return a copy that votes on calls of these tools. They are bound to each
        model in that model's form.

        Args:
            tools: what the models' ``bind_tools`` take.
            **kwargs: passed to them, such as ``tool_choice``.

        Raises:
            ConfigurationError: there is no chat model to bind them to.
        """

        def bound(model: Any) -> Any:
            return model.bind_tools(
                tools, **bindable(kwargs, self.sampled, model, "bind_tools")
            )

        return self._bound(bound)._checking_calls(tools)

    def with_structured_output(
        self, schema: Any = None, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a chain that votes on objects, and gives what the chat model's method
        of this name gives.

        Unless ``answer`` was set, each field is decided separately: numbers by their
        weighted median, others by vote.

        Args:
            schema: a pydantic class, a TypedDict or a JSON schema, as the chat model
                takes it.
            include_raw: whether to return a dictionary: ``raw``, the winning message
                with its account and the bill; ``parsed``; and ``parsing_error``.
            **kwargs: passed to the chat model's method, such as ``method`` and
                ``strict``. Models of different classes are asked by
                ``method="function_calling"``, unless you name another.

        Raises:
            ConfigurationError: there is no chat model whose parser could be used, or
                only a call's config names it.
        """
        first = next(leaves(self.sampled, {}), None)
        if first is None:
            raise ConfigurationError(
                "with_structured_output asks a chat model how to parse, and "
                f"{self.sampled.get_name()} is none; put a parser behind: "
                "ReASCRunnable(model=..., answer=json_object(by_field=True)) | "
                "JsonOutputParser()"
            )
        kwargs = one_method([self.sampled, self.larger]) | kwargs

        def bound(model: Any) -> Any:
            arguments = bindable(kwargs, self.sampled, model, "with_structured_output")
            return model.with_structured_output(schema, **arguments)

        bound_face = self._bound(bound)
        if "answer" in self.model_fields_set:
            face = bound_face._held_to(schema)
        else:
            votes = json_object(by_field=True, schema=typed_schema(schema))
            face = bound_face.model_copy(update={"answer": votes})
        chain = first.model.with_structured_output(
            schema, include_raw=include_raw, **kwargs
        )
        return replace_model(chain, lambda _: face)

    def _bound(self, bind: Callable[[Any], Any]) -> Self:
        update: dict[str, Any] = {"model": with_bound(self.sampled, bind)}
        if self.larger is not None:
            larger = with_bound(self.larger, bind)
            update["escalate_to"] = self.escalating_to(larger)
        return self.model_copy(update=update)

    async def _answered(
        self,
        value: LanguageModelInput,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        on_response: ResponseListener | None = None,
        *,
        io: Concurrency = THREADS,
    ) -> ReASCResult:
        request = Request(self._voter, value, config, kwargs, io=io)
        solving = await start(self._solver, request, on_response=on_response)
        return await solving.answer()

    def batch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Return one winning response per input.

        ``calibration="mixture"`` calibrates on all first responses (Algorithm 2).

        Args:
            inputs: inputs of the chat model.
            config: one for all inputs, or one for each; ``max_concurrency`` limits the
                samples in flight of all inputs.
            return_exceptions: whether to return the error of an input that fails.
                Otherwise the first error ends the batch, and running samples are cut
                off.
            progress: True for a bar (in a terminal or a notebook), or a function called
                with (inputs answered, inputs).
            total_tokens: prompt and generated tokens that all inputs together may cost.
                Each input is sampled once. Then rounds of samples go to the inputs that
                gain most, until the tokens are spent or all inputs are decided. An
                undecided input gets its best answer so far. A round has
                ``max_concurrency`` samples, or one for every eighth input. Samples in
                flight when the tokens are spent may exceed the budget.
            total_samples: samples that all inputs together may take, in the same way.
            **kwargs: passed to every call of the model.
        """
        options: Any = {
            "progress": progress,
            "total_tokens": total_tokens,
            "total_samples": total_samples,
        }
        completed = self.batch_as_completed(
            inputs, config, return_exceptions=return_exceptions, **options, **kwargs
        )
        outcomes = dict(completed)
        return [cast(AIMessage, outcomes[index]) for index in range(len(inputs))]

    async def abatch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """The asynchronous :meth:`batch`."""
        completed = self.abatch_as_completed(
            inputs, config, return_exceptions=return_exceptions, **kwargs
        )
        outcomes = dict([outcome async for outcome in completed])
        return [cast(AIMessage, outcomes[index]) for index in range(len(inputs))]

    def batch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> Iterator[Outcome]:
        """Yield (index, winning response) in order of completion, with the arguments of
        :meth:`batch`.
        """
        batch = Batch(
            self._solver,
            self.get_name(),
            inputs,
            config,
            THREADS,
            return_exceptions=return_exceptions,
            **kwargs,
        )
        return blocking_items(batch.completed())

    def abatch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> AsyncIterator[Outcome]:
        """The asynchronous :meth:`batch_as_completed`."""
        batch = Batch(
            self._solver,
            self.get_name(),
            inputs,
            config,
            EVENT_LOOP,
            return_exceptions=return_exceptions,
            **kwargs,
        )
        return batch.completed()


def _refuse_ignored(kwargs: dict[str, Any]) -> None:
    """Refuse arguments that would go to the model and do nothing there.

    Raises:
        ConfigurationError: ``on_response`` where the caller gets no responses; a
            batch's budget where there is none.
    """
    if budgets := kwargs.keys() & {"total_tokens", "total_samples"}:
        raise ConfigurationError(
            f"{' and '.join(sorted(budgets))} bound a whole batch(); for one input, "
            "set max_samples"
        )
    if "on_response" in kwargs:
        raise ConfigurationError(ONE_INPUT_ONLY)

"""``ChatReASC``: ReASC around any chat model, itself a chat model."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, ExitStack, aclosing, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
    LLMResult,
)
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from pydantic import Field, PrivateAttr

from langchain_reasc.agents.inner_model import (
    ChatModelAround,
    asks_for_structure,
    may_call_tools,
    requires_tool_call,
)
from langchain_reasc.agents.progress import progress_listener
from langchain_reasc.agents.streaming import (
    RelayedChunks,
    RunManager,
    close_stream_with,
    closed_with_call,
    provider_id,
    remember_config,
    remember_run,
    stream_config,
    take_config,
    without_token_usage,
)
from langchain_reasc.answers import AnswerSpec
from langchain_reasc.concurrency import EVENT_LOOP, THREADS, Concurrency
from langchain_reasc.exceptions import SamplingError, Undecided
from langchain_reasc.models.contract import USAGE_ESTIMATED
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.settings import bindable
from langchain_reasc.models.usage import is_estimated, reported_usage, usage_of
from langchain_reasc.models.wrappers import leaves
from langchain_reasc.runnable.binding import (
    first_binding,
    one_method,
    replace_model,
    unbound,
    with_bound,
    with_inner,
)
from langchain_reasc.runnable.history import Role
from langchain_reasc.runnable.question import CallBudget, DeservesVote, Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.solve import Solving
from langchain_reasc.runnable.solve_two_models import start
from langchain_reasc.threads import blocking, blocking_items

Messages = list[BaseMessage]


class ChatReASC(ChatModelAround):
    """A chat model that samples another chat model until the evidence for one answer is
    sufficient (ReASC).

    Use it wherever a chat model is expected:
    ``create_agent(ChatReASC(model=llm), tools)``, ``bind_tools``,
    ``with_structured_output``, nodes of LangGraph. Callback handlers see one call of
    the inner model: one run with that model's name, whose usage is the cost of all
    samples. Each sample is a child run of type "chain", not a model's run, so that its
    tokens are not counted twice.

    By default (``answer="message"``), tool calls and structured output are voted on. If
    the first response is only text, it is returned without a vote, and streamed as it
    is written. A winner of a vote is streamed once it is known.

    Example:
        >>> agent = create_agent(ChatReASC(model=llm), tools=[get_weather])
    """

    answer: AnswerSpec = Field(
        default="message",
        description="""
        What responses vote for: ``"message"`` for only tool calls and structured
        output, or where the answer is in a text: see
        :func:`langchain_reasc.answers.extractor`.
        """,
    )
    when: Callable[[AIMessage], bool | Awaitable[bool]] | None = Field(
        default=None,
        repr=False,
        description="""
        Whether a first response, which is then launched alone, is put to the vote; if
        not, it is returned as it is. An async function is awaited, and refused in a
        synchronous call. None for every response with tool calls, and with
        ``answer="message"`` for no other.
        """,
    )
    usage: Literal["all", "winner"] = Field(
        default="all",
        description="""
        Which tokens the message's ``usage_metadata`` has: of all samples, so that every
        token is billed, or of the winning response alone, as without ReASC. Middleware
        that reads there how long the conversation is, such as
        ``SummarizationMiddleware``, needs ``"winner"``. The account
        (``reasc["tokens"]``) always has all.
        """,
    )
    _call_budget: CallBudget | None = PrivateAttr(default=None)
    """The part of an agent's budget that a call may spend."""
    _bound_to_small: frozenset[str] = PrivateAttr(default=frozenset())
    """The names of arguments that ``escalate_to`` has in its own form."""
    _asked: Role | None = PrivateAttr(default=None)
    """Which of two models this is, if it is asked without the other."""

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in the inner model's form."""
        if tool_choice is None:
            arguments = kwargs
        else:
            arguments = {**kwargs, "tool_choice": tool_choice}

        def bound(model: Any) -> Any:
            return model.bind_tools(
                tools, **bindable(arguments, self.sampled, model, "bind_tools")
            )

        inner: Any = unbound(self.sampled)
        chain = inner.bind_tools(tools, **arguments)
        return replace_model(
            chain, partial(self._with_large(bound, chain)._in_place_of, tools)
        )

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Bind a schema for structured output in the inner model's way."""
        inner = unbound(self.sampled)
        if not isinstance(inner, BaseChatModel):  # several, which may have several ways
            return super().with_structured_output(
                schema, include_raw=include_raw, **kwargs
            )
        kwargs = one_method([self.sampled, self.larger]) | kwargs

        def bound(model: Any) -> Any:
            arguments = bindable(kwargs, self.sampled, model, "with_structured_output")
            return model.with_structured_output(schema, **arguments)

        chain = inner.with_structured_output(schema, include_raw=include_raw, **kwargs)
        voting = self._with_large(bound, chain)
        return replace_model(
            chain, partial(voting._in_place_of, [schema], schema=schema)
        )

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Return the winning response. Its ``usage_metadata`` is the cost of all
        samples.

        Raises:
            Exception: the error of the first sample, if no sample succeeded.
            Undecided: the evidence is not sufficient, with ``on_undecided="raise"``, or
                with ``"abstain"`` if a tool must be called.
            LogprobsUnavailable: a calibration needs logprobs and the model returned
                none.
        """
        remember_config(config)
        return super().invoke(input, config, **kwargs)

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """The asynchronous :meth:`invoke`."""
        remember_config(config)
        return await super().ainvoke(input, config, **kwargs)

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """Yield the winning response as one chunk once it is known, but yield text
        without a vote as it is written.

        A first response is streamed if no structured output, ``answer`` or ``when``
        needs a vote. If tools are bound, its text is streamed until a tool call or
        signed reasoning begins; a winner that begins differently follows it. In this
        case models in wrappers (``with_retry``) are not streamed. After a part was
        streamed, an error of the model is raised unchanged. The last chunk has the
        account (``response_metadata["reasc"]``) and the usage.
        """
        chunks = cast(
            "Generator[AIMessageChunk]",
            super().stream(input, stream_config(CallbackManager, config), **kwargs),
        )
        with closing(chunks), ExitStack() as stack:
            close_stream_with(stack)
            for chunk in chunks:  # noqa: UP028 - "yield from" would close LangChain's stream before what is inside
                yield chunk

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """The asynchronous :meth:`stream`."""
        config = stream_config(AsyncCallbackManager, config)
        chunks = cast(
            "AsyncGenerator[AIMessageChunk]", super().astream(input, config, **kwargs)
        )
        async with aclosing(chunks), AsyncExitStack() as stack:
            close_stream_with(stack)
            async for chunk in chunks:
                yield chunk

    def _generate_with_cache(self, *args: Any, **kwargs: Any) -> ChatResult:
        # LangChain does not hand it to ``_stream``
        remember_run(kwargs.get("run_manager"))
        return super()._generate_with_cache(*args, **kwargs)

    async def _agenerate_with_cache(self, *args: Any, **kwargs: Any) -> ChatResult:
        remember_run(run := kwargs.get("run_manager"))
        try:
            return await super()._agenerate_with_cache(*args, **kwargs)
        except asyncio.CancelledError as error:
            if run:  # LangChain would leave its run open
                await run.on_llm_error(error, response=LLMResult(generations=[]))
            raise

    def _generate(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        with _inner_error():
            solving = blocking(self._solving(messages, stop, run_manager, kwargs))
            return ChatResult(
                generations=[
                    ChatGeneration(
                        message=self._message(blocking(solving.answer()), solving)
                    )
                ]
            )

    async def _agenerate(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        with _inner_error():
            solving = await self._solving(
                messages, stop, run_manager, kwargs, io=EVENT_LOOP
            )
            return ChatResult(
                generations=[
                    ChatGeneration(
                        message=self._message(await solving.answer(), solving)
                    )
                ]
            )

    def _stream(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        def chunks() -> Generator[ChatGenerationChunk]:
            solving = blocking(
                self._solving(messages, stop, run_manager, kwargs, streamed=True)
            )
            relayed = _relayed(solving.question)
            with _inner_error(), closing(blocking_items(solving.stream())) as parts:
                for part in parts:
                    yield from self._chunks(part, relayed, solving)

        return closed_with_call(chunks())

    def _astream(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async def chunks() -> AsyncGenerator[ChatGenerationChunk]:
            solving = await self._solving(
                messages, stop, run_manager, kwargs, io=EVENT_LOOP, streamed=True
            )
            relayed = _relayed(solving.question)
            with _inner_error():
                async with aclosing(solving.stream()) as parts:
                    async for part in parts:
                        for chunk in self._chunks(part, relayed, solving):
                            yield chunk

        return closed_with_call(chunks())

    def _chunks(
        self,
        part: AIMessageChunk | ReASCResult,
        relayed: RelayedChunks,
        solving: Solving,
    ) -> list[ChatGenerationChunk]:
        """Return what is streamed of a part of a response, or of the result at the
        end.
        """
        if isinstance(part, ReASCResult):
            chunks = relayed.rest(self._message(part, solving))
        else:
            chunks = relayed.relay(part)
            solving.question.passed_on |= bool(chunks)
        return [ChatGenerationChunk(message=chunk) for chunk in chunks]

    def _message(self, result: ReASCResult, solving: Solving) -> AIMessage:
        """Return the winning message, with the usage that was asked for.

        Raises:
            Undecided: the vote abstains although a tool must be called. The caller
                would repeat the call forever.
        """
        question = solving.question
        if result.account.abstained and requires_tool_call(question.model.kwargs):
            raise Undecided(
                f"{result.doubt or 'the evidence is not sufficient'}, and an empty "
                "message cannot call a tool, which is required here (tool_choice, or "
                "structured output by a tool); the error's result has every response",
                result,
            )
        message = result.message
        metadata = without_token_usage(message.response_metadata)
        usage = result.usage.bill
        is_usage_estimated = result.usage.estimated
        if self.usage == "winner":
            prompt_tokens = 0
            if reported_usage(result.winner) is None:
                prompt_tokens = question.request.estimated_prompt_tokens
            usage = usage_of(result.winner, prompt_tokens)
            is_usage_estimated = is_estimated(result.winner)
        if is_usage_estimated:
            metadata[USAGE_ESTIMATED] = True
        return message.model_copy(
            update={
                "id": provider_id(message),
                "response_metadata": metadata,
                "usage_metadata": usage,
            }
        )

    async def _solving(
        self,
        messages: Messages,
        stop: list[str] | None,
        run_manager: RunManager,
        kwargs: dict[str, Any],
        *,
        io: Concurrency = THREADS,
        streamed: bool = False,
    ) -> Solving:
        config = take_config(run_manager)
        arguments = {
            **self._arguments,
            **{name: value for name, value in kwargs.items() if name != "stream"},
        }
        if stop is not None:
            arguments["stop"] = stop
        deserves_vote = self._deserves_vote(arguments)
        for_large = {
            name: value
            for name, value in arguments.items()
            if name not in self._bound_to_small
        }
        for name in self._arguments.keys() - kwargs.keys() - {"stop"}:
            # Set here, in place of what is set on the model inside.
            for_large.pop(name, None)
        request = Request(
            self._voter,
            messages,
            config,
            arguments,
            io=io,
            role=self._asked,
        )

        def live(request: Request) -> PreparedModel | None:
            if not (
                streamed
                and isinstance(deserves_vote, ActingCalls)
                and not deserves_vote.texts
            ):
                return None
            calls = _may_call(request)
            model = request.model.live_model(read=calls)
            # With tools, a model in a wrapper is taken whole: a retry would not repeat
            # a stream.
            if (
                model
                and model.streams
                and (not calls or isinstance(model.model, BaseChatModel))
            ):
                return model
            return None

        return await start(
            self._solver,
            request,
            large_arguments=for_large,
            deserves_vote=deserves_vote,
            budget=self._call_budget,
            live=live,
            on_response=progress_listener(),
            deserves_second_vote=self._acting_calls(arguments),
        )

    def _deserves_vote(self, arguments: dict[str, Any]) -> DeservesVote | None:
        return self.when or self._acting_calls(arguments)

    def _acting_calls(self, arguments: dict[str, Any]) -> DeservesVote | None:
        """Return what puts calls of tools alone to the vote; None if all is."""
        if self._voter.extract.texts_vote or asks_for_structure(
            {**self._voter.model.kwargs, **arguments}
        ):
            return None
        return ActingCalls()

    def _with_large(
        self, bound: Callable[[Any], Any], chain: Runnable[Any, Any]
    ) -> "ChatReASC":
        """Return this model with tools or a schema bound to the larger model, too, in
        that model's form.

        Args:
            bound: binds them to a chat model.
            chain: what that made of the model sampled, whose arguments do not go to the
                larger one.
        """
        if self.larger is None:
            return self
        larger = self.escalating_to(with_bound(self.larger, bound))
        copy = self.model_copy(update={"escalate_to": larger})
        copy._call_budget = self._call_budget
        copy._bound_to_small = frozenset(first_binding(chain).kwargs)
        return copy

    def _in_place_of(
        self, tools: Sequence[Any], bound: Runnable[Any, Any], schema: Any = None
    ) -> Runnable[Any, Any]:
        """Return this model in place of the inner one, which is ``bound`` to tools or a
        schema.
        """
        if not isinstance(bound, RunnableBinding):
            return self._around(tools, bound, schema)
        return RunnableBinding(
            bound=self._around(tools, bound.bound, schema),
            kwargs=dict(bound.kwargs),
            config=bound.config,
        )

    def _around(
        self, tools: Sequence[Any], inner: Runnable[Any, Any], schema: Any
    ) -> "ChatReASC":
        is_own = any(inner is leaf.model for leaf in leaves(self.sampled, {}))
        if is_own:
            voting = self
        else:
            voting = self.model_copy(update={"model": with_inner(self.sampled, inner)})
        voting._call_budget = self._call_budget
        voting._bound_to_small = self._bound_to_small
        voting._asked = self._asked
        return voting._checking_calls(tools)._held_to(schema)


def _relayed(question: Question) -> RelayedChunks:
    return RelayedChunks(
        logprobs=question.model.keep_logprobs, may_call=_may_call(question.request)
    )


def _may_call(request: Request) -> bool:
    return may_call_tools(request.model.model, request.model.kwargs)


@dataclass(frozen=True)
class ActingCalls:
    """Asks for a vote if a first response calls a tool that is not read-only.

    Attributes:
        read_only: names of tools that change nothing.
        texts: whether a text without calls also needs a vote.
    """

    read_only: Collection[str] = ()
    texts: bool = False

    def __call__(self, first: AIMessage) -> bool:
        """Return whether the first response needs a vote."""
        if first.tool_calls and not first.invalid_tool_calls:
            return any(call["name"] not in self.read_only for call in first.tool_calls)
        return self.texts or bool(first.invalid_tool_calls)


@contextmanager
def _inner_error() -> Iterator[None]:
    """Raise the inner model's own error if no sample succeeded, because retries and
    fallbacks depend on its type.
    """
    try:
        yield
    except SamplingError as error:
        if type(error) is not SamplingError or not error.failures:
            raise
        failure = error.failures[0]
        context = failure.__context__
        try:
            raise failure
        finally:
            # Python set it to the SamplingError, whose cause this failure is: reporters
            # would go in circles
            failure.__context__ = context
